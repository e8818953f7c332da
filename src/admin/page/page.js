// Shows the status that the events report. Sends requests only to the listener that served the page.

import { startLookUp } from './lookup.js'
import { ceiling, Plot } from './plot.js'
import {
  $, bytes, DASH, dot, element, fill, none, pair, percent, plural, rate, say, scaled, seconds, set, small, span, THIN, whole,
} from './words.js'

// ## Worth of the saved calls

const PRICE = 'holdfast.price'
const USUAL = '$2.00'
let savedCalls = null

// Parses a number with a currency sign before or after it.
function readPrice(text) {
  const read = /^\s*([^\d.,\s]*)\s*(\d[\d\s]*(?:[.,]\d+)?|[.,]\d+)\s*([^\d.,\s]*)\s*$/.exec(text)
  if (!read) return null
  return { before: read[1], price: Number(read[2].replace(/\s/g, '').replace(',', '.')), behind: read[3] }
}

function showWorth() {
  const read = readPrice($('price').value)
  $('price').setAttribute('aria-invalid', String(!read))
  if (!read || savedCalls === null) return set('worth', DASH)
  const value = (Math.max(savedCalls, 0) * read.price) / 1e6
  // Shows amounts below a cent with more decimals.
  const [units, cents] = value.toFixed(value >= 0.01 || value === 0 ? 2 : 6).split('.')
  set('worth', `${read.before}${whole(Number(units))}.${cents}${read.behind && THIN + read.behind}`)
}

function startWorth() {
  let kept = null
  try { kept = localStorage.getItem(PRICE) } catch { /* The browser may forbid storage; then the price is not stored. */ }
  $('price').value = kept ?? USUAL
  $('price').addEventListener('input', () => {
    showWorth()
    try { if (readPrice($('price').value)) localStorage.setItem(PRICE, $('price').value) } catch { /* as above */ }
  })
}

// ## Over time

const FINE = 15 * 60e3
const COARSE = 24 * 3600e3
const history = { fine: [], coarse: [] }
let columns = []
let shown = 'fine'
let url = ''
let anyCalls = false

function sample(line) {
  if (!line) return null
  return Object.fromEntries(columns.map((name, at) => [name, line[at]]))
}

function add(ring, line, most) {
  const taken = sample(line)
  const samples = history[ring]
  const last = samples[samples.length - 1]
  if (!taken || (last && taken.time <= last.time)) return
  samples.push({ ...taken, index: last ? last.index + 1 : 0 })
  while (samples[0].time < taken.time - most) samples.shift()
}

// Groups samples into no more points than a plot can show. A sample stays in its group as time goes on.
function grouped(samples, size) {
  const groups = []
  let before = null
  for (const sample of samples) {
    const last = groups[groups.length - 1]
    if (last && Math.floor(sample.index / size) === last.group) last.samples.push(sample)
    else {
      groups.push({ group: Math.floor(sample.index / size), samples: [sample], before })
    }
    before = sample
  }
  return groups.filter((group) => group.before)
}

const middle = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? null
const most = (values) => (values.length ? Math.max(...values) : null)

// Returns the samples of the shown range. In the 24-hour range, the newest fine sample stands for the current minute.
function samplesShown() {
  const { fine, coarse } = history
  const [last, newest] = [coarse[coarse.length - 1], fine[fine.length - 1]]
  if (shown === 'fine' || !last || newest.time <= last.time) return history[shown]
  return [...coarse, { ...newest, index: last.index + 1 }]
}

function points() {
  const samples = samplesShown()
  const age = samples.length ? samples[samples.length - 1].time - samples[0].time : 0
  const size = shown === 'fine' ? (age > 10 * 60e3 ? 3 : age > 5 * 60e3 ? 2 : 1) : age > 6 * 3600e3 ? 5 : 1
  return grouped(samples, size).map(({ samples, before }) => {
    const now = samples[samples.length - 1]
    const passed = Math.max((now.time - before.time) / 1e3, 0.1)
    const since = (name) => Math.max(now[name] - before[name], 0)
    const all = (name) => samples.map((sample) => sample[name]).filter((value) => value != null)
    const asked = since('calls') - since('refused')
    return {
      time: now.time,
      ratio: asked > 0 ? Math.min(since('hits') / asked, 1) : null,
      calls: since('calls') / passed,
      upstream: since('upstream') / passed,
      hits: middle(all('memory_p50')),
      hitsMost: most(all('memory_p99')),
      misses: middle(all('upstream_p50')),
      missesMost: most(all('upstream_p99')),
    }
  })
}

// Returns the current value: an average of the last ten seconds, or of 15 minutes in the plot of 24 hours. A single
// sample is seldom typical.
function lately(drawn) {
  const last = drawn[drawn.length - 1]
  if (!last) return null
  const recent = drawn.filter((point) => point.time > last.time - (shown === 'fine' ? 10e3 : 15 * 60e3))
  const average = (name) => {
    const values = recent.map((point) => point[name]).filter((value) => value != null)
    // Durations differ by orders of magnitude: one long duration would dominate an average.
    if (name.startsWith('hits') || name.startsWith('misses')) return middle(values)
    return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null
  }
  return Object.fromEntries(Object.keys(last).map((name) => [name, name === 'time' ? null : average(name)]))
}

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' })

function legend(id, point, entries) {
  const parts = entries.map(([name, text, first]) =>
    element('span', { className: first ? 'first' : '' }, element('i'), `${name} `, element('b', {}, text)))
  if (point?.time) parts.unshift(element('span', {}, clock.format(point.time)))
  fill(id, parts)
}
const or = (write, value) => (value == null ? DASH : write(value))

const legends = {
  ratio: (point) => legend('ratio-legend', point, [['hits', or(percent, point?.ratio), true]]),
  rate: (point) => legend('rate-legend', point, [['clients', or(rate, point?.calls), true], ['upstream', or(rate, point?.upstream)]]),
  latency: (point) => legend('latency-legend', point, [['hits', or(seconds, point?.hits), true], ['misses', or(seconds, point?.misses)]]),
}

let now = null
const plots = Object.fromEntries(Object.entries(legends).map(([id, write]) => [id, new Plot($(id), (point) => write(point ?? now))]))

function showPlots() {
  const samples = samplesShown()
  const drawn = points()
  now = lately(drawn)
  const end = samples.length ? samples[samples.length - 1].time : Date.now()
  const age = samples.length ? end - samples[0].time : 0
  // A short history fills the whole plot, too.
  const length = Math.min(Math.max(age, shown === 'fine' ? 20e3 : 30 * 60e3), shown === 'fine' ? FINE : COARSE)
  const shared = { span: [end - length, end], points: drawn, quiet: !drawn.some((point) => point.calls > 0), empty: anyCalls ? 'No calls in this period' : url ? `No calls yet: point a wallet at ${url}` : 'No data yet' }
  const over = `over the last ${span(length / 1e3)}`

  plots.ratio.show({
    ...shared,
    y: (value) => value,
    ticks: [0, 0.25, 0.5, 0.75, 1].map((value) => [value, `${value * 100}${THIN}%`]),
    layers: [{ kind: 'area', of: (point) => point.ratio, first: true }, { kind: 'line', of: (point) => point.ratio, first: true }],
    summary: `Share of calls served from the cache, ${over}: now ${or(percent, now?.ratio)}`,
  })

  const top = ceiling(most(drawn.flatMap((point) => [point.calls, point.upstream])) ?? 1)
  plots.rate.show({
    ...shared,
    y: (value) => value / top,
    ticks: [0, top / 2, top].map((value) => [value, value >= 1000 ? scaled(value, 1000, ['', 'k', 'M']) : String(Number(value.toPrecision(2)))]),
    layers: [
      { kind: 'area', of: (point) => point.calls, first: true },
      { kind: 'line', of: (point) => point.upstream },
      { kind: 'line', of: (point) => point.calls, first: true },
    ],
    summary: `Calls per second ${over}: now ${or(rate, now?.calls)} from clients, ${or(rate, now?.upstream)} sent upstream`,
  })

  const times = drawn.flatMap((point) => [point.hits, point.hitsMost, point.misses, point.missesMost]).filter((value) => value > 0)
  const low = Math.floor(Math.log10(times.length ? Math.min(...times) : 1e-6) + 1e-9)
  const high = Math.max(Math.ceil(Math.log10(times.length ? Math.max(...times) : 1) - 1e-9), low + 2)
  const decades = Array.from({ length: high - low + 1 }, (_, at) => 10 ** (low + at))
  const band = (of, to, first) => ({ kind: 'band', of, to, first })
  plots.latency.show({
    ...shared,
    y: (value) => (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low),
    ticks: decades.map((value) => [value, seconds(Number(value.toPrecision(1)))]),
    layers: [
      band((point) => (point.misses == null ? null : point.missesMost), (point) => point.misses, false),
      band((point) => (point.hits == null ? null : point.hitsMost), (point) => point.hits, true),
      { kind: 'line', of: (point) => point.misses },
      { kind: 'line', of: (point) => point.hits, first: true },
    ],
    summary: `Median time to answer ${over}: now ${or(seconds, now?.hits)} from the cache, ${or(seconds, now?.misses)} from upstream`,
  })
}

for (const button of document.querySelectorAll('[data-range]')) {
  button.addEventListener('click', () => {
    shown = button.dataset.range
    for (const other of document.querySelectorAll('[data-range]')) other.setAttribute('aria-pressed', String(other === button))
    showPlots()
  })
}

// ## Current status

function state(tone, text) {
  $('state').dataset.tone = tone
  set('state-text', text)
}

// Wallets cannot use an unspecified address (0.0.0.0 or [::]): replaces it with the host of this page.
function clientUrl(status) {
  return status.url.replace(/\/\/(0\.0\.0\.0|\[::\])(?=:)/, `//${location.hostname}`)
}

const CHAINS = { 1: 'Mainnet', 10: 'Optimism', 17000: 'Holesky', 11155111: 'Sepolia', 560048: 'Hoodi', 8453: 'Base', 42161: 'Arbitrum', 137: 'Polygon', 1337: 'development', 31337: 'development' }

function showTop(status) {
  const isWell = status.ready && !status.degraded
  const tone = isWell ? 'good' : 'warn'
  const text = isWell ? 'ready' : status.ready ? 'degraded' : 'not ready'
  if ($('state').dataset.tone !== tone) say(isWell ? 'Holdfast is ready' : `Holdfast is ${text}: ${status.reason}`)
  state(tone, text)
  const name = CHAINS[status.chain?.id]
  set('where', status.chain ? `${name ? `${name} · ` : ''}chain ${status.chain.id}` : '')
  $('notice').hidden = isWell
  set('notice', isWell ? '' : `${status.ready ? 'Degraded' : 'Not ready'}: ${status.reason}`)
  set('about', `holdfast ${status.version} · up ${span(status.uptime_seconds)} · clients at ${url}`)
}

function showSaved({ calls, saved }) {
  savedCalls = saved.calls
  set('saved', whole(saved.calls))
  $('saved').classList.toggle('long', $('saved').textContent.length > 11)
  if (calls === 0) {
    fill('saved-how', ['No calls yet. Point a wallet, a dapp or an indexer at ', element('code', {}, url), '.'])
  } else {
    const besides = saved.upkeep_calls + saved.follow_calls
    fill('saved-how', [`${whole(saved.answered_without_upstream)} of ${plural(calls, 'call')} answered without an upstream call, less ${whole(besides)} upstream calls to follow the chain`])
  }
  showWorth()
}

function showChain({ canonical_view: view, reorgs }) {
  const { head, finalized } = view
  const rows = []
  if (head) {
    rows.push(pair('Head', whole(head.number), true))
    const age = view.head_age_seconds
    rows.push(pair('Seen', age == null ? DASH : age < 1 ? 'just now' : `${span(Math.floor(age))} ago`))
    if (view.lags) rows.push(pair('Upstream', 'behind the head that it reported before'))
    const behind = finalized && head.number - finalized.number
    rows.push(pair('Finalized', finalized ? [whole(finalized.number), ' ', small(behind > 0 ? `${whole(behind)} behind` : 'at the head')] : 'not reported'))
  } else {
    rows.push(pair('Head', 'not fetched yet'))
  }
  fill('chain', rows.flat())
  const last = reorgs.last.slice(0, 5).map((reorg) =>
    element('li', { className: 'split' },
      element('span', {}, `${reorg.depth == null ? 'Blocks' : plural(reorg.depth, 'block')} ${reorg.kind === 'rollback' ? 'rolled back' : 'replaced'}`),
      element('span', { className: 'tag' }, `head ${whole(reorg.head)} · ${span(reorg.age_seconds)} ago`)))
  if (reorgs.count > last.length) last.push(none(`${whole(reorgs.count)} since the start`))
  fill('reorgs', last.length ? last : [none('None since the start.')])
}

const HEALTH = {
  ok: ['good', 'healthy'],
  probing: ['warn', 'being probed'],
  rate_limited: ['warn', 'rate-limited'],
  unhealthy: ['bad', 'unhealthy'],
  unknown: ['warn', 'not reached yet'],
  wrong_chain: ['bad', 'wrong chain'],
}

function showEndpoints({ endpoints }) {
  fill('endpoints', endpoints.map((endpoint) => {
    const isDown = endpoint.outage_seconds != null && endpoint.head != null && endpoint.state !== 'ok'
    const [tone, word] = HEALTH[endpoint.state] ?? ['warn', endpoint.state]
    const since = new Date(Date.now() - endpoint.outage_seconds * 1000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })
    const what = isDown
      ? [endpoint.state === 'unknown' ? 'down' : word, `since ${since}`, `last block ${whole(endpoint.head)}`]
      : [word, endpoint.primary ? 'primary' : '', endpoint.head != null ? `at ${whole(endpoint.head)}` : ''].filter(Boolean)
    const more = [endpoint.reason, endpoint.last_mismatch && `last invalid answer: ${endpoint.last_mismatch}`].filter(Boolean)
    return element('li', { className: 'health', data: { tone } }, dot(),
      element('div', {}, element('code', { title: endpoint.url ?? '' }, endpoint.name), element('span', { className: 'tag' }, what.join(' · ')), ...more.map(small)))
  }))
}

function showCache(status) {
  const { cache } = status
  const part = Math.min(cache.bytes / cache.capacity, 1)
  const meter = $('fill')
  meter.firstElementChild.style.width = `${(part * 100).toFixed(2)}%`
  meter.setAttribute('aria-valuenow', (part * 100).toFixed(0))
  meter.setAttribute('aria-valuetext', `${bytes(cache.bytes)} of ${bytes(cache.capacity)}`)
  fill('cache', [
    pair('Full', percent(part)),
    pair('Size', [bytes(cache.bytes), ' ', small(`of ${bytes(cache.capacity)}`)]),
    pair('Entries', whole(cache.entries)),
    pair('Transactions', whole(cache.located_transactions)),
    pair('Served', bytes(status.bytes_from_memory)),
    ...status.tiers.flatMap(({ tier, bytes: kept, capacity, hits, reading, writing, errors }) => [
      pair(TIERS[tier] ?? tier, kept === null ? [] : [bytes(kept), ' ', small(capacity === null ? '' : `of ${bytes(capacity)}`)]),
      pair('Hits', [whole(hits), ' ', small([
        reading ? (writing ? '' : 'writes paused') : 'unavailable',
        errors ? `${whole(errors)} errors` : '',
      ].filter(Boolean).join(', '))]),
    ]),
  ].flat())
}

const TIERS = { disk: 'On disk', redis: 'In Redis' }

const LEVELS = { auto: 'proved where possible', full: 'everything proved', structural: 'structure only' }

function showVerification({ verification }) {
  const level = (name) => LEVELS[name] ?? name
  fill('verification', [
    pair('Level', verification.configured),
    pair('Headers', level(verification.headers)),
    pair('Blocks', level(verification.blocks)),
    pair('Receipts', level(verification.receipts)),
  ].flat())
  const cut = verification.never_cut.length ? ` Never derived from larger entries: ${verification.never_cut.join(', ')}.` : ''
  set('verification-why', `${verification.reason ?? ''}${cut}`.trim())
}

const REFUSALS = {
  refused: 'method not allowed, or invalid params',
  limited: 'over the rate limit',
  failed: 'failed without an answer',
  no_key: 'without a key',
  bad_key: 'with an unknown key',
  host: 'for a host that is not served',
  too_many_unauthenticated: 'without a valid key, too often',
  http_method: 'not sent with POST',
  websocket: 'WebSocket upgrade',
  content_type: 'not sent as JSON',
  content_encoding: 'sent compressed',
  body_too_large: 'body too large',
  body_timeout: 'body too slow',
  body_broken: 'body incomplete',
  parse_error: 'not JSON',
  invalid_request: 'not JSON-RPC, or batch too long',
  rate_limited: 'without a call, over the rate limit',
  overloaded: 'too many requests at once',
  bytes_exhausted: 'too many bytes at once',
  client_limit: 'too many requests of one client at once',
}

function showRefusals({ refusals }) {
  const counted = Object.entries(refusals.reasons).sort(([, a], [, b]) => b - a)
  const window = refusals.seconds >= 60 ? `the last ${span(refusals.seconds - (refusals.seconds % 60))}` : 'the last minute'
  const rows = counted.map(([reason, count]) =>
    element('li', { className: 'count' }, element('span', {}, REFUSALS[reason] ?? reason), element('span', {}, whole(count))))
  fill('refusals', [...rows, none(rows.length ? `in ${window}` : `None in ${window}.`)])
}

function show(status) {
  url = clientUrl(status)
  anyCalls = status.calls > 0
  showTop(status)
  showSaved(status)
  showChain(status)
  showEndpoints(status)
  showCache(status)
  showVerification(status)
  showRefusals(status)
}

// ## Connection

// How long to wait for an event before reconnecting: several times the interval between events.
const SILENCE = 5e3
let source = null
let watchdog = null

function lose() {
  document.body.classList.add('lost')
  if ($('state').dataset.tone !== 'bad') say('Not connected; trying again')
  state('bad', 'not connected, trying again')
}

function heard() {
  clearTimeout(watchdog)
  watchdog = setTimeout(() => { lose(); connect() }, SILENCE)
  document.body.classList.remove('lost')
}

function connect() {
  source?.close()
  source = new EventSource('/events')
  source.addEventListener('history', (event) => {
    const told = JSON.parse(event.data)
    columns = told.columns
    for (const ring of ['fine', 'coarse']) history[ring] = told[ring].map((line, index) => ({ ...sample(line), index }))
    heard()
  })
  source.addEventListener('status', (event) => {
    const told = JSON.parse(event.data)
    add('fine', told.fine, FINE)
    add('coarse', told.coarse, COARSE)
    show(told.status)
    showPlots()
    heard()
  })
  source.addEventListener('error', () => {
    lose()
    // Browsers reconnect by themselves, but not after an error status.
    clearTimeout(watchdog)
    watchdog = setTimeout(connect, SILENCE)
  })
}

startWorth()
startLookUp()
showPlots()
connect()
