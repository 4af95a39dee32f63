// Frames the row and the cell under the pointer in every map of a Plotly chart.
import { boxOf, cellOf, findChart, frameOn, place } from "../frame/place.js"
import { unpack } from "../shared.js"

export default function ({ data }) {
  const view = unpack(data).header
  findChart(view, view.chart, (chart) => {
    if (chart.attnvizPointer === undefined) listen(chart)
    chart.attnvizPointer = view
  })
  return () => clearTimeout(view.again)
}

function listen(chart) {
  chart.on("plotly_hover", ({ points: [{ x, y }] }) => draw(chart, { row: Math.round(y), column: Math.round(x) }))
  for (const gone of ["plotly_unhover", "plotly_relayout", "plotly_afterplot"]) chart.on(gone, () => draw(chart, null))
}

function draw(chart, cell) {
  const colour = getComputedStyle(chart).getPropertyValue("--st-primary-color") || chart.attnvizPointer.accent
  for (const [at, map] of mapsOf(chart).entries()) {
    const row = cell && boxOf(map, { side: "query", at: cell.row })
    place(frameOn(chart, `attnviz-row-${at}`), row, `1px solid ${colour}`)
    place(frameOn(chart, `attnviz-cell-${at}`), cell && cellOf(map, cell.row, cell.column), `2px solid ${colour}`)
  }
}

/** The axes of each map of a chart. */
export function mapsOf({ _fullLayout: layout }) {
  return layout._subplots.cartesian.map((name) => {
    const { xaxis, yaxis } = layout._plots[name]
    return { xaxis, yaxis }
  })
}
