"""The script that redraws the page when a person switches between light and dark."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

SCRIPT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


def follow_theme() -> None:
    """Mount the script; once in a run, from the sidebar."""
    st.components.v2.component("attnviz_theme", js=SCRIPT)(
        key="hidden-theme", height=0, on_switched_change=lambda: None
    )
