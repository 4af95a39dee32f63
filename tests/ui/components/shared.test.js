import assert from "node:assert/strict"
import { beforeEach, test } from "node:test"
import { hear, receive } from "../../../attnviz/ui/components/selection/selection.js"
import {
  clip,
  inkOf,
  isDark,
  lineName,
  number,
  once,
  palette,
  rgb,
  Selection,
  strength,
  strongestQuery,
  textOn,
  unpack,
} from "../../../attnviz/ui/components/shared.js"

globalThis.requestAnimationFrame = (draw) => draw()

function pack(header, block) {
  const text = new TextEncoder().encode(JSON.stringify(header))
  const bytes = new Uint8Array(7 + 4 + text.length + block.length) // 7 before it: data need not start where numbers may
  new DataView(bytes.buffer).setUint32(7, text.length, true)
  bytes.set(text, 11)
  bytes.set(block, 11 + text.length)
  return bytes.subarray(7)
}

test("a payload gives back its header and its arrays, wherever it starts in memory", () => {
  const floats = new Uint8Array(Float32Array.of(0.5, Number.NaN, 1).buffer)
  const block = new Uint8Array(24)
  block.set(floats)
  block.set([3, 200, 255], 16)
  const arrays = [
    { type: "float32", shape: [1, 3], offset: 0 },
    { type: "uint8", shape: [3], offset: 16 },
  ]
  const found = unpack(pack({ name: "猫", arrays }, block))
  assert.equal(found.header.name, "猫")
  assert.deepEqual(found.arrays, [Float32Array.of(0.5, Number.NaN, 1), Uint8Array.of(3, 200, 255)])
})

test("colours are read as a style writes them", () => {
  assert.deepEqual(rgb("#c8401a"), [200, 64, 26])
  assert.deepEqual(rgb("rgb(20, 22, 28)"), [20, 22, 28])
  assert.equal(isDark("#14161c"), true)
  assert.equal(isDark("#ffffff"), false)
  assert.equal(textOn([16, 16, 120]), "#ffffff")
  assert.equal(textOn([240, 240, 240]), "#000000")
  assert.equal(textOn([107, 124, 175]), "#000000")
})

test("ink begins at the page and ends at the last stop; under sqrt a quarter is as strong as half", () => {
  const theme = { inks: palette(["#ffffff", "#808080", "#000000"]) }
  for (const ink of ["linear", "sqrt", "row"]) {
    assert.deepEqual(
      [inkOf(theme, 0, ink), inkOf(theme, 1, ink)],
      [
        [255, 255, 255],
        [0, 0, 0],
      ],
    )
  }
  assert.ok(Math.abs(inkOf(theme, 0.5, "linear")[0] - 127) <= 2)
  assert.deepEqual(inkOf(theme, 0.25, "sqrt"), inkOf(theme, 0.5, "linear"))
  assert.notDeepEqual(inkOf(theme, 0.0004, "sqrt"), [255, 255, 255]) // of a long text most weights are as small
})

test("per row, ink is the share of the row's largest weight; nothing is stronger than 1", () => {
  assert.equal(strength(0.2, "row", 0.2), 1)
  assert.equal(strength(0.1, "row", 0.4), 0.25)
  assert.deepEqual([strength(0, "row", 0), strength(1.0001, "sqrt"), strength(Number.NaN, "linear")], [0, 1, 0])
})

test("a weight is written to three decimals, and never as 0 where it is not", () => {
  assert.deepEqual([0, 0.6768, 1, 0.0004, Number.NaN].map(number), [
    "0.000",
    "0.677",
    "1.000",
    "< 0.001",
    "not allowed",
  ])
})

test("a label is cut between characters a person sees", () => {
  assert.equal(clip("unbelievable", 6), "unbel…")
  assert.equal(clip("short", 5), "short")
  assert.equal(clip("👍🏽👨‍👩‍👧", 2), "👍🏽👨‍👩‍👧")
  assert.equal(clip("👍🏽👨‍👩‍👧猫", 2), "👍🏽…")
})

// ---- The selection
const tokens = (...labels) => labels.map((label) => ({ label, special: label.startsWith("["), segment: null }))
const MAP = [
  [0.9, 0.1, 0.0],
  [0.2, 0.5, 0.3],
  [0.1, 0.7, 0.2],
].flat()

let told
function fresh(changes = {}) {
  told = []
  const selection = new Selection()
  selection.tell = (what, value) => told.push([what, value])
  const header = {
    ...{ trace: "one", tokens: { query: tokens("[CLS]", "it", "animal"), key: tokens("[CLS]", "it", "animal") } },
    ...{ same: true, open: { layer: 0, head: 0 }, shown: [{ layer: 0, head: 0 }], marked: [], pinned: null },
    ...{
      first: { side: "query", at: 2 },
      heads: [
        [0, 0],
        [0, 1],
      ],
      lines: [],
    },
    ...changes,
  }
  const maps = Float32Array.from([...MAP, ...MAP.map((weight) => weight / 2)])
  receive(selection, header, [maps, Float32Array.of(0.25, 0.5, 0.25)])
  return { selection, header }
}

let selection
beforeEach(() => {
  selection = fresh().selection
})

const rounded = (line) => Array.from(line, (weight) => Number(weight.toFixed(4)))

test("a line is a row for a query and a column for a key", () => {
  assert.deepEqual(rounded(selection.line(0, 0, { side: "query", at: 1 })), [0.2, 0.5, 0.3])
  assert.deepEqual(rounded(selection.line(0, 0, { side: "key", at: 1 })), [0.1, 0.5, 0.7])
  assert.equal(selection.line(5, 0, { side: "key", at: 1 }), undefined)
})

test("the mean is over the shown heads", () => {
  selection.shown = [
    { layer: 0, head: 0 },
    { layer: 0, head: 1 },
  ]
  assert.deepEqual(rounded(selection.meanLine({ side: "query", at: 1 })), [0.15, 0.375, 0.225])
})

test("a line that came alone stands for the mean", () => {
  const alone = fresh({ heads: [], lines: ["0.0.query.1"] }).selection
  assert.deepEqual(rounded(alone.meanLine({ side: "query", at: 1 })), [0.25, 0.5, 0.25])
  assert.equal(alone.has({ side: "query", at: 2 }), false)
})

test("with nothing chosen, the token with the largest weight on another ordinary one is looked at", () => {
  assert.deepEqual(selection.token, { side: "query", at: 2 }) // animal → it; it → it and the special token do not count
  const special = fresh({ tokens: { query: tokens("[A]", "[B]", "[C]"), key: tokens("[A]", "[B]", "[C]") } }).selection
  assert.deepEqual(special.token, { side: "query", at: 2 }) // the first choice of Python
})

test("what rests on the first token is not worth seeing by itself", () => {
  const words = tokens("The", "it", "animal")
  const found = fresh({ tokens: { query: words, key: words } }).selection
  assert.deepEqual(found.token, { side: "query", at: 2 }) // 0.7 on "it", and not the first row's 0.9 on itself
  const [map, other] = [Float32Array.of(0.5, 0.5, 0.6, 0.4), tokens("a", "b")]
  assert.equal(strongestQuery(map, other, other, true), 0)
  assert.equal(strongestQuery(map, other, other, false), 1)
})

test("the pointer goes before the pin, the pin before what is chosen by itself", () => {
  selection.pin({ side: "key", at: 0 })
  assert.deepEqual(selection.token, { side: "key", at: 0 })
  selection.hover({ side: "query", at: 1 })
  assert.deepEqual(selection.token, { side: "query", at: 1 })
  selection.hover(null)
  assert.deepEqual(selection.token, { side: "key", at: 0 })
  selection.pin({ side: "key", at: 0 })
  assert.deepEqual(selection.token, { side: "query", at: 2 })
  assert.deepEqual(told, [
    ["token", { side: "key", at: 0 }],
    ["token", { side: "query", at: -1 }],
  ])
})

test("what is computed once is computed again only when its input changes", () => {
  let count = 0
  const add = once((one, other) => {
    count++
    return one + other
  })
  assert.deepEqual([add(1, 2), add(1, 2), add(1, 3), add(1, 3)], [3, 3, 4, 4])
  assert.equal(count, 2)
  const list = []
  const size = once((...given) => given.length)
  assert.deepEqual([size(list), size(list, list), size()], [1, 2, 0])
})

test("opening a head shows it at once, and tells Python", () => {
  selection.openHead(0, 1)
  assert.deepEqual(selection.shown, [{ layer: 0, head: 1 }])
  assert.deepEqual(rounded(selection.meanLine({ side: "query", at: 1 })), [0.1, 0.25, 0.15])
  assert.deepEqual(told, [["open", { layer: 0, head: 1 }]])
})

test("a mean over several heads stays when another head is opened", () => {
  const several = [
    { layer: 0, head: 0 },
    { layer: 0, head: 1 },
  ]
  selection.shown = several
  selection.openHead(0, 1)
  assert.deepEqual(selection.shown, several)
})

test("marks come and go, eight at most", () => {
  for (let head = 0; head < 10; head++) selection.mark(0, head)
  assert.equal(selection.marked.length, 8)
  selection.mark(0, 3)
  assert.equal(selection.isMarked(0, 3), false)
  assert.equal(selection.marked.length, 7)
})

test("what the page holds stays for the same trace, and goes with another", () => {
  const { selection: one, header } = fresh()
  receive(one, { ...header, heads: [], lines: [] }, [new Float32Array(0)])
  assert.ok(one.map(0, 1))
  receive(one, { ...header, trace: "two", heads: [], lines: [] }, [new Float32Array(0)])
  assert.equal(one.map(0, 1), undefined)
})

test("every view is drawn again, and one that has left the page is forgotten", () => {
  const drawn = []
  const [here, gone] = [{ isConnected: true }, { isConnected: false }]
  selection.follow(here, () => drawn.push("here"))
  selection.follow(gone, () => drawn.push("gone"))
  selection.changed()
  assert.deepEqual(drawn, ["here"])
  assert.equal(selection.views.has(gone), false)
})

test("a token whose weights are not here is asked for once the pointer rests", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] })
  const alone = fresh({ heads: [] }).selection
  const asked = []
  alone.ask = (token) => asked.push(token)
  alone.hover({ side: "query", at: 0 })
  alone.hover({ side: "query", at: 1 })
  context.mock.timers.tick(200)
  assert.deepEqual(asked, [{ side: "query", at: 1 }])
})

test("a line that was asked for belongs to its heads and its trace", () => {
  const alone = fresh({ heads: [] }).selection
  const token = { side: "query", at: 1 }
  hear(alone, { trace: "another", lines: ["0.0.query.1"] }, [Float32Array.of(1, 0, 0)])
  assert.equal(alone.meanLine(token), undefined)
  hear(alone, { trace: "one", lines: ["0.0.query.1"] }, [Float32Array.of(1, 0, 0)])
  assert.deepEqual(rounded(alone.meanLine(token)), [1, 0, 0])
  alone.openHead(0, 1)
  assert.equal(alone.meanLine(token), undefined) // of another head
  assert.equal(
    lineName(
      [
        { layer: 3, head: 1 },
        { layer: 4, head: 0 },
      ],
      token,
    ),
    "3.1,4.0.query.1",
  )
})

test("what is kept of maps and lines is bounded, and the newest stays", () => {
  const many = new Selection()
  many.tokens = { query: Array(2000), key: Array(2000) }
  many.keep(
    [
      ["0.0", "first"],
      ["0.1", "second"],
    ],
    [],
  )
  many.keep([["0.2", "third"]], [])
  assert.deepEqual([...many.maps.keys()], ["0.1", "0.2"])
  many.keep(
    [],
    Array.from({ length: 300 }, (_, at) => [`0.0.query.${at}`, at]),
  )
  assert.equal(many.rows.size, 256)
  assert.ok(many.rows.has("0.0.query.299"))
})
