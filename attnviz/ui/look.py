"""The one CSS block, and what every page says in the same way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import streamlit as st

from attnviz.plots import Figure
from attnviz.plots.theme import THEMES, Ink, ThemeName
from attnviz.tokens import for_markdown
from attnviz.ui import state

ICON = str(Path(__file__).with_name("icon.svg"))

CSS = """
.stMainBlockContainer {padding: 4.2rem 2rem 2rem; max-width: 1500px;}
[data-testid="stSidebarHeader"] {height: 1.6rem; min-height: 1.6rem; padding-bottom: 0;}
[data-testid="stSidebarUserContent"] {padding-top: 0;}
[data-testid="stSidebar"] [data-testid="stVerticalBlock"] {gap: .55rem;}
[class*="st-key-field-"] label p {font-size: .82rem;}
[data-testid="stLayoutWrapper"]:has(> [class*="st-key-hidden-"]), [class*="st-key-hidden-"] {display: none;}
[class*="st-key-examples"] button {min-height: 1.5rem; padding: 0;}
[class*="st-key-examples"] button p {text-decoration: underline; text-underline-offset: 3px;}
[class*="st-key-examples"] button p {font-size: .82rem;}
[class*="st-key-wrap"] > [data-testid="stLayoutWrapper"] > [data-testid="stHorizontalBlock"] {flex-wrap: wrap;}
[class*="st-key-wrap"] > [data-testid="stLayoutWrapper"] > [data-testid="stHorizontalBlock"] > [data-testid="stColumn"]
  {min-width: min(100%, 20.5rem);}
.st-key-field-view [data-testid="stWidgetLabel"] {display: none;}
.st-key-field-view [data-testid="stButtonGroup"] {flex-wrap: nowrap; justify-content: flex-end;}
.st-key-field-view button {padding: .1rem .7rem; min-height: 1.8rem;}
[data-testid="stButtonGroup"] [data-selected="true"] p {color: var(--attnviz-text); font-weight: 600;}
[class*="st-key-boxes"] label p, [class*="st-key-boxes"] [data-baseweb="select"] {font-size: .82rem;}
[class*="st-key-boxes"] [data-baseweb="select"] > div {min-height: 1.9rem;}
.st-key-statistics [data-testid="stMetricLabel"] p {font-size: .78rem;}
@media (max-width: 900px) {
  .st-key-comparison, .st-key-marked-heads, .st-key-diversity {overflow-x: auto;}
  .st-key-comparison > div, .st-key-marked-heads > div, .st-key-diversity > div {min-width: 52rem;}
}
h3 {font-size: 1.02rem !important; padding: .2rem 0 !important;}
[data-testid="stMetricValue"] {font-size: 1.05rem; font-weight: 600; font-variant-numeric: tabular-nums;}
"""

CHART_OPTIONS: dict[str, Any] = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
    "toImageButtonOptions": {"format": "svg", "filename": "attnviz"},
}


class Look(TypedDict):
    """How a figure is drawn."""

    theme: ThemeName
    ink: Ink


def add_style() -> None:
    """Put the CSS block into the page."""
    st.html(f"<style>:root {{--attnviz-text: {THEMES[theme()].text};}}{CSS}</style>")


def theme() -> ThemeName:
    """Return which of the two themes the browser shows."""
    return st.context.theme.type or "light"


def ink() -> Ink:
    """Return how strong the ink of a weight is."""
    return state.INKS[state.get("ink")]


def chosen() -> Look:
    """Return how figures are drawn now."""
    return {"theme": theme(), "ink": ink()}


def render_figure(figure: Figure, key: str, *, on_select: Callable[[], None] | None = None) -> None:
    """Show a figure as wide as its place; `theme=None` keeps its own colours.

    Args:
        figure: the figure.
        key: of the chart.
        on_select: called when a person has chosen a point; what is chosen is in `st.session_state[key].selection`.
    """
    config = CHART_OPTIONS | {"displayModeBar": "hover"}
    if on_select is None:
        st.plotly_chart(figure, key=key, theme=None, config=config)
    else:
        st.plotly_chart(figure, key=key, theme=None, config=config, on_select=on_select, selection_mode="points")


def render_failure(sentence: str) -> None:
    """Say in one sentence why there is no picture; a wish for text is no error."""
    st.warning(for_markdown(sentence), icon=":material/info:")


def render_hint(sentence: str) -> None:
    """Say what to do to see something."""
    st.info(for_markdown(sentence))


def render_notices(notices: tuple[str, ...]) -> None:
    """Say what a person should know beside the picture."""
    for notice in notices:
        st.caption(for_markdown(notice))
