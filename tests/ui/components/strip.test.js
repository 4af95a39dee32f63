import assert from "node:assert/strict"
import { test } from "node:test"
import { boxOf } from "../../../attnviz/ui/components/frame/place.js"
import { captionOf, inkedSide, largest, strongest } from "../../../attnviz/ui/components/strip/words.js"

test("the ink lies on the other side of the chosen token", () => {
  assert.deepEqual(["query", "key"].map(inkedSide), ["key", "query"])
})

test("the caption says who attends to whom", () => {
  const given = captionOf("query", "in head 3")
  assert.equal(`${given.before}it${given.after}`, "Ink behind a word: how much it attends to it in head 3.")
  const got = captionOf("key", "in head 3")
  assert.equal(`${got.before}animal${got.after}`, "Ink behind a word: how much it attends to animal in head 3.")
})

test("the strongest come first, without zeros and cells that are not allowed", () => {
  const line = Float32Array.of(0.25, Number.NaN, 0.5, 0, 0.25)
  assert.deepEqual(
    strongest(line, 9).map(({ at }) => at),
    [2, 0, 4],
  )
  assert.deepEqual(strongest(line, 1), [{ at: 2, weight: 0.5 }])
  assert.equal(largest(line), 0.5)
  assert.equal(largest(Float32Array.of(Number.NaN)), 0)
})

test("a frame goes around a row or a column of the chart, cut at its edges", () => {
  const axis = (offset, length, range) => ({
    ...{ _offset: offset, _length: length },
    l2p: (value) => ((value - range[0]) / (range[1] - range[0])) * length,
  })
  const chart = { xaxis: axis(80, 500, [-0.5, 9.5]), yaxis: axis(30, 200, [-0.5, 4.5]) }
  assert.deepEqual(boxOf(chart, { side: "query", at: 1 }), { left: 80, width: 500, top: 70, height: 40 })
  assert.deepEqual(boxOf(chart, { side: "key", at: 9 }), { top: 30, height: 200, left: 530, width: 50 })
  assert.equal(boxOf({ ...chart, yaxis: axis(30, 200, [1.5, 3.5]) }, { side: "query", at: 0 }), null)
})
