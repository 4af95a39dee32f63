"""The Statistics page: what each head does in numbers, which heads are alike, their averages, rollout and norms."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
import streamlit as st
from torch import Tensor

from attnviz.analysis.head_distances import cluster, embed, head_divergences
from attnviz.analysis.names import head_names
from attnviz.analysis.norms import head_norms, norm_weighted
from attnviz.analysis.patterns import PATTERNS, baseline, patterns
from attnviz.analysis.repeated import repeated_patterns
from attnviz.analysis.rollout import flow, mean_weights, rollout
from attnviz.errors import AttnvizError
from attnviz.plots import plot_head, plot_head_distances, plot_head_scatter
from attnviz.tokens import for_markdown
from attnviz.ui import cache, look, sending, state
from attnviz.ui.boxes import numbered, render_choice, render_head_boxes
from attnviz.ui.headmap import read_head
from attnviz.ui.numbers import NUMBERS
from attnviz.ui.view import View, current_view, open_head

NAME_WORDS = (
    "A pattern that this head follows on this text: more than half of its weight, more than twice what a head that "
    "spreads its weight evenly has, over four rows or more."
)
ROLLOUT_WORDS = (
    "How much of each token of the input is in this token: layers of ½·mean weights + ½·residual, multiplied."
)
FLOW_WORDS = "The most that can flow from this token to each one of the input through the same layers."

MOST_TOKENS = 256
"""Up to so many tokens a side a map is drawn here."""

MOST_FLOW = 64
"""Up to so many tokens a side the flow of a token is worked out."""


def render_statistics() -> None:
    """Show what is known of the heads in view."""
    view = current_view()
    if view is not None:
        TOPICS[state.field("topic")](view)


def numbers_of_heads(view: View) -> pd.DataFrame:
    """Return a row per head of the role in view: layer, head, what it may be called, and every number of it."""

    def read() -> pd.DataFrame:
        trace, role = view.trace, view.role
        scores = patterns(trace, role)
        names = head_names(scores, baseline(trace, role))
        table = trace.statistics(role)
        table.insert(2, "name", [", ".join(each) for each in names])
        return table.join(scores[[name for name in NUMBERS if name in scores]])

    with st.spinner("Reading every head", show_time=True):
        return cache.reading(("numbers", view.whole), read)


# ---- Table and scatter


def _render_table(view: View) -> None:
    """Show every head in a table and in a plane of two of its numbers, and the one that is chosen as a map."""
    table = numbers_of_heads(view)
    shown = _filtered(table)
    picked = partial(_open_row, view, shown)
    st.dataframe(
        shown,
        hide_index=True,
        key="heads-table",
        on_select=picked,
        selection_mode="single-row",
        height=min(420, 36 * len(shown) + 40),
        column_config=_columns(),
    )
    st.caption(
        f"{len(shown)} of {len(table)} heads. A click on a column sorts, on the box before a row opens its head below. "
        "A head has a name only where most of its weight follows a pattern on this text, far above a head that spreads "
        "its weight evenly. It says where the weight lies, not what for."
    )
    with st.container(key="wrap"):
        left, right = st.columns(2, gap="medium")
    with left:
        _render_scatter(view, table)
    with right:
        _render_open(view, table)
    _render_repeated(view)


def _filtered(table: pd.DataFrame) -> pd.DataFrame:
    """Draw what the table is filtered by, and return the heads that are left."""
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom", key="boxes-filter"):
        named = st.toggle("Only heads with a name", key="filter-named")
        layers = st.multiselect(
            "Layers", sorted(table["layer"].unique()), placeholder="every layer", key="filter-layers"
        )
        number = st.selectbox("Number", list(NUMBERS), format_func=lambda name: NUMBERS[name].axis, key="filter-number")
        least = st.number_input("At least", 0.0, step=0.1, format="%.2f", key="filter-least")
    kept = table[number].fillna(-1) >= least if least else pd.Series(data=True, index=table.index)
    if named:
        kept &= table["name"] != ""
    if layers:
        kept &= table["layer"].isin(layers)
    return table[kept]


def _columns() -> dict[str, Any]:
    """Return how the columns of the table are headed, written and explained."""
    config = st.column_config
    numbers = {
        name: config.NumberColumn(number.title, help=number.help, format=f"%.{number.decimals + 1}f")
        for name, number in NUMBERS.items()
    }
    words = {
        "layer": config.NumberColumn("Layer", format="%d"),
        "head": config.NumberColumn("Head", format="%d"),
        "name": config.TextColumn("Name", help=NAME_WORDS, width="medium"),
    }
    return words | numbers


def _open_row(view: View, shown: pd.DataFrame) -> None:
    """Open the head of the chosen row; for a callback."""
    rows = st.session_state["heads-table"].selection.rows
    if rows:
        open_head(view, *(int(value) for value in shown.iloc[rows[0]][["layer", "head"]]))


def _open_point(view: View, key: str) -> None:
    """Open the head of the chosen point of a figure; for a callback."""
    points = st.session_state[key].selection.points
    if points:
        layer, head = points[0]["customdata"][:2]
        open_head(view, int(layer), int(head))


def _render_scatter(view: View, table: pd.DataFrame) -> None:
    with st.container(horizontal=True, gap="small", key="boxes-axes"):
        across, upward = state.field("across"), state.field("upward")
    places = list(table[["layer", "head"]].itertuples(index=False, name=None))
    figure = plot_head_scatter(
        table[across].to_numpy(),
        table[upward].to_numpy(),
        places,
        x_title=NUMBERS[across].axis,
        y_title=NUMBERS[upward].axis,
        names=table["name"].tolist(),
        open_place=view.place,
        marked=sending.marked(view),
        theme=look.theme(),
    )
    look.render_figure(figure, "scatter", on_select=partial(_open_point, view, "scatter"))
    st.caption("A point is a head, the darker the later its layer; a click opens it.")


def _render_open(view: View, table: pd.DataFrame) -> None:
    """Show the open head as a map, with what it may be called."""
    render_head_boxes(view, partial(open_head, view))
    name = table.loc[(table["layer"] == view.layer) & (table["head"] == view.head), "name"].iloc[0]
    st.caption(for_markdown(name or "This head follows none of the named patterns on this text."))
    if _is_short(view):
        _render_map(read_head(view, view.head).masked, view, "open-head", title=f"{view.title}, head {view.head}")


def _is_short(view: View) -> bool:
    """Whether a map can be drawn here; says where not."""
    if sending.longest(view) <= MOST_TOKENS:
        return True
    st.caption(f"Maps of more than {MOST_TOKENS} tokens a side are drawn on the page Heads.")
    return False


def _render_repeated(view: View) -> None:
    """Offer to run a decoder on random tokens said twice."""
    if view.model is None or view.model.roles != ("decoder",):
        return
    st.subheader("On random tokens said twice", anchor=False)
    st.caption(
        "What heads do with a repetition where the words mean nothing (Olsson et al. 2022). Induction is the weight on "
        "the token after the first occurrence, duplicate token on the occurrence itself."
    )
    key = ("repeated", view.model.name, str(view.model.dtype))
    if not st.toggle("Run the model on them", key="repeated"):
        return
    try:
        with st.spinner("Running the model", show_time=True):
            table = cache.reading(key, partial(repeated_patterns, view.model))
    except AttnvizError as error:
        look.render_failure(str(error))
        return
    numbers = {
        name: st.column_config.NumberColumn(PATTERNS[name].title, help=PATTERNS[name].definition, format="%.3f")
        for name in table.columns[2:]
    }
    st.dataframe(
        table.sort_values("induction", ascending=False), hide_index=True, key="repeated-table", height=300,
        column_config=numbers,
    )  # fmt: skip


# ---- Which heads are alike


def _render_likeness(view: View) -> None:
    """Show how far all heads are from each other, in the order of a tree and in a plane."""
    if len(sending.all_heads(view)) == 1:
        st.caption("This module has one head, so there is nothing to compare it with.")
        return
    with st.spinner("Comparing every two heads", show_time=True):
        found = cache.reading(("distances", view.name), lambda: head_divergences(view.shown, view.role))
        tree = cache.reading(("tree", view.name), lambda: cluster(found.distance))
        plane = cache.reading(("plane", view.name), lambda: embed(found.distance))
    figure = plot_head_distances(
        found.distance, found.places, order=tree.order, linkage=tree.linkage, open_place=view.place, theme=look.theme()
    )
    with st.container(key="wrap"):
        left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("Distance of every two heads", anchor=False)
        look.render_figure(figure, "distances")
        rows = "" if found.rows == found.of_rows else f" over {found.rows:,} of {found.of_rows:,} rows, evenly spaced"
        st.caption(
            f"√ of the mean Jensen–Shannon divergence of their rows{rows}, 0 to 0.83. The order is that of a tree of "
            "average linkage, so heads that are alike stand together."
        )
    with right:
        st.subheader("Heads in a plane", anchor=False)
        scatter = plot_head_scatter(
            plane[:, 0], plane[:, 1], list(found.places), x_title="", y_title="", open_place=view.place,
            marked=sending.marked(view), theme=look.theme(),
        )  # fmt: skip
        look.render_figure(scatter, "plane", on_select=partial(_open_point, view, "plane"))
        st.caption(
            "Classical scaling of these distances to two dimensions. Near points are alike, but not all that is far "
            "apart can be shown so. A click opens a head."
        )
        render_head_boxes(view, partial(open_head, view))


# ---- Averages


def _render_averages(view: View) -> None:
    """Show the mean of the maps of a layer, of the marked heads or of all."""
    with st.container(horizontal=True, gap="small", key="boxes-mean"):
        over, counted = state.field("averaged"), state.field("counted")
    if over == state.MARKED:
        state.field("marked")
    if over == state.THIS_LAYER:
        render_head_boxes(view, partial(open_head, view))
    places = sending.heads_over(view, over)
    try:
        counts = _counts(view, counted)
        heads = {place: counts[place] for place in places}
        key = ("mean", view.name, counted, *places)
        mean = cache.reading(key, lambda: mean_weights(view.shown, view.role, head_weights=heads))
    except AttnvizError as error:
        look.render_failure(str(error))
        return
    if _is_short(view):
        what = f"layer {view.layer}" if over == state.THIS_LAYER else over
        _render_map(mean, view, "mean", title=f"Mean of {what}: {len(places)} heads, counted {counted}")


def _counts(view: View, counted: str) -> dict[tuple[int, int], float]:
    """Return how much each head counts in a mean."""
    if counted == "by peak weight":
        values = view.trace.statistics(view.role)["peak_weight"]
    elif counted == "by what it writes":
        table = cache.reading(("writes", view.whole), lambda: head_norms(view.trace, view.role))
        values = table["value_norm"]
    else:
        return dict.fromkeys(sending.all_heads(view), 1.0)
    return dict(zip(sending.all_heads(view), values.fillna(0.0).tolist(), strict=True))


# ---- Rollout and flow


def _render_rollout(view: View) -> None:
    """Show what is left of the input's tokens in each token of a layer, as attention alone tells it."""
    layers = view.trace.layers(view.role)
    last = max((layer for layer in layers if layer <= state.get("upto")), default=layers[0])
    below = [layer for layer in layers if layer <= last]
    with st.container(key="boxes-upto", width=240):
        render_choice("upto", last, layers)
    try:
        key = ("rollout", view.whole, last)
        found = cache.reading(key, lambda: rollout(view.trace, view.role, layers=below))
    except AttnvizError as error:
        look.render_failure(str(error))
        return
    queries, keys = view.trace.query_tokens(view.role).labels, view.trace.key_tokens(view.role).labels
    with st.container(key="wrap"):
        left, right = st.columns(2, gap="medium")
    with left:
        if max(len(queries), len(keys)) <= MOST_TOKENS:
            title = f"Rollout of the {view.role}, up to layer {below[-1]}"
            figure = plot_head(found.matrix, queries, keys, title=title, measure="share", **look.chosen())
            look.render_figure(figure, "rollout")
        st.caption(for_markdown(found.sentence))
    with right:
        _render_flow(view, found.matrix, below)


def _render_flow(view: View, matrix: Tensor, layers: list[int]) -> None:
    """Show rollout and flow of one token in numbers."""
    queries, keys = view.trace.query_tokens(view.role).labels, view.trace.key_tokens(view.role).labels
    at = st.selectbox(
        "From the token",
        range(len(queries)),
        len(queries) - 1,
        format_func=numbered(queries),
        key="from",
    )
    table = pd.DataFrame({"token": keys, "rollout": matrix[at].numpy()})
    if view.role != "cross" and len(queries) <= MOST_FLOW:
        try:
            key = ("flow", view.whole, layers[-1], at)
            table["flow"] = cache.reading(key, lambda: flow(view.trace, at, view.role, layers=layers)).numpy()
        except AttnvizError as error:
            look.render_failure(str(error))
    bar = st.column_config.ProgressColumn
    st.dataframe(
        table,
        key="flow-table",
        column_config={
            "rollout": bar(help=ROLLOUT_WORDS, format="%.4f", min_value=0.0, max_value=1.0),
            "flow": bar(help=FLOW_WORDS, format="%.4f", min_value=0.0, max_value=1.0),
        },
    )


# ---- Norms


def _render_norms(view: View) -> None:
    """Show the open head's weights beside the norms of what they bring."""
    render_head_boxes(view, partial(open_head, view))
    if not _is_short(view):
        return
    try:
        norms = norm_weighted(view.trace, view.layer, view.head, view.role)
    except AttnvizError as error:
        look.render_failure(str(error))
        return
    queries, keys = view.trace.query_tokens(view.role).labels, view.trace.key_tokens(view.role).labels
    allowed = view.trace.allowed(view.layer, view.role, head=view.head)
    with st.container(key="wrap"):
        left, right = st.columns(2, gap="medium")
    with left:
        weights = view.trace.weights(view.layer, view.head, view.role)
        title = f"{view.title}, head {view.head}: weights"
        figure = plot_head(weights, queries, keys, allowed=allowed, title=title, **look.chosen())
        look.render_figure(figure, "open-head")
    with right:
        title = f"{view.title}, head {view.head}: ‖weight · value · W^O‖"
        scale: dict[str, Any] = {"largest": float(norms.max()) or 1.0, "measure": "added length"}
        figure = plot_head(norms, queries, keys, allowed=allowed, title=title, **scale, **look.chosen())
        look.render_figure(figure, "norms")
    st.caption(
        "At the right the length of the vector that each key adds to the query's output (Kobayashi et al. 2020). A key "
        "may take much weight and bring next to nothing, as a token does that heads rest on."
    )


def _render_map(weights: Tensor, view: View, key: str, *, title: str) -> None:
    """Show a map [query, key] of what is shown, NaN where not allowed."""
    queries, keys = view.shown.query_tokens(view.role).labels, view.shown.key_tokens(view.role).labels
    allowed = ~weights.isnan()
    figure = plot_head(weights.nan_to_num(0.0), queries, keys, allowed=allowed, title=title, **look.chosen())
    look.render_figure(figure, key)


TOPICS = {
    "Table": _render_table,
    "Likeness": _render_likeness,
    "Averages": _render_averages,
    "Rollout": _render_rollout,
    "Norms": _render_norms,
}
