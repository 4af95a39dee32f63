// Draws a small picture of every head, layer by layer, on one canvas; a click or Enter opens a head.
// Data: 4 bytes little-endian length of a JSON header, the header, then size·size bytes per head.
const GAP = 3
const FRAME = 2

export default function ({ data, parentElement, setTriggerValue }) {
  const { header, pixels } = unpack(data)
  const root = parentElement.querySelector(".heads")
  const state = (root.attnviz ??= { at: null, chosen: null })
  if (state.version !== header.version) {
    state.version = header.version
    state.at = { row: header.layers.findIndex((layer) => layer.number === header.open.layer), head: header.open.head }
  }
  const tile = tileSize(header, parentElement.host?.clientWidth || root.clientWidth || 480)
  const place = { left: header.labelWidth, top: 18, step: tile + GAP, tile }
  const canvas = prepare(root, header, place)
  draw(canvas, header, pixels, place, state.at)

  const open = (at) => {
    state.at = at
    draw(canvas, header, pixels, place, at)
    announce(root, header, at)
    setTriggerValue("open", { layer: header.layers[at.row].number, head: at.head })
  }
  canvas.onclick = (event) => {
    const at = under(event, canvas, header, place)
    if (at) open(at)
  }
  canvas.onmousemove = (event) => {
    const at = under(event, canvas, header, place)
    canvas.style.cursor = at ? "pointer" : "default"
    canvas.title = at ? describe(header, at) : ""
  }
  root.onkeydown = (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key]
    if (event.key === "Enter" || event.key === " ") open(state.at)
    else if (step) {
      const row = clamp(state.at.row + step[0], header.layers.length - 1)
      state.at = { row, head: clamp(state.at.head + step[1], header.layers[row].heads - 1) }
      draw(canvas, header, pixels, place, state.at)
      announce(root, header, state.at)
    } else return
    event.preventDefault()
  }
}

function unpack(data) {
  const bytes = data instanceof Uint8Array ? data : new Uint8Array(data)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const length = view.getUint32(0, true)
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)))
  return { header, pixels: bytes.subarray(4 + length) }
}

const clamp = (value, last) => Math.max(0, Math.min(last, value))
const mostHeads = (header) => Math.max(...header.layers.map((layer) => layer.heads))

function tileSize(header, width) {
  const room = (width - header.labelWidth) / mostHeads(header) - GAP
  return Math.max(12, Math.min(48, Math.floor(room)))
}

function prepare(root, header, place) {
  const width = place.left + mostHeads(header) * place.step
  const height = place.top + header.layers.length * place.step
  let canvas = root.querySelector("canvas")
  const ratio = window.devicePixelRatio || 1
  canvas.width = width * ratio
  canvas.height = height * ratio
  canvas.style.width = `${width}px`
  canvas.style.height = `${height}px`
  canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0)
  root.setAttribute("aria-label", header.label)
  return canvas
}

function draw(canvas, header, pixels, place, at) {
  const context = canvas.getContext("2d")
  const style = getComputedStyle(canvas)
  const read = (name) => style.getPropertyValue(name).trim()
  const dark = luminance(read("--st-background-color") || "#ffffff") < 0.5
  const inks = palette(dark ? header.dark : header.light)
  context.clearRect(0, 0, canvas.width, canvas.height)
  context.fillStyle = read("--st-text-color") || (dark ? "#ececea" : "#1a1a1a")
  context.globalAlpha = 0.65
  context.font = "11px system-ui, sans-serif"
  context.textBaseline = "middle"
  context.textAlign = "center"
  for (let head = 0; head < mostHeads(header); head += place.step < 22 ? 4 : 1) {
    context.fillText(head, place.left + head * place.step + place.tile / 2, 8)
  }
  context.textAlign = "right"
  header.layers.forEach((layer, row) => {
    context.fillText(layer.label, place.left - 6, place.top + row * place.step + place.tile / 2)
  })
  context.globalAlpha = 1
  drawTiles(context, header, pixels, place, inks, dark)
  drawGroups(context, header, place)
  if (at && at.row >= 0) {
    context.strokeStyle = read("--st-primary-color") || "#c8401a"
    context.lineWidth = FRAME
    const x = place.left + at.head * place.step
    const y = place.top + at.row * place.step
    context.strokeRect(x - 1, y - 1, place.tile + 2, place.tile + 2)
  }
}

function drawTiles(context, header, pixels, place, inks, dark) {
  const size = header.size
  const image = new ImageData(size, size)
  const small = new OffscreenCanvas(size, size)
  const smallContext = small.getContext("2d")
  const barred = dark ? [58, 61, 70] : [214, 214, 209]
  context.imageSmoothingEnabled = place.tile < size
  context.imageSmoothingQuality = "high"
  let offset = header.layers.length * size * size
  header.layers.forEach((layer, row) => {
    const mask = row * size * size
    for (let head = 0; head < layer.heads; head++, offset += size * size) {
      for (let at = 0; at < size * size; at++) {
        const value = pixels[offset + at]
        const hatched = !value && !pixels[mask + at] && ((at % size) + Math.floor(at / size)) % 4 === 0
        const ink = hatched ? barred : inks[value]
        image.data.set(ink, at * 4)
        image.data[at * 4 + 3] = 255
      }
      smallContext.putImageData(image, 0, 0)
      const x = place.left + head * place.step
      const y = place.top + row * place.step
      context.drawImage(small, x, y, place.tile, place.tile)
      context.strokeStyle = dark ? "#2b2e36" : "#e3e3df"
      context.lineWidth = 1
      context.strokeRect(x - 0.5, y - 0.5, place.tile + 1, place.tile + 1)
    }
  })
}

// Heads that share keys and values are joined by a line under them.
function drawGroups(context, header, place) {
  context.fillStyle = "rgba(128,128,128,.8)"
  header.layers.forEach((layer, row) => {
    const group = layer.heads / layer.keyHeads
    if (group <= 1) return
    for (let first = 0; first < layer.heads; first += group) {
      const x = place.left + first * place.step + 1
      const y = place.top + row * place.step + place.tile + 1
      context.fillRect(x, y, group * place.step - GAP - 2, 1)
    }
  })
}

function under(event, canvas, header, place) {
  const box = canvas.getBoundingClientRect()
  const head = Math.floor((event.clientX - box.left - place.left) / place.step)
  const row = Math.floor((event.clientY - box.top - place.top) / place.step)
  const layer = header.layers[row]
  return layer && head >= 0 && head < layer.heads ? { row, head } : null
}

function describe(header, at) {
  const layer = header.layers[at.row]
  const shared = layer.keyHeads < layer.heads
    ? `, reads key head ${Math.floor(at.head / (layer.heads / layer.keyHeads))}`
    : ""
  return `layer ${layer.number}, head ${at.head}${shared}${layer.note ? ", " + layer.note : ""}`
}

function announce(root, header, at) {
  root.querySelector("[aria-live]").textContent = describe(header, at)
}

function luminance(colour) {
  const [red, green, blue] = rgb(colour)
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255
}

function rgb(colour) {
  if (colour.startsWith("#")) return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16))
  return colour.match(/[\d.]+/g).slice(0, 3).map(Number)
}

// 256 inks from the stops [place, colour] of the colour scale.
function palette(stops) {
  return Array.from({ length: 256 }, (_, value) => {
    const v = value / 255
    let next = stops.findIndex(([place]) => place >= v)
    if (next <= 0) return rgb(stops[Math.max(next, 0)][1])
    const [from, first] = stops[next - 1]
    const [to, last] = stops[next]
    const part = (v - from) / (to - from)
    const [a, b] = [rgb(first), rgb(last)]
    return a.map((channel, at) => Math.round(channel + part * (b[at] - channel)))
  })
}
