// Uses web3.js through the proxy and compares with the node: node web3js.mjs PROXY_URL NODE_URL

import { Web3 } from 'web3'
import { compareRaw, creation, equal, nodeUrl, proxyUrl, randomHash, runtime, same, step, TAGS } from './support.mjs'

// Account 2 of anvil's default mnemonic; anvil prints this key when it starts.
const key = '0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a'

const connect = (url) => new Web3(url, undefined, { transactionPollingInterval: 50, transactionConfirmationBlocks: 1 }).eth
const eth = connect(proxyUrl)
const direct = connect(nodeUrl)
const [{ address: from }] = eth.accounts.wallet.add(key)
const both = async (read, what) => equal(await read(eth), await read(direct), what)

await step('chain id and balance', async () => {
  await both((e) => e.getChainId())
  await both((e) => e.getBalance(from))
})

const sent = await step('signed transfer and its receipt', async () => {
  const receipt = await eth.sendTransaction({ from, to: '0x' + '33'.repeat(20), value: 7_000_000_000n })
  equal(receipt.status, 1n, 'status')
  await same('eth_getTransactionReceipt', [receipt.transactionHash])
  return receipt
})
await step('balance after the transfer', () => both((e) => e.getBalance(from)))

const at = await step('two contracts deployed', async () => {
  const addresses = {}
  for (const name of ['logger', 'reverter']) {
    const { contractAddress } = await eth.sendTransaction({ from, data: creation[name], gas: 200_000n })
    equal(await eth.getCode(contractAddress), `0x${runtime[name]}`, `code of ${name}`)
    addresses[name] = contractAddress
  }
  return addresses
})

const { blockHash, blockNumber, transactionHash: hash } = await step('a call that logs, and its logs', async () => {
  const receipt = await eth.sendTransaction({ from, to: at.logger, gas: 100_000n })
  equal(receipt.logs.length, 2, 'logs of the receipt')
  await both((e) => e.getPastLogs({ address: at.logger, fromBlock: receipt.blockNumber, toBlock: receipt.blockNumber }))
  return receipt
})

await step('blocks by number, hash and tag', async () => {
  for (const full of [false, true]) {
    for (const which of [blockNumber, blockHash, ...TAGS]) await both((e) => e.getBlock(which, full), `${which}, ${full}`)
  }
  await both((e) => e.getBlockTransactionCount(blockHash))
})
await step('the transaction by hash and by index', async () => {
  await both((e) => e.getTransaction(hash))
  await both((e) => e.getTransactionFromBlock(blockNumber, 0))
  await both((e) => e.getTransactionReceipt(sent.transactionHash))
})
await step('missing content', async () => {
  const nothing = randomHash()
  const message = (error) => error.message
  await both((e) => e.getTransaction(nothing).catch(message), 'transaction')
  await both((e) => e.getTransactionReceipt(nothing).catch(message), 'receipt')
  await both((e) => e.getBlock(nothing).catch(message), 'block')
})
await step('a batch', async () => {
  const seen = async (e) => {
    const batch = new e.BatchRequest()
    const params = [`0x${blockNumber.toString(16)}`, true]
    batch.add({ jsonrpc: '2.0', method: 'eth_getBlockByNumber', params })
    batch.add({ jsonrpc: '2.0', method: 'eth_getTransactionReceipt', params: [hash] })
    return (await batch.execute()).map(({ result }) => result)
  }
  equal(await seen(eth), await seen(direct))
})

const number = `0x${blockNumber.toString(16)}`
await compareRaw({ hash: blockHash, number, tx: hash, from, logger: at.logger, reverter: at.reverter })
process.exit(0)
