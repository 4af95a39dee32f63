"""The link between a Plotly map and what is chosen in the other views."""

from __future__ import annotations

from attnviz.ui.components import declare, pack


def link_chart(chart: str, *, accent: str, key: str = "hidden-frame") -> None:
    """Frame the chosen token's row or column in a chart of [query, key] cells, and choose rows by pointing at them.

    Args:
        chart: the key of the Plotly chart.
        accent: the colour of the frame.
        key: of the component.
    """
    declare("frame")(key=key, height=0, data=pack({"chart": chart, "accent": accent}))
