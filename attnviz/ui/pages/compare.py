"""The Compare page: two heads at full size on one scale, their difference, and the heads that are most like one."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st
import torch

from attnviz.analysis.alignment import Aligned, Side, align
from attnviz.analysis.comparison import Comparison, compare, difference_words
from attnviz.analysis.head_distances import nearest_heads
from attnviz.analysis.rollout import mean_weights
from attnviz.errors import AttnvizError
from attnviz.models.catalogue import is_on_this_machine
from attnviz.plots import plot_comparison, plot_head, plot_heads
from attnviz.plots.theme import THEMES
from attnviz.tokens import for_markdown
from attnviz.ui import cache, look, sending, sides, state
from attnviz.ui.boxes import render_head_boxes
from attnviz.ui.components.pointer import link_maps
from attnviz.ui.components.selection import Place
from attnviz.ui.sides import Sides
from attnviz.ui.view import View, current_view, open_head

NEAREST, FARTHEST = 6, 2
"""How many heads are offered that are like A, and unlike it."""

MOST_ROWS = 5
MOST_TOKENS = 256
"""Up to so many tokens a side two maps and their difference are drawn."""

FITTING = state.ALIGNMENTS[0]
TROPHY = "The trophy does not fit in the suitcase because it is too {}."
JS_WORDS = (
    "Jensen–Shannon divergence of two rows, in nats: 0 for equal ones, ln 2 = 0.693 for rows without a key in common. "
    "What a row lacks to 1 counts as one further key."
)
VARIATION_WORDS = "Half the sum of |B − A| over a row: the share of the weight that would have to move, 0 to 1."
CORRELATION_WORDS = "Pearson's correlation over the cells allowed in both, −1 to 1."


def render_compare() -> None:
    """Show what is compared with what, and how they differ."""
    a = current_view()
    if a is None:
        return
    both = Sides(_next_head(a))
    _render_presets(a, both)
    with st.container(key="wrap-sides"):
        left, right = st.columns(2, gap="large")
    with left:
        _render_a(a)
    with right:
        b = _render_b(a, both)
    if b is not None:
        _render_difference(a, b, both)
    _render_like(a, both)
    _render_marked(a)


def _next_head(a: View) -> dict[str, Any]:
    """Return how B differs from A before anything is chosen: the next head, or without scaling where there is one."""
    heads = a.trace.heads(a.layer, a.role)
    if heads == 1:
        return {"scale": not state.get("scale")}
    return _as_b(a, a.layer, (a.head + 1) % heads)


def _place(view: View, layer: int, head: int) -> dict[str, Any]:
    """Return the values that open a head."""
    return {"head": head} if view.model is None else {"layer": layer, "model_head": head}


def _as_b(view: View, layer: int, head: int) -> dict[str, Any]:
    """Return the values that make one head B, whatever A is the mean of."""
    return _place(view, layer, head) | {"average": state.THIS_HEAD}


# ---- What is compared


def _render_presets(a: View, both: Sides) -> None:
    """Offer the usual comparisons, each one click."""
    with st.container(horizontal=True, gap="medium", key="examples-compare"):
        for name, values in _presets(a).items():
            st.button(name, on_click=sides.replace_b, kwargs=values, type="tertiary")
        if a.model is not None:
            st.button("Two models", on_click=_compare_models, args=(a,), type="tertiary")
            st.button("The trophy: too big, too small", on_click=_compare_trophies, type="tertiary")
        st.button("Swap A and B", on_click=both.swap, type="tertiary", icon=":material/swap_horiz:")


def _presets(a: View) -> dict[str, dict[str, Any]]:
    """Return what may be compared with A, and how B then differs from it."""
    here = _place(a, *a.place)
    if a.model is None:
        causal = "none" if state.get("mask") == "causal" else "causal"
        presets = {
            "Two heads": _next_head(a),
            "Two texts": here | {"text": state.get("text")},
            "With and without scaling": here | {"scale": not state.get("scale")},
            "Another seed": here | {"seed": (state.get("seed") + 1) % 10_000},
        }
        return presets if a.role == "cross" else presets | {"With and without a mask": here | {"mask": causal}}
    return {"Two heads": _next_head(a), "Two texts": here | {"sentence": state.get("sentence")}}


def _compare_models(a: View) -> None:
    """Compare with another model of the catalogue, one of this machine where there is one; for a callback."""
    others = [name for name in state.FIELDS["checkpoint"].options if name != state.get("checkpoint")]
    other = next(filter(is_on_this_machine, others), others[0])
    sides.replace_b(**_place(a, *a.place), checkpoint=other)


def _compare_trophies() -> None:
    """Compare a sentence with one in which "it" is the other thing; for a callback."""
    state.set_values(sentence=TROPHY.format("big"))
    sides.replace_b(sentence=TROPHY.format("small"))


def _render_a(a: View) -> None:
    st.subheader("A", anchor=False)
    render_head_boxes(a, partial(open_head, a), key="-a", of=" (A)", beside=partial(state.field, "average"))
    state.field("align")
    st.caption(for_markdown(f"A is {_what(a)}, and the rest as the sidebar says."))


def _render_b(a: View, both: Sides) -> View | None:
    """Draw what B is, and return it; None where it cannot be seen."""
    st.subheader("B", anchor=False)
    place = st.container()
    models = both.read("source") == "Model"
    both.field("sentence" if models else "text")
    if not models and both.read("module").lower().endswith("cross-attention"):
        both.field("context")
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom", key="boxes-model"):
        if models:
            both.field("checkpoint")
        more = st.popover("What else differs", width="content" if models else "stretch")
    with more:
        both.field("source")
        for key in ("role", *sides.OF_MODELS) if models else sides.OF_MODULES:
            both.field(key)
    b = current_view(both.read)
    with place:
        beside = partial(both.field, "average")
        if b is None:
            beside()
        else:
            pick = lambda layer, head: both.write(**_place(b, layer, head))  # noqa: E731
            render_head_boxes(b, pick, key="-b", of=" (B)", beside=beside)
    if b is not None and (b.trace is not a.trace or b.role != a.role):
        st.caption(for_markdown(f"{_what(b)}."))
    return b


def _what(view: View) -> str:
    """Return what a side is, in a few words."""
    return view.title if view.model is None else f"{view.model.name}, {view.role}"


# ---- How they differ


def _render_difference(a: View, b: View, both: Sides) -> None:
    """Show both maps and what differs, or the maps alone where they are not to be laid over each other."""
    places = sending.heads_over(a, state.get("average")), sending.heads_over(b, both.read("average"))
    sizes = [sending.cells(view) * len(heads) for view, heads in zip((a, b), places, strict=True)]
    if max(sending.longest(a), sending.longest(b)) > MOST_TOKENS or max(sizes) > sending.MOST_IN_MEAN:
        look.render_failure(
            f"Expected maps of at most {MOST_TOKENS} tokens a side and {sending.MOST_IN_MEAN:,} cells in all heads, "
            f"got {sending.longest(a)} and {sending.longest(b)} tokens. Compare shorter texts, or fewer heads."
        )
        return
    maps = [_side(view, heads) for view, heads in zip((a, b), places, strict=True)]
    titles = [f"{name}: {_names(heads)}" for name, heads in zip("AB", places, strict=True)]
    way = state.get("align")
    if way == "none":
        _render_apart(maps, titles)
        return
    try:
        laid = align(maps[0], maps[1], None if way == FITTING else way)
    except AttnvizError as error:
        look.render_failure(str(error))
        _render_apart(maps, titles)
        return
    figure = plot_comparison(
        laid.left,
        laid.right,
        laid.queries.labels,
        laid.keys.labels,
        left_allowed=laid.left_allowed,
        right_allowed=laid.right_allowed,
        titles=(titles[0], titles[1]),
        theme=look.theme(),
        ink=look.ink(),
    )
    look.render_figure(figure, "comparison")
    link_maps("comparison", accent=THEMES[look.theme()].accent)
    st.caption(for_markdown(f"{laid.sentence} Weights after the softmax over keys, A and B on one scale."))
    comparison = compare(laid.left, laid.right)
    _render_numbers(comparison)
    _render_rows(comparison, laid)


def _side(view: View, places: list[Place]) -> Side:
    """Return the mean of some heads, with its tokens."""
    key = ("mean", view.name, "alike", *places)
    weights = cache.reading(key, lambda: mean_weights(view.shown, view.role, head_weights=dict.fromkeys(places, 1.0)))
    return Side(weights, None, view.shown.query_tokens(view.role), view.shown.key_tokens(view.role))


def _names(places: list[Place]) -> str:
    """Return what the heads of a side are called."""
    return "layer {}, head {}".format(*places[0]) if len(places) == 1 else f"mean of {len(places)} heads"


def _render_apart(maps: list[Side], titles: list[str]) -> None:
    """Show two maps beside each other, on one scale, but not laid over each other."""
    with st.container(key="wrap-apart"):
        columns = st.columns(2, gap="medium")
    for at, (place, side, title) in enumerate(zip(columns, maps, titles, strict=True)):
        with place:
            figure = plot_head(
                side.weights.nan_to_num(0.0),
                side.query_tokens.labels,
                side.key_tokens.labels,
                allowed=~side.weights.isnan(),
                title=title,
                theme=look.theme(),
                ink=look.ink(),
            )
            look.render_figure(figure, f"apart-{at}")


def _render_rows(comparison: Comparison, laid: Aligned) -> None:
    """Say in words where the two differ most."""
    st.subheader("Where they differ most", anchor=False)
    rows = comparison.rows_that_differ_most(MOST_ROWS)
    if not rows:
        st.caption("No row has weights in both.")
        return
    table = pd.DataFrame(
        {
            "row": [difference_words(comparison, row, laid.queries.labels, laid.keys.labels) for row in rows],
            "JS divergence": [float(comparison.divergence[row]) for row in rows],
            "total variation": [float(comparison.total_variation[row]) for row in rows],
        }
    )
    number = st.column_config.NumberColumn
    st.dataframe(
        table,
        hide_index=True,
        key="rows",
        column_config={
            "JS divergence": number(format="%.4f", help=JS_WORDS, width="small"),
            "total variation": number(format="%.4f", help=VARIATION_WORDS, width="small"),
            "row": st.column_config.TextColumn("row, and where its weight goes", width="large"),
        },
    )


def _render_numbers(comparison: Comparison) -> None:
    """Show how much the two differ in all."""
    numbers = (
        ("mean JS divergence", comparison.mean_divergence, "{:.4f} nats", JS_WORDS),
        ("mean total variation", comparison.mean_total_variation, "{:.4f}", VARIATION_WORDS),
        ("correlation", comparison.correlation, "{:.3f}", CORRELATION_WORDS),
    )
    with st.container(horizontal=True, key="statistics", gap="small"):
        for name, value, form, words in numbers:
            st.metric(name, "n/a" if math.isnan(value) else form.format(value), help=words, width="content")


# ---- Which heads are alike


def _render_like(a: View, both: Sides) -> None:
    """Offer the heads that are most like A, and least: each is one click from being B."""
    if len(sending.all_heads(a)) == 1:
        return
    st.subheader("Heads like A", anchor=False)
    with st.spinner("Comparing with every head", show_time=True):
        table = cache.reading(
            ("nearest", a.name, a.place), lambda: nearest_heads(a.shown, a.layer, a.head, a.role)
        ).dropna()
    st.caption(
        f"Of the {len(table) + 1} heads, by the mean JS divergence of their rows from those of layer {a.layer}, head "
        f"{a.head} (0 to {math.log(2):.3f} nats). A click makes a head B."
    )
    nearest, farthest = table.head(NEAREST), table.iloc[NEAREST:].tail(FARTHEST)
    for words, rows in (("Nearest", nearest), ("Farthest", farthest)):
        if len(rows):
            with st.container(horizontal=True, gap="small", vertical_alignment="center", key=f"like-{words}"):
                st.caption(words, width="content")
                for layer, head, divergence in rows[["layer", "head", "divergence"]].itertuples(index=False):
                    st.button(
                        f"layer {layer} head {head} · {divergence:.4f}",
                        key=f"like {layer}.{head}",
                        on_click=sides.replace_b,
                        kwargs=_as_b(a, int(layer), int(head)),
                    )


def _render_marked(a: View) -> None:
    """Show the marked heads side by side on one scale."""
    st.subheader("Marked heads side by side", anchor=False)
    state.field("marked")
    marked = sending.marked(a)
    if not marked:
        st.caption("Shift-click heads in the grid of the page Heads, or name them here, up to 8.")
        return
    if sending.longest(a) > sending.MOST_BESIDE:
        st.caption(f"Side by side, maps of more than {sending.MOST_BESIDE} tokens would be too small to read.")
        return
    maps = torch.stack([sending.head_map(a.shown, *place, a.role) for place in marked])
    figure = plot_heads(
        maps.nan_to_num(0.0),
        a.shown.query_tokens(a.role).labels,
        a.shown.key_tokens(a.role).labels,
        allowed=~maps.isnan(),
        titles=["layer {}, head {}".format(*place) for place in marked],
        theme=look.theme(),
        ink=look.ink(),
    )
    look.render_figure(figure, "marked-heads")
