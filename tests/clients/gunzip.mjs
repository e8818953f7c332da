// Node decodes the stitched gzip streams: node gunzip.mjs PROXY_URL BLOCK_HASH
// Compares each gzip answer with the plain one, decoded by node:zlib and by fetch (undici).

import assert from 'node:assert/strict'
import http from 'node:http'
import { pipeline } from 'node:stream/promises'
import zlib from 'node:zlib'

const [url, block] = process.argv.slice(2)
if (!block) {
  console.error('usage: node gunzip.mjs PROXY_URL BLOCK_HASH')
  process.exit(2)
}
setTimeout(() => {
  console.log('FAIL timed out after 300 s')
  process.exit(1)
}, 300_000).unref()

const call = (method, params, id) => ({ jsonrpc: '2.0', id, method, params })
const calls = [
  call('eth_getBlockByHash', [block, true], 1),
  call('eth_getBlockByHash', [block, false], 'é☃'),
  call('eth_getBlockReceipts', [block], null),
]

function post(body, encoding) {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'accept-encoding': encoding }
    const request = http.request(url, { method: 'POST', headers }, async (response) => {
      const pieces = []
      for await (const piece of response) pieces.push(piece)
      resolve([response.headers, Buffer.concat(pieces)])
    })
    request.on('error', reject)
    request.end(JSON.stringify(body))
  })
}

async function streamed(packed) {
  const pieces = []
  const bytes = (function* () {
    for (let at = 0; at < packed.length; at += 13) yield packed.subarray(at, at + 13)
  })()
  await pipeline(bytes, zlib.createGunzip(), async (source) => {
    for await (const piece of source) pieces.push(piece)
  })
  return Buffer.concat(pieces)
}

for (const body of [...calls, calls, [...calls, call('eth_chainId', [], 7), ...calls]]) {
  const [plainHeaders, plain] = await post(body, 'identity')
  assert.equal(plainHeaders['content-encoding'], undefined)
  const [headers, packed] = await post(body, 'gzip')
  assert.equal(headers['content-encoding'], 'gzip')
  assert.equal(Number(headers['content-length']), packed.length)
  assert.ok(zlib.gunzipSync(packed).equals(plain), 'gunzipSync')
  assert.ok(zlib.unzipSync(packed).equals(plain), 'unzipSync')
  assert.ok((await streamed(packed)).equals(plain), 'createGunzip')

  // fetch requests gzip by default and decodes it.
  const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }
  const response = await fetch(url, init)
  assert.equal(response.headers.get('content-encoding'), 'gzip')
  assert.equal(await response.text(), plain.toString())
  assert.deepEqual(await (await fetch(url, init)).json(), JSON.parse(plain))
  console.log(`ok   ${plain.length} bytes as ${packed.length}`)
}
process.exit(0)
