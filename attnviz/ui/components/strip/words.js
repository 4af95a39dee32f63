// What is said of a line of weights.

/** The side whose tokens carry the ink when a token of this side is chosen. */
export const inkedSide = (side) => (side === "query" ? "key" : "query")

/** The words around the chosen token. */
export function captionOf(side, heads) {
  return side === "query"
    ? { before: "Ink behind a word: how much ", after: ` attends to it ${heads}.` }
    : { before: "Ink behind a word: how much it attends to ", after: ` ${heads}.` }
}

/** The `count` largest weights [{at, weight}], without cells that are not allowed and without zeros. */
export function strongest(line, count) {
  return Array.from(line, (weight, at) => ({ at, weight }))
    .filter(({ weight }) => weight > 0)
    .sort((one, other) => other.weight - one.weight || one.at - other.at)
    .slice(0, count)
}

/** The largest weight of a line; cells that are not allowed (NaN) do not count. */
export function largest(line) {
  let most = 0
  for (const weight of line) if (weight > most) most = weight
  return most
}
