"""Two labelled boxes that choose a layer and a head: for the keyboard, and for those who do not see a picture."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from attnviz.ui.view import View


def render_head_boxes(
    view: View,
    pick: Callable[[int, int], None],
    *,
    key: str = "",
    of: str = "",
    beside: Callable[[], object] = lambda: None,
) -> None:
    """Draw the boxes with the view's own layer and head in them.

    Args:
        view: what is looked at.
        pick: called with a layer and a head when a person has chosen; in a callback.
        key: tells the boxes of one view from those of another.
        of: what the labels end with, such as " (B)".
        beside: draws what stands in the same line.
    """
    layers, heads = view.trace.layers(view.role), range(view.trace.heads(view.layer, view.role))
    names = f"pick-layer{key}", f"pick-head{key}"
    st.session_state[names[0]], st.session_state[names[1]] = view.place

    def picked() -> None:
        pick(st.session_state[names[0]], st.session_state[names[1]])

    with st.container(horizontal=True, key=f"boxes{key}", gap="small"):
        st.selectbox(f"Layer{of}", layers, key=names[0], on_change=picked)
        st.selectbox(f"Head{of}", heads, key=names[1], on_change=picked)
        beside()
