// Sees nothing, shows nothing: takes the weights and the selection from Python to every view of the page, and what a
// person chooses in any of them back to Python.
import { selection, unpack } from "../shared.js"

export default function ({ data, parentElement, setTriggerValue }) {
  const host = parentElement.host ?? parentElement
  selection.tell = setTriggerValue
  const { header, arrays } = unpack(data)
  if (host.attnvizVersion === header.version) return
  host.attnvizVersion = header.version
  receive(selection, header, arrays)
  selection.changed()
}

/** Put what Python says into the selection. Of the same trace and role, what the page holds already stays. */
export function receive(selection, header, arrays) {
  const { trace, tokens, same, open, shown, marked, pinned, first } = header
  if (selection.trace !== trace) selection.clear(trace)
  Object.assign(selection, { tokens, same, open, shown, marked, pinned, first, automatic: null })
  const cells = tokens.query.length * tokens.key.length
  header.heads.forEach(([layer, head], at) => {
    selection.maps.set(`${layer}.${head}`, arrays[0].subarray(at * cells, (at + 1) * cells))
  })
  header.lines.forEach((name, at) => {
    selection.rows.set(name, arrays[1 + at])
  })
}
