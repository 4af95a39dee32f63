"""What `frontend_app.py` shows: one view of a trace, once its button was pressed.

The views are the project's own components, given what the project's pages give them. With `&before=yes` the page shows
a small trace before the click, as the project's page always shows one: the click then puts another in its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st
from frontend_weights import make_trace

from attnviz.plots import plot_head
from attnviz.plots.theme import THEMES
from attnviz.trace import AttentionTrace
from attnviz.ui import look, sending, state
from attnviz.ui.components.grid import GridOptions, LayerRow, render_grid
from attnviz.ui.components.history import keep_history
from attnviz.ui.components.lines import LineOptions, render_lines
from attnviz.ui.components.map import Axis, render_map
from attnviz.ui.components.selection import share_selection
from attnviz.ui.components.theme import follow_theme
from attnviz.ui.garbage import spare_collector
from attnviz.ui.pages.heads import GRID_STATISTICS, PIXELS
from attnviz.ui.view import View


@dataclass(frozen=True)
class Case:
    """One way to look at a trace.

    Attributes:
        show: mounts the components.
        sign: CSS selector of an element that is on the page when the view is.
        hover: CSS selector of what the mouse is moved over; empty for no such measurement.
        prepare: reads of the trace what a page has read before anybody asks for the view.
    """

    show: Callable[[View], None]
    sign: str
    hover: str = ""
    prepare: Callable[[View], object] = lambda view: None


def _share(view: View) -> None:
    """Send what the project's page sends of the trace."""
    told = ("open", "token", "marked", "over", "grid", "lines")
    share_selection(sending.what_is_shared(view), {name: lambda chosen: None for name in told})


def _show_grid(view: View) -> None:
    """Show every head of every layer."""
    _share(view)
    pictures, masks, table = sending.grid(view, PIXELS)
    counts = [view.trace.heads(number) for number in view.trace.layers()]
    render_grid(
        [picture[:count] for picture, count in zip(pictures, counts, strict=True)],
        masks,
        [LayerRow(number, count, count) for number, count in zip(view.trace.layers(), counts, strict=True)],
        table,
        GRID_STATISTICS,
        options=GridOptions(),
        ink="sqrt",
    )


def _show_lines(view: View) -> None:
    """Show the lines of all heads of the first layer, of whole maps or of the strongest cells, as the project does."""
    _share_layer(view)
    render_lines(strongest=sending.strongest_lines(view), options=LineOptions(), ink="sqrt")


def _share_layer(view: View) -> None:
    st.session_state["over"] = state.THIS_LAYER
    _share(view)


def _show_map(view: View) -> None:
    """Show the first head of the first layer: on a canvas, or by Plotly where it is short."""
    _share(view)
    if not sending.is_long(view):
        labels = view.trace.query_tokens().labels
        look.render_figure(plot_head(view.trace.weights(*view.place), labels, labels), "open-head")
        return
    tokens = view.trace.query_tokens()
    axis = Axis(tokens.labels, tokens.is_special)
    render_map(
        sending.overview(view),
        lambda rows, columns: view.trace.weights(*view.place, rows=rows, columns=columns),
        name="benchmark",
        title="One head",
        queries=axis,
        keys=axis,
        ink="sqrt",
    )


VIEWS: dict[str, Case] = {
    "grid": Case(_show_grid, "canvas.all", ".grid canvas.all", lambda view: sending.grid(view, PIXELS)),
    "lines": Case(_show_lines, ".lines canvas.every", ".lines .side.query"),
    "map": Case(_show_map, ".map canvas.cells, .js-plotly-plot .hm", ".map canvas.cells, .js-plotly-plot .nsewdrag"),
}


BEFORE = (2, 3, 11)
"""Layers, heads and tokens of what a page shows before another trace takes its place."""


@st.cache_resource(max_entries=4, show_spinner=False)
def _prepared(case: str, layers: int, heads: int, tokens: int) -> tuple[View, float]:
    """Return a trace, and how many seconds it took to make what a page makes before the view is asked for."""
    trace: AttentionTrace = make_trace(layers, heads, tokens)
    name = f"benchmark {layers} {heads} {tokens}"
    view = View(trace, trace, trace.role(), trace.layers()[0], 0, "", name, name)
    start = time.perf_counter()
    VIEWS[case].prepare(view)
    return view, time.perf_counter() - start


def main() -> None:
    """Make the trace, offer the button, and show the view once it was pressed."""
    st.set_page_config(layout="wide")
    look.add_style()
    keep_history()  # as on every page of the app: what Streamlit loads for a page's first component is there already
    follow_theme(THEMES[look.theme()].page)
    asked = st.query_params
    case = asked.get("view", "grid")
    view, seconds = _prepared(case, *(int(asked.get(name, 12)) for name in ("layers", "heads", "tokens")))
    with st.container(key="ask"):
        st.button("Show", on_click=lambda: st.session_state.update(shown=True))
    st.html(f'<span id="made" style="display: none">{seconds}</span>')
    if st.session_state.get("shown"):
        VIEWS[case].show(view)
        st.html('<span id="shown" style="display: none"></span>')
    elif asked.get("before"):
        VIEWS[case].show(_prepared(case, *BEFORE)[0])
    spare_collector()
