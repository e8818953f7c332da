// A page of a foreign website in a real browser: node website.mjs PROXY_URL NODE_URL CHROMIUM
// The node has unlocked accounts. The page may read, but must not be able to spend.

import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { chromium } from 'playwright-core'

const [proxyUrl, nodeUrl, executablePath] = process.argv.slice(2)
if (!executablePath) {
  console.error('usage: node website.mjs PROXY_URL NODE_URL CHROMIUM')
  process.exit(2)
}
setTimeout(() => {
  console.log('FAIL timed out after 300 s')
  process.exit(1)
}, 300_000).unref()

const SENDER = '0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266'
const RECIPIENT = '0x00000000000000000000000000000000000c0ffe'
const SPENDING = ['eth_sendTransaction', 'eth_sendTransactionSync', 'eth_sendUnsignedTransaction']

const call = (method, params = []) => JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
const transfer = [{ from: SENDER, to: RECIPIENT, value: '0xde0b6b3a7640000', gas: '0x5208' }]

// As a program: Node sends no Origin header.
async function ask(url, method, params) {
  const headers = { 'content-type': 'application/json' }
  const response = await fetch(url, { method: 'POST', headers, body: call(method, params) })
  return response.json()
}
const balance = async () => BigInt((await ask(nodeUrl, 'eth_getBalance', [RECIPIENT, 'latest'])).result)

const website = createServer((_, response) => {
  response.setHeader('content-type', 'text/html')
  response.end('<!doctype html><title>a website</title>')
})
await new Promise((resolve) => website.listen(0, '127.0.0.1', resolve))

const args = ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run', '--disable-background-networking']
const browser = await chromium.launch({ executablePath, headless: true, args })
const page = await browser.newPage()
await page.goto(`http://127.0.0.1:${website.address().port}/`)

// Sends from the page, and returns the answer or the error of the browser.
const send = (body, options) =>
  page.evaluate(
    async ([url, body, options]) => {
      try {
        const response = await fetch(url, { method: 'POST', body, ...options })
        return await response.text()
      } catch (error) {
        return String(error)
      }
    },
    [proxyUrl, body, options],
  )
const json = { headers: { 'content-type': 'application/json' } }

const read = JSON.parse(await send(call('eth_chainId'), json))
assert.equal(read.result, '0x7a69', 'a page may read')
console.log('ok   the page may read')

for (const method of [...SPENDING, 'eth_accounts', 'personal_sendTransaction', 'anvil_setBalance']) {
  const refused = JSON.parse(await send(call(method, transfer), json))
  assert.equal(refused.error?.code, -32601, `${method}: ${JSON.stringify(refused)}`)
  const [batched] = JSON.parse(await send(`[${call(method, transfer)}]`, json))
  assert.equal(batched.error?.code, -32601, `${method} in a batch`)
  // Without a preflight: the browser sends the request and hides the answer.
  await send(call(method, transfer), { mode: 'no-cors', headers: { 'content-type': 'text/plain' } })
  console.log(`ok   the page may not call ${method}`)
}
assert.equal(await balance(), 0n, 'nothing was spent')
await browser.close()
website.close()

// The same calls from a program do spend: only the proxy stopped the page.
for (const [index, method] of SPENDING.entries()) {
  const sent = await ask(proxyUrl, method, transfer)
  assert.ok(sent.result, `${method}: ${JSON.stringify(sent)}`)
  for (let tries = 0; (await balance()) !== BigInt(index + 1) * 10n ** 18n; tries += 1) {
    assert.ok(tries < 600, `${method} spent nothing`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  console.log(`ok   a program may call ${method}`)
}
