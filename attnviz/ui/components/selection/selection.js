// Sees nothing, shows nothing: takes the weights and the selection from Python to every view of the page, and what a
// person chooses in any of them back to Python.
import { selection, unpack } from "../shared.js"

export default function ({ data, parentElement, setTriggerValue }) {
  const host = parentElement.host ?? parentElement
  const { header, arrays } = unpack(data)
  if (header.kind === "answer") selection.ask = (token) => setTriggerValue("wanted", { trace: selection.trace, token })
  else selection.tell = setTriggerValue
  if (host.attnvizVersion === header.version) return
  host.attnvizVersion = header.version
  if (header.kind === "answer") hear(selection, header, arrays)
  else receive(selection, header, arrays)
  selection.changed()
}

/** Put what Python says into the selection. Of the same trace and role, what the page holds already stays. */
export function receive(selection, header, arrays) {
  const { trace, tokens, same, open, shown, marked, pinned, first } = header
  if (selection.trace !== trace) selection.clear(trace)
  Object.assign(selection, { tokens, same, open, shown, marked, pinned, first, automatic: null })
  const cells = tokens.query.length * tokens.key.length
  const maps = header.heads.map(([layer, head], at) => {
    return [`${layer}.${head}`, arrays[0].subarray(at * cells, (at + 1) * cells)]
  })
  const lines = header.lines.map((name, at) => [name, arrays[1 + at]])
  selection.keep(maps, lines)
}

/** Put the line that was asked for into the selection, unless something else is looked at by now. */
export function hear(selection, header, arrays) {
  if (selection.trace !== header.trace) return
  selection.keep(
    [],
    header.lines.map((name, at) => [name, arrays[at]]),
  )
}
