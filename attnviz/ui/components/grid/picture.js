// The picture of a head, computed pixel by pixel for the size it is shown at. Nothing of the page is touched here.
// All numbers are small integers, and each has a constant of its own: a page has half a million pixels, and these loops
// run before the browser has compiled them well, when another kind of number costs an object, and so does an array taken
// apart.

export const UNIT = 64 // a whole pixel, in shares
const [HALF, SHIFT] = [(UNIT * UNIT) / 2, 12] // from shares of shares back to levels: UNIT * UNIT is 2 ** 12

/**
 * Which cells each pixel of a line covers, and how much of the pixel each of them fills: `most` entries a pixel, unused
 * ones with a share of 0. Shares of a pixel sum to UNIT, so that cells look equally large at any size.
 */
export function covering(size, side) {
  const edge = (pixel) => (pixel * size) / side
  const spans = Array.from({ length: side }, (_, pixel) => {
    const [from, to] = [edge(pixel), edge(pixel + 1)]
    const filled = (place) => Math.round((UNIT * (Math.min(to, Math.max(from, place)) - from)) / (to - from))
    const count = Math.ceil(to) - Math.floor(from)
    return Array.from({ length: count }, (_, step) => {
      const cell = Math.floor(from) + step
      return [cell, filled(cell + 1) - filled(cell)]
    })
  })
  const most = Math.max(...spans.map((span) => span.length))
  const [cells, shares] = [new Uint16Array(side * most), new Uint8Array(side * most)]
  spans.forEach((span, pixel) => {
    span.forEach(([cell, share], step) => {
      cells[pixel * most + step] = cell
      shares[pixel * most + step] = share
    })
  })
  return { cells, shares, most }
}

/**
 * Return what draws a head into a picture of 32-bit pixels.
 * @param size cells of a side; side: pixels of it.
 * @param colours 256 pixels by the strength of the ink; barred: the pixel of the hatching over what a mask forbids.
 * @param perRow whether ink is a share of a row's largest value.
 */
export function painter({ size, side, colours, barred, perRow }) {
  const cover = covering(size, side)
  const across = new Uint16Array(size * side) // every row of cells, in pixels: UNIT times its level

  function stretch(levels) {
    const { cells, shares, most } = cover
    for (let at = 0; at < side * most; at++) {
      const cell = cells[at]
      const share = shares[at]
      const isFirst = at % most === 0
      let to = (at - (at % most)) / most
      for (let from = cell; from < size * size; from += size, to += side) {
        if (isFirst) across[to] = share * levels[from]
        else if (share) across[to] += share * levels[from]
      }
    }
  }

  function colour(out, corner, stride) {
    const { cells, shares, most } = cover
    for (let y = 0; y < side; y++) {
      const first = y * most
      const second = most > 1 ? first + 1 : first
      const row = cells[first] * side
      const next = cells[second] * side
      const share = shares[first]
      const nextShare = most > 1 ? shares[second] : 0
      const start = corner + y * stride
      for (let x = 0; x < side; x++) {
        let level = share * across[row + x] + nextShare * across[next + x]
        for (let more = first + 2; more < first + most; more++) level += shares[more] * across[cells[more] * side + x]
        out[start + x] = colours[(level + HALF) >> SHIFT]
      }
    }
  }

  function hatch(levels, allowed, out, corner, stride) {
    const nearest = (pixel) => Math.floor(((pixel + 0.5) * size) / side)
    for (let y = 0; y < side; y++) {
      for (let x = (4 - (y % 4)) % 4; x < side; x += 4) {
        const cell = nearest(y) * size + nearest(x)
        if (!allowed[cell] && !levels[cell]) out[corner + y * stride + x] = barred
      }
    }
  }

  /** Draw `levels`, 0 to 255 a cell, from a corner on; cells that are 0 and not allowed are hatched. */
  return function paint(levels, allowed, out, corner, stride) {
    stretch(perRow ? shareOfRow(levels, size) : levels)
    colour(out, corner, stride)
    if (allowed.includes(0)) hatch(levels, allowed, out, corner, stride)
  }
}

function shareOfRow(levels, size) {
  const scaled = new Uint8Array(levels.length)
  for (let start = 0; start < levels.length; start += size) {
    const row = levels.subarray(start, start + size)
    const most = Math.max(1, ...row)
    for (let cell = 0; cell < size; cell++) scaled[start + cell] = Math.round((row[cell] * 255) / most)
  }
  return scaled
}
