// Where the picture of each head stands, and what is under the pointer. No drawing here.
const CAPTION = 12 // pixels above a picture for "3.1", where heads stand in an order of their own
const TOP = 18
const GAP_ROW = 7 // pixels of a row that stands for layers without attention
const LARGEST = 88
const TALLEST = 660 // pixels all rows take in a laptop's window, as long as a picture can still be read
const FEW = 8 // heads of a single layer that stand side by side; more of them flow

/** Every head {layer, head, row, at} in the order of the layers; `at` counts all heads, `row` the layers. */
export function headsOf(layers) {
  let at = 0
  return layers.flatMap(({ number, heads }, row) =>
    Array.from({ length: heads }, (_, head) => ({ layer: number, head, row, at: at++ })),
  )
}

/** The heads by falling value; those without one (NaN) come last, equal ones in the order of the layers. */
export function ranked(heads, values) {
  const rank = ({ at }) => (Number.isNaN(values[at]) ? -Infinity : values[at])
  return [...heads].sort((one, other) => rank(other) - rank(one) || one.at - other.at)
}

/** Positions (`at`) of the `count` heads with the largest values. */
export function topOf(heads, values, count) {
  const known = heads.filter(({ at }) => !Number.isNaN(values[at]))
  return new Set(
    ranked(known, values)
      .slice(0, count)
      .map(({ at }) => at),
  )
}

/**
 * Where everything stands, in pixels.
 * @param layers [{number, heads, keyHeads}], rising by number; missing numbers between them are drawn as a gap.
 * @param order the heads in an order of their own, or null for a row per layer.
 * @param width the room there is; size: pixels of data a side of a picture, for whole multiples of it.
 * @returns {tiles: [{layer, head, at, row, x, y}], tile, width, height, rowLabels, columnLabels, gaps, captions}
 */
export function arrange({ layers, order = null, width, size }) {
  const flows = order || (layers.length === 1 && layers[0].heads > FEW)
  return flows ? flow(order ?? headsOf(layers), width, size) : rows(layers, width, size)
}

function rows(layers, width, size) {
  const left = 14 + 7 * Math.max(...layers.map(({ number }) => String(number).length))
  const most = Math.max(...layers.map(({ heads }) => heads))
  const splits = Math.max(...layers.map(groupBreaks))
  const { tile, gap, breakGap } = fit(width - left, most, splits, size, Math.floor(TALLEST / layers.length))
  const step = tile + gap
  const [tiles, rowLabels, gaps] = [[], [], []]
  let [y, at] = [TOP, 0]
  layers.forEach((layer, row) => {
    const missing = layer.number - (row ? layers[row - 1].number : -1) - 1
    if (missing > 0) {
      gaps.push({ y, height: GAP_ROW, first: layer.number - missing, last: layer.number - 1 })
      y += GAP_ROW + gap
    }
    for (let head = 0; head < layer.heads; head++, at++) {
      const x = left + head * step + breakGap * breaksBefore(layer, head)
      tiles.push({ layer: layer.number, head, at, row, x, y })
    }
    rowLabels.push({ text: String(layer.number), x: left - 6, y: y + tile / 2 })
    y += step
  })
  const right = Math.max(...tiles.map(({ x }) => x)) + tile
  return {
    tiles,
    tile,
    gaps,
    rowLabels,
    columnLabels: headLabels(tiles, tile),
    captions: false,
    width: right + 2,
    height: y,
  }
}

/** Heads in an order of their own, row by row, each with its name above it. */
function flow(order, width, size) {
  const across = Math.max(1, Math.min(order.length, acrossOf(order.length, width)))
  const { tile, gap } = fit(width - 4, across, 0, size)
  const caption = tile >= 22 ? CAPTION : 0
  const tiles = order.map((one, place) => {
    const [row, column] = [Math.floor(place / across), place % across]
    return { ...one, row, x: 2 + column * (tile + gap), y: 2 + caption + row * (tile + gap + caption) }
  })
  const last = tiles[tiles.length - 1]
  return {
    ...{ tiles, tile, gaps: [], rowLabels: [], columnLabels: [], captions: caption > 0 },
    width: 2 + across * (tile + gap),
    height: last.y + tile + gap,
  }
}

const acrossOf = (count, width) => Math.max(Math.min(6, count), Math.ceil(Math.sqrt(count * Math.max(1, width / 420))))

/** The side of a picture: a whole multiple of its data where that costs little room, so that every cell is as large. */
function fit(width, across, breaks, size, tallest = LARGEST) {
  const room = Math.min(tallest, width / across)
  const gap = room < 20 ? 1 : 3
  const breakGap = room < 20 ? 2 : 5
  const free = Math.max(9, Math.min(LARGEST, tallest - gap, Math.floor((width - breaks * breakGap) / across - gap)))
  const even = Math.floor(free / size) * size
  return { tile: even >= 0.85 * free ? even : free, gap, breakGap }
}

const groupSize = ({ heads, keyHeads }) => heads / (keyHeads || heads)
const groupBreaks = (layer) => (groupSize(layer) > 1 ? layer.keyHeads - 1 : 0)
const breaksBefore = (layer, head) => (groupSize(layer) > 1 ? Math.floor(head / groupSize(layer)) : 0)

/** Head numbers above the columns, as many as there is room for. */
function headLabels(tiles, tile) {
  const longest = tiles.reduce((most, one) => (one.head > most.head ? one : most), tiles[0]).row
  const first = tiles.filter(({ row }) => row === longest)
  const every = [1, 2, 4, 8, 16, 32].find((step) => step * (tile + 1) >= 17) ?? 64
  return first
    .filter(({ head }) => head % every === 0)
    .map(({ head, x }) => ({ text: String(head), x: x + tile / 2, y: 8 }))
}

/** The head under a point, or null. */
export function tileAt({ tiles, tile }, x, y) {
  return tiles.find((one) => x >= one.x && x < one.x + tile && y >= one.y && y < one.y + tile) ?? null
}

/** The head that an arrow key leads to: the nearest in the row before or after, or beside in the same row. */
export function neighbour({ tiles }, from, key) {
  const place = tiles.indexOf(from)
  if (key === "ArrowLeft") return tiles[place - 1]?.row === from.row ? tiles[place - 1] : from
  if (key === "ArrowRight") return tiles[place + 1]?.row === from.row ? tiles[place + 1] : from
  const row = from.row + (key === "ArrowDown" ? 1 : -1)
  const there = tiles.filter((one) => one.row === row)
  return there.reduce(
    (best, one) => (Math.abs(one.x - from.x) < Math.abs(best.x - from.x) ? one : best),
    there[0] ?? from,
  )
}

/** Which picture shares keys and values with which: {x, y, width} of a line under each group. */
export function groupLines({ tiles, tile }, layers) {
  return layers.flatMap((layer, row) => {
    const group = groupSize(layer)
    if (group <= 1) return []
    const mine = tiles.filter((one) => one.row === row)
    return Array.from({ length: layer.keyHeads }, (_, at) => {
      const [first, last] = [mine[at * group], mine[(at + 1) * group - 1]]
      return { x: first.x, y: first.y + tile, width: last.x + tile - first.x }
    })
  })
}

/** The smallest and largest of some numbers, NaN aside; [0, 1] where there is none. */
export function rangeOf(values) {
  const known = Array.from(values).filter((value) => !Number.isNaN(value))
  return known.length ? [Math.min(...known), Math.max(...known)] : [0, 1]
}

/** Where a card of a size stands beside a point, inside the window. */
export function cardPlace(x, y, width, height, window) {
  const right = x + 16 + width <= window.width - 8
  return {
    x: Math.max(8, right ? x + 16 : x - 16 - width),
    y: Math.max(8, Math.min(y - 20, window.height - 8 - height)),
  }
}
