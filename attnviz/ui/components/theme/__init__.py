"""The script that redraws the page when a person switches between light and dark."""

from __future__ import annotations

from attnviz.ui.components import declare


def follow_theme(page: str) -> None:
    """Mount the script; once in a run, from the sidebar.

    Args:
        page: the colour of the page that this run draws for, as "#rrggbb".
    """
    declare("theme")(key="hidden-theme", height=0, data={"page": page}, on_switched_change=lambda: None)
