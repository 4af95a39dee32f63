// Every head as a small picture on one canvas. Hover shows one larger with its statistics, a click opens it.
import { css, inkOf, once, rgb, same, selection, sized, themeOf, unpack } from "../shared.js"
import { arrange, cardPlace, groupLines, headsOf, neighbour, rangeOf, ranked, tileAt, topOf } from "./layout.js"
import { painter } from "./picture.js"

const CARD = 168 // pixels of the larger picture
const TINT = { light: "#0f8f7a", dark: "#35c9ad" } // laid over by a statistic; no other thing has this colour
const TINTED = 0.62 // the strongest tint
const FAINT = 0.18 // what is left of a head that does not stand out

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".grid")
  root.attnviz ??= { cursor: null }
  const view = root.attnviz
  view.root = root
  if (view.bytes !== data) receive(view, data)
  const theme = themeOf(root, view.header)
  if (view.look !== `${view.version} ${theme.page} ${root.clientWidth}`) {
    Object.assign(view, { theme, look: `${view.version} ${theme.page} ${root.clientWidth}` })
    layOut(view)
  }
  connect(view)
  view.drawChosen ??= once(() => draw(view))
  selection.follow(root, () => view.drawChosen(selection.open, selection.marked))
  draw(view)
  return () => {
    view.observer?.disconnect()
    selection.leave(root)
  }
}

function receive(view, data) {
  const { header, arrays } = unpack(data)
  view.bytes = data
  if (view.version === header.version) return // a rerun brings the same again
  Object.assign(view, { header, version: header.version })
  ;[view.masks, view.pixels, view.values] = arrays
  view.heads = headsOf(header.layers)
  view.options = { ...header.options }
  view.root.setAttribute("aria-label", header.label)
  for (const select of view.root.parentNode.querySelectorAll("select")) select.value = String(view.options[select.name])
}

/** The values of a statistic, a number per head. */
function valuesOf(view, name) {
  const { statistics } = view.header
  const column = statistics.findIndex((one) => one.name === name)
  if (column < 0) return null
  return view.heads.map(({ at }) => view.values[at * statistics.length + column])
}

function layOut(view) {
  const { layers, size } = view.header
  const { order, tint, top } = view.options
  const [ordered, tinted] = [valuesOf(view, order), valuesOf(view, tint)]
  const [width, ranking] = [view.root.clientWidth || 480, tinted ?? ordered]
  view.width = width
  view.layout = arrange({ layers, order: ordered && ranked(view.heads, ordered), width, size })
  view.tint = tinted && { values: tinted, range: rangeOf(tinted) }
  view.top = ranking && top ? topOf(view.heads, ranking, top) : null
  view.canvas = view.root.querySelector("canvas.all")
  view.image = null
  renderTintLegend(view, view.tint?.range)
}

/** The colours of the pictures as pixels: a number each, negative, its bytes red, green, blue and 255. */
function pixelColours({ header, theme }) {
  const pixel = ([red, green, blue]) => (255 << 24) | (blue << 16) | (green << 8) | red
  const colours = Int32Array.from({ length: 256 }, (_, level) => pixel(inkOf(theme, level / 255, header.ink)))
  return { colours, barred: pixel(rgb(theme.isDark ? "#454954" : "#cfcfca")) }
}

/** Return what draws heads with so many pixels a side into an image at a corner. */
function headPainter(view, image, side) {
  const { header, pixels, masks } = view
  const { size } = header
  const paint = painter({ size, side, ...pixelColours(view), perRow: header.ink === "row" })
  const part = (array, at) => array.subarray(at * size * size, (at + 1) * size * size)
  const [out, { width }] = [new Int32Array(image.data.buffer), image]
  return ({ at, row }, x = 0, y = 0) => paint(part(pixels, at), part(masks, row), out, y * width + x, width)
}

/** Draw everything: the pictures, which are kept until the layout or the colours change, and what is said over them. */
function draw(view) {
  const { layout, canvas, header, theme } = view
  const pen = sized(canvas, layout.width, layout.height)
  if (view.image?.width !== pen.canvas.width) view.image = paintHeads(view, pen)
  pen.putImageData(view.image, 0, 0)
  drawBorders(pen, layout, theme)
  drawEdges(pen, layout, theme)
  drawStrength(pen, view)
  if (!layout.captions) drawGroups(pen, layout, header.layers, theme)
  drawFrames(pen, view)
}

/** Return all heads as one image in the screen's own pixels. */
function paintHeads(view, pen) {
  const { layout } = view
  const ratio = window.devicePixelRatio || 1
  const image = pen.createImageData(pen.canvas.width, pen.canvas.height)
  const paint = headPainter(view, image, Math.round(layout.tile * ratio))
  for (const { at, x, y } of layout.tiles) paint(view.heads[at], Math.round(x * ratio), Math.round(y * ratio))
  return image
}

/** A thin border around each head, where there is room. */
function drawBorders(pen, { tiles, tile }, theme) {
  if (tile < 16) return
  pen.strokeStyle = theme.line
  pen.lineWidth = 1
  pen.beginPath()
  for (const { x, y } of tiles) pen.rect(x - 0.5, y - 0.5, tile + 1, tile + 1)
  pen.stroke()
}

/** The tint of a statistic over the pictures, and paper over heads that do not stand out. */
function drawStrength(pen, { layout, theme, tint, top }) {
  for (const one of layout.tiles) {
    if (tint && !Number.isNaN(tint.values[one.at])) {
      const [low, high] = tint.range
      pen.globalAlpha = TINTED * (high > low ? (tint.values[one.at] - low) / (high - low) : 1)
      pen.fillStyle = theme.isDark ? TINT.dark : TINT.light
      pen.fillRect(one.x, one.y, layout.tile, layout.tile)
    }
    if (top && !top.has(one.at)) {
      pen.globalAlpha = 1 - FAINT
      pen.fillStyle = theme.page
      pen.fillRect(one.x, one.y, layout.tile, layout.tile)
    }
  }
  pen.globalAlpha = 1
}

function drawEdges(pen, layout, theme) {
  pen.font = "11px system-ui, sans-serif"
  pen.fillStyle = theme.muted
  pen.textBaseline = "middle"
  pen.textAlign = "center"
  for (const { text, x, y } of layout.columnLabels) pen.fillText(text, x, y)
  pen.textAlign = "right"
  for (const { text, x, y } of layout.rowLabels) pen.fillText(text, x, y)
  pen.fillStyle = theme.line
  for (const { y, height } of layout.gaps) pen.fillRect(0, y + height / 2, layout.width, 1)
  if (!layout.captions) return
  pen.fillStyle = theme.muted
  pen.textAlign = "left"
  pen.font = "10px system-ui, sans-serif"
  for (const one of layout.tiles) pen.fillText(`${one.layer}.${one.head}`, one.x, one.y - 6)
}

/** Heads that share keys and values are joined by a line under them. */
function drawGroups(pen, layout, layers, theme) {
  pen.fillStyle = theme.muted
  for (const { x, y, width } of groupLines(layout, layers)) pen.fillRect(x, y + 1, width, 1)
}

function drawFrames(pen, { layout, theme, root, cursor }) {
  const frame = (one, colour, width) => {
    pen.strokeStyle = colour
    pen.lineWidth = width
    pen.strokeRect(one.x - 1, one.y - 1, layout.tile + 2, layout.tile + 2)
  }
  for (const one of layout.tiles) {
    if (selection.isMarked(one.layer, one.head)) drawMark(pen, one, layout.tile, theme)
    if (same(selection.open, { layer: one.layer, head: one.head })) frame(one, theme.accent, 2)
  }
  if (cursor && root.matches(":focus-visible")) frame(tileOf(layout, cursor), theme.text, 1.5)
}

function drawMark(pen, { x, y }, tile, theme) {
  const side = Math.max(4, Math.min(9, tile / 4))
  pen.fillStyle = theme.text
  pen.beginPath()
  pen.moveTo(x + tile, y)
  pen.lineTo(x + tile - side, y)
  pen.lineTo(x + tile, y + side)
  pen.fill()
}

const tileOf = ({ tiles }, { layer, head }) => tiles.find((one) => one.layer === layer && one.head === head) ?? tiles[0]

// ---- What a person does
function connect(view) {
  const { root, canvas } = view
  const under = (event) => {
    const box = canvas.getBoundingClientRect()
    return tileAt(view.layout, event.clientX - box.left, event.clientY - box.top)
  }
  canvas.onclick = (event) => {
    const one = under(event)
    if (one) choose(view, one, event.shiftKey)
  }
  canvas.onmousemove = (event) => {
    const one = under(event)
    canvas.style.cursor = one ? "pointer" : "default"
    showCard(view, one, event.clientX, event.clientY)
  }
  canvas.onmouseleave = () => showCard(view, null)
  root.onblur = () => {
    showCard(view, null)
    draw(view)
  }
  root.onfocus = () => draw(view)
  root.onkeydown = (event) => onKey(view, event)
  for (const select of root.parentNode.querySelectorAll("select")) select.onchange = () => onOption(view, select)
  watchWidth(view)
}

/** Open a head, or mark it with Shift. */
function choose(view, one, marks) {
  view.cursor = one
  if (marks) selection.mark(one.layer, one.head)
  else selection.openHead(one.layer, one.head)
  announce(view, one)
}

function onKey(view, event) {
  const here = tileOf(view.layout, view.cursor ?? selection.open ?? view.layout.tiles[0])
  if (event.key === "Enter" || event.key === " ") choose(view, here, event.shiftKey)
  else if (event.key === "m") choose(view, here, true)
  else if (event.key === "Escape") showCard(view, null)
  else if (event.key.startsWith("Arrow")) move(view, neighbour(view.layout, here, event.key))
  else return
  event.preventDefault()
}

function move(view, one) {
  view.cursor = one
  draw(view)
  announce(view, one)
  const box = view.canvas.getBoundingClientRect()
  showCard(view, one, box.left + one.x + view.layout.tile, box.top + one.y + view.layout.tile)
}

function onOption(view, select) {
  view.options[select.name] = select.name === "top" ? Number(select.value) : select.value
  selection.tell("grid", view.options)
  layOut(view)
  draw(view)
}

/** Lay out anew when the room changes; a component stays as wide as its place. */
function watchWidth(view) {
  view.observer?.disconnect()
  view.observer = new ResizeObserver(() => {
    if (Math.abs(view.root.clientWidth - view.width) < 2 || !view.root.clientWidth) return
    layOut(view)
    draw(view)
  })
  view.observer.observe(view.root)
}

// ---- The card beside the pointer
function showCard(view, one, x, y) {
  const card = view.root.querySelector(".card")
  card.hidden = !one
  if (!one) return
  card.querySelector(".name").textContent = nameOf(view, one)
  renderStatistics(view, one, card.querySelector("dl"))
  const canvas = card.querySelector("canvas")
  const pen = sized(canvas, CARD, CARD)
  const image = pen.createImageData(canvas.width, canvas.height)
  headPainter(view, image, canvas.width)(view.heads[one.at])
  pen.putImageData(image, 0, 0)
  const window_ = { width: window.innerWidth, height: window.innerHeight }
  const place = cardPlace(x, y, card.offsetWidth, card.offsetHeight, window_)
  card.style.left = `${place.x}px`
  card.style.top = `${place.y}px`
}

function renderStatistics({ header, values }, one, list) {
  const parts = header.statistics.flatMap(({ label, decimals, unit }, column) => {
    const value = values[one.at * header.statistics.length + column]
    const [term, text] = [document.createElement("dt"), document.createElement("dd")]
    term.textContent = label
    text.textContent = Number.isNaN(value) ? "n/a" : `${value.toFixed(decimals)}${unit ? ` ${unit}` : ""}`
    return [term, text]
  })
  list.replaceChildren(...parts)
}

function nameOf({ header }, { layer, head }) {
  const about = header.layers.find(({ number }) => number === layer)
  const group = about.heads / about.keyHeads
  const shared = group > 1 ? ` · reads key head ${Math.floor(head / group)}` : ""
  return `Layer ${layer} · head ${head}${shared}${about.note ? ` · ${about.note}` : ""}`
}

function announce(view, one) {
  const marked = selection.isMarked(one.layer, one.head) ? ", marked" : ""
  view.root.querySelector("[aria-live]").textContent = `${nameOf(view, one)}${marked}`
}

/** Say what the tint means: from the least to the most of its statistic. */
function renderTintLegend(view, range) {
  const legend = view.root.parentNode.querySelector(".tint")
  legend.hidden = !range
  if (!range) return
  const { label, decimals, unit } = view.header.statistics.find(({ name }) => name === view.options.tint)
  const [low, high] = range.map((value) => value.toFixed(decimals))
  legend.querySelector("span").textContent = `tint: ${label}, ${low} to ${high} ${unit}`
  const tint = rgb(view.theme.isDark ? TINT.dark : TINT.light)
  legend.querySelector("i").style.background = `linear-gradient(90deg, ${css(tint, 0)}, ${css(tint, TINTED)})`
}
