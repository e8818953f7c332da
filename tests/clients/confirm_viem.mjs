// Reads the blocks of receipts with viem: node confirm_viem.mjs PROXY_URL ROUNDS ACCOUNTS

import { createPublicClient, createWalletClient, http } from 'viem'
import { confirm, proxyUrl, until } from './confirm.mjs'

const transport = http(proxyUrl, { retryCount: 0 })
// cacheTime 0: otherwise viem caches the block number.
const client = createPublicClient({ transport, pollingInterval: 50, cacheTime: 0 })
const wallet = createWalletClient({ transport })
const addresses = await wallet.getAddresses()

const orNull = (name) => (error) => {
  if (error.name === name) return null
  throw error
}
const receiptOf = (hash) =>
  client.getTransactionReceipt({ hash }).catch(orNull('TransactionReceiptNotFoundError'))
const block = (way) => client.getBlock(way).then(({ hash }) => hash, orNull('BlockNotFoundError'))

await confirm({
  send: async (at, polls) => {
    const account = addresses[at]
    const hash = await wallet.sendTransaction({ account, chain: null, to: account, value: 1n })
    const receipt = polls ? await until(() => receiptOf(hash)) : await client.waitForTransactionReceipt({ hash })
    return { hash: receipt.blockHash, number: receipt.blockNumber }
  },
  byNumber: (blockNumber) => block({ blockNumber }),
  byHash: (blockHash) => block({ blockHash }),
  head: () => client.getBlockNumber(),
})
