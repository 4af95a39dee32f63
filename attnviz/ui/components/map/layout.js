// The arithmetic of the map: where cells lie on the screen, which labels fit, which tiles are needed and kept.
//
// A map has `rows` × `columns` cells and is drawn `width` × `height` CSS pixels large. A view says which part is seen:
// `x`, `y` the cell at the left and top edge, with its fraction; `across`, `down` the pixels of a cell.
import { clamp, strength } from "../shared.js"

export const TILE = 128 // cells a side of a tile of exact numbers
export const NEAR = 4 // from so many pixels a cell on, exact numbers are drawn
export const WRITTEN = 34 // from so many on, they are written in the cells
export const LARGEST = 60 // pixels of a cell when zoomed in all the way
const [WIDEST, FLATTEST, TALLEST] = [960, 0.4, 1.4] // pixels of a map's width; its height as a share of the width

// ---- The place of the map in its canvas
/** How large the map is and what stands around it, in a place so many pixels wide, at most so many pixels high. */
export function frameOf({ rows, columns, hasSink }, room, tallest) {
  const narrow = room < 520
  const [left, top, edge] = narrow ? [82, 70, 22] : [116, 92, 46]
  const right = edge + (hasSink ? 26 : 0)
  const ratio = Math.min(TALLEST, Math.max(FLATTEST, rows / columns))
  const widest = Math.min(room - left - right, WIDEST, tallest / ratio, Math.max(columns, rows / ratio) * LARGEST)
  const width = Math.max(80, Math.floor(widest))
  const height = Math.round(width * ratio)
  const sink = hasSink ? { x: left + width + 8, width: 12 } : null
  return { left, top, width, height, sink, outerWidth: left + width + right, outerHeight: top + height + 2 }
}

// ---- Views
export const whole = ({ rows, columns, width, height }) => ({
  x: 0,
  y: 0,
  across: width / columns,
  down: height / rows,
})

export const isWhole = (view, map) => view.across <= map.width / map.columns && view.down <= map.height / map.rows

/** A view that shows nothing but cells, none smaller than in the whole map or larger than LARGEST. */
export function within(view, map) {
  const across = cellSize(view.across, map.width / map.columns)
  const down = cellSize(view.down, map.height / map.rows)
  const x = clamp(view.x, map.columns - map.width / across)
  const y = clamp(view.y, map.rows - map.height / down)
  return { x: Math.max(0, x), y: Math.max(0, y), across, down }
}

const cellSize = (size, least) => Math.max(least, Math.min(size, Math.max(LARGEST, least)))

/** Zoom around a point, in pixels from the corner of the map: the cell under it stays there. */
export function zoomed(view, map, factor, [left, top]) {
  const { across, down } = within({ ...view, across: view.across * factor, down: view.down * factor }, map)
  const x = view.x + left / view.across - left / across
  const y = view.y + top / view.down - top / down
  return within({ x, y, across, down }, map)
}

/** Move what is seen by so many pixels, as if the map were dragged. */
export function panned(view, map, right, down) {
  return within({ ...view, x: view.x - right / view.across, y: view.y - down / view.down }, map)
}

/** Put a place of the map, in cells, in the middle. */
export function centred(view, map, column, row) {
  const x = column - map.width / view.across / 2
  const y = row - map.height / view.down / 2
  return within({ ...view, x, y }, map)
}

/** Move no more than needed for a cell to be seen. */
export function showing(view, map, row, column) {
  const x = Math.min(column, Math.max(view.x, column + 1 - map.width / view.across))
  const y = Math.min(row, Math.max(view.y, row + 1 - map.height / view.down))
  return within({ ...view, x, y }, map)
}

/** The view after the map has got another size or shape, around the same middle and as near as before. */
export function refitted(view, before, map) {
  const factor = view.across / (before.width / before.columns)
  const base = whole(map)
  const near = within({ ...base, across: base.across * factor, down: base.down * factor }, map)
  const middle = [before.width / view.across / 2 + view.x, before.height / view.down / 2 + view.y]
  return centred(near, map, ...middle)
}

export function cellAt(view, map, [left, top]) {
  if (left < 0 || top < 0 || left >= map.width || top >= map.height) return null
  return { row: rowAt(view, map, top), column: clamp(Math.floor(view.x + left / view.across), map.columns - 1) }
}

export const rowAt = (view, map, top) => clamp(Math.floor(view.y + top / view.down), map.rows - 1)

/** Where a cell lies, in pixels from the corner of the map. */
export const boxOf = (view, row, column) => ({
  left: (column - view.x) * view.across,
  top: (row - view.y) * view.down,
  width: view.across,
  height: view.down,
})

/** The first cell in sight along an axis, and the one after the last. */
export function span(first, size, length, count) {
  return [Math.floor(first), Math.min(count, Math.ceil(first + length / size - 1e-6))]
}

export const rowsSeen = (view, map) => span(view.y, view.down, map.height, map.rows)
export const columnsSeen = (view, map) => span(view.x, view.across, map.width, map.columns)

/** What the small map shows: its own size in a square of so many pixels, and the part that is seen. */
export function miniature(view, map, side) {
  const scale = side / Math.max(map.width, map.height)
  const [width, height] = [Math.round(map.width * scale), Math.round(map.height * scale)]
  const [over, down] = [width / map.columns, height / map.rows]
  const seen = { left: view.x * over, top: view.y * down }
  seen.width = (map.width / view.across) * over
  seen.height = (map.height / view.down) * down
  return { width, height, seen }
}

// ---- Labels
/** Every how many tokens a label fits, each taking so much room: 1, 2, 5, 10, 20, … */
export function everyOf(size, room) {
  for (let power = 1; ; power *= 10) {
    for (const step of [1, 2, 5]) if (step * power * size >= room) return step * power
  }
}

/** The positions from first up to last that get a label. */
export function labelled([first, last], every) {
  const start = Math.ceil(first / every) * every
  return Array.from({ length: Math.max(0, Math.ceil((last - start) / every)) }, (_, at) => start + at * every)
}

// ---- Numbers
/** A weight as exactly as it helps to read it; NaN where it is not allowed. */
export function exactly(weight) {
  if (Number.isNaN(weight)) return "not allowed by the mask"
  if (weight === 0) return "0"
  return weight < 5e-6 ? weight.toExponential(2) : weight.toFixed(6)
}

/** A weight as it is written in a cell so many pixels wide, and whether that says no more than that it is small. */
export function brief(weight, across) {
  const decimals = across < 48 ? 3 : 4
  const isTiny = weight < 0.5 * 10 ** -decimals
  if (isTiny && weight > 0) return { text: `<.${"0".repeat(decimals - 1)}1`, isTiny }
  return { text: weight.toFixed(decimals), isTiny }
}

/** The largest weight, or share, that a code of the overview stands for: 0 is masked, 1 to 255 rise with the root. */
export const decoded = (code) => (code === 0 ? Number.NaN : ((code - 1) / 254) ** 2)

/** The values that stand under the legend, and where along it, 0 to 1. */
export function ticksOf(ink) {
  const values = ink === "sqrt" ? [0, 0.01, 0.1, 0.25, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]
  return values.map((value) => ({ value, at: strength(value, ink) }))
}

/** The overview made small without losing a strong weight: each pixel takes the largest code of what is under it.
 *
 * @param codes [rows × columns], row by row
 * @param part {x, y, width, height} of the overview, in its pixels, with fractions
 * @returns codes [height × width]
 */
export function shrunk(codes, columns, part, width, height) {
  const rows = codes.length / columns
  const across = reach(part.x, part.width, width, columns)
  const down = reach(part.y, part.height, height, rows)
  const out = new Uint8Array(width * height)
  const line = new Uint8Array(columns)
  for (let row = 0; row < height; row++) {
    line.fill(0)
    for (let from = down[row][0]; from < down[row][1]; from++) raise(line, codes, from * columns)
    for (let column = 0; column < width; column++) {
      let most = 0
      for (let from = across[column][0]; from < across[column][1]; from++) if (line[from] > most) most = line[from]
      out[row * width + column] = most
    }
  }
  return out
}

function raise(line, codes, start) {
  for (let at = 0; at < line.length; at++) if (codes[start + at] > line[at]) line[at] = codes[start + at]
}

/** For each of `count` pixels, the first and the one after the last of what is under it. */
function reach(first, length, count, most) {
  const step = length / count
  return Array.from({ length: count }, (_, at) => {
    const start = clamp(Math.floor(first + at * step + 1e-6), most - 1)
    return [start, Math.min(most, Math.max(start + 1, Math.ceil(first + (at + 1) * step - 1e-6)))]
  })
}

// ---- Tiles of exact numbers
export const isNear = (view) => Math.min(view.across, view.down) >= 1.5 && view.across * view.down >= NEAR ** 2

export const tileOf = ({ row, column }) => [Math.floor(row / TILE), Math.floor(column / TILE)]

/** The tiles [row, column] in sight, those nearest to the middle first. */
export function tilesSeen(view, map) {
  const [rows, columns] = [rowsSeen(view, map), columnsSeen(view, map)].map(([first, last]) => [
    Math.floor(first / TILE),
    Math.floor((last - 1) / TILE),
  ])
  const middle = [(rows[0] + rows[1]) / 2, (columns[0] + columns[1]) / 2]
  const tiles = []
  for (let row = rows[0]; row <= rows[1]; row++) {
    for (let column = columns[0]; column <= columns[1]; column++) tiles.push([row, column])
  }
  const far = ([row, column]) => (row - middle[0]) ** 2 + (column - middle[1]) ** 2
  return tiles.sort((one, other) => far(one) - far(other))
}

/** Keeps so many things, and forgets the one that was not looked at for longest. */
export class Recent {
  constructor(most) {
    this.most = most
    this.held = new Map()
  }

  get(name) {
    const value = this.held.get(name)
    if (value !== undefined) this.set(name, value)
    return value
  }

  set(name, value) {
    this.held.delete(name)
    this.held.set(name, value)
    if (this.held.size > this.most) this.held.delete(this.held.keys().next().value)
  }
}

/** The tiles of all maps of a page, and the asking for them: at most ASKED at a time, one question open a channel. */
export class Tiles {
  constructor(most = 64, wait = (call, after) => setTimeout(call, after)) {
    this.recent = new Recent(most)
    this.wait = wait
    this.channels = new Map()
  }

  get(map, [row, column]) {
    return this.recent.get(`${map}/${row}/${column}`)
  }

  channel(name) {
    if (!this.channels.has(name)) {
      this.channels.set(name, { send: null, arrived: () => {}, map: "", wanted: [], open: 0, turn: 0, vain: 0 })
    }
    return this.channels.get(name)
  }

  /** Say how the questions of a channel reach Python; what a mount that is gone asked may never have got there. */
  connect(name, send, isNew) {
    const channel = this.channel(name)
    channel.send = send
    if (isNew) channel.open = 0
    this.ask(name)
  }

  /** Say which tiles of a map are needed now, the most needed first; what was needed before is no longer. */
  want(name, map, tiles) {
    const channel = this.channel(name)
    Object.assign(channel, { map, wanted: tiles, vain: 0 })
    this.ask(name)
  }

  /** Ask for the tiles that are needed and not here, unless an answer is still to come. */
  ask(name) {
    const channel = this.channel(name)
    const missing = channel.wanted.filter((tile) => !this.get(channel.map, tile)).slice(0, ASKED)
    if (!channel.send || channel.open || channel.vain > IN_VAIN || !missing.length) return
    const turn = ++channel.turn
    channel.open = turn
    channel.send({ map: channel.map, tiles: missing, turn })
    this.wait(() => this.close(name, turn), PATIENCE)
  }

  /** Stop waiting for an answer: it came, or it never will, as another run of the page took its place. */
  close(name, turn) {
    const channel = this.channel(name)
    if (channel.open !== turn) return
    channel.open = 0
    channel.vain += 1
    this.ask(name)
  }

  /** Keep what came, and ask for what is still needed. An answer without tiles is that of another run of the page. */
  receive(name, map, tiles, arrays) {
    const channel = this.channel(name)
    tiles.forEach(([row, column, height, width], at) => {
      if (this.get(map, [row, column])) return
      this.recent.set(`${map}/${row}/${column}`, { row, column, height, width, values: arrays[at] })
    })
    const turn = channel.open
    if (!tiles.length) {
      if (turn) this.wait(() => this.close(name, turn), 300)
      return
    }
    Object.assign(channel, { open: 0, vain: 0 })
    channel.arrived()
    this.ask(name)
  }
}

export const ASKED = 6 // tiles of one question
const PATIENCE = 1500 // ms
const IN_VAIN = 6 // questions without an answer before giving up, until something else is needed

/** The one store of a page: a browser loads this module once. */
export const tiles = new Tiles()
