// The status page in a real browser: node page.mjs ADMIN_URL PROXY_URL NODE_URL CHROMIUM SCREENSHOTS
// Calls the proxy and checks that the page shows it.

import assert from 'node:assert/strict'
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { chromium } from 'playwright-core'

const [adminUrl, proxyUrl, nodeUrl, executablePath, screenshots] = process.argv.slice(2)
if (!screenshots) {
  console.error('usage: node page.mjs ADMIN_URL PROXY_URL NODE_URL CHROMIUM SCREENSHOTS')
  process.exit(2)
}
setTimeout(() => {
  console.log('FAIL timed out after 300 s')
  process.exit(1)
}, 300_000).unref()

// Longer than any step takes on a busy machine.
const PATIENCE = 120_000

await mkdir(screenshots, { recursive: true })

// Debian's browser, possibly as root, without background requests.
const args = [
  '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
]
const browser = await chromium.launch({ executablePath, headless: true, args })

const problems = []
function watch(page, name, origins) {
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

async function open(name, options) {
  const context = await browser.newContext(options)
  context.setDefaultTimeout(PATIENCE)
  const page = watch(await context.newPage(), name, [adminUrl])
  await page.goto(`${adminUrl}/`)
  await page.waitForFunction(() => document.getElementById('state-text').textContent === 'ready')
  return page
}

async function step(name, run) {
  try {
    await run()
    console.log(`ok ${name}`)
  } catch (error) {
    console.log(`FAIL ${name}: ${error.stack}\n${problems.join('\n')}\n${await page.innerText('body')}`)
    await browser.close()
    process.exit(1)
  }
}

let id = 0
async function call(method, params) {
  const body = JSON.stringify({ jsonrpc: '2.0', id: (id += 1), method, params })
  const response = await fetch(proxyUrl, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
  return response.json()
}

// The calls of a dapp: the head, its receipts, and repeatedly older blocks.
let loading = true
async function load() {
  while (loading) {
    const { result: head } = await call('eth_getBlockByNumber', ['latest', false])
    const older = Array.from({ length: 12 }, (_, at) => call('eth_getBlockByNumber', [`0x${((at * 3) % 36).toString(16)}`, at % 2 === 0]))
    const receipts = head.transactions.slice(0, 4).map((hash) => call('eth_getTransactionReceipt', [hash]))
    await Promise.all([...older, ...receipts, call('debug_unknown', [])])
    await new Promise((resolve) => setTimeout(resolve, 40))
  }
}

const figure = (page, name) => page.textContent(`#${name}`)
const count = async (page) => Number((await figure(page, 'saved')).replace('−', '-').replace(/\s/g, ''))

const page = await open('light', { colorScheme: 'light', viewport: { width: 1200, height: 900 } })

await step('before the first call the page shows instructions', async () => {
  assert.match(await figure(page, 'saved-how'), new RegExp(`No calls yet.*${proxyUrl}`))
  assert.match(await page.textContent('#ratio .empty'), /No calls yet/)
  assert.equal(await page.isVisible('#ratio .empty'), true)
})

const loaded = load()

await step('figures change under load, and plots have lines', async () => {
  await page.waitForFunction(() => Number(document.getElementById('saved').textContent.replace(/\s/g, '')) > 100)
  const before = await count(page)
  await page.waitForFunction((before) => Number(document.getElementById('saved').textContent.replace(/\s/g, '')) > before, before)
  for (const plot of ['ratio', 'rate', 'latency']) {
    await page.waitForSelector(`#${plot} path.first.line`)
    assert.equal(await page.isVisible(`#${plot} .empty`), false)
    assert.match(await page.getAttribute(`#${plot} svg`, 'aria-label'), /now [\d<]/)
  }
  assert.match(await figure(page, 'endpoints'), /(?<!un)healthy/)
  assert.match(await figure(page, 'chain'), /Head\d\d/)
})

await step('a typed price is applied and remembered', async () => {
  await page.fill('#price', '1000000 €')
  const [saved, worth] = await page.evaluate(() => ['saved', 'worth'].map((name) => document.getElementById(name).textContent))
  assert.equal(worth.replace(/\s/g, ''), `${saved.replace(/\s/g, '')}.00€`)
  await page.fill('#price', 'much')
  assert.equal(await page.getAttribute('#price', 'aria-invalid'), 'true')
  await page.reload()
  await page.waitForFunction(() => document.getElementById('worth').textContent.includes('€'))
  await page.fill('#price', '$2.00')
})

await step('the keyboard operates the page', async () => {
  await page.keyboard.press('Escape')
  await page.focus('[data-range=fine]')
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  assert.equal(await page.getAttribute('[data-range=coarse]', 'aria-pressed'), 'true')
  const outline = await page.$eval('[data-range=coarse]', (button) => getComputedStyle(button).outlineStyle)
  assert.equal(outline, 'solid')
  await page.click('[data-range=fine]')
})

await step('refusals and a reorg are shown', async () => {
  await page.waitForFunction(() => /invalid params/.test(document.getElementById('refusals').textContent))
  await page.waitForFunction(() => /1 block replaced/.test(document.getElementById('reorgs').textContent))
})

await step('a block and a transaction are looked up and purged with the keyboard', async () => {
  const { result: block } = await call('eth_getBlockByNumber', ['0x3', true])
  await page.focus('#query')
  await page.keyboard.type('3')
  await page.keyboard.press('Enter')
  await page.waitForSelector('#found article')
  const found = await figure(page, 'found')
  assert.match(found, /Block 3/)
  for (const part of [block.hash, 'final', 'whole block', 'proved', `from ${nodeUrl}`]) assert.ok(found.includes(part), `${part} is not in ${found}`)
  assert.match(await figure(page, 'said'), /Found, \d entr(y|ies) in the cache/)

  await page.fill('#query', block.transactions[1].hash)
  await page.keyboard.press('Enter')
  await page.waitForFunction(() => /Transaction/.test(document.getElementById('found').textContent))
  assert.match(await figure(page, 'found'), /Position1/)
  await page.screenshot({ path: path.join(screenshots, 'lookup.png') })

  // The page asks for confirmation; cancelling is as easy as confirming.
  await page.click('#found article > button')
  await page.waitForSelector('#found .confirm')
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Yes, purge')
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Purge')
  await page.keyboard.press('Enter')
  await page.keyboard.press('Enter')
  await page.waitForFunction(() => /Purged: \d/.test(document.getElementById('found').textContent))
  assert.equal(await page.evaluate(() => document.activeElement.id), 'query')

  for (const [query, problem] of [['0x12345678901234567', /a hash has 64 hex digits/], ['latest', /expected the hash/]]) {
    await page.fill('#query', query)
    await page.keyboard.press('Enter')
    await page.waitForSelector('#query-problem:not([hidden])')
    await page.waitForFunction((text) => new RegExp(text).test(document.getElementById('query-problem').textContent), problem.source)
    assert.equal(await page.getAttribute('#query', 'aria-invalid'), 'true')
  }
  await page.fill('#query', '')
  assert.equal(await page.isVisible('#found'), false)
  await page.fill('#query', '3')
  await page.keyboard.press('Enter')
  await page.waitForSelector('#found article')
})

const dark = await open('dark', { colorScheme: 'dark', viewport: { width: 1200, height: 900 } })
await step('the page asks for a required token', async () => {
  await dark.route('**/purge?*', (route) => (route.request().headers().authorization === 'Bearer hf_right' ? route.continue() : route.fulfill({ status: 401, body: 'this request needs the admin token' })))
  await call('eth_getBlockByNumber', ['0x6', true])
  await dark.fill('#query', '6')
  await dark.press('#query', 'Enter')
  await dark.click('#found article > button')
  assert.equal(await dark.isVisible('#found .token'), false)
  await dark.click('#found .confirm .bad')
  for (const [token, said] of [['hf_wrong', /Enter the admin token/], ['hf_right', /Wrong token/]]) {
    await dark.waitForFunction((text) => new RegExp(text).test(document.querySelector('#found .confirm .how').textContent), said.source)
    assert.equal(await dark.evaluate(() => document.activeElement.className), 'token')
    await dark.keyboard.type(token)
    if (token === 'hf_right') await dark.screenshot({ path: path.join(screenshots, 'token.png') })
    await dark.keyboard.press('Enter')
  }
  await dark.waitForFunction(() => /Purged: \d/.test(document.getElementById('found').textContent))
})
const phone = await open('phone', { colorScheme: 'light', viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true })

await step('the page fits a phone, down to 320 pixels', async () => {
  for (const width of [320, 360, 414]) {
    await phone.setViewportSize({ width, height: 740 })
    const beyond = await phone.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    assert.ok(beyond <= 0, `${width}: ${beyond} beyond`)
  }
  await phone.setViewportSize({ width: 360, height: 740 })
})

await step('screenshots', async () => {
  for (const shown of [dark, phone]) {
    await shown.fill('#query', '3')
    await shown.press('#query', 'Enter')
    await shown.waitForSelector('#found article')
  }
  await page.waitForTimeout(6000)
  for (const [name, shown] of Object.entries({ light: page, dark, phone })) {
    await shown.mouse.move(0, 0)
    await shown.screenshot({ path: path.join(screenshots, `${name}.png`), fullPage: true })
  }
})

await step('a stitched gzip answer is decoded by the browser', async () => {
  // The status page may connect only to its own listener; this context bypasses that policy.
  const context = await browser.newContext({ bypassCSP: true })
  context.setDefaultTimeout(PATIENCE)
  const page = watch(await context.newPage(), 'gzip', [adminUrl, proxyUrl])
  await page.goto(`${adminUrl}/`)
  const encodings = []
  page.on('response', async (response) => {
    if (response.request().method() === 'POST') encodings.push((await response.allHeaders())['content-encoding'])
  })
  const body = JSON.stringify({ jsonrpc: '2.0', id: 'é☃', method: 'eth_getBlockByNumber', params: ['0x5', true] })
  const ask = { method: 'POST', headers: { 'content-type': 'application/json' }, body }
  const expected = (await (await fetch(nodeUrl, ask)).json()).result
  for (let round = 0; round < 50 && encodings.filter((encoding) => encoding === 'gzip').length < 2; round += 1) {
    const text = await page.evaluate(async ([url, ask]) => (await fetch(url, ask)).text(), [proxyUrl, ask])
    assert.deepEqual(JSON.parse(text), { jsonrpc: '2.0', id: 'é☃', result: expected })
    await page.waitForTimeout(50)
  }
  assert.ok(encodings.filter((encoding) => encoding === 'gzip').length >= 2, `never as gzip: ${encodings}`)
  await context.close()
})

await step('the page reports a lost connection and reconnects', async () => {
  assert.deepEqual(problems, [])
  await page.route('**/events', (route) => route.abort())
  await page.reload()
  await page.waitForFunction(() => /not connected/.test(document.getElementById('state-text').textContent))
  await page.unroute('**/events')
  await page.waitForFunction(() => document.getElementById('state-text').textContent === 'ready')
})

loading = false
await loaded
await browser.close()
