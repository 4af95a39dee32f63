"""Buttons that lead from one page to another, and set what is looked at there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from attnviz.ui import state
from attnviz.ui.components.going import lead_to

GOING = "going-to"
FIRST = "heads"
"""The path of the first page, whose address is that of the app."""


def render_way(label: str, path: str, values: Mapping[str, Any]) -> None:
    """Draw a button that opens a page with these values in the state.

    Args:
        label: what stands on it.
        path: of the page.
        values: keys of the state and what they become; the rest stays.
    """
    st.button(label, key=f"way-{path}", on_click=_go, args=(path, dict(values)), icon=":material/play_arrow:")
    going = st.session_state.pop(GOING, None)
    if going is not None:
        lead_to("" if going == FIRST else going)


def _go(path: str, values: dict[str, Any]) -> None:
    state.set_values(**values)
    st.session_state[GOING] = path
