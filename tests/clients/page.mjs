// The status page in a real browser: node page.mjs ADMIN_URL PROXY_URL NODE_URL CHROMIUM SCREENSHOTS [PICTURES]
// Calls the proxy and checks that the page shows it. With PICTURES, writes the pictures of the documentation there, after
// five minutes of load.

import assert from 'node:assert/strict'
import path from 'node:path'
import { giveUpAfter, launch, lookAtAll, looks, open, PATIENCE, problems, steps, watch } from './browser.mjs'

const [adminUrl, proxyUrl, nodeUrl, executablePath, screenshots, pictures] = process.argv.slice(2)
if (!screenshots) {
  console.error('usage: node page.mjs ADMIN_URL PROXY_URL NODE_URL CHROMIUM SCREENSHOTS [PICTURES]')
  process.exit(2)
}
giveUpAfter(pictures ? 1200 : 300)

const browser = await launch(executablePath, screenshots)
const status = async () => (await fetch(`${adminUrl}/status`)).json()

let id = 0
async function call(method, params) {
  const body = JSON.stringify({ jsonrpc: '2.0', id: (id += 1), method, params })
  const response = await fetch(proxyUrl, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
  return response.json()
}

// The calls of a dapp and an indexer: the head, its receipts, older blocks again and again, and state.
const ACCOUNT = `0x${'11'.repeat(20)}`
let loading = true
async function load() {
  for (let round = 0; loading; round += 1) {
    const { result: head } = await call('eth_getBlockByNumber', ['latest', false])
    const older = Array.from({ length: 9 }, (_, at) => call('eth_getBlockByNumber', [`0x${((at * 3) % 36).toString(16)}`, at % 2 === 0]))
    const receipts = head.transactions.slice(0, 3).map((hash) => call('eth_getTransactionReceipt', [hash]))
    const others = [call('eth_blockNumber', []), call('eth_chainId', []), call('eth_getBlockReceipts', [`0x${((round * 3) % 27).toString(16)}`])]
    if (round % 4 === 0) others.push(call('eth_call', [{ to: ACCOUNT }, 'latest']), call('eth_getBalance', [ACCOUNT, 'latest']))
    if (round % 50 === 0) others.push(call('debug_unknown', []))
    await Promise.all([...older, ...receipts, ...others])
    await new Promise((resolve) => setTimeout(resolve, 40))
  }
}

const figure = (page, name) => page.textContent(`#${name}`)
const numeric = (text) => Number(text.replace('−', '-').replace(/[^\d.-]/g, ''))
const count = async (page) => numeric(await figure(page, 'saved'))

const page = await open(browser, adminUrl, 'light', { colorScheme: 'light', viewport: { width: 1440, height: 900 } })
const step = steps(browser, () => page)

await step('before the first call the page shows instructions', async () => {
  assert.match(await figure(page, 'saved-how'), new RegExp(`No calls yet.*${proxyUrl}`))
  assert.match(await page.textContent('#ratio .empty'), /No calls yet/)
  assert.equal(await page.isVisible('#ratio .empty'), true)
  assert.match(await figure(page, 'methods'), /No calls yet/)
  assert.equal(await page.isVisible('#worth-tile'), false)
  assert.match(await figure(page, 'where'), /^Holdfast demo chain, chain 7331117$/)
})

await step('a young instance looks right, in every size and colour', async () => {
  assert.deepEqual(await lookAtAll(browser, adminUrl, screenshots, 'young'), [])
})

const loaded = load()

await step('figures change under load, and plots have lines', async () => {
  await page.waitForFunction(() => Number(document.getElementById('saved').textContent.replace(/\s/g, '')) > 100)
  const before = await count(page)
  await page.waitForFunction((before) => Number(document.getElementById('saved').textContent.replace(/\s/g, '')) > before, before)
  for (const plot of ['ratio', 'rate', 'latency']) {
    // A sample without neighbours is a point, which has no size.
    await page.waitForSelector(`#${plot} path.first.line:not(.single)`)
    assert.equal(await page.isVisible(`#${plot} .empty`), false)
    assert.match(await page.getAttribute(`#${plot} svg`, 'aria-label'), /now [\d<]/)
  }
  assert.match(await figure(page, 'chain'), /Head\d\d/)
  assert.match(await figure(page, 'share-how'), /of .* calls$/)
})

await step('methods are listed with their hit ratio, errors and times', async () => {
  const row = (method) => page.locator('#methods tr', { has: page.locator('th', { hasText: method }) })
  const read = async (method) => {
    const cells = await row(method).locator('td').evaluateAll((cells) => cells.map((cell) => [cell.dataset.label, cell.textContent]))
    return Object.fromEntries(cells)
  }
  await page.waitForFunction(() => /eth_call/.test(document.getElementById('methods').textContent) && /other methods/.test(document.getElementById('methods').textContent))
  // The times come with the next sample of the history.
  await page.waitForFunction(() => /s$/.test(document.querySelector('#methods tr td[data-label="Wait p99"]').textContent))
  const blocks = await read('eth_getBlockByNumber')
  assert.ok(numeric(blocks.Calls) > 50, JSON.stringify(blocks))
  assert.ok(numeric(blocks['Hit ratio']) > 50 && blocks['Not cacheable'] === '–', JSON.stringify(blocks))
  const forwarded = await read('eth_call')
  assert.equal(forwarded['Hit ratio'], '–')
  assert.ok(numeric(forwarded['Not cacheable']) > 0, JSON.stringify(forwarded))
  const other = await read('other methods')
  assert.ok(numeric(other.Errors) > 0, JSON.stringify(other))
  assert.match(await row('other methods').locator('[data-label=Errors]').getAttribute('title'), /refused/)
  const shown = await page.locator('#methods tr').count()
  assert.equal(shown, (await status()).methods.length)
})

await step('endpoints are listed with their state, calls and times', async () => {
  const endpoint = page.locator('#endpoints .endpoint').first()
  await page.waitForFunction(() => /s$/.test(document.querySelector('#endpoints [data-label=p99]').textContent))
  assert.match(await endpoint.locator('th').innerText(), /own-node\s+healthy, primary, block \d+/)
  assert.ok(numeric(await endpoint.locator('[data-label=Calls]').innerText()) > 10)
  assert.equal(await endpoint.locator('[data-label=Rate-limited]').innerText(), '–')
  assert.equal(await page.locator('#endpoints .endpoint').count(), 2)
})

await step('the saved money is an estimate for a month, with prices of providers', async () => {
  await page.waitForSelector('#worth-tile:not([hidden])')
  assert.match((await page.innerText('#worth-tile')).replace(/\s+/g, ' '), /≈ \$[\d ]+ a month at this rate/)
  assert.equal(await figure(page, 'price-unit'), 'per million calls')

  // At a price of 1 per call, the figure is the number of calls saved in a month.
  const monthly = async () => {
    await page.fill('#price', '1000000 €')
    assert.match(await page.innerText('#worth-tile'), /≈ [\d\s]+€/)
    return numeric(await figure(page, 'worth'))
  }
  const { saved, uptime_seconds: uptime, methods } = await status()
  const calls = await monthly()
  const expected = (saved.calls / uptime) * 30 * 86400
  assert.ok(calls > expected * 0.5 && calls < expected * 2, `${calls} is far from ${expected}`)

  // Alchemy charges compute units, by method.
  await page.selectOption('#preset', 'alchemy')
  assert.deepEqual([await page.inputValue('#price'), await figure(page, 'price-unit')], ['$0.45', 'per million compute units'])
  const without = methods.map(({ method, hits, joined }) => [hits + joined, { eth_blockNumber: 10, eth_chainId: 0 }[method] ?? 20])
  const all = without.reduce((sum, [count]) => sum + count, 0)
  const each = without.reduce((sum, [count, units]) => sum + count * units, 0) / all
  const units = await monthly()
  assert.ok(Math.abs(units / calls / each - 1) < 0.25, `${units} units of ${calls} calls at ${each} each`)

  await page.fill('#price', 'much')
  assert.equal(await page.getAttribute('#price', 'aria-invalid'), 'true')
  await page.fill('#price', '$0.40')
  await page.reload()
  await page.waitForSelector('#worth-tile:not([hidden])')
  assert.deepEqual([await page.inputValue('#preset'), await page.inputValue('#price')], ['alchemy', '$0.40'])
  await page.selectOption('#preset', 'quicknode')
  assert.equal(await page.inputValue('#price'), '$0.61')

  // A small amount is hidden, but not from a user who has chosen its price.
  await page.fill('#price', '$0')
  assert.match(await page.innerText('#worth-tile'), /< \$1\s/)
  await page.reload()
  await page.waitForSelector('#worth-tile:not([hidden])')
  await page.evaluate(() => localStorage.clear())
  await page.reload()
  await page.waitForSelector('#worth-tile:not([hidden])')
})

await step('savings and plots are visible at once in a window of 1440 by 900', async () => {
  for (const width of [1100, 1440]) {
    await page.setViewportSize({ width, height: 900 })
    const bottom = await page.$eval('#plots', (plots) => plots.getBoundingClientRect().bottom)
    assert.ok(bottom <= 900, `${width}: the plots end at ${bottom}`)
  }
  // The page uses the whole width of a large screen.
  await page.setViewportSize({ width: 2560, height: 1440 })
  const used = await page.$eval('#plots', (plots) => plots.getBoundingClientRect().width)
  assert.ok(used > 2560 * 0.9, `${used}`)
  await page.setViewportSize({ width: 1440, height: 900 })
})

await step('the keyboard operates the page', async () => {
  await page.focus('[data-range=fine]')
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  assert.equal(await page.getAttribute('[data-range=coarse]', 'aria-pressed'), 'true')
  const outline = await page.$eval('[data-range=coarse]', (button) => getComputedStyle(button).outlineStyle)
  assert.equal(outline, 'solid')
})

await step('the range of 24 hours shows the time since the start', async () => {
  const [plot, line] = await page.$eval('#rate', (plot) => [plot, plot.querySelector('path.first.line')].map((part) => part.getBoundingClientRect().width))
  assert.ok(line > plot * 0.7, `a line of ${line} in a plot of ${plot}`)
  const [, minutes] = /^last (?:(\d+).min ?)?(?:\d+.s)?, a point every 2.s$/.exec(await figure(page, 'bins')) ?? assert.fail(await figure(page, 'bins'))
  assert.ok(Number(minutes ?? 0) < 10)
  await page.click('[data-range=fine]')
})

await step('a day of history fills the range of 24 hours', async () => {
  const day = await open(browser, adminUrl, 'day', { colorScheme: 'dark', viewport: { width: 1440, height: 900 } })
  // The counters of a day with a quiet night. Only the history is made up; the page and its status are real.
  const columns = ['time', 'calls', 'hits', 'joined', 'refused', 'upstream', 'upkeep', 'cache_bytes', 'reorgs', 'head', 'memory_p50', 'memory_p99', 'upstream_p50', 'upstream_p99']
  const line = (minute) => {
    const calls = Math.round(60000 * (minute - 150 * Math.sin(minute / 230)))
    return [Date.now() - (1440 - minute) * 60e3, calls, Math.round(calls * 0.86), 0, 0, Math.round(calls * 0.15), 0, 1e6, 0, minute, 9e-6, 3e-5, 0.012, 0.3]
  }
  const coarse = Array.from({ length: 1440 }, (_, minute) => line(minute))
  const fine = Array.from({ length: 450 }, (_, at) => line(1425 + at / 30))
  const data = { columns, fine, coarse }
  const told = { status: await status(), fine: line(1440), coarse: line(1439) }
  const body = `event: history\ndata: ${JSON.stringify(data)}\n\nevent: status\ndata: ${JSON.stringify(told)}\n\n`
  await day.route('**/events', (route) => route.fulfill({ contentType: 'text/event-stream', body }))
  await day.reload()
  await day.click('[data-range=coarse]')
  await day.waitForFunction(() => /^last (1.d|23.h.*), a point every 5.min$/.test(document.getElementById('bins').textContent))
  const [plot, line24] = await day.$eval('#rate', (plot) => [plot, plot.querySelector('path.first.line')].map((part) => part.getBoundingClientRect().width))
  assert.ok(line24 > plot * 0.7, `a line of ${line24} in a plot of ${plot}`)
  const labels = await day.$$eval('#rate text', (texts) => texts.map((text) => text.textContent).filter((text) => text.includes(':')))
  assert.ok(labels.length >= 2 && labels.every((label) => /^\d\d:00$/.test(label)), `${labels}`)
  assert.deepEqual(await looks(day), [])
  await day.screenshot({ path: path.join(screenshots, 'day-1440-dark.png') })
  await day.context().close()
})

await step('labels of the axes do not collide, whatever the period and the width', async () => {
  const flaws = await page.evaluate(async () => {
    const { Plot } = await import('/plot.js')
    const flaws = []
    const end = Date.UTC(2026, 10, 17, 7, 44, 2)
    const ticks = [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1].map((value) => [value, '100\u202fms'])
    for (const width of [240, 330, 420, 700, 1300]) {
      const element = document.querySelector('#plots figure .plot').cloneNode()
      element.style.width = `${width}px`
      document.querySelector('#plots figure').append(element)
      const plot = new Plot(element)
      for (let seconds = 10; seconds <= 86400; seconds = Math.ceil(seconds * 1.07)) {
        plot.show({ span: [end - seconds * 1000, end], points: [], ticks, y: (value) => (Math.log10(value) + 6) / 6, layers: [], summary: '', quiet: false, empty: '' })
        const labels = [...element.querySelectorAll('text')].map((text) => [text.textContent, text.getBoundingClientRect()])
        const times = labels.filter(([text]) => text.includes(':'))
        if (seconds >= 10 && times.length < 1) flaws.push(`${seconds} s in ${width} px: no label`)
        for (const [at, [text, one]] of times.entries()) {
          const next = times[at + 1]?.[1]
          if (next && next.left < one.right + 4) flaws.push(`${seconds} s in ${width} px: ${text} touches the next label`)
        }
        const edge = element.getBoundingClientRect()
        for (const [text, { left, right }] of labels) if (left < edge.left - 1 || right > edge.right + 1) flaws.push(`${seconds} s in ${width} px: ${text} is cut off`)
      }
      element.remove()
    }
    return flaws
  })
  assert.deepEqual(flaws, [])
})

await step('refusals and a reorg are shown', async () => {
  await page.waitForFunction(() => /invalid params.*−32601/.test(document.getElementById('refusals').textContent))
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
  for (const part of [block.hash, 'finalized', 'whole block', 'proved', 'from own-node', 'Transactions25']) assert.ok(found.includes(part), `${part} is not in ${found}`)
  assert.match(found, /Time.*2025/)
  assert.match(await figure(page, 'said'), /Found, \d entr(y|ies) in the cache/)

  await page.fill('#query', block.transactions[1].hash)
  await page.keyboard.press('Enter')
  await page.waitForFunction(() => /Transaction0x/.test(document.getElementById('found').textContent))
  assert.match(await figure(page, 'found'), /Position1/)

  // The page asks for confirmation; cancelling is as easy as confirming.
  await page.click('#found article button')
  await page.waitForSelector('#found .confirm')
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Yes, purge')
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Purge')
  await page.keyboard.press('Enter')
  await page.keyboard.press('Enter')
  await page.waitForFunction(() => /Purged: \d/.test(document.getElementById('found').textContent))
  assert.equal(await page.evaluate(() => document.activeElement.id), 'query')

  for (const [query, problem] of [['0x12345678901234567', /A hash has 64 hex digits.*\.$/], ['latest', /Expected the hash[^;]*\.$/]]) {
    await page.fill('#query', query)
    await page.keyboard.press('Enter')
    await page.waitForFunction((text) => new RegExp(text).test(document.getElementById('query-problem').textContent), problem.source)
    assert.equal(await page.getAttribute('#query', 'aria-invalid'), 'true')
  }
})

await step('the look-up result is closed with a button, with Escape, and with an empty field', async () => {
  const lookUp = async () => {
    await page.fill('#query', '3')
    await page.press('#query', 'Enter')
    await page.waitForSelector('#found article')
  }
  const isClosed = async () => {
    assert.equal(await page.isVisible('#found'), false)
    assert.deepEqual([await page.inputValue('#query'), await page.evaluate(() => document.activeElement.id)], ['', 'query'])
  }
  await lookUp()
  await page.getByRole('button', { name: 'Close' }).click()
  await isClosed()
  await lookUp()
  await page.focus('#found article button')
  await page.keyboard.press('Escape')
  await isClosed()
  await lookUp()
  await page.fill('#query', '')
  await isClosed()
})

await step('the page asks for a required token', async () => {
  const dark = await open(browser, adminUrl, 'dark', { colorScheme: 'dark', viewport: { width: 1200, height: 900 } })
  await dark.route('**/purge?*', (route) => (route.request().headers().authorization === 'Bearer hf_right' ? route.continue() : route.fulfill({ status: 401, body: 'this request needs the admin token' })))
  await call('eth_getBlockByNumber', ['0x6', true])
  await dark.fill('#query', '6')
  await dark.press('#query', 'Enter')
  await dark.click('#found article button')
  assert.equal(await dark.isVisible('#found .token'), false)
  await dark.click('#found .confirm .bad')
  for (const [token, said] of [['hf_wrong', /Enter the admin token/], ['hf_right', /Wrong token/]]) {
    await dark.waitForFunction((text) => new RegExp(text).test(document.querySelector('#found .confirm .how').textContent), said.source)
    assert.equal(await dark.evaluate(() => document.activeElement.className), 'token')
    await dark.keyboard.type(token)
    if (token === 'hf_right') {
      assert.deepEqual(await looks(dark), [])
      await dark.screenshot({ path: path.join(screenshots, 'token.png') })
    }
    await dark.keyboard.press('Enter')
  }
  await dark.waitForFunction(() => /Purged: \d/.test(document.getElementById('found').textContent))
  await dark.context().close()
})

await step('the page fits a phone, down to 320 pixels', async () => {
  const phone = await open(browser, adminUrl, 'phone', { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true })
  for (const width of [320, 360, 375, 414, 700, 1000]) {
    await phone.setViewportSize({ width, height: 740 })
    assert.deepEqual(await looks(phone), [], `at ${width}`)
  }
  await phone.context().close()
})

if (pictures) await new Promise((resolve) => setTimeout(resolve, 300_000))

await step('a loaded instance looks right, in every size and colour', async () => {
  assert.deepEqual(await lookAtAll(browser, adminUrl, screenshots, 'loaded', (page) => page.waitForTimeout(1500)), [])
  const withResult = async (page) => {
    await page.fill('#query', '3')
    await page.press('#query', 'Enter')
    await page.waitForSelector('#found article')
  }
  assert.deepEqual(await lookAtAll(browser, adminUrl, screenshots, 'lookup', withResult), [])
})

if (pictures) {
  await step('pictures for the documentation', async () => {
    for (const [colorScheme, name] of [['light', 'status-page.png'], ['dark', 'status-page-dark.png']]) {
      const shown = await open(browser, adminUrl, name, { colorScheme, viewport: { width: 1440, height: 900 } })
      await shown.waitForTimeout(1500)
      await shown.screenshot({ path: path.join(pictures, name) })
      await shown.context().close()
    }
  })
}

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
