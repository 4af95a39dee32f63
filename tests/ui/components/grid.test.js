import assert from "node:assert/strict"
import { test } from "node:test"
import * as layout from "../../../attnviz/ui/components/grid/layout.js"

const layersOf = (...numbers) => numbers.map((number) => ({ number, heads: 12, keyHeads: 12 }))
const at = (found, layer, head) => found.tiles.find((one) => one.layer === layer && one.head === head)

test("a row per layer and a column per head, apart from each other", () => {
  const found = layout.arrange({ layers: layersOf(0, 1, 2), width: 480, size: 32 })
  assert.equal(found.tiles.length, 36)
  assert.equal(at(found, 1, 0).y, at(found, 1, 11).y)
  assert.equal(at(found, 0, 5).x, at(found, 2, 5).x)
  const step = at(found, 0, 1).x - at(found, 0, 0).x
  assert.ok(step > found.tile)
  assert.ok(found.width <= 480)
  assert.deepEqual(
    found.rowLabels.map(({ text }) => text),
    ["0", "1", "2"],
  )
  assert.deepEqual(found.columnLabels.map(({ text }) => text).slice(0, 3), ["0", "1", "2"])
})

for (const [layers, heads, size, width] of [
  [12, 12, 32, 420],
  [32, 32, 32, 420],
  [30, 9, 32, 420],
  [80, 64, 32, 620],
]) {
  test(`${layers} × ${heads} heads fit a laptop's window`, () => {
    const rows = Array.from({ length: layers }, (_, number) => ({ number, heads, keyHeads: heads }))
    const found = layout.arrange({ layers: rows, width, size })
    assert.ok(found.width <= width + 240 * (heads > 40), `${found.width} px wide`)
    assert.ok(found.height <= Math.max(700, 11 * layers))
    assert.ok(found.tile >= 9)
  })
}

test("cells are a whole number of pixels where that costs little", () => {
  const found = layout.arrange({ layers: [{ number: 0, heads: 4, keyHeads: 4 }], width: 390, size: 6 })
  assert.equal(found.tile % 6, 0)
})

test("layers without attention are a gap, with the true numbers beside it", () => {
  const found = layout.arrange({ layers: layersOf(3, 4, 7), width: 480, size: 16 })
  assert.deepEqual(
    found.gaps.map(({ first, last }) => [first, last]),
    [
      [0, 2],
      [5, 6],
    ],
  )
  const [three, four, seven] = [3, 4, 7].map((layer) => at(found, layer, 0).y)
  assert.ok(seven - four > four - three)
  assert.deepEqual(
    found.rowLabels.map(({ text }) => text),
    ["3", "4", "7"],
  )
})

test("heads that share keys stand together, with a line under each group", () => {
  const layers = [{ number: 0, heads: 9, keyHeads: 3 }]
  const two = [layers[0], { number: 1, heads: 9, keyHeads: 3 }]
  const found = layout.arrange({ layers: two, width: 480, size: 16 })
  const xs = found.tiles.slice(0, 9).map(({ x }) => x)
  assert.ok(xs[3] - xs[2] > xs[2] - xs[1])
  const lines = layout.groupLines(found, two)
  assert.equal(lines.length, 6)
  assert.deepEqual([lines[1].x, lines[1].width], [xs[3], xs[5] + found.tile - xs[3]])
})

test("the point in the middle of each picture is that head, and between pictures is none", () => {
  const found = layout.arrange({ layers: layersOf(0, 1), width: 480, size: 16 })
  for (const one of found.tiles) {
    assert.equal(layout.tileAt(found, one.x + found.tile / 2, one.y + found.tile / 2), one)
    assert.equal(layout.tileAt(found, one.x - 1, one.y), null)
  }
})

test("arrow keys lead to the neighbours and stop at the edges", () => {
  const uneven = [
    { number: 0, heads: 3, keyHeads: 3 },
    { number: 1, heads: 2, keyHeads: 2 },
  ]
  const found = layout.arrange({ layers: uneven, width: 480, size: 16 })
  const go = (from, key) => layout.neighbour(found, from, key)
  const last = at(found, 0, 2)
  assert.equal(go(last, "ArrowRight"), last)
  assert.equal(go(last, "ArrowUp"), last)
  assert.equal(go(last, "ArrowLeft"), at(found, 0, 1))
  assert.equal(go(last, "ArrowDown"), at(found, 1, 1)) // there is no head 2 below
  assert.equal(go(at(found, 1, 0), "ArrowLeft"), at(found, 1, 0))
})

test("an order of their own: falling, those without a value last, equal ones as they were", () => {
  const heads = layout.headsOf([
    { number: 2, heads: 2 },
    { number: 5, heads: 3 },
  ])
  const order = layout.ranked(heads, [0.1, Number.NaN, 0.7, 0.1, -1])
  assert.deepEqual(
    order.map(({ layer, head }) => [layer, head]),
    [
      [5, 0],
      [2, 0],
      [5, 1],
      [5, 2],
      [2, 1],
    ],
  )
  const found = layout.arrange({ layers: [], order, width: 480, size: 16 })
  assert.equal(found.captions, true)
  assert.deepEqual(
    found.tiles.map(({ layer, head }) => [layer, head]),
    order.map(({ layer, head }) => [layer, head]),
  )
  assert.ok(
    found.tiles.every(({ x, y }, place) => place === 0 || x > found.tiles[place - 1].x || y > found.tiles[place - 1].y),
  )
})

test("the heads that stand out are those with the largest values, never one without a value", () => {
  const heads = layout.headsOf([{ number: 0, heads: 5 }])
  assert.deepEqual([...layout.topOf(heads, [0.3, Number.NaN, 0.9, 0.1, 0.5], 2)].sort(), [2, 4])
  assert.equal(layout.topOf(heads, Array(5).fill(Number.NaN), 3).size, 0)
})

test("many heads of a single layer flow over several rows", () => {
  const found = layout.arrange({ layers: [{ number: 0, heads: 16, keyHeads: 16 }], width: 420, size: 7 })
  assert.ok(found.tiles[15].y > found.tiles[0].y)
  assert.ok(found.width <= 420)
})

test("the range of values leaves out what is not a number", () => {
  assert.deepEqual(layout.rangeOf([3, Number.NaN, 1]), [1, 3])
  assert.deepEqual(layout.rangeOf([Number.NaN]), [0, 1])
})

test("a card stays inside the window", () => {
  const window = { width: 800, height: 600 }
  assert.deepEqual(layout.cardPlace(100, 300, 200, 250, window), { x: 116, y: 280 })
  assert.equal(layout.cardPlace(700, 300, 200, 250, window).x, 484)
  assert.equal(layout.cardPlace(100, 590, 200, 250, window).y, 342)
})
