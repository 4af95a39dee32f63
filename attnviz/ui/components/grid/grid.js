// Every head as a small picture on one canvas. Hover shows one larger with its statistics, a click opens it.
import { css, inkOf, rgb, same, selection, sized, themeOf, unpack } from "../shared.js"
import { arrange, cardPlace, groupLines, headsOf, neighbour, rangeOf, ranked, tileAt, topOf } from "./layout.js"

const CARD = 168 // pixels of the larger picture
const TINT = { light: "#0f8f7a", dark: "#35c9ad" } // laid over by a statistic; no other thing has this colour
const TINTED = 0.62 // the strongest tint

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
  selection.follow(root, () => draw(view))
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
  const values = valuesOf(view, view.options.order)
  const width = view.root.clientWidth || 480
  view.width = width
  view.layout = arrange({ layers, order: values && ranked(view.heads, values), width, size })
  view.canvas = view.root.querySelector("canvas.all")
  view.sheet = colourSheet(view)
  view.pictures = null
}

/**
 * All pictures in their colours, side by side in one canvas, so that drawing them is copying. They are enlarged by a
 * whole number to at least their place, and made smaller when copied: their cells then look equally large.
 */
function colourSheet(view) {
  const { size } = view.header
  const small = smallSheet(view)
  const ratio = window.devicePixelRatio || 1
  const scale = Math.ceil((view.layout.tile * ratio) / size)
  if (scale < 2 || (view.layout.tile * ratio) % size === 0) return small
  const canvas = new OffscreenCanvas(small.canvas.width * scale, small.canvas.height * scale)
  const pen = canvas.getContext("2d")
  pen.imageSmoothingEnabled = false
  pen.drawImage(small.canvas, 0, 0, canvas.width, canvas.height)
  return { canvas, across: small.across, side: size * scale }
}

function smallSheet({ header, heads, masks, pixels, theme }) {
  const { size, ink } = header
  const across = Math.min(heads.length, 64)
  const sheet = new OffscreenCanvas(across * size, Math.ceil(heads.length / across) * size)
  const pen = sheet.getContext("2d")
  const image = pen.createImageData(sheet.width, sheet.height)
  const out = new Uint32Array(image.data.buffer)
  const inks = Uint32Array.from({ length: 256 }, (_, level) => {
    const [red, green, blue] = inkOf(theme, level / 255, ink)
    return (255 << 24) | (blue << 16) | (green << 8) | red
  })
  const barred = barredInk(theme)
  const cells = size * size
  heads.forEach(({ at, row }) => {
    const corner = Math.floor(at / across) * size * sheet.width + (at % across) * size
    for (let y = 0; y < size; y++) {
      const from = at * cells + y * size
      const scale = ink === "row" ? 255 / Math.max(1, Math.max(...pixels.subarray(from, from + size))) : 1
      for (let x = 0; x < size; x++) {
        const value = pixels[from + x]
        const masked = !value && !masks[row * cells + y * size + x]
        out[corner + y * sheet.width + x] = masked && (x + y) % 3 === 0 ? barred : inks[Math.round(value * scale)]
      }
    }
  })
  pen.putImageData(image, 0, 0)
  return { canvas: sheet, across, side: size }
}

function barredInk(theme) {
  const [red, green, blue] = rgb(theme.isDark ? "#454954" : "#cfcfca")
  return (255 << 24) | (blue << 16) | (green << 8) | red
}

/** Draw the pictures as they stand, and the frames of what is chosen over them. */
function draw(view) {
  const { layout, canvas } = view
  view.pictures ??= drawPictures(view)
  const pen = sized(canvas, layout.width, layout.height)
  pen.drawImage(view.pictures, 0, 0, layout.width, layout.height)
  drawFrames(pen, view)
}

/** Everything but the frames on a canvas of its own, kept until the layout, the colours or the options change. */
function drawPictures(view) {
  const { layout, header, theme } = view
  const canvas = document.createElement("canvas")
  const pen = sized(canvas, layout.width, layout.height)
  pen.font = "11px system-ui, sans-serif"
  drawEdges(pen, view)
  const tinted = valuesOf(view, view.options.tint)
  const [low, high] = tinted ? rangeOf(tinted) : [0, 1]
  const ranking = tinted ?? valuesOf(view, view.options.order)
  const top = ranking && view.options.top ? topOf(view.heads, ranking, view.options.top) : null
  for (const one of layout.tiles) {
    pen.globalAlpha = top && !top.has(one.at) ? 0.18 : 1
    drawTile(pen, view, one)
    if (tinted && !Number.isNaN(tinted[one.at])) {
      pen.globalAlpha *= TINTED * (high > low ? (tinted[one.at] - low) / (high - low) : 1)
      pen.fillStyle = theme.isDark ? TINT.dark : TINT.light
      pen.fillRect(one.x, one.y, layout.tile, layout.tile)
    }
    pen.globalAlpha = 1
  }
  if (!layout.captions) drawGroups(pen, layout, header.layers, theme)
  renderTintLegend(view, tinted && [low, high])
  return canvas
}

function drawEdges(pen, { layout, theme }) {
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

function drawTile(pen, { layout, sheet, theme }, { at, x, y }) {
  const { canvas, across, side } = sheet
  pen.imageSmoothingEnabled = layout.tile < side
  pen.imageSmoothingQuality = "high"
  const [left, top] = [(at % across) * side, Math.floor(at / across) * side]
  pen.drawImage(canvas, left, top, side, side, x, y, layout.tile, layout.tile)
  if (layout.tile < 16) return
  pen.strokeStyle = theme.line
  pen.lineWidth = 1
  pen.strokeRect(x - 0.5, y - 0.5, layout.tile + 1, layout.tile + 1)
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
  const { across, side, canvas: sheet } = view.sheet
  pen.imageSmoothingEnabled = false
  pen.drawImage(sheet, (one.at % across) * side, Math.floor(one.at / across) * side, side, side, 0, 0, CARD, CARD)
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
