"""The script that keeps typing, page changes and the browser's history in order."""

from __future__ import annotations

from attnviz.ui.components import declare


def keep_history() -> None:
    """Mount the script; once in a run, from the sidebar."""
    declare("history")(key="hidden-history", height=0)
