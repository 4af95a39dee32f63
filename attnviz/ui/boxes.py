"""Boxes and buttons that say what the address says, and write into it what a person chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import streamlit as st

from attnviz.ui import state
from attnviz.ui.view import View


def render_head_boxes(
    view: View,
    pick: Callable[[int, int], None],
    *,
    key: str = "",
    of: str = "",
    beside: Callable[[], object] = lambda: None,
) -> None:
    """Draw a box for the layer and one for the head: for the keyboard, and for those who do not see a picture.

    Args:
        view: what is looked at; its own layer and head stand in the boxes.
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


def render_choice(
    field: str, value: int, options: Sequence[int], name: Callable[[int], str] = str, *, label: str = "", **more: Any
) -> None:
    """Draw a box of the options there are for a number of the state.

    Args:
        field: the key of the state.
        value: the option that the state comes to here.
        options: what may be chosen.
        name: what a person reads of an option.
        label: what stands over the box; the field's own label where left out.
        more: further options of `st.selectbox`.
    """
    st.session_state[f"pick-{field}"] = value
    st.selectbox(
        label or state.FIELDS[field].label, options, key=f"pick-{field}", format_func=name, on_change=_keep,
        args=(field,), **more,
    )  # fmt: skip


def render_slide(field: str, value: int, options: Sequence[int], name: Callable[[int], str], **more: Any) -> None:
    """Draw a slider over the options there are for a number of the state; see `render_choice`."""
    st.session_state[f"pick-{field}"] = value
    label = more.pop("label", state.FIELDS[field].label)
    st.select_slider(label, options, key=f"pick-{field}", format_func=name, on_change=_keep, args=(field,), **more)


def _keep(field: str) -> None:
    state.set_values(**{field: st.session_state[f"pick-{field}"]})


def render_turner(field: str, value: int, first: int, last: int) -> None:
    """Draw two buttons that turn to the one before and the next; the arrow keys do the same."""
    ways = (("Back", "arrow_back", "Left", -1, first), ("Next", "arrow_forward", "Right", 1, last))
    for label, icon, shortcut, step, end in ways:
        st.button(
            label, icon=f":material/{icon}:", disabled=value == end, shortcut=shortcut, on_click=state.set_values,
            kwargs={field: value + step},
        )  # fmt: skip


def numbered(labels: Sequence[str]) -> Callable[[int], str]:
    """Return what names a token by its position and its label, so that equal tokens stay apart."""
    return partial(_numbered, labels)


def _numbered(labels: Sequence[str], at: int) -> str:
    return f"{at} {labels[at]}"
