// The picture of a head, computed pixel by pixel for the size it is shown at. Nothing of the page is touched here.
// All numbers are small integers: a page has half a million pixels, and these loops run before the browser has compiled
// them well, when every other kind of number costs an object.

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
    const out = across
    for (let x = 0; x < side; x++) {
      for (let part = 0; part < most; part++) {
        const [cell, share] = [cells[x * most + part], shares[x * most + part]]
        if (!part) for (let row = 0; row < size; row++) out[row * side + x] = share * levels[row * size + cell]
        else if (share) for (let row = 0; row < size; row++) out[row * side + x] += share * levels[row * size + cell]
      }
    }
  }

  function colour(out, corner, stride) {
    const { cells, shares, most } = cover
    const [from, inks, width] = [across, colours, side]
    for (let y = 0; y < width; y++) {
      const [part, start, last] = [y * most, corner + y * stride, (y + 1) * most]
      const [row, share] = [cells[part] * width, shares[part]]
      const [next, nextShare] = most > 1 ? [cells[part + 1] * width, shares[part + 1]] : [row, 0]
      for (let x = 0; x < width; x++) {
        let level = share * from[row + x] + nextShare * from[next + x]
        for (let more = part + 2; more < last; more++) level += shares[more] * from[cells[more] * width + x]
        out[start + x] = inks[(level + HALF) >> SHIFT]
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
