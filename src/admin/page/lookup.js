// The search box: looks up the cached entries of a block or a transaction, and purges them.

import { $, bytes, dot, element, pair, plural, say, sentence, small, span, whole } from './words.js'

const KINDS = {
  block: 'whole block',
  block_hashes: 'block with hashes',
  receipts: 'all receipts',
  transaction: 'single transaction',
  receipt: 'single receipt',
  deflated: 'compressed copy',
}
const CANONICITY = {
  final: ['good', 'finalized'],
  tracked: ['good', 'canonical, not final yet'],
  asked: ['good', 'canonical, confirmed by the upstream a moment ago'],
  orphaned: ['warn', 'orphaned, not canonical'],
  unknown: ['quiet', 'not known to be canonical; a call by number asks the node'],
}
const VERIFIED = {
  proved: 'proved by Ethereum’s hashes',
  partial: 'only its own hash proved',
  structural: 'structure checked',
}

// The admin token. The page keeps it until it closes, and stores it nowhere.
let token = ''

function entry(held) {
  const from = held.endpoint ? ['from ', element('code', {}, held.endpoint), held.age_seconds == null ? '' : `, ${span(held.age_seconds)} ago`] : ['created by Holdfast']
  return element('li', {},
    element('span', { className: 'split' }, element('span', {}, KINDS[held.kind] ?? held.kind), element('span', { className: 'tag' }, bytes(held.bytes))),
    held.verified ? small(VERIFIED[held.verified] ?? held.verified) : null, element('small', {}, ...from))
}

// Joins the compressed copies of a block and of its receipts, which have nothing to tell them apart.
function joined(entries) {
  const copies = entries.filter(({ kind }) => kind === 'deflated')
  if (copies.length < 2) return entries
  const all = { ...copies[0], kind: 'compressed copies of the block and its receipts', bytes: copies.reduce((sum, { bytes }) => sum + bytes, 0) }
  return [...entries.filter(({ kind }) => kind !== 'deflated'), all]
}

function thing(title, hash, rows, found) {
  const [tone, canonicity] = CANONICITY[found.canonicity] ?? ['quiet', found.canonicity]
  const entries = found.entries.length ? joined(found.entries).map(entry) : [element('li', { className: 'none' }, 'No entries in the cache.')]
  const facts = element('div', {},
    element('h3', {}, title),
    element('p', {}, element('code', {}, hash)),
    element('p', { className: 'state', data: { tone } }, dot(), canonicity),
    rows.length ? element('dl', { className: 'pairs' }, ...rows.flat()) : null)
  if (found.entries.length) {
    const forget = element('button', { type: 'button', className: 'plain' }, 'Purge')
    forget.addEventListener('click', () => confirmPurge(forget, hash, found))
    facts.append(forget)
  }
  return element('article', {}, facts, element('ul', { className: 'rows' }, ...entries))
}

function told(found) {
  const blocks = found.blocks.map((block) => {
    const rows = []
    if (block.timestamp != null) rows.push(pair('Time', new Date(block.timestamp * 1000).toLocaleString([], { dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23' })))
    if (block.transactions != null) rows.push(pair('Transactions', whole(block.transactions)))
    return thing(block.number == null ? 'Block' : `Block ${whole(block.number)}`, block.hash, rows, block)
  })
  const places = found.transactions.map((place) => {
    const rows = [pair('Block', [whole(place.number), ' ', element('code', {}, place.block)]), pair('Position', whole(place.index))]
    return thing('Transaction', place.hash, rows, place)
  })
  const things = [...blocks, ...places]
  if (things.length) return things
  const above = typeof found.query === 'number' && found.head != null && found.query > found.head
  return [element('p', { className: 'how' }, above ? `There is no such block yet: the head is at ${whole(found.head)}.` : 'Not in the cache: a call asks the node.')]
}

function summary(found) {
  const things = [...found.blocks, ...found.transactions]
  const held = things.reduce((sum, thing) => sum + thing.entries.length, 0)
  return things.length ? `Found, ${held ? `${plural(held, 'entry', 'entries')} in the cache` : 'no entries in the cache'}` : 'Not in the cache'
}

function show(children) {
  const close = element('button', { type: 'button', className: 'plain', title: 'Escape' }, 'Close')
  close.addEventListener('click', closeResult)
  const heading = element('div', { className: 'heading' }, element('h2', {}, 'In the cache'), close)
  $('found').replaceChildren(...(children.length ? [heading, ...children] : []))
  $('found').hidden = children.length === 0
}

function closeResult() {
  $('query').value = ''
  problem('')
  show([])
  $('query').focus()
}

function problem(text) {
  $('query').setAttribute('aria-invalid', String(Boolean(text)))
  $('query-problem').textContent = text
  $('query-problem').hidden = !text
}

async function read(response) {
  const text = await response.text()
  try { return JSON.parse(text) } catch { return { error: text.trim() || `HTTP status ${response.status}` } }
}

// Counts look-ups: only the answer to the last one is shown.
let lookUps = 0

async function lookUp(query = $('query').value.trim()) {
  const own = ++lookUps
  if (!query) {
    problem('')
    return show([])
  }
  try {
    const found = await read(await fetch(`/lookup?q=${encodeURIComponent(query)}`))
    if (own !== lookUps) return
    if (found.error) {
      show([])
      // The hint after the semicolon is for programs.
      return problem(sentence(found.error.replace(/; as in \/lookup.*/, '')))
    }
    problem('')
    show(told(found))
    say(summary(found))
  } catch {
    problem('Not connected.')
  }
}

// Asks for confirmation in place of the button, so that the keyboard focus stays there.
function confirmPurge(forget, hash, found) {
  const asked = element('form', { className: 'confirm' })
  const sure = element('button', { type: 'submit', className: 'plain bad' }, 'Yes, purge')
  const keep = element('button', { type: 'button', className: 'plain' }, 'Cancel')
  const what = element('p', { className: 'how', role: 'alert' }, `Purge ${plural(found.entries.length, 'entry', 'entries')}? The next call fetches the data from the node again.`)
  const label = element('label', { className: 'how', hidden: true }, 'Token ')
  const field = element('input', { type: 'password', autocomplete: 'off', className: 'token' })
  label.append(field)
  asked.append(what, label, sure, keep)
  keep.addEventListener('click', () => { asked.replaceWith(forget); forget.focus() })
  asked.addEventListener('submit', async (event) => {
    event.preventDefault()
    if (field.value) token = field.value.trim()
    const headers = token ? { authorization: `Bearer ${token}` } : {}
    try {
      const response = await fetch(`/purge?q=${hash}`, { method: 'POST', headers })
      const purged = await read(response)
      if (response.status === 401) {
        label.hidden = false
        what.textContent = token ? 'Wrong token.' : 'Enter the admin token: the key whose SHA-256 is admin_token.'
        field.focus()
        return field.select()
      }
      if (purged.error) {
        what.textContent = purged.error
        return
      }
      await lookUp(hash)
      const left = purged.left_in.length ? `, but it may still be in ${purged.left_in.join(' and ')}` : ''
      const text = `Purged: ${plural(purged.purged.length, 'entry', 'entries')}, ${bytes(purged.bytes)}${left}`
      $('found').querySelector('.heading')?.after(element('p', { className: 'how' }, `${text}.`))
      say(text)
      $('query').focus()
    } catch {
      what.textContent = 'Not connected.'
    }
  })
  forget.replaceWith(asked)
  sure.focus()
}

export function startLookUp() {
  $('lookup').addEventListener('submit', (event) => {
    event.preventDefault()
    lookUp()
  })
  document.addEventListener('keydown', (event) => {
    const isOpen = !$('found').hidden || !$('query-problem').hidden
    if (event.key === 'Escape' && isOpen) closeResult()
  })
  $('query').addEventListener('input', () => { if (!$('query').value.trim()) lookUp() })
}
