// Reads the blocks of receipts with ethers: node confirm_ethers.mjs PROXY_URL ROUNDS ACCOUNTS

import { JsonRpcProvider } from 'ethers'
import { confirm, proxyUrl, until } from './confirm.mjs'

// cacheTimeout -1: otherwise ethers caches answers for 250 ms.
const provider = new JsonRpcProvider(proxyUrl, undefined, { cacheTimeout: -1 })
provider.pollingInterval = 50

const block = async (which) => (await provider.getBlock(which))?.hash ?? null

await confirm({
  send: async (at, polls) => {
    const signer = await provider.getSigner(at)
    const hash = await signer.sendUncheckedTransaction({ to: signer.address, value: 1n })
    const receipt = polls
      ? await until(() => provider.getTransactionReceipt(hash))
      : await provider.waitForTransaction(hash)
    return { hash: receipt.blockHash, number: receipt.blockNumber }
  },
  byNumber: block,
  byHash: block,
  head: () => provider.getBlockNumber(),
})
