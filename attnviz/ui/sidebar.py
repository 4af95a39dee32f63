"""The sidebar: what is looked at."""

from __future__ import annotations

import streamlit as st

from attnviz.ui import state
from attnviz.ui.components.history import keep_history
from attnviz.ui.state import field


def render_sidebar() -> None:
    """Draw every control, in the order of the computation; what does not apply now is drawn hidden."""
    state.clean_address()
    with st.sidebar:
        keep_history()
        st.markdown("## attnviz")
        _render_examples()
        crosses = "ross" in state.get("module")
        field("text")
        field("context", show=crosses)
        field("module")
        embedding = field("embedding")
        pretrained = embedding.startswith("Pretrained")
        field("model", show=pretrained)
        left, right = st.columns(2, gap="small")
        with left:
            field("heads", show=state.get("module").startswith("Multi-head"))
        with right:
            field("dimension", show=not pretrained and embedding != state.EMBEDDING_TITLES["article"])
        field("positions")
        field("mask", show=not crosses)
        field("weights")
        field("scale")
        left, right = st.columns(2, gap="small")
        with left:
            field("seed")
        with right:
            field("device")
        field("ink")
        field("head", show=False)


def _render_examples() -> None:
    """Draw a button for each example."""
    st.caption("Examples")
    with st.container(horizontal=True, gap="small", key="examples"):
        for name, values in state.EXAMPLES.items():
            st.button(name, on_click=state.set_values, kwargs=values, type="tertiary")
