// Where tokens stand, which lines are drawn and how they run: arithmetic, without a page.

// ---- Tracks: the places of tokens along the axis they are read in.
/** Tokens of one size, one after another. */
export function evenTrack(count, size) {
  return wordTrack(Array(count).fill(size))
}

/** Tokens as wide as their labels; under `mirrored` they run from the far end of `total` to the near one. */
export function wordTrack(sizes, mirrored = false, total = undefined) {
  const starts = new Float32Array(sizes.length + 1)
  sizes.forEach((size, at) => {
    starts[at + 1] = starts[at] + size
  })
  return { count: sizes.length, starts, mirrored, total: total ?? starts[sizes.length] }
}

export const sizeOf = ({ starts }, at) => starts[at + 1] - starts[at]

/** The end of a token that is nearer to the origin. */
export function startOf(track, at) {
  return track.mirrored ? track.total - track.starts[at + 1] : track.starts[at]
}

export function centreOf(track, at) {
  return startOf(track, at) + sizeOf(track, at) / 2
}

/** The tokens [first, end) that a stretch of the axis touches. */
export function within(track, from, to) {
  const [near, far] = track.mirrored ? [track.total - to, track.total - from] : [from, to]
  const first = Math.max(0, firstAbove(track.starts, near) - 1)
  return [first, Math.max(first, Math.min(track.count, firstAtLeast(track.starts, far)))]
}

function firstAbove(sorted, value) {
  return search(sorted, (one) => one > value)
}

function firstAtLeast(sorted, value) {
  return search(sorted, (one) => one >= value)
}

/** The first place of a sorted array where a test holds; its length where it holds nowhere. */
function search(sorted, holds) {
  let [low, high] = [0, sorted.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (holds(sorted[middle])) high = middle
    else low = middle + 1
  }
  return low
}

// ---- Plans: where everything stands in the two layouts.
const WIDEST = 780
const WEIGHT_WIDTH = { alone: 46, named: 104, narrow: 40 }

/**
 * Queries down the left, keys down the right. `widths` are those of the labels, {query: […], key: […]}, `room` the
 * width there is, `named` whether a weight says of which head it is.
 */
export function planDown(widths, room, named) {
  const pitch = Math.max(widths.query.length, widths.key.length) > 32 ? 24 : 27
  const tracks = { query: evenTrack(widths.query.length, pitch), key: evenTrack(widths.key.length, pitch) }
  const width = Math.min(room, WIDEST)
  const narrow = width < 480
  const weight = narrow ? WEIGHT_WIDTH.narrow : named ? WEIGHT_WIDTH.named : WEIGHT_WIDTH.alone
  const most = width * (narrow ? 0.27 : 0.24)
  const label = (side) => Math.max(32, Math.min(most, Math.max(...widths[side]) + 16))
  const bands = { query: label("query") + weight, key: label("key") + weight }
  const depth = Math.max(40, width - bands.query - bands.key)
  const length = Math.max(tracks.query.total, tracks.key.total)
  return { horizontal: false, tracks, bands, depth, length, across: bands.query + depth + bands.key, weight, narrow }
}

/** Queries along the top, keys along the bottom; `mirrored` says of each side whether it is read from the right. */
export function planAcross(widths, room, named, mirrored) {
  const sizes = (side) => widths[side].map((width) => Math.max(named ? 54 : 40, width + 14))
  const sum = (numbers) => numbers.reduce((total, one) => total + one, 0)
  const length = Math.max(room, sum(sizes("query")), sum(sizes("key")))
  const track = (side) => wordTrack(sizes(side), mirrored[side], length)
  const band = named ? 56 : 44
  const depth = 260
  const tracks = { query: track("query"), key: track("key") }
  const bands = { query: band, key: band }
  return { horizontal: true, tracks, bands, depth, length, across: depth + 2 * band, weight: 0, narrow: false }
}

/** The part of the axis to draw when [from, to) is seen: half as much again on both sides, or all of a short one. */
export function drawnPart(from, to, length) {
  const seen = to - from
  if (length <= 2 * seen) return { from: 0, to: length }
  return { from: Math.max(0, from - seen / 2), to: Math.min(length, to + seen / 2) }
}

/** Whether most letters of the ordinary tokens are of a script that is read from the right. */
export function isRightToLeft(tokens) {
  const letters = tokens.flatMap(({ label, special }) => (special ? [] : (label.match(/\p{L}/gu) ?? [])))
  const fromRight = letters.filter((letter) =>
    /[\p{sc=Arab}\p{sc=Hebr}\p{sc=Syrc}\p{sc=Thaa}\p{sc=Nkoo}]/u.test(letter),
  )
  return fromRight.length * 2 > letters.length
}

/** The token that an arrow key leads to, {side, at}; null where the key leads nowhere. */
export function step({ horizontal, tracks }, { side, at }, key) {
  const last = tracks[side].count - 1
  if (key === "Home" || key === "End") return { side, at: key === "Home" ? 0 : last }
  const [back, forth] = horizontal ? ["ArrowLeft", "ArrowRight"] : ["ArrowUp", "ArrowDown"]
  const [toQuery, toKey] = horizontal ? ["ArrowUp", "ArrowDown"] : ["ArrowLeft", "ArrowRight"]
  if (key === back || key === forth) {
    const sign = (key === forth ? 1 : -1) * (tracks[side].mirrored ? -1 : 1)
    return { side, at: Math.max(0, Math.min(last, at + sign)) }
  }
  if (key !== toQuery && key !== toKey) return null
  const other = key === toKey ? "key" : "query"
  return { side: other, at: Math.min(at, tracks[other].count - 1) }
}

// ---- Cells: the allowed cells of one head, ordered by query, then by key.
/** Cells from their columns; those of query q are at starts[q] to starts[q + 1]. */
export function cellsFrom(queries, keys, weights, queryCount) {
  const starts = new Uint32Array(queryCount + 1)
  for (const query of queries) starts[query + 1]++
  for (let query = 0; query < queryCount; query++) starts[query + 1] += starts[query]
  return { queries, keys, weights, starts }
}

/** The cells of a whole map [query × key], where NaN is not allowed. */
export function cellsOfMap(map, queryCount, keyCount) {
  const count = map.reduce((sum, weight) => sum + !Number.isNaN(weight), 0)
  const [queries, keys, weights] = [new Uint16Array(count), new Uint16Array(count), new Float32Array(count)]
  for (let at = 0, cell = 0; at < map.length; at++) {
    if (Number.isNaN(map[at])) continue
    queries[cell] = Math.floor(at / keyCount)
    keys[cell] = at % keyCount
    weights[cell++] = map[at]
  }
  return cellsFrom(queries, keys, weights, queryCount)
}

/** The cells of one line of a map, NaN where not allowed, as `strongestEnds` takes them. */
export function cellsOfLine(weights, { side, at }) {
  const [own, others] = [new Uint16Array(weights.length).fill(at), Uint16Array.from(weights, (_, place) => place)]
  const cells = side === "query" ? { queries: own, keys: others, weights } : { queries: others, keys: own, weights }
  return { cells, lines: others.filter((place) => !Number.isNaN(weights[place])) }
}

/** Whether two arrays hold the same bits: NaN is equal to NaN. */
export function sameNumbers(one, other) {
  if (one.length !== other.length) return false
  const bits = (numbers) => new Uint32Array(numbers.buffer, numbers.byteOffset, numbers.length)
  const [left, right] = [bits(one), bits(other)]
  return left.every((word, at) => word === right[at])
}

export const mostPerQuery = ({ starts }) =>
  starts.reduce((most, at, row) => Math.max(most, at - (starts[row - 1] ?? 0)), 0)

// ---- Which lines are drawn.
/** Whether a token's segment is that of sentence "A" or "B"; none belongs to both. */
export const isOfSentence = (letter, segment) => segment === null || segment === "AB".indexOf(letter)

/** Whether a line between tokens of these segments belongs to a pair such as "AB". */
export function pairFits(pair, querySegment, keySegment) {
  return pair === "all" || (isOfSentence(pair[0], querySegment) && isOfSentence(pair[1], keySegment))
}

export const hasPair = (tokens) => [0, 1].every((segment) => tokens.some((token) => token.segment === segment))

/**
 * The places in `cells` of the lines to draw: of weights of at least `threshold` that fit the pair, the `top` strongest
 * of each query (all where null); of equal weights the earlier key.
 */
export function chooseLines(cells, { threshold, top, pair }, queryTokens, keyTokens) {
  const { keys, weights, starts } = cells
  const chosen = []
  for (let query = 0; query < queryTokens.length; query++) {
    const row = []
    for (let cell = starts[query]; cell < starts[query + 1]; cell++) {
      if (!(weights[cell] >= threshold)) continue
      if (pairFits(pair, queryTokens[query].segment, keyTokens[keys[cell]].segment)) row.push(cell)
    }
    const isLong = top !== null && row.length > top
    for (const cell of isLong ? strongestOf(row, weights, top) : row) chosen.push(cell)
  }
  return Uint32Array.from(chosen)
}

function strongestOf(row, weights, top) {
  return row
    .sort((one, other) => weights[other] - weights[one] || one - other)
    .slice(0, top)
    .sort((one, other) => one - other)
}

/** Of the lines, those that start (side "query") or end ("key") at a token. */
export function linesOf(cells, lines, { side, at }) {
  const ends = side === "query" ? cells.queries : cells.keys
  return lines.filter((cell) => ends[cell] === at)
}

/** The strongest cells of a token over several heads, [{at, weight, head}], at most one per token at the other end. */
export function strongestEnds(heads, { side, at }, most) {
  const best = new Map()
  heads.forEach(({ cells, lines }, head) => {
    const [ends, others] = side === "query" ? [cells.queries, cells.keys] : [cells.keys, cells.queries]
    const consider = (cell) => {
      if (ends[cell] !== at || best.get(others[cell])?.weight >= cells.weights[cell]) return
      best.set(others[cell], { at: others[cell], weight: cells.weights[cell], head })
    }
    if (lines) lines.forEach(consider)
    else for (const cell of range(cells, side, at)) consider(cell)
  })
  return [...best.values()].sort((one, other) => other.weight - one.weight || one.at - other.at).slice(0, most)
}

function* range({ starts, keys }, side, at) {
  const [first, end] = side === "query" ? [starts[at], starts[at + 1]] : [0, keys.length]
  for (let cell = first; cell < end; cell++) yield cell
}

// ---- How lines are drawn.
export const LEVELS = 24

/** How strong the ink of a weight is, 0 to 1; `most` is the largest weight of its row, of which "row" takes the share. */
export function strength(weight, ink, most = 1) {
  const share = Math.min(1, ink === "row" ? weight / (most || 1) : weight)
  return ink === "sqrt" ? Math.sqrt(share) : share
}

/** The largest weight of each query. */
export function rowPeaks({ queries, weights, starts }) {
  const peaks = new Float32Array(starts.length - 1)
  weights.forEach((weight, cell) => {
    peaks[queries[cell]] = Math.max(peaks[queries[cell]], weight)
  })
  return peaks
}

/**
 * Lines in the order to draw them, weak ones first, without those that lie outside of a part of the axis: `ends` holds
 * where each starts and ends, counted from the part's start; those of level l and head h are the lines from
 * starts[l × heads + h] to the next start.
 */
export function layered(heads, ink, { tracks }, part) {
  const centres = { query: centresOf(tracks.query), key: centresOf(tracks.key) }
  const most = heads.reduce((sum, { lines }) => sum + lines.length, 0)
  const [buckets, ends] = [new Uint16Array(most), new Float32Array(2 * most)]
  let count = 0
  heads.forEach(({ cells, lines }, head) => {
    const peaks = ink === "row" ? rowPeaks(cells) : null
    for (const cell of lines) {
      const query = cells.queries[cell]
      const [from, to] = [centres.query[query], centres.key[cells.keys[cell]]]
      if (Math.max(from, to) < part.from || Math.min(from, to) > part.to) continue
      const level = levelOf(strength(cells.weights[cell], ink, peaks?.[query]))
      buckets[count] = level * heads.length + head
      ends.set([from - part.from, to - part.from], 2 * count++)
    }
  })
  return inOrder(buckets.subarray(0, count), ends, LEVELS * heads.length)
}

const levelOf = (share) => Math.min(LEVELS - 1, Math.floor(share * LEVELS))

/** Sort lines by their buckets, in the time it takes to read them. */
function inOrder(buckets, ends, count) {
  const starts = new Uint32Array(count + 1)
  for (const bucket of buckets) starts[bucket + 1]++
  for (let bucket = 0; bucket < count; bucket++) starts[bucket + 1] += starts[bucket]
  const next = starts.slice()
  const sorted = new Float32Array(2 * buckets.length)
  buckets.forEach((bucket, at) => {
    sorted.set(ends.subarray(2 * at, 2 * at + 2), 2 * next[bucket]++)
  })
  return { count: buckets.length, starts, ends: sorted }
}

const centresOf = (track) => Float32Array.from({ length: track.count }, (_, at) => centreOf(track, at))

/** The points of a gentle curve across `depth`, from a place on one side to a place on the other, level at both. */
export function curve(from, to, depth, horizontal) {
  const bend = depth * 0.42
  if (horizontal) return [from, 0, from, bend, to, depth - bend, to, depth]
  return [0, from, bend, from, depth - bend, to, depth, to]
}

// ---- Heads: colours, names, and the sentences about lines.
export const nameOf = ({ layer, head }) => `${layer}.${head}`

export const otherSide = (side) => (side === "query" ? "key" : "query")

/** A place in the palette for each head, which it keeps as long as it is shown, whatever else comes and goes. */
export function takeSlots(before, names) {
  const kept = new Map(names.filter((name) => before.has(name)).map((name) => [name, before.get(name)]))
  const taken = new Set(kept.values())
  for (const name of names) {
    if (kept.has(name)) continue
    let slot = 0
    while (taken.has(slot)) slot++
    kept.set(name, slot)
    taken.add(slot)
  }
  return kept
}

/** What tells one head from another beyond its number: colours first, then dashes. */
export function strokeOf(slot, colours) {
  const dashes = [[], [7, 4], [2, 3], [10, 3, 2, 3]]
  const round = Math.floor(slot / colours.length)
  return { colour: colours[slot % colours.length], dash: dashes[round % dashes.length] }
}

/** "head 1", or "3.1" where heads of several layers stand together. */
export function headLabel({ layer, head }, shown) {
  return shown.every((one) => one.layer === layer) ? `head ${head}` : `${layer}.${head}`
}

const THRESHOLDS = [0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07]
for (let percent = 10; percent <= 100; percent += 5) THRESHOLDS.push(percent / 100)
const TOPS = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96]

const USUAL = 0.05

/**
 * The least weight of a line where nobody has said one: 0.05, or where fewer than half of the queries have a weight that
 * large, as in long texts that are attended to evenly, the largest step that half of them reach.
 */
export function usualThreshold(heads) {
  const peaks = heads.flatMap((cells) => Array.from(rowPeaks(cells))).sort((one, other) => other - one)
  const half = peaks[Math.ceil(peaks.length / 2) - 1] ?? USUAL
  return THRESHOLDS.findLast((one) => one <= Math.min(USUAL, half))
}

/** Round steps for a threshold, close together where most weights are; a threshold between them is one more. */
export function thresholdSteps(threshold) {
  return [...new Set([...THRESHOLDS, threshold])].sort((one, other) => one - other)
}

/** Steps for how many lines leave each query, of at most so many; the last, null, is all. */
export function topSteps(most, top) {
  const wanted = top === null ? [] : [top]
  const steps = [...new Set([...TOPS, ...wanted])].filter((one) => one < most)
  return [...steps.sort((one, other) => one - other), null]
}

/**
 * "it attends to animal 0.677, [CLS] 0.102." of labels, each in its own direction, and written weights. `limit`: how
 * many keys of each query are here, null where all weights of the token are.
 */
export function endsSentence(label, side, ends, limit) {
  const isolated = (text) => `\u2068${text}\u2069`
  if (!ends.length && side === "key" && limit !== null) {
    return `${isolated(label)} is not among the ${limit} strongest keys of any query.`
  }
  const does = side === "query" ? "attends to" : "is attended to by"
  if (!ends.length) return `${isolated(label)} ${does} nothing: no cell is allowed.`
  const among = side === "key" && limit !== null ? `, as one of their ${limit} strongest keys` : ""
  const written = ends.map((end) => `${isolated(end.label)} ${end.weight}${end.head ? ` (${end.head})` : ""}`)
  return `${isolated(label)} ${does} ${written.join(", ")}${among}.`
}

/** "61 of 256 lines; the rest are below 0.05." `limit`: how many keys of a query are here, null for all. */
export function countSentence(
  drawn,
  total,
  { threshold, top, pair },
  limit,
  digits = (count) => count.toLocaleString("en"),
) {
  const here = limit === null ? "" : `The ${limit} strongest keys of each query. `
  if (drawn === total) return `${here}${digits(total)} ${total === 1 ? "line" : "lines"}, all of them.`
  const reasons = [
    threshold > 0 ? `below ${threshold}` : "",
    top === null ? "" : top === 1 ? "not the strongest of a query" : `not among the ${top} strongest of a query`,
    pair === "all" ? "" : `not ${pair[0]} → ${pair[1]}`,
  ].filter(Boolean)
  return `${here}${digits(drawn)} of ${digits(total)} lines; the rest are ${reasons.join(" or ")}.`
}
