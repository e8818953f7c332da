// The proxy must return unusual request ids byte for byte: node ids.mjs PROXY_URL [NODE_URL]
// Calls only the proxy (anvil refuses some of these ids) and ignores the second argument.

const url = process.argv[2]
if (!url) {
  console.error('usage: node ids.mjs PROXY_URL')
  process.exit(2)
}
setTimeout(() => {
  console.log('FAIL timed out after 300 s')
  process.exit(1)
}, 300_000).unref()

// Ids as JSON text. JSON.parse would hide most differences (1.0 is 1, "\u0061" is "a").
const IDS = [
  '0', '-5', '1.0', '1e3', String(2n ** 70n), '""', String.raw`"\u0061"`, 'null', '"é☃🌊"', String.raw`"a\"},{\\"`,
]
// Results that the proxy may cache or forward, and an error.
const CALLS = ['eth_chainId","params":[]', 'eth_getBlockByNumber","params":["0x0",false]', 'net_version","params":[]', 'eth_holdfastNope","params":[]']

const request = (id, call) => `{"jsonrpc":"2.0","id":${id},"method":"${call}}`

async function post(body) {
  const response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
  return response.text()
}

/** Splits the text of an object or array into its top-level parts. */
function parts(json) {
  const found = []
  let depth = 0
  let start = 1
  const inner = json.trim()
  // One token at a time: a whole string, a bracket, a comma, or a run of anything else.
  for (const token of inner.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{},]|[^"[\]{},]+/g)) {
    const [piece] = token
    const end = '}]'.includes(piece) && --depth === 0
    if ((piece === ',' && depth === 1) || end) {
      found.push(inner.slice(start, token.index).trim())
      start = token.index + 1
    }
    if ('{['.includes(piece)) depth++
  }
  return found.filter((part) => part !== '')
}

/** Returns the raw text of each member of an object, whose names contain no escapes. */
const members = (json) =>
  Object.fromEntries(parts(json).map((part) => part.match(/^"([^"]*)"\s*:\s*([^]*)$/).slice(1)))

function fail(what, expected, got) {
  console.log(`FAIL ${what}\n  expected ${expected}\n  got      ${got}`)
  process.exit(1)
}

/** Checks that a response has the same id and either a result or an error, which it returns as text. */
function check(what, id, response) {
  const { id: got, result, error } = members(response)
  if (got !== id) fail(`${what}: id`, id, `${got} in ${response}`)
  if ((result === undefined) === (error === undefined)) fail(what, 'a result or an error', response)
  return result ?? error
}

try {
  // Tests the parser above with a difficult text.
  const sample = members(String.raw`{ "a" : [1,{"id":2}] , "id" : "\"},\\" ,"b":1.0}`)
  if (sample.id !== String.raw`"\"},\\"` || sample.b !== '1.0') fail('own reader', 'raw members', JSON.stringify(sample))

  for (const id of IDS) {
    for (const call of CALLS) check(`id ${id}, ${call}`, id, await post(request(id, call)))
    // Again: now the answer may come from the cache, fetched with another id.
    for (const call of CALLS) check(`id ${id}, ${call}, second time`, id, await post(request(id, call)))
    console.log(`ok   id ${id}`)
  }

  const expected = []
  for (const call of CALLS) expected.push(check(call, '1', await post(request(1, call))))

  // With equal ids only the order distinguishes answers, so this checks the order too.
  const batch = async (name, pairs) => {
    const body = await post(`[${pairs.map(([id, n]) => request(id, CALLS[n])).join(',')}]`)
    const responses = body.trim().startsWith('[') ? parts(body) : fail(name, 'an array', body)
    if (responses.length !== pairs.length) fail(`${name}: answers`, pairs.length, body)
    pairs.forEach(([id, n], i) => {
      const got = check(`${name}, item ${i}`, id, responses[i])
      if (got !== expected[n]) fail(`${name}, item ${i}`, expected[n], got)
    })
    console.log(`ok   ${name}`)
  }
  await batch('batch of every id', IDS.map((id, i) => [id, i % CALLS.length]))
  for (const id of IDS) await batch(`batch of equal ids ${id}`, CALLS.concat(CALLS).map((_, i) => [id, i % CALLS.length]))
  await batch('batch of ids that are equal only as values', ['1', '1.0', '1e0', '"a"', String.raw`"\u0061"`].map((id, i) => [id, i % CALLS.length]))
} catch (error) {
  console.log(`FAIL ${error?.stack ?? error}`)
  process.exit(1)
}
process.exit(0)
