// The arithmetic of the map: what is where, what is seen, what is asked for.
import assert from "node:assert/strict"
import { test } from "node:test"
import {
  ASKED,
  boxOf,
  brief,
  cellAt,
  centred,
  decoded,
  everyOf,
  exactly,
  frameOf,
  isNear,
  isWhole,
  LARGEST,
  labelled,
  miniature,
  panned,
  Recent,
  refitted,
  rowsSeen,
  showing,
  shrunk,
  Tiles,
  ticksOf,
  tileOf,
  tilesSeen,
  whole,
  within,
  zoomed,
} from "../../../attnviz/ui/components/map/layout.js"

const long = { rows: 4096, columns: 4096, width: 700, height: 700 }
const cross = { rows: 700, columns: 900, width: 630, height: 490 }
const close = (found, expected) => assert.ok(Math.abs(found - expected) < 1e-6, `${found} is not ${expected}`)
const closeView = (found, expected) => {
  for (const name of Object.keys(expected)) close(found[name], expected[name])
}

test("a map fits its room, square where its text is, and never stretched to a sliver", () => {
  const square = frameOf({ rows: 4096, columns: 4096, hasSink: false }, 800, 760)
  assert.equal(square.width, square.height)
  for (const room of [330, 390, 700, 1216]) {
    const frame = frameOf({ rows: 4096, columns: 4096, hasSink: true }, room, 700)
    assert.ok(frame.outerWidth <= room, `${frame.outerWidth} in ${room}`)
    assert.ok(frame.height <= 700)
    assert.ok(frame.sink.x + frame.sink.width < frame.outerWidth)
  }
  const flat = frameOf({ rows: 60, columns: 4096, hasSink: false }, 800, 760)
  assert.equal(flat.height, Math.round(flat.width * 0.4))
  const small = frameOf({ rows: 4, columns: 4, hasSink: false }, 1200, 760)
  assert.equal(small.width, 4 * LARGEST)
})

test("the whole map shows each cell once, to both edges", () => {
  const view = whole(cross)
  assert.deepEqual(cellAt(view, cross, [0, 0]), { row: 0, column: 0 })
  assert.deepEqual(cellAt(view, cross, [629.9, 489.9]), { row: 699, column: 899 })
  assert.equal(cellAt(view, cross, [630, 10]), null)
  assert.equal(cellAt(view, cross, [10, -0.1]), null)
  assert.ok(isWhole(view, cross))
  assert.ok(isWhole(zoomed(view, cross, 0.5, [100, 100]), cross))
})

test("a cell's box is where the cell is found", () => {
  const view = zoomed(whole(cross), cross, 20, [317, 222])
  const { row, column } = cellAt(view, cross, [300, 200])
  const box = boxOf(view, row, column)
  assert.ok(box.left <= 300 && 300 < box.left + box.width)
  assert.ok(box.top <= 200 && 200 < box.top + box.height)
})

test("zooming keeps the cell under the pointer, in and out", () => {
  const point = [313, 577]
  let view = whole(long)
  const before = { x: view.x + point[0] / view.across, y: view.y + point[1] / view.down }
  for (const factor of [1.3, 2, 5, 0.7]) {
    view = zoomed(view, long, factor, point)
    close(view.x + point[0] / view.across, before.x)
    close(view.y + point[1] / view.down, before.y)
  }
  closeView(zoomed(zoomed(whole(long), long, 3, point), long, 1 / 3, point), whole(long))
})

test("cells grow to LARGEST and no further, also in a map that is not square", () => {
  const flat = { rows: 60, columns: 4096, width: 700, height: 280 }
  const view = zoomed(whole(flat), flat, 1e6, [10, 10])
  assert.equal(view.across, LARGEST)
  assert.equal(view.down, LARGEST)
  const tiny = { rows: 3, columns: 3, width: 240, height: 240 }
  closeView(zoomed(whole(tiny), tiny, 4, [5, 5]), whole(tiny))
})

test("nothing beyond the edges is ever seen", () => {
  const near = zoomed(whole(long), long, 10, [350, 350])
  assert.equal(panned(near, long, 1e9, 1e9).x, 0)
  const end = panned(near, long, -1e9, -1e9)
  close(end.x + long.width / end.across, 4096)
  close(end.y + long.height / end.down, 4096)
  closeView(within({ x: -5, y: 9999, across: 0.01, down: 0.01 }, long), whole(long))
})

test("panning moves with the hand", () => {
  const view = zoomed(whole(long), long, 10, [350, 350])
  const moved = panned(view, long, 30, -12)
  close(boxOf(moved, 2000, 2100).left - boxOf(view, 2000, 2100).left, 30)
  close(boxOf(moved, 2000, 2100).top - boxOf(view, 2000, 2100).top, -12)
})

test("a cell is brought into sight, and no further", () => {
  const view = zoomed(whole(long), long, 100, [0, 0])
  assert.deepEqual(showing(view, long, 3, 5), view)
  const box = boxOf(showing(view, long, 1234, 2345), 1234, 2345)
  close(box.left + box.width, 700)
  close(box.top + box.height, 700)
})

test("after another size of the page the same middle is seen as near", () => {
  const view = centred(zoomed(whole(long), long, 8, [0, 0]), long, 1000, 3000)
  const smaller = { ...long, width: 350, height: 350 }
  const after = refitted(view, long, smaller)
  close(after.x + 350 / after.across / 2, 1000)
  close(after.y + 350 / after.down / 2, 3000)
  close(after.across, view.across / 2)
  closeView(refitted(whole(long), long, smaller), whole(smaller))
})

test("the small map has the shape of the large one and a frame for what is seen", () => {
  const { width, height, seen } = miniature(whole(cross), cross, 90)
  assert.deepEqual([width, height], [90, 70])
  closeView(seen, { left: 0, top: 0, width: 90, height: 70 })
  const part = miniature(centred(zoomed(whole(cross), cross, 2, [0, 0]), cross, 450, 350), cross, 90).seen
  closeView(part, { left: 22.5, top: 17.5, width: 45, height: 35 })
})

test("labels stand as close as there is room, at round positions", () => {
  assert.equal(everyOf(20, 15), 1)
  assert.equal(everyOf(10, 15), 2)
  assert.equal(everyOf(0.17, 15), 100)
  assert.equal(everyOf(700 / 131072, 15), 5000)
  assert.deepEqual(labelled([0, 5], 1), [0, 1, 2, 3, 4])
  assert.deepEqual(labelled([1234, 1291], 20), [1240, 1260, 1280])
  assert.deepEqual(labelled([1, 9], 10), [])
  assert.deepEqual(labelled([11, 21], 10), [20])
})

test("numbers are written as exactly as they read", () => {
  assert.equal(exactly(0.123456789), "0.123457")
  assert.equal(exactly(1), "1.000000")
  assert.equal(exactly(0), "0")
  assert.equal(exactly(1.5e-9), "1.50e-9")
  assert.equal(exactly(Number.NaN), "not allowed by the mask")
})

test("a cell shows as many decimals as fit, and never 0 for what is not 0", () => {
  assert.deepEqual(brief(0.12345, 40), { text: "0.123", isTiny: false })
  assert.deepEqual(brief(0.12345, 56), { text: "0.1235", isTiny: false })
  assert.deepEqual(brief(0.0004, 40), { text: "<.001", isTiny: true })
  assert.deepEqual(brief(0.0004, 56), { text: "0.0004", isTiny: false })
  assert.deepEqual(brief(0, 56), { text: "0.0000", isTiny: true })
})

test("codes rise from masked to 1, and small weights have codes of their own", () => {
  assert.ok(Number.isNaN(decoded(0)))
  assert.equal(decoded(1), 0)
  assert.equal(decoded(255), 1)
  const small = [2, 5, 9, 17].map(decoded)
  assert.ok(small.every((weight) => weight < 0.004))
})

test("the ticks of a legend rise from nothing to all", () => {
  for (const ink of ["sqrt", "linear", "row"]) {
    const ticks = ticksOf(ink)
    assert.deepEqual([ticks[0].at, ticks.at(-1).at], [0, 1])
  }
})

test("made small, the overview keeps its one strong pixel wherever it is", () => {
  const [rows, columns] = [97, 61]
  for (const at of [0, 1234, rows * columns - 1]) {
    const codes = new Uint8Array(rows * columns)
    codes[at] = 200
    const small = shrunk(codes, columns, { x: 0, y: 0, width: columns, height: rows }, 23, 31)
    assert.equal(small.length, 23 * 31)
    assert.equal(Math.max(...small), 200)
  }
})

test("at its own size, a part of the overview is what it was", () => {
  const codes = Uint8Array.from({ length: 7 * 5 }, (_, at) => at)
  assert.deepEqual(shrunk(codes, 5, { x: 0, y: 0, width: 5, height: 7 }, 5, 7), codes)
  assert.deepEqual([...shrunk(codes, 5, { x: 2, y: 3, width: 2, height: 2 }, 2, 2)], [17, 18, 22, 23])
})

test("the tiles in sight, those in the middle first", () => {
  const view = centred({ x: 0, y: 0, across: 4, down: 4 }, long, 2000, 1000)
  assert.ok(isNear(view))
  assert.ok(!isNear(whole(long)))
  const seen = tilesSeen(view, long)
  const [first, last] = rowsSeen(view, long)
  assert.deepEqual([first, last], [912, 1088])
  assert.deepEqual(seen.map((tile) => tile.join()).sort(), ["7,14", "7,15", "7,16", "8,14", "8,15", "8,16"].sort())
  assert.ok(seen.slice(0, 2).every(([, column]) => column === 15))
  assert.deepEqual(tileOf({ row: 1034, column: 88 }), [8, 0])
  assert.deepEqual(
    tilesSeen(whole({ rows: 5, columns: 5, width: 9, height: 9 }), { rows: 5, columns: 5, width: 9, height: 9 }),
    [[0, 0]],
  )
})

test("what was not looked at for longest is forgotten", () => {
  const recent = new Recent(2)
  recent.set("a", 1)
  recent.set("b", 2)
  assert.equal(recent.get("a"), 1)
  recent.set("c", 3)
  assert.equal(recent.get("b"), undefined)
  assert.deepEqual([recent.get("a"), recent.get("c")], [1, 3])
})

function asking(most) {
  const [sent, waits] = [[], []]
  const store = new Tiles(most, (call) => waits.push(call))
  store.connect("map", (question) => sent.push(question))
  const answer = (tiles, map = "one") =>
    store.receive(
      "map",
      map,
      tiles.map((tile) => [...tile, 1, 1]),
      tiles.map(() => new Float32Array(1)),
    )
  return { store, sent, waits, answer }
}
const line = (count) => Array.from({ length: count }, (_, at) => [0, at])

test("tiles are asked for a few at a time, one question after the other, none twice", () => {
  const { store, sent, answer } = asking()
  store.want("map", "one", line(ASKED + 2))
  store.want("map", "one", line(ASKED + 2))
  assert.equal(sent.length, 1)
  assert.deepEqual(sent[0].tiles, line(ASKED))
  answer(sent[0].tiles)
  assert.deepEqual(sent[1].tiles, [
    [0, ASKED],
    [0, ASKED + 1],
  ])
  answer(sent[1].tiles)
  store.want("map", "one", line(3))
  assert.equal(sent.length, 2)
  assert.ok(store.get("one", [0, 0]))
})

test("only what is still needed is asked for next", () => {
  const { store, sent, answer } = asking()
  store.want("map", "one", line(20))
  store.want("map", "one", [[9, 9]])
  answer(sent[0].tiles)
  assert.deepEqual(sent[1].tiles, [[9, 9]])
})

test("a question whose answer was lost is asked again, but not for ever", () => {
  const { store, sent, waits, answer } = asking()
  store.want("map", "one", line(1))
  answer([]) // another run of the page
  for (let at = 0; at < 40 && waits.length; at++) waits.shift()()
  assert.ok(sent.length > 1 && sent.length < 10, `${sent.length} questions`)
  const asked = sent.length
  store.want("map", "one", line(1)) // a person looks again
  assert.equal(sent.length, asked + 1)
})

test("a new mount asks again what the one before may not have asked", () => {
  const { store, sent } = asking()
  store.want("map", "one", line(1))
  store.connect("map", (question) => sent.push(question), false)
  assert.equal(sent.length, 1)
  store.connect("map", (question) => sent.push(question), true)
  assert.equal(sent.length, 2)
})

test("an answer that came in time is not asked for again", () => {
  const { store, sent, waits, answer } = asking()
  store.want("map", "one", line(1))
  answer(sent[0].tiles)
  for (const call of waits) call()
  assert.equal(sent.length, 1)
})

test("heads have tiles of their own, of one bounded store", () => {
  const { store, sent, answer } = asking(4)
  store.want("map", "one", line(2))
  answer(sent[0].tiles)
  store.want("map", "two", line(2))
  assert.equal(sent[1].map, "two")
  answer(sent[1].tiles, "two")
  assert.ok(store.get("one", [0, 0]))
  answer(line(4), "three")
  assert.equal(store.get("two", [0, 0]), undefined)
  assert.equal(store.recent.held.size, 4)
})
