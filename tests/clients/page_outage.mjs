// The status page while endpoints fail: node page_outage.mjs ADMIN_URL CHROMIUM SCREENSHOTS [WORDS]
// The first endpoint, own-node, was at block 557 and is down. The second, provider, refuses calls with WORDS; without
// WORDS it is down, too.

import assert from 'node:assert/strict'
import { giveUpAfter, launch, lookAtAll, open, problems, steps } from './browser.mjs'

const [adminUrl, executablePath, screenshots, words] = process.argv.slice(2)
if (!screenshots) {
  console.error('usage: node page_outage.mjs ADMIN_URL CHROMIUM SCREENSHOTS [WORDS]')
  process.exit(2)
}
giveUpAfter(300)

const browser = await launch(executablePath, screenshots)
const page = await open(browser, adminUrl, 'outage', { colorScheme: 'light', viewport: { width: 1440, height: 900 } })
const step = steps(browser, () => page)
const status = async () => (await fetch(`${adminUrl}/status`)).json()
const endpoint = (at) => page.locator('#endpoints .endpoint').nth(at)

await step('an endpoint that was up is down since a time, with its last block', async () => {
  const text = await endpoint(0).innerText()
  const [, hour, minute] = /down since (\d\d):(\d\d), last block 557/.exec(text) ?? assert.fail(text)
  const began = Date.now() - (await status()).endpoints[0].outage_seconds * 1000
  const shown = new Date(began).setHours(Number(hour), Number(minute), 0, 0)
  assert.ok(Math.abs(shown - began) < 120_000, `${text}, but it began at ${new Date(began)}`)
  assert.equal(await endpoint(0).getAttribute('data-tone'), 'bad')
  assert.match(await page.innerText('#endpoints'), /Cannot connect: Connection refused\./)
  assert.doesNotMatch(text, /not reached yet|primary/)
})

if (words) await step("a refusal is shown in the provider's own words, and counted", async () => {
  assert.ok((await page.innerText('#endpoints')).includes(words), await page.innerText('#endpoints'))
  await page.waitForFunction(() => /(failing|rate-limited) since \d\d:\d\d/.test(document.querySelectorAll('#endpoints .endpoint')[1].textContent))
  assert.equal(await endpoint(1).getAttribute('data-tone'), 'warn')
  const { rate_limited: limited } = (await status()).endpoints[1]
  assert.ok(limited > 0)
  const shown = await endpoint(1).locator('[data-label=Rate-limited]').innerText()
  assert.ok(Number(shown.replace(/\s/g, '')) > 0, shown)
})

if (!words) await step('the notice names the problem in sentences, in red', async () => {
  const notice = await page.innerText('#notice')
  assert.equal(await page.getAttribute('#notice', 'data-tone'), 'bad')
  assert.match(notice, /^Not ready\. No upstream reachable \(.*\)\. Blocks known to be final are still served from the cache\.$/)
  assert.doesNotMatch(notice, /os error|degraded/)
  assert.equal(await page.innerText('#state-text'), 'not ready')
})

await step('the page looks right during an outage, in every size and colour', async () => {
  assert.deepEqual(await lookAtAll(browser, adminUrl, screenshots, words ? 'refused' : 'down'), [])
  assert.deepEqual(problems, [])
})

await browser.close()
