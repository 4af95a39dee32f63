"""The Heads page: every head as a map, one of them large."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from attnviz.plots import plot_head, plot_head_small
from attnviz.tokens import for_markdown
from attnviz.trace import AttentionTrace
from attnviz.ui import look, state
from attnviz.ui.view import View, current_view

MOST_NUMBERS = 64
STATISTIC_WORDS = {
    "entropy": ("entropy", "{:.2f} nats", "how spread the weights are: 0 = one key, ln(keys) = all alike"),
    "distance": ("distance", "{:.1f} tokens", "mean distance of what is attended to"),
    "previous_weight": ("previous token", "{:.2f}", "mean weight on the token before"),
    "self_weight": ("itself", "{:.2f}", "mean weight on the token itself"),
}


def render_heads() -> None:
    """Show the heads of the layer in view."""
    view = current_view()
    if view is None:
        return
    with st.container(key="wrap"):
        grid, large = st.columns([2, 3], gap="medium")
    with grid:
        _render_grid(view)
    with large:
        _render_large(view)


def _render_grid(view: View) -> None:
    """Show every head small; its title opens it."""
    trace, heads = view.trace, view.trace.heads(view.layer, view.role)
    st.subheader("Every head" if heads > 1 else "One head", anchor=False)
    with st.container(horizontal=True, key="heads-grid", gap="small"):
        for head in range(heads):
            with st.container(width=150, gap=None):
                st.button(
                    f"head {head}",
                    key=f"open-{head}",
                    type="primary" if head == view.head else "tertiary",
                    help="Show this head large",
                    on_click=state.set_values,
                    kwargs={"head": head},
                )
                figure = plot_head_small(
                    trace.weights(view.layer, head, view.role),
                    trace.query_tokens(view.role).labels,
                    trace.key_tokens(view.role).labels,
                    allowed=trace.allowed(view.layer, view.role, head=head),
                    theme=look.theme(),
                    ink=look.ink(),
                )
                look.render_figure(figure, f"small-{head}", bar=False)


def _render_large(view: View) -> None:
    """Show the open head with its exact numbers."""
    trace = view.trace
    st.subheader(for_markdown(f"{view.title} · head {view.head}"), anchor=False)
    weights = trace.weights(view.layer, view.head, view.role)
    figure = plot_head(
        weights,
        trace.query_tokens(view.role).labels,
        trace.key_tokens(view.role).labels,
        allowed=trace.allowed(view.layer, view.role, head=view.head),
        theme=look.theme(),
        ink=look.ink(),
    )
    look.render_figure(figure, "open-head")
    st.caption(f"Weights after the softmax: each row sums to 1. {view.mask_words}")
    _render_statistics(view)
    with st.expander("Numbers"):
        st.dataframe(weight_table(trace, view.layer, view.head, view.role))


def _render_statistics(view: View) -> None:
    """Show what the open head does in four numbers."""
    table = view.trace.statistics(view.role)
    row = table[(table["layer"] == view.layer) & (table["head"] == view.head)].iloc[0]
    for place, (name, (words, form, meaning)) in zip(st.columns(4), STATISTIC_WORDS.items(), strict=True):
        value = "n/a" if pd.isna(row[name]) else form.format(row[name])
        place.metric(words, value, help=meaning)


def weight_table(trace: AttentionTrace, layer: int, head: int, role: str) -> pd.io.formats.style.Styler:
    """Return the weights as a table; position and token name a row, so that equal tokens stay apart."""
    rows = [f"{at} {label}" for at, label in enumerate(trace.query_tokens(role).labels)]
    columns = [f"{at} {label}" for at, label in enumerate(trace.key_tokens(role).labels)]
    return pd.DataFrame(trace.weights(layer, head, role).numpy(), index=rows, columns=columns).style.format("{:.4f}")
