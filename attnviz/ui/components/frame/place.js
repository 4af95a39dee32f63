// Where the cells of a Plotly map are, in pixels of its chart.

/** Call `found` with the chart of a key: it may be drawn after the script runs, so look for it until it is there. */
export function findChart(view, key, found, tries = 100) {
  clearTimeout(view.again)
  const chart = document.querySelector(`.st-key-${key} .js-plotly-plot`)
  if (chart?._fullLayout?.xaxis) found(chart)
  else if (tries) view.again = setTimeout(() => findChart(view, key, found, tries - 1), 100)
}

/** The cells of a position along one axis; null where they are outside what is shown. */
export function spanOf(axis, at) {
  const [one, other] = [axis.l2p(at - 0.5), axis.l2p(at + 0.5)]
  const from = Math.max(0, Math.min(one, other))
  const to = Math.min(axis._length, Math.max(one, other))
  return to > from ? { from: axis._offset + from, length: to - from } : null
}

/** The row of a query, or the column of a key; null where it is outside what is shown. */
export function boxOf({ xaxis, yaxis }, { side, at }) {
  const span = spanOf(side === "query" ? yaxis : xaxis, at)
  if (!span) return null
  if (side === "query") return { left: xaxis._offset, width: xaxis._length, top: span.from, height: span.length }
  return { left: span.from, width: span.length, top: yaxis._offset, height: yaxis._length }
}

/** One cell; null where it is outside what is shown. */
export function cellOf({ xaxis, yaxis }, row, column) {
  const [across, down] = [spanOf(xaxis, column), spanOf(yaxis, row)]
  return across && down && { left: across.from, width: across.length, top: down.from, height: down.length }
}

/** A frame on a chart that lets the pointer through; made once. */
export function frameOn(chart, name) {
  const existing = chart.querySelector(`.${name}`)
  if (existing) return existing
  const frame = document.createElement("div")
  frame.className = name
  Object.assign(frame.style, {
    position: "absolute",
    pointerEvents: "none",
    boxSizing: "border-box",
    borderRadius: "2px",
  })
  chart.style.position = "relative"
  chart.append(frame)
  return frame
}

/** Put a frame around a box, or away where there is none. */
export function place(frame, box, border) {
  frame.hidden = !box
  if (!box) return
  for (const side of ["left", "top", "width", "height"]) frame.style[side] = `${box[side]}px`
  frame.style.border = border
}
