// Joins a Plotly map to the selection: frames the chosen row or column, and chooses the row under the pointer.
import { selection, unpack } from "../shared.js"

export default function ({ data, parentElement }) {
  const host = parentElement.host ?? parentElement
  const { header } = unpack(data)
  const view = { header, host, tries: 0 }
  selection.follow(host, () => draw(view))
  join(view)
  return () => {
    clearTimeout(view.again)
    selection.leave(host)
    document.querySelector(`.st-key-${header.chart} .attnviz-frame`)?.remove()
  }
}

/** The chart may be drawn after this runs: look for it until it is there. */
function join(view) {
  clearTimeout(view.again)
  const chart = document.querySelector(`.st-key-${view.header.chart} .js-plotly-plot`)
  if (!chart?._fullLayout?.xaxis) {
    if (view.tries++ < 100) view.again = setTimeout(() => join(view), 100)
    return
  }
  view.chart = chart
  if (chart.attnvizView === undefined) listen(chart)
  chart.attnvizView = view
  draw(view)
}

function listen(chart) {
  chart.on("plotly_hover", ({ points }) => {
    const at = Math.round(points[0].y)
    if (chart.attnvizView.host.isConnected) selection.hover({ side: "query", at })
  })
  chart.on("plotly_unhover", () => selection.hover(null))
  chart.on("plotly_click", ({ points }) => selection.pin({ side: "query", at: Math.round(points[0].y) }))
  chart.on("plotly_afterplot", () => draw(chart.attnvizView))
}

function draw({ chart, header }) {
  if (!chart?.isConnected || !chart._fullLayout?.xaxis) return
  const frame = frameOf(chart)
  const box = selection.token && boxOf(chart._fullLayout, selection.token)
  frame.hidden = !box
  if (!box) return
  Object.assign(frame.style, {
    left: `${box.left}px`,
    top: `${box.top}px`,
    width: `${box.width}px`,
    height: `${box.height}px`,
    border: `2px solid ${getComputedStyle(chart).getPropertyValue("--st-primary-color") || header.accent}`,
  })
}

function frameOf(chart) {
  const existing = chart.querySelector(".attnviz-frame")
  if (existing) return existing
  const frame = document.createElement("div")
  frame.className = "attnviz-frame"
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

/** Where the row or column of a token is in the chart, in pixels; null where it is outside what is shown. */
export function boxOf({ xaxis, yaxis }, { side, at }) {
  const axis = side === "query" ? yaxis : xaxis
  const [one, other] = [axis.l2p(at - 0.5), axis.l2p(at + 0.5)]
  const from = Math.max(0, Math.min(one, other))
  const to = Math.min(axis._length, Math.max(one, other))
  if (to <= from) return null
  const across = { left: xaxis._offset, width: xaxis._length }
  const down = { top: yaxis._offset, height: yaxis._length }
  if (side === "query") return { ...across, top: yaxis._offset + from, height: to - from }
  return { ...down, left: xaxis._offset + from, width: to - from }
}
