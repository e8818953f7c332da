// The history of the counters, and the plots over time.

import { ceiling, Plot } from './plot.js'
import { $, DASH, element, fill, percent, rate, seconds, set, span, THIN } from './words.js'

const FINE = 15 * 60e3
const COARSE = 24 * 3600e3
const MINUTE = 60e3
const history = { fine: [], coarse: [] }
let columns = []
let shown = 'fine'
let empty = 'No data yet'

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

export function setHistory(told) {
  columns = told.columns
  for (const ring of ['fine', 'coarse']) history[ring] = told[ring].map((line, index) => ({ ...sample(line), index }))
}

export function addSamples({ fine, coarse }) {
  add('fine', fine, FINE)
  add('coarse', coarse, COARSE)
}

// Least period and least number of saved calls that tell a rate.
const LEAST_PERIOD = 30e3
const LEAST_SAVED = 20

// Returns what the last 15 minutes, or the time since the start, saved and cost in upstream calls.
export function recentSavings() {
  const [first, last] = [history.fine[0], history.fine[history.fine.length - 1]]
  if (!first || last.time - first.time < LEAST_PERIOD) return null
  const since = (name) => last[name] - first[name]
  const saved = since('hits') + since('joined')
  return saved < LEAST_SAVED ? null : { seconds: (last.time - first.time) / 1e3, saved, upkeep: since('upkeep') }
}

// Groups samples into no more points than a plot can show. A sample stays in its group as time goes on.
function grouped(samples, size) {
  const groups = []
  let before = null
  for (const sample of samples) {
    const last = groups[groups.length - 1]
    if (last && Math.floor(sample.index / size) === last.group) last.samples.push(sample)
    else groups.push({ group: Math.floor(sample.index / size), samples: [sample], before })
    before = sample
  }
  return groups.filter((group) => group.before)
}

const middle = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? null
const most = (values) => (values.length ? Math.max(...values) : null)
const length = (samples) => (samples.length ? samples[samples.length - 1].time - samples[0].time : 0)

// Returns the samples of the shown range, and the time between two of them. The fine samples show a young instance
// better, as long as they reach back to its start. Later, the newest fine sample stands for the current minute.
function samplesShown() {
  const { fine, coarse } = history
  const [last, newest] = [coarse[coarse.length - 1], fine[fine.length - 1]]
  if (shown === 'fine' || !last || coarse[0].time >= fine[0].time - 2e3) return { samples: fine, step: 2e3 }
  return { samples: newest.time > last.time ? [...coarse, { ...newest, index: last.index + 1 }] : coarse, step: MINUTE }
}

function points(samples, size) {
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
  const recent = drawn.filter((point) => point.time > last.time - (shown === 'fine' ? 10e3 : FINE))
  const average = (name) => {
    const values = recent.map((point) => point[name]).filter((value) => value != null)
    // Durations differ by orders of magnitude: one long duration would dominate an average.
    if (name.startsWith('hits') || name.startsWith('misses')) return middle(values)
    return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null
  }
  return Object.fromEntries(Object.keys(last).map((name) => [name, name === 'time' ? null : average(name)]))
}

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' })
const or = (write, value) => (value == null ? DASH : write(value))

const NOTES = {
  ratio: 'Share of all calls that were not refused.',
  rate: 'Upstream includes Holdfast’s own calls to follow the chain.',
  latency: 'Inside Holdfast, without the network. Shade: up to p99.',
}

// The time under the pointer replaces the note, so that the plot does not move.
function legend(id, point, entries) {
  fill(`${id}-legend`, entries.map(([name, text, first]) =>
    element('span', { className: first ? 'first' : '' }, element('i'), `${name} `, element('b', {}, text))))
  set(`${id}-note`, point?.time ? `At ${clock.format(point.time)}` : NOTES[id])
}

const legends = {
  ratio: (point) => legend('ratio', point, [['hits', or(percent, point?.ratio), true]]),
  rate: (point) => legend('rate', point, [['clients', or(rate, point?.calls), true], ['upstream', or(rate, point?.upstream)]]),
  latency: (point) => legend('latency', point, [['hits', or(seconds, point?.hits), true], ['misses', or(seconds, point?.misses)]]),
}

let now = null
const plots = Object.fromEntries(Object.entries(legends).map(([id, write]) => [id, new Plot($(id), (point) => write(point ?? now))]))

function showRatio(shared, over) {
  plots.ratio.show({
    ...shared,
    y: (value) => value,
    ticks: [0, 0.25, 0.5, 0.75, 1].map((value) => [value, `${value * 100}${THIN}%`]),
    layers: [{ kind: 'area', of: (point) => point.ratio, first: true }, { kind: 'line', of: (point) => point.ratio, first: true }],
    summary: `Share of calls served from the cache, ${over}: now ${or(percent, now?.ratio)}`,
  })
}

// Formats a round number for an axis.
function short(value) {
  const [size, unit] = [[1e6, 'M'], [1e3, 'k'], [1, '']].find(([size]) => value >= size) ?? [1, '']
  return `${Number((value / size).toPrecision(2))}${unit && THIN + unit}`
}

function showRate(shared, over) {
  const top = ceiling(most(shared.points.flatMap((point) => [point.calls, point.upstream])) ?? 1)
  plots.rate.show({
    ...shared,
    y: (value) => value / top,
    ticks: [0, top / 2, top].map((value) => [value, short(value)]),
    layers: [
      { kind: 'area', of: (point) => point.calls, first: true },
      { kind: 'line', of: (point) => point.upstream },
      { kind: 'line', of: (point) => point.calls, first: true },
    ],
    summary: `Calls per second ${over}: now ${or(rate, now?.calls)} from clients, ${or(rate, now?.upstream)} sent upstream`,
  })
}

function showLatency(shared, over) {
  const times = shared.points.flatMap((point) => [point.hits, point.hitsMost, point.misses, point.missesMost]).filter((value) => value > 0)
  // The histogram's first bucket ends at 1 µs.
  const low = Math.max(Math.floor(Math.log10(times.length ? Math.min(...times) : 1e-6) + 1e-9), -6)
  const high = Math.max(Math.ceil(Math.log10(times.length ? Math.max(...times) : 1) - 1e-9), low + 2)
  const decades = Array.from({ length: high - low + 1 }, (_, at) => Number((10 ** (low + at)).toPrecision(1)))
  const band = (of, to, first) => ({ kind: 'band', of, to, first })
  plots.latency.show({
    ...shared,
    y: (value) => (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low),
    ticks: decades.map((value) => [value, seconds(value)]),
    layers: [
      band((point) => (point.misses == null ? null : point.missesMost), (point) => point.misses, false),
      band((point) => (point.hits == null ? null : point.hitsMost), (point) => point.hits, true),
      { kind: 'line', of: (point) => point.misses },
      { kind: 'line', of: (point) => point.hits, first: true },
    ],
    summary: `Median time to answer ${over}: now ${or(seconds, now?.hits)} from the cache, ${or(seconds, now?.misses)} from upstream`,
  })
}

export function showPlots() {
  const { samples, step } = samplesShown()
  const age = length(samples)
  const size = step === MINUTE ? (age > 6 * 3600e3 ? 5 : 1) : age > 10 * MINUTE ? 3 : age > 5 * MINUTE ? 2 : 1
  const drawn = points(samples, size)
  now = lately(drawn)
  const end = samples.length ? samples[samples.length - 1].time : Date.now()
  // A short history fills the whole plot, too.
  const from = drawn.length ? Math.min(drawn[0].time, end - 10e3) : end - 10e3
  const over = `over the last ${span((end - from) / 1e3)}`
  set('bins', drawn.length ? `last ${span(Math.round(age / 1e3))}, a point every ${span((size * step) / 1e3)}` : '')
  const shared = { span: [from, end], points: drawn, quiet: !drawn.some((point) => point.calls > 0), empty }
  showRatio(shared, over)
  showRate(shared, over)
  showLatency(shared, over)
}

// Sets the text of plots without calls.
export function setEmpty(text) {
  empty = text
}

export function startCharts() {
  const buttons = document.querySelectorAll('[data-range]')
  for (const button of buttons) {
    button.addEventListener('click', () => {
      shown = button.dataset.range
      for (const other of buttons) other.setAttribute('aria-pressed', String(other === button))
      showPlots()
    })
  }
  showPlots()
}
