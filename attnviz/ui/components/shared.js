// What every view needs: reading what Python sends, colours, labels, canvases, and the one selection they share.

// ---- What Python sends: 4 bytes little-endian length of a JSON header, the header, then the arrays it names.
const TYPES = { float32: Float32Array, uint16: Uint16Array, uint8: Uint8Array }

export function unpack(data) {
  const bytes = data instanceof Uint8Array ? data : new Uint8Array(data)
  const length = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(0, true)
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)))
  const block = bytes.slice(4 + length) // a copy, so that its numbers start where typed arrays may
  const arrays = header.arrays.map(({ type, shape, offset }) => {
    const count = shape.reduce((product, size) => product * size, 1)
    return new TYPES[type](block.buffer, block.byteOffset + offset, count)
  })
  return { header, arrays }
}

// ---- Colours: the page's ink, light or dark, as Streamlit's style says.
export function rgb(colour) {
  if (colour.startsWith("#")) return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16))
  return colour
    .match(/[\d.]+/g)
    .slice(0, 3)
    .map(Number)
}

export function isDark(colour) {
  const [red, green, blue] = rgb(colour)
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 128
}

/** The colours of a header's theme that the page shows now, and `inks`, 256 colours by the strength of the ink. */
export function themeOf(element, header) {
  const page = getComputedStyle(element).getPropertyValue("--st-background-color").trim() || "#ffffff"
  const dark = isDark(page)
  const theme = dark ? header.dark : header.light
  return { ...theme, isDark: dark, inks: palette(theme.sequential) }
}

/** 256 colours [red, green, blue] from evenly spaced stops. */
export function palette(stops) {
  const colours = stops.map(rgb)
  return Array.from({ length: 256 }, (_, level) => {
    const place = (level / 255) * (colours.length - 1)
    const first = Math.min(Math.floor(place), colours.length - 2)
    return colours[first].map((from, at) => Math.round(from + (place - first) * (colours[first + 1][at] - from)))
  })
}

export const css = ([red, green, blue], alpha = 1) => `rgba(${red}, ${green}, ${blue}, ${alpha})`

/**
 * How strong the ink of a weight is, 0 to 1: under "sqrt" its root, so that small weights are seen; under "row" its
 * share of `most`, the largest weight of its row.
 */
export function strength(weight, ink, most = 1) {
  if (!(weight > 0)) return 0
  if (ink === "row") return most > 0 ? Math.min(1, weight / most) : 0
  return Math.min(1, ink === "sqrt" ? Math.sqrt(weight) : weight)
}

/** The colour of a weight. */
export const inkOf = (theme, weight, ink, most) => theme.inks[Math.round(255 * strength(weight, ink, most))]

/** Black or white, whichever reads better on an ink: the contrast is at least 4.58 on any (WCAG 2). */
export function textOn(colour) {
  const linear = (channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4)
  const [red, green, blue] = colour.map((channel) => linear(channel / 255))
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff"
}

/** How a weight is written: 0.677, and never 0.000 for what is not 0. */
export function number(weight) {
  if (Number.isNaN(weight)) return "not allowed"
  if (weight > 0 && weight < 0.0005) return "< 0.001"
  return weight.toFixed(3)
}

// ---- Labels: a token is what a person reads; its identity is its position.
const splitter = new Intl.Segmenter(undefined, { granularity: "grapheme" })

/** A label of at most so many characters, cut with an ellipsis; a joined emoji counts as one. */
export function clip(label, most) {
  if (label.length <= most) return label
  const parts = Array.from(splitter.segment(label), (part) => part.segment)
  return parts.length <= most ? label : `${parts.slice(0, most - 1).join("")}…`
}

// ---- Canvases
/** Give a canvas its size in CSS pixels and return a context that draws in these, sharp on any screen. */
export function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)]
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across
    canvas.height = down
    canvas.style.width = `${width}px`
    canvas.style.height = `${height}px`
  }
  const context = canvas.getContext("2d")
  context.setTransform(ratio, 0, 0, ratio, 0, 0)
  context.clearRect(0, 0, width, height)
  return context
}

/** A pattern of thin diagonals: cells that a mask forbids. */
export function hatch(context, theme, step = 6) {
  const tile = new OffscreenCanvas(step, step)
  const pen = tile.getContext("2d")
  pen.strokeStyle = theme.muted
  pen.globalAlpha = 0.45
  pen.beginPath()
  pen.moveTo(0, step)
  pen.lineTo(step, 0)
  pen.moveTo(-1, 1)
  pen.lineTo(1, -1)
  pen.moveTo(step - 1, step + 1)
  pen.lineTo(step + 1, step - 1)
  pen.stroke()
  return context.createPattern(tile, "repeat")
}

// ---- Small things
/** Call a function again only when what it is given has changed. */
export function once(compute) {
  let before = null
  let result
  return (...given) => {
    const equal = before?.length === given.length && given.every((one, at) => Object.is(one, before[at]))
    if (!equal) {
      result = compute(...given)
      before = given
    }
    return result
  }
}

export const clamp = (value, last) => Math.max(0, Math.min(last, value))

// ---- The selection: one for the whole page. A side is "query" (attends) or "key" (attended to).
const name = (layer, head) => `${layer}.${head}`

/** What a single line of weights is called: the heads it is the mean of, the side and the position of its token. */
export const lineName = (places, { side, at }) =>
  `${places.map(({ layer, head }) => name(layer, head)).join(",")}.${side}.${at}`

const MOST_CELLS = 8e6 // kept of maps: 32 MB
const MOST_LINES = 256

export class Selection {
  constructor() {
    this.views = new Map() // element → what draws it anew
    this.waiting = false
    this.tell = () => {} // sends to Python what a person chose; set by the component "selection"
    this.ask = () => {} // asks Python for the weights of a token; set by the same
    this.clear("")
  }

  /** Forget everything: another trace or role is looked at. */
  clear(trace) {
    Object.assign(this, { trace, tokens: { query: [], key: [] }, same: true, open: null, shown: [], marked: [] })
    Object.assign(this, { pinned: null, hovered: null, first: null, maps: new Map(), rows: new Map(), automatic: null })
  }

  /** Draw a view again whenever the selection changes, until its element leaves the page. */
  follow(element, redraw) {
    this.views.set(element, redraw)
  }

  leave(element) {
    this.views.delete(element)
  }

  /** Draw every view again, once, before the next picture. */
  changed() {
    if (this.waiting) return
    this.waiting = true
    requestAnimationFrame(() => {
      this.waiting = false
      for (const [element, redraw] of this.views) {
        if (element.isConnected) redraw()
        else this.views.delete(element)
      }
    })
  }

  /** The chosen token {side, at}: under the pointer or the focus, else pinned, else the one most worth seeing. */
  get token() {
    return this.hovered ?? this.pinned ?? this.worthSeeing()
  }

  /** Of the open head, the query of the largest weight between two different ordinary tokens; null without tokens. */
  worthSeeing() {
    const map = this.open && this.map(this.open.layer, this.open.head)
    if (!map) return this.first
    if (this.automatic?.map !== map) {
      const at = strongestQuery(map, this.tokens.query, this.tokens.key, this.same)
      this.automatic = { map, token: at < 0 ? this.first : { side: "query", at } }
    }
    return this.automatic.token
  }

  /** Choose a token for as long as the pointer or the focus is on it; null gives way to the pinned one. */
  hover(token) {
    if (same(this.hovered, token)) return
    this.hovered = token
    if (token && !this.has(token)) this.want(token)
    this.changed()
  }

  /** Choose a token for good, and tell Python; the pinned one again unpins. */
  pin(token) {
    this.pinned = same(this.pinned, token) ? null : token
    this.tell("token", this.pinned ?? { side: "query", at: -1 })
    this.changed()
  }

  /** Open a head at once where its weights are here, and tell Python. */
  openHead(layer, head) {
    const alone = this.shown.length === 1 && same(this.shown[0], this.open)
    this.open = { layer, head }
    if (alone) this.shown = [this.open]
    this.tell("open", this.open)
    this.changed()
  }

  /** Mark a head, or take its mark away, and tell Python. */
  mark(layer, head, most = 8) {
    const others = this.marked.filter((one) => !same(one, { layer, head }))
    if (others.length < this.marked.length) this.marked = others
    else if (others.length < most) this.marked = [...others, { layer, head }]
    this.tell("marked", this.marked)
    this.changed()
  }

  isMarked(layer, head) {
    return this.marked.some((one) => same(one, { layer, head }))
  }

  get keys() {
    return this.tokens.key.length
  }

  /** Weights [query × key] of a head, NaN where not allowed; undefined where they are not here. */
  map(layer, head) {
    return this.maps.get(name(layer, head))
  }

  /** What a token gives to each key (side "query") or gets from each query ("key") in a head; undefined if not here. */
  line(layer, head, { side, at }) {
    const map = this.map(layer, head)
    if (!map) return this.rows.get(lineName([{ layer, head }], { side, at }))
    if (side === "query") return map.subarray(at * this.keys, (at + 1) * this.keys)
    return Float32Array.from({ length: this.tokens.query.length }, (_, row) => map[row * this.keys + at])
  }

  /** The same, averaged over the shown heads. */
  meanLine(token) {
    const lines = this.shown.map(({ layer, head }) => this.line(layer, head, token))
    if (!lines.length || lines.some((line) => !line)) return this.rows.get(lineName(this.shown, token))
    if (lines.length === 1) return lines[0]
    return Float32Array.from(lines[0], (_, at) => lines.reduce((sum, line) => sum + line[at], 0) / lines.length)
  }

  has(token) {
    return this.meanLine(token) !== undefined
  }

  /** Keep what Python sent; of what is too much, the oldest goes. */
  keep(maps, lines) {
    for (const [place, map] of maps) {
      this.maps.delete(place)
      this.maps.set(place, map)
    }
    for (const [place, line] of lines) this.rows.set(place, line)
    const cells = this.tokens.query.length * this.keys
    for (const place of this.maps.keys()) {
      if (this.maps.size * cells <= MOST_CELLS || this.maps.size <= maps.length) break
      this.maps.delete(place)
    }
    for (const place of this.rows.keys()) if (this.rows.size > MOST_LINES) this.rows.delete(place)
  }

  /** Ask Python for a token's weights, once the pointer rests. */
  want(token) {
    clearTimeout(this.asking)
    this.asking = setTimeout(() => {
      if (same(this.token, token) && !this.has(token)) this.ask(token)
    }, 120)
  }
}

/**
 * The query with the largest weight on another token, where neither is special; -1 where there is none. Of one text, the
 * first token does not count either: where it is no special token, most heads rest their weight on it all the same.
 */
export function strongestQuery(map, queries, keys, sameTokens) {
  let [best, found] = [-1, -1]
  for (let row = 0; row < queries.length; row++) {
    if (queries[row].special) continue
    for (let column = sameTokens ? 1 : 0; column < keys.length; column++) {
      const weight = map[row * keys.length + column]
      if (weight > best && !keys[column].special && !(sameTokens && row === column)) [best, found] = [weight, row]
    }
  }
  return found
}

export const same = (one, other) => JSON.stringify(one ?? null) === JSON.stringify(other ?? null)

export const selection = new Selection()
