// Shared parts of page.mjs, page_outage.mjs and page_development.mjs: a browser, steps, and checks of the page's looks.

import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { chromium } from 'playwright-core'

// Longer than any step takes on a busy machine.
export const PATIENCE = 120_000

// Problems that the browser reported.
export const problems = []

export async function launch(executablePath, screenshots) {
  await mkdir(screenshots, { recursive: true })
  // Debian's browser, possibly as root, without background requests.
  const args = [
    '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
  ]
  return chromium.launch({ executablePath, headless: true, args })
}

// Records errors of a page, and requests to other origins.
export function watch(page, name, origins) {
  page.on('console', (message) => {
    // The browser logs these expected responses as errors.
    if (/status of 40[01]/.test(message.text()) && /\/(lookup|purge)\?/.test(message.location().url)) return
    if (['error', 'warning'].includes(message.type())) problems.push(`${name}: ${message.text()}`)
  })
  page.on('pageerror', (error) => problems.push(`${name}: ${error.stack}`))
  page.on('request', (request) => {
    if (!origins.includes(new URL(request.url()).origin)) problems.push(`${name}: asked for ${request.url()}`)
  })
  return page
}

// Opens the status page and waits for its first status.
export async function open(browser, adminUrl, name, options) {
  const context = await browser.newContext(options)
  context.setDefaultTimeout(PATIENCE)
  const page = watch(await context.newPage(), name, [adminUrl])
  await page.goto(`${adminUrl}/`)
  await page.waitForFunction(() => document.getElementById('about').textContent !== '')
  return page
}

export const VIEWS = [
  ['1440', { viewport: { width: 1440, height: 900 } }],
  ['2560', { viewport: { width: 2560, height: 1440 } }],
  ['390', { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true }],
]

// Takes a screenshot of the whole page in each view and colour scheme, and returns the flaws in any of them.
export async function lookAtAll(browser, adminUrl, screenshots, name, prepare = async () => {}) {
  const flaws = []
  for (const [width, options] of VIEWS) {
    for (const colorScheme of ['light', 'dark']) {
      const page = await open(browser, adminUrl, name, { ...options, colorScheme })
      await prepare(page)
      await page.screenshot({ path: path.join(screenshots, `${name}-${width}-${colorScheme}.png`), fullPage: true })
      flaws.push(...(await looks(page)).map((flaw) => `${name} ${width} ${colorScheme}: ${flaw}`))
      await page.context().close()
    }
  }
  return flaws
}

// Returns the flaws in the looks of the page: texts with a contrast below 4.5, texts that overlap or stick out of their
// card, and a page that is wider than the window.
export function looks(page) {
  return page.evaluate(() => {
    const flaws = []
    const beyond = document.documentElement.scrollWidth - innerWidth
    if (beyond > 0) flaws.push(`the page is ${beyond} px wider than the window`)

    const channels = (color) => {
      const [red, green, blue, alpha = 1] = color.match(/[\d.]+/g).map(Number)
      return { rgb: [red, green, blue], alpha }
    }
    const over = (front, back) => front.rgb.map((value, at) => value * front.alpha + back[at] * (1 - front.alpha))
    const behind = (element) => {
      if (!element) return [255, 255, 255]
      const color = channels(getComputedStyle(element).backgroundColor)
      return color.alpha === 1 ? color.rgb : over(color, behind(element.parentElement))
    }
    const luminance = (rgb) => {
      const [red, green, blue] = rgb.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4))
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
    const contrast = (one, other) => {
      const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b)
      return (light + 0.05) / (dark + 0.05)
    }
    const judge = (text, color, element) => {
      const back = behind(element)
      const ratio = contrast(over(channels(color), back), back)
      if (ratio < 4.5) flaws.push(`contrast ${ratio.toFixed(2)} of "${text}"`)
    }

    const texts = []
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement
      const text = walker.currentNode.textContent.trim()
      if (!text || element.closest('.hidden, .skip, script, noscript, option') || !element.checkVisibility()) continue
      const style = getComputedStyle(element)
      judge(text, element instanceof SVGElement ? style.fill : style.color, element)
      const range = document.createRange()
      range.selectNodeContents(walker.currentNode)
      const card = element.closest('figure, section, article, header, footer')?.getBoundingClientRect()
      for (const rect of range.getClientRects()) {
        if (rect.width < 1) continue
        texts.push({ text, element, rect })
        if (card && (rect.left < card.left - 1 || rect.right > card.right + 1)) flaws.push(`"${text}" sticks out of its card`)
      }
    }
    // A column that is too narrow breaks names in the middle.
    for (const name of document.querySelectorAll('tbody th')) {
      if (name.getBoundingClientRect().height > 90) flaws.push(`"${name.innerText}" is ${name.getBoundingClientRect().height} px high`)
    }
    // The labels of cells on narrow screens are no text nodes.
    for (const cell of document.querySelectorAll('td[data-label]')) {
      if (cell.checkVisibility() && cell.scrollWidth > cell.clientWidth + 1) flaws.push(`"${cell.dataset.label}" does not fit its cell`)
    }
    // Plots side by side are aligned.
    const tops = new Map([...document.querySelectorAll('#plots figure')].map((figure) => [figure.getBoundingClientRect().top, []]))
    for (const figure of document.querySelectorAll('#plots figure')) tops.get(figure.getBoundingClientRect().top).push(figure.querySelector('.plot').getBoundingClientRect().top)
    for (const row of tops.values()) if (Math.max(...row) - Math.min(...row) > 1) flaws.push(`plots begin at ${row}`)
    for (const field of document.querySelectorAll('input, select')) {
      if (!field.checkVisibility()) continue
      judge(field.value || field.placeholder, getComputedStyle(field, field.value ? undefined : '::placeholder').color, field)
    }
    const overlap = (one, other, from, to) => Math.min(one[to], other[to]) - Math.max(one[from], other[from])
    texts.forEach((one, at) => {
      for (const other of texts.slice(at + 1)) {
        // The boxes of lines may touch; glyphs do not.
        const touches = overlap(one.rect, other.rect, 'left', 'right') > 1 && overlap(one.rect, other.rect, 'top', 'bottom') > 4
        if (touches && !one.element.closest('.empty') && !other.element.closest('.empty')) flaws.push(`"${one.text}" overlaps "${other.text}"`)
      }
    })
    return flaws
  })
}

// Returns a function that runs a step and prints its line. The first step that throws ends the script.
export function steps(browser, shown) {
  return async (name, run) => {
    try {
      await run()
      console.log(`ok ${name}`)
    } catch (error) {
      console.log(`FAIL ${name}: ${error.stack}\n${problems.join('\n')}\n${await shown().innerText('body')}`)
      await browser.close()
      process.exit(1)
    }
  }
}

export function giveUpAfter(seconds) {
  setTimeout(() => {
    console.log(`FAIL timed out after ${seconds} s`)
    process.exit(1)
  }, seconds * 1000).unref()
}
