"""The pointer over one of several maps of the same cells, shown in all of them."""

from __future__ import annotations

from attnviz.ui.components import declare, pack


def link_maps(chart: str, *, accent: str, key: str = "hidden-pointer") -> None:
    """Frame the row and the cell under the pointer in every map of a chart.

    Args:
        chart: the key of the Plotly chart.
        accent: the colour of the frames.
        key: of the component.
    """
    declare("pointer")(key=key, height=0, data=pack({"chart": chart, "accent": accent}))
