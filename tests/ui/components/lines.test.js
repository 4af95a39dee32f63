// Where tokens stand and which lines are drawn between them.
import assert from "node:assert/strict"
import { test } from "node:test"
import {
  cellsFrom,
  cellsOfLine,
  cellsOfMap,
  centreOf,
  chooseLines,
  countSentence,
  curve,
  drawnPart,
  endsSentence,
  evenTrack,
  hasPair,
  headLabel,
  isRightToLeft,
  LEVELS,
  layered,
  linesOf,
  mostPerQuery,
  pairFits,
  planAcross,
  planDown,
  sameNumbers,
  startOf,
  step,
  strength,
  strokeOf,
  strongestEnds,
  takeSlots,
  thresholdSteps,
  topSteps,
  usualThreshold,
  within,
  wordTrack,
} from "../../../attnviz/ui/components/lines/layout.js"

const plain = (count, segment = null) => Array.from({ length: count }, () => ({ label: "x", special: false, segment }))
const all = { threshold: 0, top: null, pair: "all" }

// 3 queries × 5 keys; the last query may attend to two keys only
const MAP = Float32Array.from([0.1, 0.4, 0.1, 0.4, 0, 0.2, 0.2, 0.2, 0.2, 0.2, NaN, 0.75, NaN, 0.25, NaN])
const CELLS = cellsOfMap(MAP, 3, 5)
const pairsOf = (cells, lines) => Array.from(lines, (cell) => [cells.queries[cell], cells.keys[cell]])

test("tokens of one size stand one after another", () => {
  const track = evenTrack(7, 10)
  assert.deepEqual([track.total, startOf(track, 3), centreOf(track, 3)], [70, 30, 35])
})

test("a text read from the right starts at the far end", () => {
  const track = wordTrack([20, 30, 10], true, 100)
  assert.deepEqual(
    [0, 1, 2].map((at) => startOf(track, at)),
    [80, 50, 40],
  )
  assert.equal(centreOf(track, 1), 65)
})

test("the tokens in a part are those that it touches", () => {
  for (const mirrored of [false, true]) {
    const track = wordTrack([20, 30, 10, 40, 5], mirrored, 130)
    for (let from = 0; from < 130; from += 7) {
      const to = from + 23
      const [first, end] = within(track, from, to)
      for (let at = 0; at < 5; at++) {
        const start = startOf(track, at)
        const size = [20, 30, 10, 40, 5][at]
        assert.equal(at >= first && at < end, start < to && start + size > from, `${mirrored} ${from} ${at}`)
      }
    }
  }
})

test("a part before or behind all tokens holds none", () => {
  const [first, end] = within(evenTrack(4, 10), 200, 300)
  assert.ok(first >= end || first >= 3)
})

test("downwards the bands, the lines and nothing else fill the width", () => {
  const widths = { query: [30, 60, 20], key: [400, 10] }
  for (const room of [350, 700, 1400]) {
    const plan = planDown(widths, room, false)
    assert.equal(plan.bands.query + plan.depth + plan.bands.key, plan.across)
    assert.ok(plan.across <= room)
    assert.ok(plan.depth > plan.across / 4, `${room}: ${plan.depth}`)
    assert.equal(plan.length, plan.tracks.query.total)
  }
})

test("across, the same tokens stand above each other and a short text keeps its side", () => {
  const widths = { query: [30, 60, 20], key: [30, 60, 20] }
  const plan = planAcross(widths, 900, false, { query: true, key: false })
  assert.equal(plan.length, 900)
  assert.equal(startOf(plan.tracks.query, 0) + 44, 900)
  assert.equal(startOf(plan.tracks.key, 0), 0)
  assert.equal(planAcross(widths, 50, false, { query: false, key: false }).length, 44 + 74 + 40)
})

test("a short text is drawn whole, a long one half as far again as is seen", () => {
  assert.deepEqual(drawnPart(0, 500, 900), { from: 0, to: 900 })
  assert.deepEqual(drawnPart(2000, 2400, 9000), { from: 1800, to: 2600 })
  assert.deepEqual(drawnPart(0, 400, 9000), { from: 0, to: 600 })
})

test("the direction of a text is that of most of its letters, special tokens aside", () => {
  const tokens = (...labels) => labels.map((label) => ({ label, special: label.startsWith("[") }))
  assert.equal(isRightToLeft(tokens("[CLS]", "القطة", "على", "ok")), true)
  assert.equal(isRightToLeft(tokens("שלום")), true)
  assert.equal(isRightToLeft(tokens("the", "cat", "هذا")), false)
  assert.equal(isRightToLeft(tokens("猫", "1", "👍")), false)
  assert.equal(isRightToLeft([]), false)
})

test("arrows go along a side and over to the other one", () => {
  const down = { horizontal: false, tracks: { query: evenTrack(7, 9), key: evenTrack(3, 9) } }
  assert.deepEqual(step(down, { side: "query", at: 5 }, "ArrowDown"), { side: "query", at: 6 })
  assert.deepEqual(step(down, { side: "query", at: 6 }, "ArrowDown"), { side: "query", at: 6 })
  assert.deepEqual(step(down, { side: "query", at: 5 }, "ArrowRight"), { side: "key", at: 2 })
  assert.deepEqual(step(down, { side: "key", at: 2 }, "ArrowLeft"), { side: "query", at: 2 })
  assert.deepEqual(step(down, { side: "key", at: 1 }, "End"), { side: "key", at: 2 })
  assert.equal(step(down, { side: "key", at: 1 }, "a"), null)
})

test("across, arrows go where they point, whatever the direction of the text", () => {
  const tracks = { query: wordTrack([9, 9, 9]), key: wordTrack([9, 9, 9], true) }
  const across = { horizontal: true, tracks }
  assert.deepEqual(step(across, { side: "query", at: 1 }, "ArrowRight"), { side: "query", at: 2 })
  assert.deepEqual(step(across, { side: "key", at: 1 }, "ArrowRight"), { side: "key", at: 0 })
  assert.deepEqual(step(across, { side: "query", at: 1 }, "ArrowDown"), { side: "key", at: 1 })
})

test("the cells of a map are its allowed ones, by query and key", () => {
  assert.equal(CELLS.weights.length, 12)
  assert.deepEqual([...CELLS.starts], [0, 5, 10, 12])
  for (let cell = 0; cell < 12; cell++)
    assert.equal(CELLS.weights[cell], MAP[CELLS.queries[cell] * 5 + CELLS.keys[cell]])
  assert.equal(mostPerQuery(CELLS), 5)
})

test("cells that Python chose know where each query starts, also one without any", () => {
  const cells = cellsFrom(Uint16Array.of(0, 0, 2), Uint16Array.of(4, 6, 1), Float32Array.of(0.5, 0.3, 1), 4)
  assert.deepEqual([...cells.starts], [0, 2, 2, 3, 3])
  assert.equal(mostPerQuery(cells), 2)
})

test("equal numbers are the same, NaN too", () => {
  assert.equal(sameNumbers(MAP, MAP.slice()), true)
  assert.equal(
    sameNumbers(
      MAP,
      MAP.map((one) => one + 1e-7),
    ),
    false,
  )
  assert.equal(sameNumbers(MAP, MAP.slice(1)), false)
})

test("all lines are all allowed cells", () => {
  assert.deepEqual([...chooseLines(CELLS, all, plain(3), plain(5))], [...CELLS.weights.keys()])
})

test("a threshold keeps the weights that reach it", () => {
  const lines = chooseLines(CELLS, { ...all, threshold: 0.25 }, plain(3), plain(5))
  assert.deepEqual(pairsOf(CELLS, lines), [
    [0, 1],
    [0, 3],
    [2, 1],
    [2, 3],
  ])
})

test("of equal weights the earlier keys are among the strongest", () => {
  const lines = chooseLines(CELLS, { ...all, top: 3 }, plain(3), plain(5))
  assert.deepEqual(pairsOf(CELLS, lines), [
    [0, 0],
    [0, 1],
    [0, 3],
    [1, 0],
    [1, 1],
    [1, 2],
    [2, 1],
    [2, 3],
  ])
})

test("a pair's lines start and end where it says; tokens of no sentence belong to both", () => {
  const queries = [0, 1, null].map((segment) => ({ segment }))
  const keys = [0, 0, 1, 1, null].map((segment) => ({ segment }))
  const count = (pair) => chooseLines(CELLS, { ...all, pair }, queries, keys).length
  assert.deepEqual(pairsOf(CELLS, chooseLines(CELLS, { ...all, pair: "AB" }, queries, keys)), [
    [0, 2],
    [0, 3],
    [0, 4],
    [2, 3],
  ])
  assert.deepEqual(["all", "AA", "BA", "BB"].map(count), [12, 4, 4, 4])
  assert.equal(pairFits("BA", 1, 0), true)
  assert.equal(pairFits("BA", 0, 1), false)
})

test("the strongest of a query are counted within the pair", () => {
  const queries = plain(3, 0)
  const keys = [1, 0, 1, 0, 1].map((segment) => ({ segment }))
  const lines = chooseLines(CELLS, { ...all, top: 1, pair: "AB" }, queries, keys)
  assert.deepEqual(pairsOf(CELLS, lines), [
    [0, 0],
    [1, 0],
  ])
})

test("a pair needs both sentences", () => {
  assert.equal(hasPair([{ segment: 0 }, { segment: null }, { segment: 1 }]), true)
  assert.equal(hasPair([{ segment: 0 }, { segment: null }]), false)
})

test("a token's lines are those that start or end at it", () => {
  const lines = chooseLines(CELLS, { ...all, threshold: 0.15 }, plain(3), plain(5))
  assert.deepEqual(pairsOf(CELLS, linesOf(CELLS, lines, { side: "query", at: 0 })), [
    [0, 1],
    [0, 3],
  ])
  assert.deepEqual(pairsOf(CELLS, linesOf(CELLS, lines, { side: "key", at: 1 })), [
    [0, 1],
    [1, 1],
    [2, 1],
  ])
})

test("the strongest ends over several heads name the head that is strongest at each", () => {
  const other = cellsOfMap(
    MAP.map((weight) => 0.5 - weight),
    3,
    5,
  )
  const heads = [{ cells: CELLS }, { cells: other }]
  const ends = strongestEnds(heads, { side: "query", at: 0 }, 3)
  assert.deepEqual(
    ends.map(({ at, head }) => [at, head]),
    [
      [4, 1],
      [0, 1],
      [1, 0],
    ],
  )
  const from = strongestEnds(heads, { side: "key", at: 1 }, 9)
  assert.deepEqual(
    from.map(({ at, head }) => [at, head]),
    [
      [2, 0],
      [0, 0],
      [1, 1],
    ],
  )
})

test("the ends of drawn lines only, where these are given", () => {
  const lines = chooseLines(CELLS, { ...all, threshold: 0.3 }, plain(3), plain(5))
  assert.deepEqual(
    strongestEnds([{ cells: CELLS, lines }], { side: "key", at: 1 }, 9).map(({ at }) => at),
    [2, 0],
  )
})

test("a single line of weights has the same ends as the map it comes from", () => {
  for (const token of [
    { side: "query", at: 2 },
    { side: "key", at: 3 },
  ]) {
    const line = token.side === "query" ? MAP.subarray(10, 15) : Float32Array.of(MAP[3], MAP[8], MAP[13])
    const expected = strongestEnds([{ cells: CELLS }], token, 9)
    assert.deepEqual(strongestEnds([cellsOfLine(line, token)], token, 9), expected)
  }
})

test("ink rises with the weight, by its root or by the share of its row", () => {
  assert.equal(strength(0.25, "linear"), 0.25)
  assert.equal(strength(0.25, "sqrt"), 0.5)
  assert.equal(strength(0.25, "row", 0.5), 0.5)
  assert.equal(strength(0, "row", 0), 0)
})

test("lines are drawn weak ones first, and only those that cross the part", () => {
  const plan = { tracks: { query: evenTrack(3, 10), key: evenTrack(5, 10) } }
  const heads = [{ cells: CELLS, lines: chooseLines(CELLS, all, plain(3), plain(5)) }]
  const { count, starts, ends } = layered(heads, "linear", plan, { from: 0, to: 50 })
  assert.deepEqual([count, starts.length, starts.at(-1)], [12, LEVELS + 1, 12])
  assert.deepEqual([...ends.slice(-2)], [25, 15]) // 0.75, from query 2 to key 1
  const below = layered(heads, "linear", plan, { from: 30, to: 50 })
  assert.deepEqual([below.count, [...below.ends.slice(-2)]], [5, [5 - 30, 35 - 30]]) // 0.4, from query 0 to key 3
})

test("heads of one strength lie side by side in the order of the legend", () => {
  const plan = { tracks: { query: evenTrack(3, 10), key: evenTrack(5, 10) } }
  const lines = Uint32Array.of(11) // 0.25, from query 2 to key 3
  const heads = [
    { cells: CELLS, lines },
    { cells: CELLS, lines },
  ]
  const { starts } = layered(heads, "linear", plan, { from: 0, to: 50 })
  const filled = [...starts.keys()].filter((bucket) => starts[bucket + 1] > starts[bucket])
  assert.deepEqual(filled, [Math.floor(0.25 * LEVELS) * 2, Math.floor(0.25 * LEVELS) * 2 + 1])
})

test("a curve starts and ends level, on its two sides", () => {
  const [x0, y0, x1, y1, x2, y2, x3, y3] = curve(10, 70, 200, false)
  assert.deepEqual([x0, y0, y1, y2, x3, y3], [0, 10, 10, 70, 200, 70])
  assert.ok(x0 < x1 && x1 < x2 && x2 < x3)
  const turned = curve(10, 70, 200, true)
  assert.deepEqual([turned[0], turned[1], turned[6], turned[7]], [10, 0, 70, 200])
})

test("a head keeps its colour while others come and go", () => {
  const first = takeSlots(new Map(), ["3.0", "3.1", "3.2"])
  assert.deepEqual([...first.values()], [0, 1, 2])
  const second = takeSlots(first, ["3.1", "3.2", "4.0", "4.1"])
  assert.deepEqual(
    ["3.1", "3.2", "4.0", "4.1"].map((name) => second.get(name)),
    [1, 2, 0, 3],
  )
})

test("32 heads look different from each other", () => {
  const colours = ["a", "b", "c", "d", "e", "f", "g", "h"]
  const looks = Array.from({ length: 32 }, (_, slot) => JSON.stringify(strokeOf(slot, colours)))
  assert.equal(new Set(looks).size, 32)
  assert.deepEqual(strokeOf(1, colours), { colour: "b", dash: [] })
})

test("a head is named with its layer where others stand beside it", () => {
  const [one, two, three] = [
    { layer: 3, head: 1 },
    { layer: 3, head: 2 },
    { layer: 5, head: 1 },
  ]
  assert.equal(headLabel(one, [one, two]), "head 1")
  assert.equal(headLabel(one, [one, three]), "3.1")
})

test("sliders have round steps and the value given", () => {
  assert.equal(thresholdSteps(0.05).includes(0.05), true)
  assert.equal(new Set(thresholdSteps(0.05)).size, thresholdSteps(0.05).length)
  assert.deepEqual(
    thresholdSteps(0.333).filter((one) => one >= 0.3 && one < 0.4),
    [0.3, 0.333, 0.35],
  )
  assert.deepEqual([thresholdSteps(0)[0], thresholdSteps(0).at(-1)], [0, 1])
  assert.deepEqual(topSteps(8, null), [1, 2, 3, 4, 5, 6, 7, null])
  assert.deepEqual(topSteps(13, 9), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, null])
  assert.deepEqual(topSteps(1, 4), [null])
})

test("where nobody says how heavy a line must be, half of the queries keep one", () => {
  const even = (count) => cellsOfMap(new Float32Array(count * count).fill(1 / count), count, count)
  const own = (count, weight) =>
    cellsOfMap(
      Float32Array.from({ length: count * count }, (_, at) => (at % (count + 1) ? 0 : weight)),
      count,
      count,
    )
  assert.equal(usualThreshold([CELLS]), 0.05)
  assert.equal(usualThreshold([even(20)]), 0.05) // 1 / 20 as a float is a little more
  assert.equal(usualThreshold([even(21)]), 0.03)
  assert.equal(usualThreshold([even(307)]), 0.002)
  assert.equal(usualThreshold([]), 0.05) // no head is here
  assert.equal(usualThreshold([own(7, 0.06), even(7)]), 0.05)
  assert.equal(usualThreshold([own(13, 0.04), own(11, 0.9)]), 0.03) // 11 of 24 queries reach 0.05
  assert.equal(usualThreshold([own(11, 0.04), own(13, 0.9)]), 0.05)
  assert.equal(usualThreshold([own(5, 0)]), 0)
})

test("how many lines there are is said with the reason why not all", () => {
  const digits = (count) => String(count)
  const say = (drawn, total, options, limit = null) =>
    countSentence(drawn, total, { ...all, ...options }, limit, digits)
  assert.equal(say(61, 256, { threshold: 0.05 }), "61 of 256 lines; the rest are below 0.05.")
  assert.equal(say(256, 256, {}), "256 lines, all of them.")
  assert.equal(
    say(3, 9, { threshold: 0.1, top: 2, pair: "AB" }),
    "3 of 9 lines; the rest are below 0.1 or not among the 2 strongest of a query or not A → B.",
  )
  assert.equal(say(2400, 2400, {}, 8), "The 8 strongest keys of each query. 2400 lines, all of them.")
})

test("the sentence of a token keeps each label's direction", () => {
  const ends = [
    { label: "هذا", weight: "0.677", head: "" },
    { label: "x", weight: "0.100", head: "head 3" },
  ]
  assert.equal(
    endsSentence("it", "query", ends, 8),
    "\u2068it\u2069 attends to \u2068هذا\u2069 0.677, \u2068x\u2069 0.100 (head 3).",
  )
  assert.match(endsSentence("it", "key", ends, 8), /is attended to by .*, as one of their 8 strongest keys\.$/)
  assert.match(endsSentence("it", "key", [], 8), /is not among the 8 strongest keys of any query/)
  assert.match(endsSentence("it", "query", [], null), /attends to nothing/)
})
