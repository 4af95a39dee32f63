"""The script that redraws the page when a person switches between light and dark."""

from __future__ import annotations

from attnviz.ui.components import declare


def follow_theme() -> None:
    """Mount the script; once in a run, from the sidebar."""
    declare("theme")(key="hidden-theme", height=0, on_switched_change=lambda: None)
