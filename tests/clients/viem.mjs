// Uses viem through the proxy and compares with the node: node viem.mjs PROXY_URL NODE_URL

import { createPublicClient, createWalletClient, defineChain, http, keccak256, numberToHex, parseGwei } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import {
  compareRaw, creation, equal, logTopic, nodeUrl, proxyUrl, randomHash, raw, revertData, runtime, same, step, TAGS, thrown,
} from './support.mjs'

// Account 0 of anvil's default mnemonic; anvil prints this key when it starts.
const account = privateKeyToAccount('0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80')

const chainId = Number((await raw(nodeUrl, 'eth_chainId')).result)
const chain = defineChain({
  id: chainId,
  name: 'anvil',
  nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
  rpcUrls: { default: { http: [proxyUrl] } },
})
const reader = (url, options) =>
  // cacheTime 0: otherwise viem caches the block number.
  createPublicClient({ chain, transport: http(url, { retryCount: 0, ...options }), pollingInterval: 50, cacheTime: 0 })
const client = reader(proxyUrl)
const direct = reader(nodeUrl)
const wallet = createWalletClient({ account, chain, transport: http(proxyUrl, { retryCount: 0 }) })
const mined = (hash) => client.waitForTransactionReceipt({ hash, timeout: 60_000 })

await step('chain id', async () => equal(await client.getChainId(), chainId))
await step('balance', async () => {
  const { address } = account
  equal(await client.getBalance({ address }), await direct.getBalance({ address }))
})

const sent = await step('signed transfer and its receipt', async () => {
  const request = await wallet.prepareTransactionRequest({ to: `0x${'11'.repeat(20)}`, value: parseGwei('7') })
  const serialized = await wallet.signTransaction(request)
  const hash = keccak256(serialized)
  // Before the transaction is sent: the proxy must not serve this null afterwards.
  equal((await raw(proxyUrl, 'eth_getTransactionByHash', [hash])).result, null)
  equal((await raw(proxyUrl, 'eth_getTransactionReceipt', [hash])).result, null)
  equal(await wallet.sendRawTransaction({ serializedTransaction: serialized }), hash, 'hash')
  const receipt = await mined(hash)
  equal([receipt.status, receipt.transactionHash], ['success', hash], 'receipt')
  await same('eth_getTransactionByHash', [hash])
  await same('eth_getTransactionReceipt', [hash])
  return receipt
})
await step('balance after the transfer', async () => {
  const { address } = account
  equal(await client.getBalance({ address }), await direct.getBalance({ address }))
})

const hashes = [sent.transactionHash]
const at = await step('three contracts deployed', async () => {
  const addresses = {}
  for (const name of ['bytes', 'logger', 'reverter']) {
    const hash = await wallet.deployContract({ abi: [], bytecode: creation[name] })
    const { contractAddress: address } = await mined(hash)
    equal(await client.getCode({ address }), `0x${runtime[name]}`, `code of ${name}`)
    addresses[name] = address
    hashes.push(hash)
  }
  return addresses
})

const logged = await step('a call that logs, and its logs', async () => {
  const receipt = await mined(await wallet.sendTransaction({ to: at.logger }))
  const found = await client.getLogs({ address: at.logger, fromBlock: receipt.blockNumber, toBlock: receipt.blockNumber })
  equal(found.map(({ topics }) => topics), [[logTopic], []], 'topics')
  const expected = await direct.getLogs({ blockHash: receipt.blockHash })
  equal(await client.getLogs({ blockHash: receipt.blockHash }), expected, 'logs by block hash')
  return receipt
})

const { blockHash, blockNumber, transactionHash: hash } = logged
await step('blocks by number, hash and tag', async () => {
  for (const includeTransactions of [false, true]) {
    const ways = [{ blockNumber }, { blockHash }, ...TAGS.map((blockTag) => ({ blockTag }))]
    for (const way of ways) {
      const query = { ...way, includeTransactions }
      equal(await client.getBlock(query), await direct.getBlock(query), JSON.stringify(way, (_, v) => `${v}`))
    }
    const pending = await client.getBlock({ blockTag: 'pending', includeTransactions })
    equal(Array.isArray(pending.transactions), true, 'pending block')
  }
  equal(await client.getBlockTransactionCount({ blockHash }), 1, 'count by hash')
  equal(await client.getBlockTransactionCount({ blockNumber }), 1, 'count by number')
})
await step('the transaction by hash and by index', async () => {
  const expected = await direct.getTransaction({ hash })
  equal(await client.getTransaction({ hash }), expected, 'by hash')
  equal(await client.getTransaction({ blockHash, index: 0 }), expected, 'by block hash and index')
  equal(await client.getTransaction({ blockNumber, index: 0 }), expected, 'by block number and index')
  equal(await client.getTransactionReceipt({ hash }), await direct.getTransactionReceipt({ hash }), 'receipt')
})

await step('missing content is NotFound', async () => {
  const nothing = randomHash()
  const name = async (run) => (await thrown(run)).name
  equal(await name(() => client.getTransaction({ hash: nothing })), 'TransactionNotFoundError')
  equal(await name(() => client.getTransaction({ blockHash, index: 7 })), 'TransactionNotFoundError')
  equal(await name(() => client.getTransactionReceipt({ hash: nothing })), 'TransactionReceiptNotFoundError')
  equal(await name(() => client.getBlock({ blockHash: nothing })), 'BlockNotFoundError')
})
await step('an unknown method is an error', async () => {
  const [got, expected] = await Promise.all(
    [client, direct].map((c) => thrown(() => c.request({ method: 'eth_holdfastNope', params: [] }))),
  )
  equal([got.name, got.code], [expected.name, expected.code])
})
await step('revert data comes through eth_call', async () => {
  const seen = async (c) => {
    const error = await thrown(() => c.call({ to: at.reverter }))
    const cause = error.walk((e) => e.data !== undefined)
    return [error.name, error.shortMessage, cause?.data?.data ?? cause?.data]
  }
  const expected = await seen(direct)
  equal(expected[2], revertData, 'data at the node')
  equal(await seen(client), expected)
})

// Records the number of calls in each HTTP request of a client.
const counted = (batch) => {
  const sizes = []
  const onFetchRequest = (_, init) => void sizes.push([JSON.parse(init.body)].flat().length)
  return [reader(proxyUrl, { batch, onFetchRequest }), sizes]
}
await step('batch of 25 mixed calls', async () => {
  // All 25 calls differ, because viem sends equal concurrent calls only once.
  const all = (c) =>
    Promise.all(
      [...hashes, hash].flatMap((hash, i) => [
        c.getBlock({ blockNumber: BigInt(i) }),
        c.getBalance({ address: account.address, blockNumber: BigInt(i) }),
        c.getTransaction({ hash }),
        c.getTransactionReceipt({ hash }),
        c.getCode({ address: at.bytes, blockNumber: blockNumber - BigInt(i) }),
      ]),
    )
  const [batching, sizes] = counted(true)
  equal(await all(batching), await all(direct))
  equal(sizes, [25], 'calls in each HTTP request')
})
await step('100 concurrent reads, batched and one by one', async () => {
  const read = (c, i) => c.request({ method: 'eth_getBlockByNumber', params: [numberToHex(i % 5), i % 2 === 0] })
  const all = (c) => Promise.all(Array.from({ length: 100 }, (_, i) => read(c, i)))
  const expected = await all(direct)
  const [batching, sizes] = counted({ batchSize: 30 })
  equal(await all(batching), expected, 'batched')
  equal(sizes, [30, 30, 30, 10], 'calls in each HTTP request')
  equal(await all(client), expected, 'one by one')
})
await step('one failing call leaves the rest of its batch alone', async () => {
  const batching = reader(proxyUrl, { batch: true })
  const outcomes = await Promise.allSettled([
    batching.getChainId(),
    batching.request({ method: 'eth_holdfastNope', params: [] }),
    batching.call({ to: at.reverter }),
    batching.getTransaction({ hash }),
  ])
  equal(outcomes.map(({ status }) => status), ['fulfilled', 'rejected', 'rejected', 'fulfilled'])
})

await compareRaw({
  hash: blockHash, number: numberToHex(blockNumber), tx: hash, from: account.address, logger: at.logger, reverter: at.reverter,
})
process.exit(0)
