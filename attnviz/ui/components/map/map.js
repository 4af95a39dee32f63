// One head of a long text on a canvas: an overview that is here at once, and exact numbers, tile by tile, on a closer
// look. What is drawn is the state of one object, `map`: cells, view, and what the pointer or the keyboard is on.
import { clamp, clip, css, hatch, number, selection, sized, strength, textOn, themeOf, unpack } from "../shared.js"
import {
  boxOf,
  brief,
  cellAt,
  centred,
  columnsSeen,
  decoded,
  everyOf,
  exactly,
  frameOf,
  isNear,
  isWhole,
  labelled,
  miniature,
  panned,
  refitted,
  rowAt,
  rowsSeen,
  showing,
  shrunk,
  TILE,
  ticksOf,
  tileOf,
  tiles,
  tilesSeen,
  WRITTEN,
  whole,
  zoomed,
} from "./layout.js"

const LINED = 9 // from so many pixels a cell on, thin lines part the cells
const REST = 120 // ms after which a pointer rests
const SLACK = 4 // pixels a press may move and still be a click

const INKS = {
  sqrt: "attention weight (√ ink)",
  linear: "attention weight (linear ink)",
  row: "share of the row's largest weight",
}

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".map")
  const before = root.attnviz
  if (before?.bytes !== data || before.isTiles) {
    const { header, arrays } = unpack(data)
    if (header.kind === "tiles") return receiveTiles(root, header, arrays, setTriggerValue)
    if (before?.header.version === header.version) before.bytes = data
    else receiveOverview(root, header, arrays, data)
  }
  const map = root.attnviz
  colour(map)
  connect(map)
  return () => leave(map)
}

// ---- What comes from Python
/** Keep tiles. None is what another run of the page sends, which may have put off the answer. */
function receiveTiles(root, header, arrays, send) {
  root.hidden = true
  root.replaceChildren() // the same component, of which this mount shows nothing
  const before = root.attnviz
  root.attnviz = { isTiles: true, run: header.run }
  if (before?.run !== header.run) tiles.receive(header.channel, header.name, header.tiles, arrays)
  tiles.connect(header.channel, (wanted) => send("wanted", wanted), !before)
}

function receiveOverview(root, header, arrays, bytes) {
  const before = root.attnviz
  const map = before ?? { root, pressed: new Map() }
  const another = before?.header.name !== header.name
  root.attnviz = Object.assign(map, { bytes, header, rows: header.query.labels.length, hasSink: header.hasSink })
  map.columns = header.key.labels.length
  map.special = { query: new Set(header.query.special), key: new Set(header.key.special) }
  ;[map.codes, map.peaks, map.sink] = arrays
  const [tall, wide] = header.arrays[0].shape
  Object.assign(map, { tall, wide, under: [Math.ceil(map.rows / tall), Math.ceil(map.columns / wide)] })
  map.look = null
  if (another) Object.assign(map, { pointed: null, cursor: null, answer: null })
}

// ---- Colours: what depends on them is made once for a theme and an ink
function colour(map) {
  const theme = themeOf(map.root, map.header)
  const look = `${theme.page}/${map.header.ink}/${map.header.version}`
  if (map.look === look) return
  Object.assign(map, { look, theme, inks: theme.inks, fitted: null, hatching: null })
  map.root.style.setProperty("--muted", theme.muted)
  map.root.style.setProperty("--line", theme.line)
  map.packed = map.inks.map(packedColour)
  map.packedCodes = Array.from({ length: 256 }, (_, code) => codeColour(map, code))
  map.overview = picture(map.codes, map.wide, map.tall, (code) => map.packedCodes[code])
  showLegend(map)
}

const packedColour = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0

/** A code's colour; none where nothing is allowed, so that the hatching below is seen. */
function codeColour(map, code) {
  if (code === 0) return 0
  const ink = map.header.ink === "row" ? "linear" : map.header.ink // under "row", codes are shares already
  return map.packed[Math.round(255 * strength(decoded(code), ink))]
}

function weightColour(map, weight, row) {
  return Number.isNaN(weight) ? 0 : map.packed[levelOf(map, weight, row)]
}

const levelOf = (map, weight, row) => Math.round(255 * strength(weight, map.header.ink, map.peaks[row]))

/** A canvas with a pixel for each value. */
function picture(values, width, height, colourOf) {
  const canvas = new OffscreenCanvas(width, height)
  const pixels = new Uint32Array(values.length)
  for (let at = 0; at < values.length; at++) pixels[at] = colourOf(values[at], at)
  const image = new ImageData(new Uint8ClampedArray(pixels.buffer), width, height)
  canvas.getContext("2d").putImageData(image, 0, 0)
  return canvas
}

function tilePicture(map, tile) {
  if (tile.look !== map.look) {
    const first = tile.row * TILE
    const colourOf = (weight, at) => weightColour(map, weight, first + Math.floor(at / tile.width))
    tile.picture = picture(tile.values, tile.width, tile.height, colourOf)
    tile.look = map.look
  }
  return tile.picture
}

// ---- Numbers
/** What is known of a cell: {weight}, or {most} while its exact number is not here; NaN where it is not allowed. */
function known(map, { row, column }) {
  if (column === map.columns) return { weight: map.sink[row] }
  const [tileRow, tileColumn] = tileOf({ row, column })
  const tile = tiles.get(map.header.name, [tileRow, tileColumn])
  if (tile) return { weight: tile.values[(row - tileRow * TILE) * tile.width + column - tileColumn * TILE] }
  const [down, across] = map.under
  const pixel = Math.floor(row / down)
  const most = decoded(map.codes[pixel * map.wide + Math.floor(column / across)])
  if (Number.isNaN(most)) return { weight: most }
  if (map.header.ink !== "row") return { most }
  const peaks = map.peaks.subarray(pixel * down, (pixel + 1) * down)
  return { most: most * Math.max(...peaks) }
}

function words(map, cell) {
  const { weight, most } = known(map, cell)
  if (weight === undefined) return `≤ ${(Math.ceil(most * 1000) / 1000).toFixed(3)} under this pixel`
  if (map.header.ink !== "row" || !(weight > 0)) return exactly(weight)
  return `${exactly(weight)}, ${number(weight / map.peaks[cell.row])} of the row's largest`
}

const labelOf = (map, side, at) => (side === "key" && at === map.columns ? "sink" : map.header[side].labels[at])

// ---- Layout
/** Lay the map out in the room there is; false where it is not on the page. A view stays when the room changes. */
function fit(map) {
  const room = map.root.clientWidth - 6
  if (room <= 0) return false
  const before = map.placed
  const frame = frameOf(map, room, Math.max(280, Math.min(760, window.innerHeight - 200)))
  const { width, height } = frame
  Object.assign(map, { frame, width, height })
  if (before?.name !== map.header.name) map.view = whole(map)
  else if (before.width !== width || before.height !== height) map.view = refitted(map.view, before, map)
  map.placed = { name: map.header.name, rows: map.rows, columns: map.columns, width, height }
  return true
}

// ---- Drawing
/** Draw before the next picture, once, however many things have changed. */
function redraw(map) {
  if (map.waiting) return
  map.waiting = requestAnimationFrame(() => draw(map))
}

function draw(map) {
  cancelAnimationFrame(map.waiting)
  map.waiting = null
  if (!map.root.isConnected || !fit(map)) return
  const { frame } = map
  const canvas = map.root.querySelector(".cells")
  const context = sized(canvas, frame.outerWidth, frame.outerHeight)
  map.font ??= getComputedStyle(map.root).fontFamily
  canvas.style.touchAction = isWhole(map.view, map) ? "pan-x pan-y" : "none"
  context.save()
  context.translate(frame.left, frame.top)
  drawCells(context, map)
  drawSink(context, map)
  drawMarks(context, map)
  context.restore()
  drawLabels(context, map)
  drawSmall(map)
  showReadout(map)
  showButtons(map)
  askSoon(map)
}

function drawCells(context, map) {
  const { width, height, view, theme } = map
  context.save()
  context.beginPath()
  context.rect(0, 0, width, height)
  context.clip()
  drawPaper(context, map, 0, 0, width, height)
  context.imageSmoothingEnabled = false
  drawOverview(context, map)
  if (isNear(view)) drawTiles(context, map)
  const size = Math.min(view.across, view.down)
  if (size >= LINED) drawLines(context, map)
  if (view.across >= WRITTEN && view.down >= WRITTEN / 2) drawNumbers(context, map)
  context.restore()
  context.strokeStyle = theme.line
  context.lineWidth = 1
  context.strokeRect(-0.5, -0.5, width + 1, height + 1)
}

/** What lies under the ink: the page, hatched where cells may be masked; the ink of allowed cells hides it. */
function drawPaper(context, map, left, top, width, height) {
  context.fillStyle = map.theme.sequential[0]
  context.fillRect(left, top, width, height)
  if (!map.header.restricted) return
  map.hatching ??= hatch(context, map.theme)
  context.fillStyle = map.hatching
  context.imageSmoothingEnabled = true
  context.fillRect(left, top, width, height)
  context.imageSmoothingEnabled = false
}

/** The overview: pixel by pixel where it is large enough, else made small here so that no strong weight is lost. */
function drawOverview(context, map) {
  const { view, width, height } = map
  const [down, across] = map.under
  const part = { x: view.x / across, y: view.y / down }
  part.width = width / view.across / across
  part.height = height / view.down / down
  const ratio = window.devicePixelRatio || 1
  const image = [Math.round(width * ratio), Math.round(height * ratio)]
  if (part.width <= image[0] && part.height <= image[1]) {
    context.drawImage(map.overview, part.x, part.y, part.width, part.height, 0, 0, width, height)
    return
  }
  const size = [Math.min(image[0], Math.ceil(part.width)), Math.min(image[1], Math.ceil(part.height))]
  const name = JSON.stringify([part, size])
  if (map.fitted?.name !== name) {
    const codes = shrunk(map.codes, map.wide, part, ...size)
    map.fitted = { name, picture: picture(codes, ...size, (code) => map.packedCodes[code]) }
  }
  context.drawImage(map.fitted.picture, 0, 0, width, height)
}

function drawTiles(context, map) {
  for (const place of tilesSeen(map.view, map)) {
    const tile = tiles.get(map.header.name, place)
    if (!tile) continue
    const box = boxOf(map.view, tile.row * TILE, tile.column * TILE)
    const [width, height] = [tile.width * box.width, tile.height * box.height]
    if (map.header.restricted) drawPaper(context, map, box.left, box.top, width, height)
    context.drawImage(tilePicture(map, tile), box.left, box.top, width, height)
  }
}

function drawLines(context, map) {
  context.fillStyle = map.theme.sequential[0]
  const [rows, columns] = [rowsSeen(map.view, map), columnsSeen(map.view, map)]
  for (let row = rows[0] + 1; row < rows[1]; row++) {
    context.fillRect(0, Math.round(boxOf(map.view, row, 0).top) - 0.5, map.width, 1)
  }
  for (let column = columns[0] + 1; column < columns[1]; column++) {
    context.fillRect(Math.round(boxOf(map.view, 0, column).left) - 0.5, 0, 1, map.height)
  }
}

function drawNumbers(context, map) {
  context.font = `${Math.min(13, map.view.across / 3.5)}px ${map.font}`
  context.textAlign = "center"
  context.textBaseline = "middle"
  const [rows, columns] = [rowsSeen(map.view, map), columnsSeen(map.view, map)]
  for (let row = rows[0]; row < rows[1]; row++) {
    for (let column = columns[0]; column < columns[1]; column++) drawNumber(context, map, { row, column })
  }
}

function drawNumber(context, map, cell) {
  const { weight } = known(map, cell)
  if (weight === undefined || Number.isNaN(weight)) return
  const box = boxOf(map.view, cell.row, cell.column)
  const { text, isTiny } = brief(weight, map.view.across)
  context.fillStyle = isTiny ? map.theme.muted : textOn(map.inks[levelOf(map, weight, cell.row)])
  context.fillText(text, box.left + box.width / 2, box.top + box.height / 2)
}

/** The sink's column stands apart, always in sight; a line of pixels takes the largest weight of its rows. */
function drawSink(context, map) {
  const { frame, view, theme, height } = map
  if (!frame.sink) return
  const x = frame.sink.x - frame.left
  const step = Math.max(1, view.down)
  const first = step > 1 ? Math.floor(view.y) : view.y
  for (let row = first; (row - view.y) * view.down < height; row += step / view.down) {
    let level = 0
    const last = Math.min(map.rows, Math.max(Math.floor(row) + 1, Math.ceil(row + step / view.down - 1e-6)))
    for (let at = Math.floor(row); at < last; at++) level = Math.max(level, levelOf(map, map.sink[at], at))
    const top = Math.max(0, (row - view.y) * view.down)
    context.fillStyle = css(map.inks[level])
    context.fillRect(x, top, frame.sink.width, Math.min(step + 0.5, height - top))
  }
  context.strokeStyle = theme.line
  context.strokeRect(x - 0.5, -0.5, frame.sink.width + 1, height + 1)
}

// ---- What is chosen: bands along the row and column pointed at, a frame around the selected token's
function drawMarks(context, map) {
  const { height, theme } = map
  const cell = here(map)
  context.save()
  context.beginPath()
  context.rect(-3, -3, outerEdge(map) + 6, height + 6)
  context.clip()
  if (cell) drawBands(context, map, cell)
  const token = selection.token
  if (token && token.at >= 0) drawFrame(context, map, token)
  if (map.cursor && cell) {
    const { left, top, width: wide, height: high } = cellBox(map, cell)
    context.strokeStyle = theme.text
    context.lineWidth = 2
    const [over, down] = [Math.max(wide, 7), Math.max(high, 7)]
    context.strokeRect(left + wide / 2 - over / 2, top + high / 2 - down / 2, over, down)
  }
  context.restore()
}

/** Where a cell lies, in pixels from the corner of the map; one of the sink, in the sink's column. */
function cellBox(map, { row, column }) {
  const box = boxOf(map.view, row, column)
  if (column < map.columns) return box
  return { ...box, left: map.frame.sink.x - map.frame.left, width: map.frame.sink.width }
}

/** Thin bands along the row and the column pointed at; wide ones are only edged, so that inks stay what they are. */
function drawBands(context, map, cell) {
  const { left, top, width, height } = cellBox(map, cell)
  context.fillStyle = map.theme.text
  if (cell.row !== null && !isChosen("query", cell.row)) band(context, [0, top, outerEdge(map), height], height, 1)
  if (cell.column !== null && !isChosen("key", cell.column)) band(context, [left, 0, width, map.height], width, 0)
  context.globalAlpha = 1
}

const isChosen = (side, at) => selection.token?.side === side && selection.token.at === at

function band(context, [left, top, width, height], size, axis) {
  const thin = size < 6
  context.globalAlpha = thin ? 0.28 : 0.04
  const [wide, high] = [Math.max(1, width), Math.max(1, height)]
  context.fillRect(left, top, wide, high)
  if (thin) return
  context.globalAlpha = 0.35
  if (axis) for (const y of [top, top + high]) context.fillRect(left, y - 0.5, wide, 1)
  else for (const x of [left, left + wide]) context.fillRect(x - 0.5, top, 1, high)
}

/** Where the map ends at the right, with the sink's column where there is one. */
const outerEdge = ({ frame, width }) => (frame.sink ? frame.sink.x - frame.left + frame.sink.width : width)

function drawFrame(context, map, { side, at }) {
  const box = side === "query" ? boxOf(map.view, at, 0) : boxOf(map.view, 0, at)
  const [size, start] = side === "query" ? [box.height, box.top] : [box.width, box.left]
  if (start + size < 0 || start > (side === "query" ? map.height : map.width)) return
  const thick = Math.max(size, 3)
  const from = start + size / 2 - thick / 2
  context.strokeStyle = map.theme.accent
  context.lineWidth = 1.5
  if (side === "query") context.strokeRect(0, from, outerEdge(map), thick)
  else context.strokeRect(from, 0, thick, map.height)
}

// ---- Labels
function drawLabels(context, map) {
  const { frame, view } = map
  context.textBaseline = "middle"
  context.direction = "ltr"
  drawTitles(context, map)
  const strong = strongLabels(map)
  drawAxis(context, map, drawRowLabel, rowsSeen(view, map), view.down, 15, strong.query)
  drawAxis(context, map, drawColumnLabel, columnsSeen(view, map), view.across, 19, strong.key)
  if (!frame.sink) return
  const colour = strong.key.has(map.columns) ? map.theme.text : map.theme.muted
  drawSlanted(context, map, frame.sink.x + frame.sink.width / 2, "sink", colour, strong.key.has(map.columns))
}

/** The positions whose labels stand out, whether or not others fit: of what is pointed at and what is chosen. */
function strongLabels(map) {
  const cell = here(map)
  const token = selection.token
  const strong = { query: new Set(), key: new Set() }
  if (cell && cell.row !== null) strong.query.add(cell.row)
  if (cell && cell.column !== null) strong.key.add(cell.column)
  if (token && token.at >= 0) strong[token.side].add(token.at)
  return strong
}

/** Label as many positions as fit, each taking so much room, and give way to those that stand out. */
function drawAxis(context, map, drawLabel, seen, size, room, strong) {
  const every = everyOf(size, room)
  const isFree = (at) => [...strong].every((other) => Math.abs(at - other) * size >= room - 1)
  for (const at of labelled(seen, every)) if (isFree(at)) drawLabel(context, map, at, every > 1, false)
  for (const at of strong) drawLabel(context, map, at, every > 1, true)
}

function drawTitles(context, map) {
  const { frame, width, height, theme } = map
  context.font = `11px ${map.font}`
  context.fillStyle = theme.muted
  context.textAlign = "left"
  context.fillText("key: attended to", frame.left, 7, width)
  context.save()
  context.translate(7, frame.top)
  context.rotate(-Math.PI / 2)
  context.textAlign = "right"
  context.fillText("query: attends from", 0, 0, height)
  context.restore()
}

const isolated = (text) => `\u2068${text}\u2069`

/** A label short enough for its room, with its position before it where not every token has one. */
function labelText(context, map, side, at, withPosition, room) {
  const label = map.header[side].labels[at]
  const before = withPosition ? `${at} ` : ""
  for (let most = 16; most > 1; most--) {
    const text = before + isolated(clip(label, most))
    if (context.measureText(text).width <= room) return text
  }
  return before.trim() || isolated(clip(label, 1))
}

const labelFont = (map, strong) => `${strong ? "600 " : ""}11.5px ${map.font}`

function drawRowLabel(context, map, at, withPosition, strong) {
  const { frame, view, theme, height } = map
  const box = boxOf(view, at, 0)
  const y = frame.top + box.top + box.height / 2
  if (y < frame.top || y > frame.top + height) return
  context.font = labelFont(map, strong)
  context.textAlign = "right"
  const room = frame.left - 24
  const text = labelText(context, map, "query", at, withPosition, room)
  context.fillStyle = strong || !map.special.query.has(at) ? theme.text : theme.muted
  context.fillText(text, frame.left - 7, y)
}

function drawColumnLabel(context, map, at, withPosition, strong) {
  const { frame, view, theme, width } = map
  const box = boxOf(view, 0, at)
  const x = frame.left + box.left + box.width / 2
  if (at >= map.columns || x < frame.left || x > frame.left + width) return
  context.font = labelFont(map, strong)
  const room = Math.min((frame.top - 26) * Math.SQRT2, (frame.outerWidth - x - 2) * Math.SQRT2)
  const text = labelText(context, map, "key", at, withPosition, room)
  drawSlanted(context, map, x, text, strong || !map.special.key.has(at) ? theme.text : theme.muted, strong)
}

function drawSlanted(context, map, x, text, colour, strong) {
  context.save()
  context.translate(x, map.frame.top - 6)
  context.rotate(-Math.PI / 4)
  context.font = labelFont(map, strong)
  context.textAlign = "left"
  context.fillStyle = colour
  context.fillText(text, 0, 0)
  context.restore()
}

// ---- Beside the canvas: the small map, the legend, the words
function drawSmall(map) {
  const canvas = map.root.querySelector(".small")
  canvas.hidden = isWhole(map.view, map)
  if (canvas.hidden) return
  const { width, height, seen } = miniature(map.view, map, 92)
  const context = sized(canvas, width, height)
  const ratio = window.devicePixelRatio || 1
  const size = [Math.min(map.wide, Math.round(width * ratio)), Math.min(map.tall, Math.round(height * ratio))]
  const name = `${map.look}/${size}`
  if (map.miniature?.name !== name) {
    const codes = shrunk(map.codes, map.wide, { x: 0, y: 0, width: map.wide, height: map.tall }, ...size)
    map.miniature = { name, picture: picture(codes, ...size, (code) => map.packedCodes[code]) }
  }
  drawPaper(context, map, 0, 0, width, height)
  context.imageSmoothingEnabled = false
  context.drawImage(map.miniature.picture, 0, 0, width, height)
  context.strokeStyle = map.theme.line
  context.strokeRect(0.5, 0.5, width - 1, height - 1)
  context.strokeStyle = map.theme.text
  context.lineWidth = 1.5
  const [wide, high] = [Math.max(5, seen.width), Math.max(5, seen.height)]
  context.strokeRect(clamp(seen.left, width - wide) + 0.5, clamp(seen.top, height - high) + 0.5, wide - 1, high - 1)
}

function element(tag, className, text = "") {
  const made = document.createElement(tag)
  made.className = className
  made.textContent = text
  return made
}

function showLegend(map) {
  const ramp = element("div", "ramp")
  ramp.style.background = `linear-gradient(to right, ${map.theme.sequential.join(", ")})`
  const ticks = element("div", "ticks")
  for (const { value, at } of ticksOf(map.header.ink)) {
    const tick = element("span", "", String(value).replace(/^0\./, "."))
    tick.style.left = `${100 * at}%`
    ticks.append(tick)
  }
  const [down, across] = map.under
  const pooled = down * across > 1 ? `; each pixel of the whole map is the largest of ${down} × ${across} cells` : ""
  const notes = [element("p", "", INKS[map.header.ink] + pooled)]
  if (map.header.restricted) notes.push(maskedNote(map))
  map.root.querySelector(".legend").replaceChildren(ramp, ticks, ...notes)
}

function maskedNote(map) {
  const note = element("p", "")
  const swatch = element("canvas", "swatch")
  const context = sized(swatch, 22, 12)
  context.fillStyle = hatch(context, map.theme)
  context.fillRect(0, 0, 22, 12)
  note.append(swatch, "not allowed by the mask")
  return note
}

function showReadout(map) {
  const place = map.root.querySelector(".readout")
  const cell = here(map)
  const name = cell ? `${cell.row}/${cell.column}/${wordsOf(map, cell)}` : `idle/${map.look}`
  if (map.read === name) return
  map.read = name
  if (!cell) {
    const [rows, columns] = [map.rows, map.columns].map((count) => count.toLocaleString("en"))
    place.textContent = `${rows} × ${columns} weights. Scroll or pinch to zoom.`
    return
  }
  place.replaceChildren(...sentence(map, cell))
  if (map.cursor) announce(map)
}

const wordsOf = (map, cell) => (cell.row === null || cell.column === null ? "" : words(map, cell))

function sentence(map, cell) {
  const pair = element("span", "pair")
  if (cell.row !== null) pair.append(`query ${cell.row}: `, named(map, "query", cell.row))
  if (cell.row !== null && cell.column !== null) pair.append(" → ")
  if (cell.column !== null)
    pair.append(cell.column === map.columns ? "" : `key ${cell.column}: `, named(map, "key", cell.column))
  return [pair, element("br", ""), element("span", "weight", wordsOf(map, cell))]
}

function named(map, side, at) {
  const label = labelOf(map, side, at)
  const name = element("b", "")
  const isolate = element("bdi", "", clip(label, 32))
  name.title = label
  name.append(isolate)
  return name
}

function announce(map) {
  clearTimeout(map.saying)
  map.saying = setTimeout(() => {
    const cell = here(map)
    if (!cell) return
    const key = cell.column === map.columns ? "the sink" : `key ${cell.column} ${labelOf(map, "key", cell.column)}`
    map.root.querySelector(".spoken").textContent =
      `query ${cell.row} ${labelOf(map, "query", cell.row)} to ${key}: ${words(map, cell)}`
  }, 200)
}

function showButtons(map) {
  const all = isWhole(map.view, map)
  for (const name of ["out", "whole"]) map.root.querySelector(`button[name=${name}]`).disabled = all
  const nearer = zoomed(map.view, map, 2, [0, 0])
  map.root.querySelector("button[name=in]").disabled =
    nearer.across === map.view.across && nearer.down === map.view.down
}

// ---- Asking for exact numbers: those under the pointer or the cursor first, then those in sight
function askSoon(map) {
  clearTimeout(map.asking)
  map.asking = setTimeout(() => {
    if (!map.root.isConnected) return
    const cell = here(map)
    const wanted = isNear(map.view) ? tilesSeen(map.view, map) : []
    if (cell && cell.row !== null && cell.column !== null && known(map, cell).weight === undefined)
      wanted.unshift(tileOf(cell))
    if (wanted.length) tiles.want(map.header.channel, map.header.name, wanted)
  }, REST)
}

// ---- What a person does
/** The cell that the keyboard's cursor or the pointer is on; its row or column is null on a label. */
const here = (map) => map.cursor ?? map.pointed

function connect(map) {
  const { root, header } = map
  const canvas = root.querySelector(".cells")
  canvas.setAttribute("aria-label", labelForEars(map))
  canvas.onpointerdown = (event) => press(map, event)
  canvas.onpointermove = (event) => move(map, event)
  canvas.onpointerup = (event) => release(map, event)
  canvas.onpointercancel = (event) => forget(map, event)
  canvas.onpointerleave = ({ pointerType }) => pointerType === "touch" || point(map, null) // what was tapped stays
  canvas.onwheel = (event) => wheel(map, event)
  canvas.ondblclick = (event) => doubled(map, event)
  canvas.onkeydown = (event) => typed(map, event)
  canvas.onblur = () => stay(map, null)
  const middle = () => [map.width / 2, map.height / 2]
  const does = {
    out: () => zoom(map, 1 / 2, middle()),
    in: () => zoom(map, 2, middle()),
    whole: () => see(map, whole(map)),
  }
  for (const button of root.querySelectorAll("button")) button.onclick = does[button.name]
  connectSmall(map, root.querySelector(".small"))
  tiles.channel(header.channel).arrived = () => redraw(map)
  selection.follow(root, () => redrawNow(map))
  map.observer ??= observe(map)
  redraw(map)
}

/** The selection tells of a change just before a picture: draw into that one, not the next. */
const redrawNow = (map) => draw(map)

function observe(map) {
  const observer = new ResizeObserver(() => redraw(map))
  observer.observe(map.root)
  return observer
}

function leave(map) {
  map.observer?.disconnect()
  map.observer = null
  clearTimeout(map.asking)
  if (here(map)) selection.hover(null)
  selection.leave(map.root)
}

function labelForEars(map) {
  const size = `${map.rows} queries, rows, by ${map.columns} keys, columns`
  return (
    `Map of ${map.header.title}: ${size}. Arrow keys move a cursor from cell to cell, with Shift they move the map; ` +
    "plus and minus zoom, 0 shows the whole map, Enter chooses the row."
  )
}

function see(map, view) {
  map.view = view
  redraw(map)
}

const zoom = (map, factor, point) => see(map, zoomed(map.view, map, factor, point))

/** Where an event is, in pixels from the corner of the map. */
function pointOf(map, event) {
  const box = map.root.querySelector(".cells").getBoundingClientRect()
  return [event.clientX - box.left - map.frame.left, event.clientY - box.top - map.frame.top]
}

/** What is at a point: a cell, or a label of one, which has no row or no column. */
function under(map, [left, top]) {
  const { frame, width, height, view } = map
  const inRows = top >= 0 && top < height
  const sink =
    frame.sink && left >= frame.sink.x - frame.left - 3 && left < frame.sink.x - frame.left + frame.sink.width + 3
  if (inRows && sink) return { row: rowAt(view, map, top), column: map.columns }
  if (inRows && left < 0) return { row: rowAt(view, map, top), column: null }
  const inColumns = left >= 0 && left < width
  if (inColumns && top < 0 && top > -frame.top) return { row: null, column: cellAt(view, map, [left, 0]).column }
  return cellAt(view, map, [left, top])
}

/** The token that a cell stands for in the other views. */
function tokenOf(map, cell) {
  if (!cell) return null
  if (cell.row !== null) return { side: "query", at: cell.row }
  return cell.column < map.columns ? { side: "key", at: cell.column } : null
}

function point(map, cell) {
  map.pointed = cell
  if (cell) map.cursor = null
  if (!map.cursor) selection.hover(tokenOf(map, cell))
  redraw(map)
}

function stay(map, cell) {
  if (!cell && !map.cursor) return
  map.cursor = cell
  if (cell) map.pointed = null
  selection.hover(tokenOf(map, here(map)))
  redraw(map)
}

function press(map, event) {
  if (event.button > 0) return
  map.root.querySelector(".cells").setPointerCapture(event.pointerId)
  if (!map.pressed.size) map.travelled = 0
  map.pressed.set(event.pointerId, pointOf(map, event))
  if (map.pressed.size > 1) map.travelled = Number.POSITIVE_INFINITY
}

function move(map, event) {
  const at = pointOf(map, event)
  const from = map.pressed.get(event.pointerId)
  if (!from) return point(map, under(map, at))
  const [right, down] = [at[0] - from[0], at[1] - from[1]]
  const other = [...map.pressed].find(([name]) => name !== event.pointerId)?.[1]
  if (!other && Math.hypot(right, down) + map.travelled < SLACK) return
  map.travelled += Math.hypot(right, down)
  map.pressed.set(event.pointerId, at)
  if (other) pinch(map, other, from, at)
  else see(map, panned(map.view, map, right, down))
}

function pinch(map, other, from, at) {
  const length = (one) => Math.max(8, Math.hypot(one[0] - other[0], one[1] - other[1]))
  const middle = [0, 1].map((axis) => (at[axis] + other[axis]) / 2)
  const moved = panned(map.view, map, (at[0] - from[0]) / 2, (at[1] - from[1]) / 2)
  see(map, zoomed(moved, map, length(at) / length(from), middle))
}

function release(map, event) {
  const clicked = map.pressed.delete(event.pointerId) && map.travelled < SLACK
  if (!clicked) return
  const cell = under(map, pointOf(map, event))
  point(map, cell)
  const token = tokenOf(map, cell)
  clearTimeout(map.pinning)
  if (token) map.pinning = setTimeout(() => selection.pin(token), 250) // unless it becomes a double click
}

function forget(map, event) {
  map.pressed.delete(event.pointerId)
}

function doubled(map, event) {
  clearTimeout(map.pinning)
  zoom(map, event.shiftKey ? 1 / 2 : 2, pointOf(map, event))
}

/** The wheel zooms; where there is nothing more to see, it scrolls the page as anywhere else. */
function wheel(map, event) {
  const lines = event.deltaMode === 1 ? 16 : 1
  const factor = Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.002))
  if (factor < 1 && isWhole(map.view, map) && !event.ctrlKey) return
  event.preventDefault()
  zoom(
    map,
    factor,
    pointOf(map, event).map((at, axis) => clamp(at, axis ? map.height : map.width)),
  )
}

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }

function typed(map, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !act(map, event)) return
  event.preventDefault()
}

/** Do what a key stands for; false where it stands for nothing. */
function act(map, { key, shiftKey }) {
  const step = STEPS[key]
  if (step && shiftKey) see(map, panned(map.view, map, (-step[1] * map.width) / 4, (-step[0] * map.height) / 4))
  else if (step) moveCursor(map, (cell) => ({ row: cell.row + step[0], column: cell.column + step[1] }))
  else if (key === "PageUp" || key === "PageDown")
    moveCursor(map, (cell) => ({ ...cell, row: cell.row + pageOf(map, key) }))
  else if (key === "Home" || key === "End")
    moveCursor(map, ({ row }) => ({ row, column: key === "End" ? Number.POSITIVE_INFINITY : 0 }))
  else if (key === "+" || key === "=") zoom(map, 2, focusOf(map))
  else if (key === "-" || key === "_") zoom(map, 1 / 2, focusOf(map))
  else if (key === "0") see(map, whole(map))
  else if ((key === "Enter" || key === " ") && map.cursor) selection.pin(tokenOf(map, map.cursor))
  else if (key === "Escape" && map.cursor) stay(map, null)
  else return false
  return true
}

const pageOf = (map, key) => Math.max(1, Math.round(map.height / map.view.down / 8)) * (key === "PageUp" ? -1 : 1)

/** Where the keyboard zooms: at its cursor, else in the middle. */
function focusOf(map) {
  if (!map.cursor) return [map.width / 2, map.height / 2]
  const box = boxOf(map.view, map.cursor.row, Math.min(map.cursor.column, map.columns - 1))
  return [box.left + box.width / 2, box.top + box.height / 2]
}

function moveCursor(map, to) {
  const wanted = map.cursor ? to(map.cursor) : firstCursor(map)
  const row = clamp(wanted.row, map.rows - 1)
  const column = clamp(wanted.column, map.columns - (map.hasSink ? 0 : 1))
  map.view = showing(map.view, map, row, Math.min(column, map.columns - 1))
  stay(map, { row, column })
}

/** The cursor starts where the pointer is, else on the chosen row, else in the middle of what is seen. */
function firstCursor(map) {
  if (map.pointed && map.pointed.row !== null && map.pointed.column !== null) return map.pointed
  const middle = cellAt(map.view, map, [map.width / 2, map.height / 2])
  const token = selection.token
  return token?.side === "query" && token.at >= 0 ? { ...middle, row: token.at } : middle
}

/** A press or a drag on the small map moves what is seen. */
function connectSmall(map, canvas) {
  const look = (event) => {
    const box = canvas.getBoundingClientRect()
    const column = ((event.clientX - box.left) / box.width) * map.columns
    const row = ((event.clientY - box.top) / box.height) * map.rows
    see(map, centred(map.view, map, column, row))
  }
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId)
    look(event)
  }
  canvas.onpointermove = (event) => {
    if (canvas.hasPointerCapture(event.pointerId)) look(event)
  }
}
