// Joins a Plotly map to the selection: frames the chosen row or column, and chooses the row under the pointer.
import { selection, unpack } from "../shared.js"
import { boxOf, findChart, frameOn, place } from "./place.js"

export default function ({ data, parentElement }) {
  const host = parentElement.host ?? parentElement
  const { header } = unpack(data)
  const view = { header, host }
  selection.follow(host, () => draw(view))
  join(view)
  return () => {
    clearTimeout(view.again)
    selection.leave(host)
    document.querySelector(`.st-key-${header.chart} .attnviz-frame`)?.remove()
  }
}

function join(view) {
  findChart(view, view.header.chart, (chart) => {
    view.chart = chart
    if (chart.attnvizView === undefined) listen(chart)
    chart.attnvizView = view
    draw(view)
  })
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
  const box = selection.token && boxOf(chart._fullLayout, selection.token)
  const colour = getComputedStyle(chart).getPropertyValue("--st-primary-color") || header.accent
  place(frameOn(chart, "attnviz-frame"), box, `2px solid ${colour}`)
}
