// Frames the row and the cell under the pointer in every map of a Plotly chart.
import { boxOf, cellOf, frameOn, place } from "../frame/place.js"
import { unpack } from "../shared.js"

export default function ({ data, parentElement }) {
  const host = parentElement.host ?? parentElement
  const view = { header: unpack(data).header, host, tries: 0 }
  join(view)
  return () => clearTimeout(view.again)
}

/** The chart may be drawn after this runs: look for it until it is there. */
function join(view) {
  clearTimeout(view.again)
  const chart = document.querySelector(`.st-key-${view.header.chart} .js-plotly-plot`)
  if (!chart?._fullLayout?.xaxis) {
    if (view.tries++ < 100) view.again = setTimeout(() => join(view), 100)
    return
  }
  if (chart.attnvizPointer === undefined) listen(chart)
  chart.attnvizPointer = view
}

function listen(chart) {
  chart.on("plotly_hover", ({ points: [{ x, y }] }) => draw(chart, { row: Math.round(y), column: Math.round(x) }))
  for (const gone of ["plotly_unhover", "plotly_relayout", "plotly_afterplot"]) chart.on(gone, () => draw(chart, null))
}

function draw(chart, cell) {
  const colour = getComputedStyle(chart).getPropertyValue("--st-primary-color") || chart.attnvizPointer.header.accent
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
