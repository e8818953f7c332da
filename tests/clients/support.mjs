// Shared parts of viem.mjs and ethers.mjs: arguments, steps, raw JSON-RPC,
// three hand-assembled contracts, and the list of reads after the writes.

export const [proxyUrl, nodeUrl] = process.argv.slice(2)
if (!proxyUrl || !nodeUrl) {
  console.error('usage: node SCRIPT PROXY_URL NODE_URL')
  process.exit(2)
}

setTimeout(() => {
  console.log('FAIL timed out after 300 s')
  process.exit(1)
}, 300_000).unref()

export class Mismatch extends Error {
  constructor(what, expected, got) {
    super(`${what}\n  expected ${expected}\n  got      ${got}`)
  }
}

const text = (value) =>
  JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? `${v}n` : v)) ?? String(value)

/** Fails the step unless both values have the same JSON text (key order included). */
export function equal(got, expected, what = 'value') {
  if (text(got) !== text(expected)) throw new Mismatch(what, text(expected), text(got))
}

/** Runs one step and prints its line; the first step that throws ends the script. */
export async function step(name, run) {
  try {
    const value = await run()
    console.log(`ok   ${name}`)
    return value
  } catch (error) {
    console.log(`FAIL ${name}: ${error instanceof Mismatch ? error.message : error?.stack ?? error}`)
    process.exit(1)
  }
}

/** Returns the error that `run` throws; not throwing is a failure. */
export async function thrown(run, what = 'call') {
  let value
  try {
    value = await run()
  } catch (error) {
    return error
  }
  throw new Mismatch(what, 'an error', text(value))
}

async function post(url, body) {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return response.json()
}

const request = ([method, params], id) => ({ jsonrpc: '2.0', id, method, params })

// The whole result or error, without id and version.
const answer = ({ result, error }) => text(error === undefined ? { result } : { error })

/** Sends one request and returns the parsed response: { jsonrpc, id, result or error }. */
export const raw = (url, method, params = []) => post(url, request([method, params], 1))

const ask = async (url, call) => answer(await raw(url, ...call))

/**
 * Fails unless the proxy answers twice like the node (the second answer may come from the cache).
 * Asks the node before and after, and tries again if its answer changed in between.
 * Returns the node's answer as text.
 */
export async function same(method, params = []) {
  const call = [method, params]
  for (let attempt = 0; ; attempt++) {
    const before = await ask(nodeUrl, call)
    const first = await ask(proxyUrl, call)
    const second = await ask(proxyUrl, call)
    const after = await ask(nodeUrl, call)
    if (first === before && second === before) return before
    if (before === after || attempt === 4) {
      throw new Mismatch(text(call), before, first === before ? `${second} (second time)` : first)
    }
  }
}

/** Sends the calls as one batch through the proxy, and compares each answer with the node's. */
export async function sameBatch(calls) {
  const expected = await Promise.all(calls.map((call) => ask(nodeUrl, call)))
  const body = await post(proxyUrl, calls.map(request))
  if (!Array.isArray(body)) throw new Mismatch('batch', 'an array', text(body))
  equal(body.length, calls.length, 'answers in the batch')
  const byId = new Map(body.map((item) => [item.id, answer(item)]))
  calls.forEach((call, id) => {
    if (byId.get(id) !== expected[id]) throw new Mismatch(`in a batch: ${text(call)}`, expected[id], byId.get(id))
  })
}

/** Compares only the shape of the pending block, because its timestamp changes all the time. */
export async function samePendingShape() {
  const [expected, got] = await Promise.all(
    [nodeUrl, proxyUrl].map(async (url) => {
      const { result } = await raw(url, 'eth_getBlockByNumber', ['pending', false])
      return Object.entries(result ?? {}).map(([k, v]) => `${k}:${Array.isArray(v) ? 'array' : typeof v}`)
    }),
  )
  equal(got, expected, 'shape of the pending block')
}

/** Mines blocks directly at the node; after 70 blocks, the blocks that the tests read are final. */
export const mineAtNode = (blocks = 70) => raw(nodeUrl, 'anvil_mine', ['0x' + blocks.toString(16)])

// Creation code: CODECOPY the bytes after these 11 into memory and RETURN them.
const deployable = (runtime) =>
  `0x60${(runtime.length / 2).toString(16).padStart(2, '0')}80600b6000396000f3${runtime}`

export const runtime = {
  bytes: '00c0ffee', // STOP, then three bytes that never run
  // MSTORE(0, 42); LOG1(0, 32, topic 0xc0ffee00); LOG0(0, 32); STOP
  logger: '602a600052' + '63c0ffee0060206000a1' + '60206000a0' + '00',
  // MSTORE(0, 0xdeadbeef); REVERT(28, 4)
  reverter: '63deadbeef600052' + '6004601cfd',
}
export const creation = Object.fromEntries(Object.entries(runtime).map(([k, v]) => [k, deployable(v)]))
export const logTopic = '0x' + 'c0ffee00'.padStart(64, '0')
export const revertData = '0xdeadbeef'

export const randomHash = () =>
  '0x' + Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('hex')

export const TAGS = ['latest', 'safe', 'finalized', 'earliest']

/**
 * All calls that read the block of a transaction. `hash` and `number` (hex) name the block,
 * `tx` the transaction, `from` its sender, `logger` and `reverter` the contracts.
 */
export function reads({ hash, number, tx, from, logger, reverter }) {
  const missing = randomHash()
  return [
    ['eth_chainId', []],
    ['net_version', []],
    ...[false, true].flatMap((full) => [
      ['eth_getBlockByNumber', [number, full]],
      ['eth_getBlockByHash', [hash, full]],
      ...TAGS.map((tag) => ['eth_getBlockByNumber', [tag, full]]),
    ]),
    ['eth_getBlockTransactionCountByNumber', [number]],
    ['eth_getBlockTransactionCountByHash', [hash]],
    ['eth_getUncleCountByBlockNumber', [number]],
    ['eth_getUncleCountByBlockHash', [hash]],
    ['eth_getTransactionByHash', [tx]],
    // The index as hex, as an integer (anvil takes both), and past the end.
    ...['0x0', 0, '0x7', 7].flatMap((index) => [
      ['eth_getTransactionByBlockHashAndIndex', [hash, index]],
      ['eth_getTransactionByBlockNumberAndIndex', [number, index]],
    ]),
    ['eth_getTransactionReceipt', [tx]],
    ['eth_getBlockReceipts', [number]],
    ['eth_getBlockReceipts', [hash]],
    ['eth_getLogs', [{ blockHash: hash }]],
    ['eth_getLogs', [{ fromBlock: number, toBlock: number, address: logger }]],
    ['eth_getLogs', [{ fromBlock: number, toBlock: number, topics: [logTopic] }]],
    ['eth_getCode', [logger, number]],
    ['eth_getBalance', [from, number]],
    ['eth_getTransactionCount', [from, number]],
    ['eth_getStorageAt', [logger, '0x0', number]],
    ['eth_call', [{ to: logger }, number]],
    ['eth_call', [{ to: reverter }, number]],
    ['eth_call', [{ to: reverter }, 'latest']],
    ['eth_getTransactionByHash', [missing]],
    ['eth_getTransactionReceipt', [missing]],
    ['eth_getBlockByHash', [missing, false]],
    ['eth_getBlockByNumber', ['0xffffffff', false]],
    ['eth_getBlockReceipts', ['0xffffffff']],
  ]
}

/** Compares all raw reads, before and after the block is final. */
export async function compareRaw(facts) {
  const calls = reads(facts)
  const each = async () => {
    for (const call of calls) await same(...call)
  }
  await step(`${calls.length} raw reads are the node's, asked twice`, each)

  await step('a past-the-end index is null', async () => {
    for (const index of ['0x7', 7]) {
      equal(await same('eth_getTransactionByBlockHashAndIndex', [facts.hash, index]), '{"result":null}')
      equal(await same('eth_getTransactionByBlockNumberAndIndex', [facts.number, index]), '{"result":null}')
    }
  })
  await step("pending block has the shape of the node's", samePendingShape)

  await step('a future block is null until it is mined', async () => {
    const head = Number((await raw(nodeUrl, 'eth_blockNumber')).result)
    const future = ['eth_getBlockByNumber', ['0x' + (head + 60).toString(16), false]]
    await same(...future)
    await mineAtNode()
    if ((await same(...future)) === '{"result":null}') throw new Mismatch('the mined block', 'a block', 'null')
  })
  await step('the same reads once the block is final', each)

  const fixed = calls.filter(([, params]) => !TAGS.includes(params[0]) && !TAGS.includes(params[1]))
  await step(`batch of ${fixed.length} raw reads`, () => sameBatch(fixed))
}
