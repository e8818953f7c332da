// Uses ethers through the proxy and compares with the node: node ethers.mjs PROXY_URL NODE_URL

import { ContractFactory, JsonRpcProvider, parseUnits, toQuantity, Transaction, Wallet } from 'ethers'
import {
  compareRaw, creation, equal, logTopic, nodeUrl, proxyUrl, randomHash, raw, revertData, runtime, same, step, TAGS, thrown,
} from './support.mjs'

// Account 1 of anvil's default mnemonic; anvil prints this key when it starts.
const key = '0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d'

// cacheTimeout -1: otherwise ethers caches answers for 250 ms.
const connect = (url, options) => {
  const provider = new JsonRpcProvider(url, undefined, { cacheTimeout: -1, ...options })
  provider.pollingInterval = 50
  return provider
}
const provider = connect(proxyUrl)
const direct = connect(nodeUrl)
const wallet = new Wallet(key, provider)

// ethers objects contain their provider; toJSON omits it.
const plain = (value) => value?.toJSON?.() ?? value
const both = async (read, what) => equal(plain(await read(provider)), plain(await read(direct)), what)

await step('chain id', () => both(async (p) => (await p.getNetwork()).chainId))
await step('balance', () => both((p) => p.getBalance(wallet.address)))

const sent = await step('signed transfer and its receipt', async () => {
  const request = await wallet.populateTransaction({ to: '0x' + '22'.repeat(20), value: parseUnits('7', 'gwei') })
  const signed = await wallet.signTransaction(request)
  const { hash } = Transaction.from(signed)
  // Before the transaction is sent: the proxy must not serve this null afterwards.
  equal(await provider.getTransaction(hash), null)
  equal(await provider.getTransactionReceipt(hash), null)
  const response = await provider.broadcastTransaction(signed)
  equal(response.hash, hash, 'hash')
  const receipt = await response.wait(1, 60_000)
  equal([receipt.status, receipt.hash], [1, hash], 'receipt')
  await same('eth_getTransactionByHash', [hash])
  await same('eth_getTransactionReceipt', [hash])
  return receipt
})
await step('balance after the transfer', () => both((p) => p.getBalance(wallet.address)))

const at = await step('three contracts deployed', async () => {
  const addresses = {}
  for (const name of ['bytes', 'logger', 'reverter']) {
    const contract = await new ContractFactory([], creation[name], wallet).deploy()
    await contract.waitForDeployment()
    addresses[name] = await contract.getAddress()
    equal(await provider.getCode(addresses[name]), `0x${runtime[name]}`, `code of ${name}`)
  }
  return addresses
})

const logged = await step('a call that logs, and its logs', async () => {
  const response = await wallet.sendTransaction({ to: at.logger })
  const receipt = await provider.waitForTransaction(response.hash, 1, 60_000)
  const range = { address: at.logger, fromBlock: receipt.blockNumber, toBlock: receipt.blockNumber }
  const found = await provider.getLogs(range)
  equal(found.map(({ topics }) => topics), [[logTopic], []], 'topics')
  const logs = async (p) => (await p.getLogs({ blockHash: receipt.blockHash })).map(plain)
  equal(await logs(provider), await logs(direct), 'logs by block hash')
  return receipt
})

const { blockHash, blockNumber, hash } = logged
await step('blocks by number, hash and tag', async () => {
  for (const full of [false, true]) {
    for (const which of [blockNumber, blockHash, ...TAGS]) {
      await both((p) => p.getBlock(which, full), `${which}, ${full}`)
    }
    equal(Array.isArray((await provider.getBlock('pending', full)).transactions), true, 'pending block')
  }
  const block = await provider.getBlock(blockHash, true)
  equal([block.length, block.transactions], [1, [hash]], 'transactions of the block')
  equal(plain(block.prefetchedTransactions[0]), plain(await direct.getTransaction(hash)), 'the transaction inside it')
})
await step('the transaction by hash and by index', async () => {
  await both((p) => p.getTransaction(hash), 'by hash')
  await both((p) => p.getTransactionReceipt(hash), 'receipt')
  await both(async (p) => (await p.getBlock(blockNumber)).getTransaction(0), 'by block and index')
  // ethers has no helper for these two.
  for (const [method, block] of [
    ['eth_getTransactionByBlockHashAndIndex', blockHash],
    ['eth_getTransactionByBlockNumberAndIndex', toQuantity(blockNumber)],
  ]) {
    for (const index of ['0x0', 0]) {
      await both((p) => p.send(method, [block, index]), `${method} ${index}`)
      equal((await provider.send(method, [block, index])).hash, hash)
    }
    equal(await provider.send(method, [block, '0x7']), null, 'past the end')
  }
})

await step('missing content is null', async () => {
  const nothing = randomHash()
  equal(await provider.getTransaction(nothing), null)
  equal(await provider.getTransactionReceipt(nothing), null)
  equal(await provider.getBlock(nothing), null)
  equal(await provider.getBlock(0xffffffff), null)
})
await step('an unknown method is an error', async () => {
  const seen = async (p) => {
    const { code, error } = await thrown(() => p.send('eth_holdfastNope', []))
    return [code, error?.code]
  }
  equal(await seen(provider), await seen(direct))
})
await step('revert data comes through eth_call', async () => {
  const seen = async (p) => {
    const { code, shortMessage, data, reason } = await thrown(() => p.call({ to: at.reverter }))
    return [code, shortMessage, data, reason]
  }
  const expected = await seen(direct)
  equal(expected[2], revertData, 'data at the node')
  equal(await seen(provider), expected)
})

const twentyFive = async (p) => {
  const reads = [0, 1, 2, 3, 4].flatMap((i) => [
    p.getBlock(i),
    p.getBalance(wallet.address, blockNumber),
    p.getTransaction(hash),
    p.getTransactionReceipt(sent.hash),
    p.getCode(at.bytes, blockNumber),
  ])
  return (await Promise.all(reads)).map(plain)
}
// Records the number of calls in each HTTP request of a provider.
const sizesOf = (p) => {
  const sizes = []
  p.on('debug', ({ action, payload }) => {
    if (action === 'sendRpcPayload') sizes.push(Array.isArray(payload) ? payload.length : 1)
  })
  return sizes
}
await step('batch of 25 mixed calls', async () => {
  const expected = await twentyFive(direct)
  const sizes = sizesOf(provider)
  equal(await twentyFive(provider), expected)
  if (Math.max(...sizes) < 20) throw new Error(`ethers did not batch: ${sizes}`)
})
await step('the same 25 calls with batchMaxCount 1', async () => {
  const single = connect(proxyUrl, { batchMaxCount: 1 })
  const sizes = sizesOf(single)
  equal(await twentyFive(single), await twentyFive(direct))
  equal(Math.max(...sizes), 1, 'largest request')
  single.destroy()
})
await step('one failing call leaves the rest of its batch alone', async () => {
  const outcomes = await Promise.allSettled([
    provider.send('eth_chainId', []),
    provider.send('eth_holdfastNope', []),
    provider.call({ to: at.reverter }),
    provider.getTransaction(hash),
  ])
  equal(outcomes.map(({ status }) => status), ['fulfilled', 'rejected', 'rejected', 'fulfilled'])
})

await compareRaw({
  hash: blockHash, number: toQuantity(blockNumber), tx: hash, from: wallet.address, logger: at.logger, reverter: at.reverter,
})
process.exit(0)
