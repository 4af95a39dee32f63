"""Leads the browser to another page of the app; Streamlit's own way refuses while widgets are bound to the address."""

from __future__ import annotations

from attnviz.ui.components import declare, pack


def lead_to(path: str, *, key: str = "hidden-going") -> None:
    """Open a page once this run has ended, with the address's values kept.

    Args:
        path: of the page; empty for the first.
        key: of the component.
    """
    declare("going")(key=key, height=0, data=pack({"path": path}))
