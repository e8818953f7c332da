// Formats values, and puts them on the page.

export const $ = (id) => document.getElementById(id)

// ## Formats

export const THIN = '\u202f'
export const DASH = '–'

export const whole = (value) => {
  const digits = Math.abs(Math.round(value)).toString().replace(/\B(?=(\d{3})+$)/g, THIN)
  return value < 0 ? `−${digits}` : digits
}
// Three significant digits are enough to compare values.
export const three = (value) => (value >= 100 ? Math.round(value).toString() : value >= 10 ? value.toFixed(1) : value.toFixed(2)).replace(/\.0+$/, '')

export function scaled(value, step, units) {
  let at = 0
  while (value >= step * 0.9995 && at < units.length - 1) { value /= step; at += 1 }
  return `${three(value)}${THIN}${units[at]}`
}
export const bytes = (value) => scaled(value, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB'])
// The histogram cannot tell durations below a microsecond apart.
export const seconds = (value) => (value < 1e-6 ? `<${THIN}1${THIN}µs` : value >= 1 ? `${three(value)}${THIN}s` : value >= 1e-3 ? `${three(value * 1e3)}${THIN}ms` : `${three(value * 1e6)}${THIN}µs`)
export const rate = (value) => (value < 0.005 ? `0${THIN}/s` : value >= 1e4 ? `${scaled(value, 1000, ['', 'k', 'M'])}/s` : `${three(value)}${THIN}/s`)
export const percent = (value) => `${value >= 0.9995 ? '100' : value < 0.0005 ? '0' : (value * 100).toFixed(1)}${THIN}%`

export function span(value) {
  const units = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']]
  const first = units.findIndex(([size]) => value >= size)
  if (first < 0) return `0${THIN}s`
  const [size, unit] = units[first]
  const rest = Math.floor((value % size) / (units[first + 1]?.[0] ?? 1))
  const more = rest > 0 && first < 2 ? ` ${rest}${THIN}${units[first + 1][1]}` : ''
  return `${Math.floor(value / size)}${THIN}${unit}${more}`
}
export const sentence = (text) => text && `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`
// The numbers of the operating system's errors say nothing that their words do not.
export const withoutErrno = (text) => text.replace(/ \(os error \d+\)/g, '')
export const plural = (count, one, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`

// ## Elements

export function element(name, properties = {}, ...children) {
  const { data, ...rest } = properties
  const made = Object.assign(document.createElement(name), rest)
  Object.assign(made.dataset, data)
  made.append(...children.filter((child) => child !== null && child !== ''))
  return made
}

// Changes an element only if its text differs, so that selections stay and screen readers do not repeat it.
export function set(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text
}
export function fill(id, children) {
  const next = element($(id).tagName, {}, ...children)
  if (next.innerHTML !== $(id).innerHTML) $(id).replaceChildren(...next.childNodes)
}
export const pair = (term, value, lead) => [element('dt', {}, term), element('dd', { className: lead ? 'lead' : '' }, ...[value].flat())]
export const none = (text) => element('li', { className: 'none' }, text)
export const small = (text) => element('small', {}, text)
export const dot = () => element('span', { className: 'dot', ariaHidden: 'true' })

// Rows of a table. On narrow screens, the label of a cell replaces the column's head, and empty cells are left out.
export const row = (properties, name, ...cells) => element('tr', { role: 'row', ...properties }, name, ...cells)
export const heading = (...children) => element('th', { scope: 'row', role: 'rowheader' }, ...children)
export const cell = (label, text, title = '') => element('td', { role: 'cell', className: text === DASH ? 'zero' : '', data: { label }, title }, text)
export function wide(columns, className, ...children) {
  return element('td', { role: 'cell', colSpan: columns, className }, ...children)
}

export function say(text) {
  set('said', text)
}
