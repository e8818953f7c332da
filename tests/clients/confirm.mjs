// Shared part of confirm_viem.mjs and confirm_ethers.mjs: rounds of transactions, and the blocks of their receipts.
//
// Usage: node SCRIPT PROXY_URL ROUNDS ACCOUNTS. In each round, each account sends a transaction, waits for the receipt,
// and then reads its block by number, by hash, and the number of the head.

const [url, rounds, accounts] = process.argv.slice(2)
if (!accounts) {
  console.error('usage: node SCRIPT PROXY_URL ROUNDS ACCOUNTS')
  process.exit(2)
}
export const proxyUrl = url

/** Pauses for some milliseconds. */
export const pause = (time) => new Promise((resolve) => setTimeout(resolve, time))

/** Calls `read` until it returns a value other than null. */
export async function until(read) {
  for (;;) {
    const value = await read()
    if (value !== null) return value
    await pause(20)
  }
}

/**
 * Runs the rounds, prints the counts, and exits with 1 if an answer fell behind a receipt.
 *
 * `send(account, polls)` returns the `hash` and `number` of the block of a mined transaction. With `polls`, it polls the
 * receipt; otherwise the library waits in its own way. `byNumber` and `byHash` return the hash of a block or null, and
 * `head` returns a number.
 */
export async function confirm({ send, byNumber, byHash, head }) {
  const count = { sends: 0, 'by number': 0, 'by hash': 0, 'low heads': 0 }
  const note = (name, is) => (count[name] += is ? 1 : 0)
  const one = async (round, account) => {
    const { hash, number } = await send(account, (round + account) % 2 === 0)
    count.sends++
    const reads = [
      async () => note('by number', (await byNumber(number)) !== hash),
      async () => note('low heads', (await head()) < number),
      async () => note('by hash', (await byHash(hash)) !== hash),
    ]
    // Each read is the first one for some accounts.
    for (let at = 0; at < reads.length; at++) await reads[(account + at) % reads.length]()
  }
  for (let round = 0; round < Number(rounds); round++) {
    await Promise.all(Array.from({ length: Number(accounts) }, (_, account) => one(round, account)))
  }
  const { sends, ...faults } = count
  const texts = Object.entries(faults).map(([name, times]) => `${times} ${name}`)
  console.log(`${sends} transactions; wrong: ${texts.join(', ')}`)
  process.exit(Object.values(faults).some((times) => times > 0) ? 1 : 0)
}
