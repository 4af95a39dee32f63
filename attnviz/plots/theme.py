"""The one home of colours: ink on paper, in light and in dark.

A weight of 0 has the colour of the page, 1 the strongest ink. Both sequential scales rise evenly in lightness
(equal steps in OKLab), so they also read in grey and with any kind of colour blindness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from attnviz.tokens import for_plotly

ThemeName = Literal["light", "dark"]
Ink = Literal["sqrt", "linear", "row"]


@dataclass(frozen=True)
class Theme:
    """The colours of every picture on one kind of page."""

    page: str
    text: str
    muted: str
    line: str
    accent: str
    sequential: tuple[str, ...]
    diverging: tuple[str, ...]


LIGHT = Theme(
    page="#ffffff",
    text="#1a1a1a",
    muted="#6b6b66",
    line="#e3e3df",
    accent="#c8401a",
    sequential=("#ffffff", "#dfe3ef", "#bfc8df", "#a0adce", "#8392bd", "#6678ac", "#4b5e9b", "#32458a", "#1b2a78"),
    diverging=("#b3501f", "#c97d5c", "#dea891", "#efd3c7", "#ffffff", "#bfc8df", "#8392bd", "#4b5e9b", "#1b2a78"),
)
DARK = Theme(
    page="#14161c",
    text="#ececea",
    muted="#9a9a98",
    line="#2b2e36",
    accent="#ff9b42",
    sequential=("#14161c", "#232734", "#32394d", "#424d68", "#536184", "#6576a1", "#778bc0", "#8aa1df", "#9db8ff"),
    diverging=("#e08a4f", "#a76b44", "#724d38", "#41312b", "#14161c", "#32394d", "#536184", "#778bc0", "#9db8ff"),
)
THEMES: dict[str, Theme] = {"light": LIGHT, "dark": DARK}
HEADS_BESIDE: dict[ThemeName, tuple[str, ...]] = {
    "light": ("#1b2a78", "#998800", "#dd6699", "#4488ee", "#661133", "#775577", "#3355bb", "#991100"),
    "dark": ("#9db8ff", "#aaaa00", "#ee88aa", "#66ffff", "#338811", "#996699", "#eeee55", "#8888ee"),
}
"""Colours of heads side by side; a ninth head has the first colour again, dashed. Every two are at least 0.1 apart in
OKLab to all kinds of eyes (Machado et al. 2009), and each has a contrast of at least 3 to the page."""
FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'Liberation Sans', sans-serif"


def sequential_scale(theme: Theme, ink: Ink = "sqrt") -> list[tuple[float, str]]:
    """Return Plotly stops for values 0 to 1; with "sqrt" the ink is as strong as the square root of the value.

    With "row" the value is a share of its row's largest weight, and the ink goes evenly with it, as with "linear".

    The values stay what they are: only the places of the colours move, so that a weight of 0.05 is still seen.
    """
    last = len(theme.sequential) - 1
    power = 2 if ink == "sqrt" else 1
    return [((at / last) ** power, colour) for at, colour in enumerate(theme.sequential)]


def diverging_scale(theme: Theme) -> list[tuple[float, str]]:
    """Return Plotly stops for values around 0, which has the colour of the page."""
    last = len(theme.diverging) - 1
    return [(at / last, colour) for at, colour in enumerate(theme.diverging)]


def style(figure: go.Figure, theme: Theme, *, title: str | None = None) -> go.Figure:
    """Give a figure the page's type, ink and margins; its background lets the page through.

    The title is plain text: markup in it, as in a token that it quotes, is shown and not obeyed.
    """
    figure.update_layout(title=_title(title, theme) if title else None)
    figure.update_layout(
        font={"family": FONT, "size": 12, "color": theme.text},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        hoverlabel={"font": {"family": FONT}, "align": "left"},
        showlegend=False,
    )
    axis = {
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "automargin": True,
        "title_font": {"color": theme.muted, "size": 12},
        "tickcolor": theme.line,
    }
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    return figure


def _title(title: str, theme: Theme) -> dict[str, Any]:
    """Return a title at the top left that makes room for itself above what stands over the map."""
    font = {"size": 14, "color": theme.text}
    place = {"x": 0, "xanchor": "left", "xref": "container", "y": 1, "yanchor": "top", "yref": "container"}
    return {"text": for_plotly(title, None), "font": font, "automargin": True, "pad": {"t": 8, "b": 8}, **place}
