// The worth of the saved calls: an estimate for a month, from the rate of the last 15 minutes.

import { recentSavings } from './charts.js'
import { $, DASH, element, set, THIN, whole } from './words.js'

// Prices in US dollars per million units, and units per call ('*': all other methods). Starting points, from copies of
// these pages in November 2026, not all of them current; edit the price on the page if your plan differs.
// - Any provider: a round number without a source.
// - Alchemy, pay as you go up to 300 million units: docs/reference/pricing-plans and compute-unit-costs on alchemy.com.
// - Ankr, pay as you go: docs/rpc-service/pricing on ankr.com.
// - Infura: 80 credits by services/get-started/pricing/credit-cost on docs.metamask.io. Second-hand, not confirmed there:
//   1000 for eth_getBlockReceipts, and the Developer plan ($50 a month for 15 million credits a day).
// - QuickNode: 20 credits on Ethereum by quicknode.com/api-credits. Second-hand: the Build plan ($49 for 80 million).
const PRESETS = {
  call: { name: 'Any provider', unit: 'calls', price: '$2.00', units: { '*': 1 } },
  alchemy: {
    name: 'Alchemy',
    host: /(^|\.)alchemy(api)?\.(com|io)$/,
    unit: 'compute units',
    price: '$0.45',
    units: {
      '*': 20,
      eth_chainId: 0,
      net_version: 0,
      eth_blockNumber: 10,
      eth_feeHistory: 10,
      eth_maxPriorityFeePerGas: 10,
      eth_call: 26,
      eth_getLogs: 60,
      eth_sendRawTransaction: 40,
    },
  },
  infura: { name: 'Infura', host: /(^|\.)infura\.io$/, unit: 'credits', price: '$0.11', units: { '*': 80, eth_getBlockReceipts: 1000 } },
  quicknode: { name: 'QuickNode', host: /(^|\.)quiknode\.pro$/, unit: 'credits', price: '$0.61', units: { '*': 20 } },
  ankr: { name: 'Ankr', host: /(^|\.)ankr\.com$/, unit: 'credits', price: '$0.10', units: { '*': 200 } },
}

const KEY = 'holdfast.prices'
const MONTH = 30 * 86400
// Amounts below this are not worth showing.
const LEAST = 1

// The chosen preset, and the prices that differ from those of the presets.
let kept = { preset: null, prices: {} }
let chosen = 'call'

// Parses a number with a currency sign before or after it.
function readPrice(text) {
  const read = /^\s*([^\d.,\s]*)\s*(\d[\d\s]*(?:[.,]\d+)?|[.,]\d+)\s*([^\d.,\s]*)\s*$/.exec(text)
  if (!read) return null
  return { before: read[1], price: Number(read[2].replace(/\s/g, '').replace(',', '.')), behind: read[3] }
}

// Returns the units that a month at the current rate saves.
function monthlyUnits(methods) {
  const recent = recentSavings()
  if (!recent) return null
  const { units } = PRESETS[chosen]
  const cost = (method) => units[method] ?? units['*']
  // The history does not tell methods apart: takes the mix since the start.
  const saved = methods.map(({ method, hits, joined }) => [hits + joined, cost(method)])
  const calls = saved.reduce((sum, [count]) => sum + count, 0)
  const each = calls ? saved.reduce((sum, [count, cost]) => sum + count * cost, 0) / calls : 0
  return ((recent.saved * each - recent.upkeep * cost('eth_getBlockByNumber')) / recent.seconds) * MONTH
}

// Two digits are as many as an estimate deserves.
const rounded = (value) => Number(value.toPrecision(2))

export function showWorth({ methods }) {
  const read = readPrice($('price').value)
  $('price').setAttribute('aria-invalid', String(!read))
  const units = monthlyUnits(methods)
  const value = read && units !== null ? rounded((units * read.price) / 1e6) : 0
  // A user who has chosen a price must be able to change it.
  const isInUse = kept.preset || $('worth-tile').contains(document.activeElement)
  $('worth-tile').hidden = value < LEAST && !isInUse
  set('about-worth', value < LEAST ? '<' : '≈')
  set('worth', read ? `${read.before}${whole(Math.max(value, LEAST))}${read.behind && THIN + read.behind}` : DASH)
}

function choose(preset) {
  chosen = preset
  $('preset').value = preset
  $('price').value = kept.prices[preset] ?? PRESETS[preset].price
  set('price-unit', `per million ${PRESETS[preset].unit}`)
}

// Chooses the preset of the first endpoint whose provider is known, unless the user has chosen one.
export function choosePreset(endpoints) {
  if (kept.preset) return
  const hosts = endpoints.map(({ url }) => (URL.canParse(url) ? new URL(url).hostname : ''))
  const known = Object.keys(PRESETS).find((preset) => hosts.some((host) => PRESETS[preset].host?.test(host)))
  if ((known ?? 'call') !== chosen) choose(known ?? 'call')
}

function keep() {
  // The browser may forbid storage; then the choice is lost with the page.
  try { localStorage.setItem(KEY, JSON.stringify(kept)) } catch { /* as above */ }
}

export function startWorth(changed) {
  try { kept = { ...kept, ...JSON.parse(localStorage.getItem(KEY)) } } catch { /* no choice, or no storage */ }
  if (!PRESETS[kept.preset]) kept.preset = null
  $('preset').append(...Object.entries(PRESETS).map(([value, { name }]) => element('option', { value }, name)))
  choose(kept.preset ?? 'call')
  $('preset').addEventListener('change', () => {
    kept.preset = $('preset').value
    keep()
    choose(kept.preset)
    changed()
  })
  $('price').addEventListener('input', () => {
    if (readPrice($('price').value)) {
      kept.preset = chosen
      kept.prices[chosen] = $('price').value
      keep()
    }
    changed()
  })
}
