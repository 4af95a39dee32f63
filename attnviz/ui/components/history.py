"""The script that keeps typing, page changes and the browser's history in order."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

SCRIPT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


def keep_history() -> None:
    """Mount the script; once in a run, from the sidebar."""
    st.components.v2.component("attnviz_history", js=SCRIPT)(key="hidden-history", height=0)
