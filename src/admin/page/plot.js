// Line plots over time, as SVG. Each update redraws the whole plot: a few hundred points per second are cheap.

const NS = 'http://www.w3.org/2000/svg'
const LEFT = 56
const RIGHT = 8
const TOP = 10
const BOTTOM = 22

function make(name, attributes, parent, text) {
  const element = document.createElementNS(NS, name)
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value)
  if (text !== undefined) element.textContent = text
  parent?.append(element)
  return element
}

const number = (value) => value.toFixed(1)

// Splits the points into runs that have a value; the gaps between runs have none.
function runs(points, has) {
  const found = []
  let run = []
  for (const point of points) {
    if (has(point)) run.push(point)
    else if (run.length) { found.push(run); run = [] }
  }
  if (run.length) found.push(run)
  return found
}

// Returns the next round number that is not below the value, and whose half is round, too.
export function ceiling(value) {
  if (!(value > 0)) return 1
  const power = 10 ** Math.floor(Math.log10(value))
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((times) => times * power).find((round) => round >= value * 0.999)
}

// Width of a character of a label on the time axis, and the least space between two labels.
const CHARACTER = 8.2
const SPACE = 14

// Returns labels for the time axis, and the middle of each: as many as fit without touching. Leaves out labels that would
// stick out at an edge, unless there is no other; then they move inwards.
function instants([from, to], x, width) {
  const minute = 60_000
  const steps = [10_000, 30_000, minute, 2 * minute, 5 * minute, 15 * minute, 60 * minute, 180 * minute, 360 * minute]
  const wide = (step) => (step < minute ? 8 : 5) * CHARACTER
  const step = steps.find((step) => ((to - from) / step) * (wide(step) + SPACE) <= x(to) - x(from)) ?? 720 * minute
  const shift = new Date(from).getTimezoneOffset() * minute
  const found = []
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) found.push(at)
  const seconds = step < minute ? '2-digit' : undefined
  const written = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: seconds, hourCycle: 'h23' })
  const half = wide(step) / 2
  const labels = found.map((at) => [Math.min(Math.max(x(at), half), width - half), written.format(at), at])
  const whole = labels.filter(([middle, , at]) => middle === x(at))
  return whole.length ? whole : labels.slice(0, 1)
}

export class Plot {
  // Calls `read`, if given, with the point nearest to the pointer, or with null if the pointer is elsewhere.
  constructor(element, read) {
    this.element = element
    this.svg = make('svg', { role: 'img', 'aria-label': 'no data yet' }, element)
    this.note = element.appendChild(document.createElement('p'))
    this.note.className = 'empty'
    this.note.hidden = true
    this.said = this.note.appendChild(document.createElement('span'))
    this.read = read
    this.pointed = null
    new ResizeObserver(() => this.draw()).observe(element)
    const point = (event) => {
      this.pointed = event.clientX - element.getBoundingClientRect().left
      this.draw()
    }
    element.addEventListener('pointermove', point)
    element.addEventListener('pointerdown', point)
    element.addEventListener('pointerleave', () => { this.pointed = null; this.draw() })
  }

  // given: { span: [from, to], points: [{ time, … }], ticks: [[value, label]], y: value → 0…1,
  //          layers: [{ kind: 'line' | 'area' | 'band', of, to?, first }], summary, quiet, empty }
  show(given) {
    this.given = given
    this.draw()
  }

  draw() {
    const { given, svg, element } = this
    const { width, height } = element.getBoundingClientRect()
    if (!given || width < 1) return
    svg.replaceChildren()
    svg.setAttribute('viewBox', `0 0 ${number(width)} ${number(height)}`)
    svg.setAttribute('aria-label', given.summary)
    const [from, to] = given.span
    const x = (time) => LEFT + ((time - from) / (to - from)) * (width - LEFT - RIGHT)
    const y = (value) => TOP + (1 - given.y(value)) * (height - TOP - BOTTOM)
    // If labels would touch, leaves out every other one, but not the lowest.
    const room = (height - TOP - BOTTOM) / Math.max(given.ticks.length - 1, 1)
    const each = room < 18 ? 2 : 1
    for (const [value, label] of given.ticks.filter((_, at) => at % each === 0)) {
      const at = number(y(value))
      make('line', { class: 'rule', x1: LEFT, x2: width - RIGHT, y1: at, y2: at }, svg)
      make('text', { x: LEFT - 8, y: at, dy: '0.35em', 'text-anchor': 'end' }, svg, label)
    }
    const base = height - BOTTOM
    make('line', { class: 'base', x1: LEFT, x2: width - RIGHT, y1: base, y2: base }, svg)
    for (const [middle, label] of instants(given.span, x, width)) {
      make('text', { x: number(middle), y: height - 5, 'text-anchor': 'middle' }, svg, label)
    }
    const points = given.points.filter((point) => point.time >= from)
    for (const layer of given.layers) this.layer(layer, points, x, y, base)
    this.note.hidden = !given.quiet
    this.said.textContent = given.empty
    this.cursor(points, x, y, base)
  }

  layer({ kind, of, to, first }, points, x, y, base) {
    const name = first ? 'first ' : ''
    for (const run of runs(points, (point) => of(point) != null)) {
      const path = (value, from) => from.map((point) => `${number(x(point.time))},${number(y(value(point)))}`).join('L')
      const [begin, end] = [run[0], run[run.length - 1]]
      if (kind === 'line') {
        // Draws a single point as a dot: a very short line with round ends.
        const far = run.length === 1 ? `h0.01` : ''
        make('path', { class: `${name}line${far && ' single'}`, d: `M${path(of, run)}${far}` }, this.svg)
      } else if (run.length > 1) {
        const under = kind === 'band' ? path(to, run.toReversed()) : `${number(x(end.time))},${base}L${number(x(begin.time))},${base}`
        make('path', { class: `${name}area`, d: `M${path(of, run)}L${under}Z` }, this.svg)
      }
    }
  }

  cursor(points, x, y, base) {
    if (!this.read) return
    if (this.pointed === null || !points.length) return this.read(null)
    const near = points.reduce((best, point) => (Math.abs(x(point.time) - this.pointed) < Math.abs(x(best.time) - this.pointed) ? point : best))
    const at = number(x(near.time))
    make('line', { class: 'cursor', x1: at, x2: at, y1: TOP, y2: base }, this.svg)
    for (const { kind, of, first } of this.given.layers) {
      if (kind === 'line' && of(near) != null) {
        make('circle', { class: first ? 'first mark' : 'mark', cx: at, cy: number(y(of(near))), r: 4 }, this.svg)
      }
    }
    this.read(near)
  }
}
