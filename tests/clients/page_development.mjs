// The status page in front of a development chain: node page_development.mjs ADMIN_URL CHROMIUM SCREENSHOTS
// Holdfast has made more upstream calls than it saved.

import assert from 'node:assert/strict'
import { giveUpAfter, launch, lookAtAll, open, problems, steps } from './browser.mjs'

const [adminUrl, executablePath, screenshots] = process.argv.slice(2)
if (!screenshots) {
  console.error('usage: node page_development.mjs ADMIN_URL CHROMIUM SCREENSHOTS')
  process.exit(2)
}
giveUpAfter(300)

const browser = await launch(executablePath, screenshots)
const page = await open(browser, adminUrl, 'development', { colorScheme: 'light', viewport: { width: 1440, height: 900 } })
const step = steps(browser, () => page)

await step('negative savings are shown as they are, with the reason', async () => {
  const { saved } = await (await fetch(`${adminUrl}/status`)).json()
  assert.ok(saved.calls < 0, JSON.stringify(saved))
  assert.equal(await page.innerText('#saved'), `−${-saved.calls}`)
  const besides = saved.answered_without_upstream - saved.calls
  assert.match(await page.innerText('#saved-how'), new RegExp(`after ${besides} calls? to follow the chain`))
  assert.match(await page.innerText('#saved-why'), /development chain asks the node.*anvil --chain-id 7777/)
})

await step('the page looks right for a development chain, in every size and colour', async () => {
  assert.deepEqual(await lookAtAll(browser, adminUrl, screenshots, 'development'), [])
  assert.deepEqual(problems, [])
})

await browser.close()
