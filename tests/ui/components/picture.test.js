import assert from "node:assert/strict"
import { test } from "node:test"
import { covering, painter, UNIT } from "../../../attnviz/ui/components/grid/picture.js"

const colours = Int32Array.from({ length: 256 }, (_, level) => -1000 - level)
const barred = -7

/** The levels that a picture shows, "barred" where it is hatched; drawn at a corner of a larger image. */
function painted(levels, { size, side, allowed = levels.map(() => 1), perRow = false }) {
  const stride = side + 5
  const out = new Int32Array(stride * (side + 3))
  painter({ size, side, colours, barred, perRow })(levels, allowed, out, 2 * stride + 3, stride)
  const inside = (at) => Math.floor(at / stride) >= 2 && Math.floor(at / stride) < side + 2 && at % stride >= 3
  const found = []
  out.forEach((pixel, at) => {
    if (inside(at) && at % stride < side + 3) found.push(pixel === barred ? "barred" : -1000 - pixel)
    else assert.equal(pixel, 0, "a pixel beside the picture was touched")
  })
  return found
}

for (const [size, side] of [
  [7, 7],
  [5, 13],
  [16, 27],
  [32, 52],
  [32, 19],
  [32, 9],
  [1, 23],
]) {
  test(`${size} cells on ${side} pixels: a pixel is whole, and cells are equally large`, () => {
    const { cells, shares, most } = covering(size, side)
    const ofCell = new Float64Array(size)
    for (let pixel = 0; pixel < side; pixel++) {
      const parts = shares.subarray(pixel * most, (pixel + 1) * most)
      assert.equal(
        parts.reduce((sum, share) => sum + share, 0),
        UNIT,
      )
      parts.forEach((share, part) => {
        ofCell[cells[pixel * most + part]] += share
      })
    }
    for (const room of ofCell) assert.ok(Math.abs(room / UNIT - side / size) <= 2 / UNIT)
  })
}

const levels = Uint8Array.from({ length: 49 }, (_, at) => (at * 37) % 256)

test("a pixel per cell shows every level as it is", () => {
  assert.deepEqual(painted(levels, { size: 7, side: 7 }), Array.from(levels))
})

test("a whole multiple repeats cells", () => {
  const found = painted(levels, { size: 7, side: 21 })
  found.forEach((level, at) => {
    assert.equal(level, levels[Math.floor(at / 63) * 7 + Math.floor((at % 21) / 3)])
  })
})

test("an even head is even at any size, and the mean of a head stays", () => {
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length
  for (const side of [3, 5, 11, 23, 30]) {
    assert.ok(painted(new Uint8Array(49).fill(255), { size: 7, side }).every((level) => level === 255))
    assert.ok(Math.abs(mean(painted(levels, { size: 7, side })) - mean(Array.from(levels))) < 2)
  }
})

test("only what is 0 and not allowed is hatched", () => {
  const [some, allowed] = [levels.slice(), new Uint8Array(49).fill(1)]
  some[8] = 0 // allowed, and 0
  some[24] = 0
  allowed[24] = 0 // not allowed: row 3, column 3
  allowed[25] = 0 // part of it is allowed, as it has a level
  const found = painted(some, { size: 7, side: 28, allowed })
  const hatched = found.flatMap((level, at) => (level === "barred" ? [at] : []))
  assert.equal(hatched.length, 4)
  for (const at of hatched) {
    assert.equal(Math.floor(at / 28 / 4), 3)
    assert.equal(Math.floor((at % 28) / 4), 3)
  }
})

test("per row, the largest of each row is full ink", () => {
  const found = painted(Uint8Array.from([10, 5, 0, 40, 200, 100, 0, 0, 0]), { size: 3, side: 3, perRow: true })
  assert.deepEqual(found, [255, 128, 0, 51, 255, 128, 0, 0, 0])
})
