// The cards: chain, cache, verification and refusals.

import {
  $, bytes, cell, DASH, element, fill, heading, none, pair, percent, plural, row, sentence, set, small, span, whole,
} from './words.js'

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
      element('span', { className: 'tag' }, `head ${whole(reorg.head)}, ${span(reorg.age_seconds)} ago`)))
  if (reorgs.count > last.length) last.push(none(`${whole(reorgs.count)} since the start`))
  fill('reorgs', last.length ? last : [none('None since the start.')])
}

const TIERS = { disk: 'Disk', redis: 'Redis' }

function tier(name, usage, hits, allHits, problems) {
  const size = usage.bytes === null ? [DASH] : [bytes(usage.bytes), usage.capacity === null ? '' : small(`of ${bytes(usage.capacity)}`)]
  return row({}, heading(name, problems ? small(problems) : ''),
    element('td', { role: 'cell' }, ...size),
    element('td', { role: 'cell' }, whole(hits), small(allHits ? percent(hits / allHits) : DASH)),
    cell('Evicted', whole(usage.evictions)))
}

function showCache(status) {
  const { cache, tiers } = status
  const part = Math.min(cache.bytes / cache.capacity, 1)
  const meter = $('fill')
  meter.firstElementChild.style.width = `${(part * 100).toFixed(2)}%`
  meter.setAttribute('aria-valuenow', (part * 100).toFixed(0))
  meter.setAttribute('aria-valuetext', `${bytes(cache.bytes)} of ${bytes(cache.capacity)}`)
  const restored = tiers.reduce((sum, tier) => sum + tier.hits, 0)
  fill('tiers', [
    tier('Memory', cache, status.hits - restored, status.hits, ''),
    ...tiers.map((told) => {
      const problems = [told.reading ? (told.writing ? '' : 'writes paused') : 'unavailable', told.errors ? plural(told.errors, 'error') : '']
      return tier(TIERS[told.tier] ?? told.tier, told, told.hits, status.hits, problems.filter(Boolean).join(', '))
    }),
  ])
  fill('cache', [
    pair('Entries', whole(cache.entries)),
    pair('Transactions', whole(cache.located_transactions)),
    pair('Sent from memory', bytes(status.bytes_from_memory)),
  ].flat())
}

const LEVELS = { auto: 'proved where possible', full: 'everything proved', structural: 'structure only' }

function showVerification({ verification }) {
  const level = (name) => LEVELS[name] ?? name
  const parts = ['headers', 'blocks', 'receipts'].map((part) => [part, level(verification[part])])
  const isUniform = parts.every(([, name]) => name === parts[0][1])
  const rows = isUniform ? [['Level', parts[0][1]]] : parts.map(([part, name]) => [`${part[0].toUpperCase()}${part.slice(1)}`, name])
  fill('verification', rows.map(([part, name]) => pair(part, name)).flat())
  const cut = verification.never_cut.length ? ` Never derived from larger entries: ${verification.never_cut.join(', ')}.` : ''
  set('verification-why', `${sentence(verification.reason ?? '')}${cut}`.trim())
}

// Words and codes for the reasons: HTTP statuses, or JSON-RPC codes where the status is 200.
const REFUSALS = {
  refused: ['method not allowed, or invalid params', '−32601, −32602'],
  limited: ['client over its rate limit', '429'],
  failed: ['upstream failed, or overload', '429, 502, 503, 504'],
  no_key: ['no API key', '401'],
  bad_key: ['unknown API key', '401'],
  host: ['host not allowed', '403'],
  too_many_unauthenticated: ['too many requests without a valid key', '429'],
  http_method: ['not sent with POST', '405'],
  websocket: ['WebSocket is not offered', '405'],
  content_type: ['wrong content type', '415'],
  content_encoding: ['compressed body', '415'],
  body_too_large: ['body too large', '413'],
  body_timeout: ['body too slow', '408'],
  body_broken: ['body incomplete', '400'],
  parse_error: ['invalid JSON', '−32700'],
  invalid_request: ['invalid JSON-RPC, or batch too long', '−32600'],
  rate_limited: ['empty requests over the rate limit', '429'],
  overloaded: ['too many requests at once', '503'],
  bytes_exhausted: ['too many bytes in flight', '503'],
  client_limit: ['too many requests of one client at once', '503'],
}

function showRefusals({ refusals }) {
  const counted = Object.entries(refusals.reasons).sort(([, a], [, b]) => b - a)
  const window = refusals.seconds >= 120 ? `the last ${span(refusals.seconds - (refusals.seconds % 60))}` : 'the last minute'
  const rows = counted.map(([reason, count]) => {
    const [words, codes] = REFUSALS[reason] ?? [reason, '']
    return element('li', { className: 'count' }, element('span', {}, words, codes ? small(codes) : ''), element('span', {}, whole(count)))
  })
  fill('refusals', [...rows, none(rows.length ? `in ${window}` : `None in ${window}.`)])
}

export function showCards(status) {
  showChain(status)
  showCache(status)
  showVerification(status)
  showRefusals(status)
}
