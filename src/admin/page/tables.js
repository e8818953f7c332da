// The tables of methods and endpoints.

import { cell, DASH, dot, element, fill, heading, percent, plural, row, seconds, sentence, whole, wide, withoutErrno } from './words.js'

const time = (value) => (value == null ? DASH : seconds(value))
const count = (value) => (value ? whole(value) : DASH)

// Names the parts of a sum, for a tool tip.
const parts = (sum) => sum.filter(([value]) => value > 0).map(([value, name]) => `${whole(value)} ${name}`).join(', ')

function method(totals) {
  const { calls, hits, stale, joined, misses, not_cacheable: forwarded } = totals
  // Forwarded calls have a column of their own, and refused ones never had a chance to be hits.
  const cacheable = hits + stale + joined + misses
  const errors = [[totals.node_errors, 'from the node'], [totals.refused, 'refused'], [totals.failed, 'failed']]
  return row({}, heading(totals.method === 'other' ? 'other methods' : element('code', {}, totals.method)),
    cell('Calls', whole(calls)),
    cell('Hit ratio', cacheable ? percent(hits / cacheable) : DASH, parts([[hits, 'hits'], [stale, 'after a look at the head'], [joined, 'joined another call'], [misses, 'misses']])),
    cell('Not cacheable', count(forwarded)),
    cell('Errors', count(errors.reduce((sum, [value]) => sum + value, 0)), parts(errors)),
    cell('Wait p50', time(totals.upstream_p50_seconds)),
    cell('Wait p99', time(totals.upstream_p99_seconds)))
}

const LOG_SOURCES = {
  bloom: 'excluded by blooms',
  receipts: 'from cached receipts',
  fetched: 'from fetched receipts',
  forwarded: 'searched by the upstream, not proved',
}

// Says where the answers to eth_getLogs came from, and how many are proved.
function sources(logs) {
  const sum = (some) => logs.filter(some).reduce((sum, { calls }) => sum + calls, 0)
  const named = Object.entries(LOG_SOURCES).map(([source, words]) => [sum((told) => told.source === source), words])
  const proved = sum(({ proof }) => proof === 'proved')
  return `Logs: ${parts(named)}. ${percent(proved / sum(() => true))} proved complete.`
}

export function showMethods({ methods, logs }) {
  const rows = (totals) => [method(totals), ...(totals.method === 'eth_getLogs' && logs.length ? [row({ className: 'more' }, wide(7, '', sources(logs)))] : [])]
  fill('methods', methods.length ? methods.flatMap(rows) : [row({}, wide(7, 'none', 'No calls yet.'))])
}

const HEALTH = {
  ok: ['good', 'healthy'],
  failing: ['warn', 'failing'],
  probing: ['warn', 'on probation after failures'],
  rate_limited: ['warn', 'rate-limited'],
  unhealthy: ['bad', 'down'],
  unknown: ['warn', 'not reached yet'],
  wrong_chain: ['bad', 'wrong chain'],
}

// Returns the time of day, and the date unless it is today's.
function since(seconds) {
  const then = new Date(Date.now() - seconds * 1000)
  const isToday = then.toDateString() === new Date().toDateString()
  const day = isToday ? '' : `${then.toLocaleDateString([], { day: 'numeric', month: 'short' })}, `
  return day + then.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })
}

// Seconds for which failures of an endpoint that still gets calls are no news.
const LAPSE = 5

function state(endpoint) {
  const { state, outage_seconds: outage } = endpoint
  const hasFailed = outage != null && (state !== 'ok' || outage >= LAPSE)
  const hasAnswered = endpoint.head != null || endpoint.calls > endpoint.errors + endpoint.rate_limited
  const kind = !hasFailed ? state : state === 'ok' ? 'failing' : state === 'unknown' && hasAnswered ? 'unhealthy' : state
  const [tone, word] = HEALTH[kind] ?? ['warn', kind]
  const what = hasFailed && kind !== 'unknown' ? `${word} since ${since(outage)}` : word
  const block = endpoint.head == null ? '' : `${hasFailed ? 'last ' : ''}block ${whole(endpoint.head)}`
  return { tone, text: [what, endpoint.primary && !hasFailed ? 'primary' : '', block].filter(Boolean).join(', ') }
}

function endpoint(told) {
  const { tone, text } = state(told)
  const name = element('div', {}, element('code', { title: told.url ?? '' }, told.name), element('span', { className: 'tag' }, text))
  const more = [told.reason && sentence(withoutErrno(told.reason)), told.last_mismatch && `Last invalid answer: ${told.last_mismatch}.`].filter(Boolean)
  return [
    row({ className: 'endpoint', data: { tone } }, heading(element('div', { className: 'name' }, dot(), name)),
      cell('Calls', whole(told.calls)),
      cell('Errors', count(told.errors), told.calls ? `${percent(told.errors / told.calls)} of ${plural(told.calls, 'call')}` : ''),
      cell('Rate-limited', count(told.rate_limited), told.over_rate ? `and ${whole(told.over_rate)} refused by Holdfast, because its configured rate was used up` : ''),
      cell('p50', time(told.p50_seconds)),
      cell('p99', time(told.p99_seconds))),
    ...more.map((text) => row({ className: 'more' }, wide(6, '', text))),
  ]
}

export function showEndpoints({ endpoints }) {
  fill('endpoints', endpoints.flatMap(endpoint))
}
