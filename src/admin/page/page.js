// Shows the status that the events report. Sends requests only to the listener that served the page.

import { showCards } from './cards.js'
import { addSamples, setEmpty, setHistory, showPlots, startCharts } from './charts.js'
import { startLookUp } from './lookup.js'
import { choosePreset, showWorth, startWorth } from './money.js'
import { showEndpoints, showMethods } from './tables.js'
import { $, DASH, element, fill, percent, plural, say, sentence, set, span, whole, withoutErrno } from './words.js'

// ## Current status

function state(tone, text) {
  $('state').dataset.tone = tone
  set('state-text', text)
}

// Wallets cannot use an unspecified address (0.0.0.0 or [::]): replaces it with the host of this page.
function clientUrl(status) {
  return status.url.replace(/\/\/(0\.0\.0\.0|\[::\])(?=:)/, `//${location.hostname}`)
}

// Returns the reason as sentences.
function readable(reason) {
  return sentence(withoutErrno(reason).replace(/^degraded: /, '').replace(/; (?=blocks known)/, '. ').replace(/\. b/, '. B'))
}

function showTop(status, url) {
  const isWell = status.ready && !status.degraded
  const tone = isWell ? 'good' : status.ready ? 'warn' : 'bad'
  const text = isWell ? 'ready' : status.ready ? 'degraded' : 'not ready'
  const reason = isWell ? '' : readable(status.reason)
  if ($('state-text').textContent !== text) say(isWell ? 'Holdfast is ready' : `Holdfast is ${text}: ${reason}`)
  state(tone, text)
  const { chain } = status
  const id = `chain ${chain?.id ?? 'without an id'}`
  set('where', chain ? (chain.name ? `${chain.name}, ${id}` : id) : '')
  $('notice').hidden = isWell
  $('notice').dataset.tone = tone
  fill('notice', isWell ? [] : [element('b', {}, sentence(text)), ` ${reason}`])
  set('about', `holdfast ${status.version} · up ${span(status.uptime_seconds)} · clients at ${url}`)
}

function showSaved({ calls, chain, saved, uptime_seconds: uptime }, url) {
  set('saved', whole(saved.calls))
  $('saved-why').hidden = !chain?.development
  $('share-tile').hidden = calls === 0
  if (calls === 0) {
    fill('saved-how', ['No calls yet. Point a wallet, a dapp or an indexer at ', element('code', {}, url), '.'])
    return
  }
  // A refresh that a client's call started is no call besides: it replaced that call.
  const besides = saved.upkeep_calls + saved.follow_calls - saved.answered_after_refresh
  fill('saved-how', [`in ${span(uptime)}, after ${plural(besides, 'call')} to follow the chain`])
  set('share', calls ? percent(saved.answered_without_upstream / calls) : DASH)
  set('share-how', `${whole(saved.answered_without_upstream)} of ${plural(calls, 'call')}`)
}

let shown = null

function show(status) {
  shown = status
  const url = clientUrl(status)
  setEmpty(status.calls > 0 ? 'No calls in this period' : 'No calls yet')
  showTop(status, url)
  showSaved(status, url)
  choosePreset(status.endpoints)
  showWorth(status)
  showMethods(status)
  showEndpoints(status)
  showCards(status)
}

// ## Connection

// How long to wait for an event before reconnecting: several times the interval between events.
const SILENCE = 5e3
let source = null
let watchdog = null

function lose() {
  document.body.classList.add('lost')
  const text = 'not connected, trying again'
  if ($('state-text').textContent !== text) say('Not connected; trying again')
  state('bad', text)
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
    setHistory(JSON.parse(event.data))
    heard()
  })
  source.addEventListener('status', (event) => {
    const told = JSON.parse(event.data)
    addSamples(told)
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

startWorth(() => { if (shown) showWorth(shown) })
startLookUp()
startCharts()
connect()
