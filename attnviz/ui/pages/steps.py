"""The Steps page: every number from the word to the vector, one equation after the other, and what a change makes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pandas as pd
import streamlit as st
import torch
from torch import Tensor

from attnviz.analysis.arithmetic import Arithmetic, dimension_products, weighted_sum, written_cell
from attnviz.analysis.scaling import DIMENSIONS, MEASURES, score_spread
from attnviz.analysis.steps import Factor, Step, steps
from attnviz.diversity import heads_diversity, with_heads
from attnviz.edits import MATRICES, Edits
from attnviz.errors import AttnvizError
from attnviz.experiment import Experiment, Outcome
from attnviz.plots import plot_heads, plot_products, plot_spread, plot_step
from attnviz.tokens import for_markdown
from attnviz.ui import cache, look, sending, state
from attnviz.ui.boxes import numbered, render_choice, render_head_boxes, render_slide, render_turner
from attnviz.ui.view import View, current_view, open_head

MOST_TOKENS = 128
"""Up to so many tokens a side the maps of all steps are drawn."""

MOST_EDITED = 64
"""Up to so many rows and columns a matrix can be edited here."""

ALL, STORY = state.TELLINGS


def render_steps() -> None:
    """Show the computation of the open head, or why it is as it is."""
    match state.field("lesson"):
        case "Why √d":
            _render_why_scaled()
        case "Why several heads":
            _render_why_several()
        case _:
            _render_head()


# ---- One head


def _render_head() -> None:
    """Show one head's computation."""
    view = current_view()
    if view is None:
        return
    if sending.longest_of(view.trace, view.role) > MOST_TOKENS:
        look.render_failure(
            f"Expected at most {MOST_TOKENS} tokens a side, so that the numbers can be read, got "
            f"{sending.longest_of(view.trace, view.role)}. Use a shorter text here."
        )
        return
    experiment = state.experiment()
    outcome = _outcome(view, experiment)
    column = _steps(view, outcome, experiment)
    query, key = _chosen(view)
    render_head_boxes(view, partial(open_head, view), beside=partial(_render_token_boxes, view, query, key))
    _render_edited(outcome)
    with st.container(horizontal=True, vertical_alignment="bottom", key="boxes-telling"):
        telling = state.field("telling")
    if telling == STORY:
        at = _render_teller(column)
        _render_step(view, column[at], column, outcome, query, key)
    else:
        for step in column:
            _render_step(view, step, column, outcome, query, key)


def _outcome(view: View, experiment: Experiment) -> Outcome | None:
    """Return what a toy experiment gives; None for a model, or where it gives nothing."""
    found = None if view.model is not None else cache.outcome(experiment, state.get("model").strip())
    return found if isinstance(found, Outcome) else None


def _steps(view: View, outcome: Outcome | None, experiment: Experiment) -> list[Step]:
    """Return the steps of the open head, of a model or of an experiment."""
    trace, matrices = (view.trace, None) if outcome is None else (outcome.trace, outcome.matrices)
    name = view.whole if outcome is None else f"{experiment!r} {state.get('model')}"
    return cache.reading(
        ("steps", name, view.place), lambda: steps(trace, view.layer, view.head, view.role, matrices=matrices)
    )


def _chosen(view: View) -> tuple[int, int]:
    """Return the positions of the query and the key that are followed."""
    queries, keys = len(view.trace.query_tokens(view.role)), len(view.trace.key_tokens(view.role))
    return min(state.get("row"), queries - 1), min(state.get("column"), keys - 1)


def _render_token_boxes(view: View, query: int, key: int) -> None:
    """Let the query and the key be chosen that are followed through all steps."""
    queries, keys = view.trace.query_tokens(view.role).labels, view.trace.key_tokens(view.role).labels
    render_choice("row", query, range(len(queries)), numbered(queries))
    render_choice("column", key, range(len(keys)), numbered(keys))


def _render_teller(column: list[Step]) -> int:
    """Draw what moves along the steps, and return which one is shown."""
    last = len(column) - 1
    at = min(state.get("step"), last)
    with st.container(horizontal=True, vertical_alignment="center", key="teller"):
        render_turner("step", at, 0, last)
        render_slide(
            "step", at, range(len(column)), lambda one: column[one].title, label=f"Step {at + 1} of {len(column)}"
        )
    return at


def _render_step(view: View, step: Step, column: list[Step], outcome: Outcome | None, query: int, key: int) -> None:
    """Show one step: its formula, what it does, its numbers, and the chosen cell written out."""
    st.subheader(for_markdown(step.title), anchor=False)
    with st.container(key=f"wrap-{step.key}"):
        words, picture = st.columns([2, 3], gap="large")
    with words:
        st.latex(step.formula)
        st.caption(for_markdown(step.sentence))
        st.markdown(" · ".join(f"${symbol}$ {for_markdown(shape)}" for symbol, shape in step.symbols))
        if step.note:
            st.caption(for_markdown(step.note))
        _render_arithmetic(view, step, column, query, key)
        for factor in step.factors:
            _render_factor(factor, outcome)
        if step.edit and outcome is not None:
            _render_editor(step.edit, step.matrix, step.row_labels, step.column_labels, outcome)
    with picture:
        figure = plot_step(
            step,
            selected_row=_row_of(step, query),
            selected_cell=(query, key) if _is_map(step) else None,
            before=_before(view, step),
            theme=look.theme(),
            ink=look.ink(),
        )
        look.render_figure(figure, f"step-{step.key}")


def _is_map(step: Step) -> bool:
    """Whether the step's rows are queries and its columns keys."""
    return step.kind in ("scores", "weights")


def _row_of(step: Step, query: int) -> int | None:
    """Return the row of the chosen query; None where the rows are keys."""
    return None if step.key in ("context", "keys", "values") else query


def _before(view: View, step: Step) -> Tensor | None:
    """Return the step's numbers before the edits; None where nothing is edited."""
    if not state.get("edits") or view.model is not None:
        return None
    plain = replace(state.experiment(), edits="")
    outcome = _outcome(view, plain)
    column = [] if outcome is None else _steps(view, outcome, plain)
    return next((one.matrix for one in column if one.key == step.key and one.matrix.shape == step.matrix.shape), None)


def _render_arithmetic(view: View, step: Step, column: list[Step], query: int, key: int) -> None:
    """Write the chosen cell out in full beside the step it belongs to."""
    by_key = {one.key: one for one in column}
    try:
        if step.key == "weights":
            _render_lines(written_cell(view.trace, view.layer, view.head, query, key, view.role))
            _render_products(view, query, key)
        elif step.key == "head_output" and "values" in by_key:
            weights, values = by_key["weights"].matrix[query], by_key["values"].matrix[:, 0]
            _render_lines(weighted_sum(weights, values, name="o_0"))
    except AttnvizError as error:
        look.render_failure(str(error))


def _render_lines(written: Arithmetic) -> None:
    with st.container(border=True):
        for line in written.lines:
            st.markdown(for_markdown(line))
        if written.note:
            st.caption(for_markdown(written.note))


def _render_products(view: View, query: int, key: int) -> None:
    """Show which dimensions make the score of the chosen pair."""
    queries = view.trace.queries(view.layer, view.head, view.role)
    keys = view.trace.keys(view.layer, view.head, view.role)
    table = dimension_products(queries[query], keys[key])
    with st.expander("Which dimensions make this score"):
        look.render_figure(plot_products(table, theme=look.theme()), "products")
        st.caption("q⊙k, the products that add up to q·k, the largest first.")
        st.dataframe(table.round(6), hide_index=True, key="products-table", height=200)


# ---- What may be changed


def _render_edited(outcome: Outcome | None) -> None:
    """Say that numbers are edited, and offer the original ones; say why an entry was refused."""
    refused = st.session_state.pop("edit-refused", "")
    if refused:
        look.render_failure(f"{refused} The number before is kept.")
    if outcome is None or not state.get("edits"):
        return
    count = len(Edits.parse(state.get("edits")))
    with st.container(horizontal=True, vertical_alignment="center", key="edited"):
        st.caption(
            f"{count} {'number is' if count == 1 else 'numbers are'} edited; cells that differ have a corner.",
            width="content",
        )
        st.button("Reset all edits", on_click=state.set_values, kwargs={"edits": ""}, type="tertiary")


def _render_factor(factor: Factor, outcome: Outcome | None) -> None:
    """Show a matrix that a step takes in: to be changed where that is possible."""
    if outcome is not None and factor.edit:
        _render_editor(
            factor.edit,
            factor.matrix,
            factor.row_labels,
            factor.column_labels,
            outcome,
            first_column=factor.first_column,
        )


def _render_editor(
    name: str,
    matrix: Tensor,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    outcome: Outcome,
    *,
    first_column: int = 0,
) -> None:
    """Let the numbers of a matrix be changed in place."""
    if max(matrix.shape) > MOST_EDITED:
        return
    written = state.get("edits")
    tries = st.session_state.get("edit-tries", 0)  # a table that was refused starts anew
    key = f"edit-{name}-{first_column}-{zlib.crc32(f'{written} {matrix.shape} {tries}'.encode())}"
    labels = [f"{at} {label}" if name in ("x", "context", "mask") else label for at, label in enumerate(rows)]
    heads = [f"{at} {label}" if name == "mask" else label for at, label in enumerate(columns)]
    is_mask = name == "mask"
    table = pd.DataFrame(matrix.numpy() > 0 if is_mask else matrix.numpy(), index=labels, columns=_apart(heads))
    number = st.column_config.CheckboxColumn() if is_mask else st.column_config.NumberColumn(format="%.4f", step=0.0001)
    with st.expander(f"Change {MATRICES[name]}"):
        st.data_editor(
            table,
            key=key,
            column_config=dict.fromkeys(table.columns, number),
            on_change=partial(_take_edits, key, name, matrix, list(table.columns), outcome.unedited, first_column),
        )
        own = Edits.parse(written)
        if len(own.without(name)) < len(own):
            kept = str(own.without(name))
            st.button(
                "Reset it", key=f"reset-{key}", on_click=state.set_values, kwargs={"edits": kept}, type="tertiary"
            )


def _apart(names: list[str]) -> list[str]:
    """Return names no two of which are equal, as columns of a table have to be."""
    return [name if names.count(name) == 1 else f"{name} ({at})" for at, name in enumerate(names)]


def _take_edits(
    key: str, name: str, matrix: Tensor, columns: list[str], unedited: Mapping[str, Tensor], first_column: int
) -> None:
    """Keep in the address what was typed into a table, or say why not; for a callback."""
    table = matrix.clone().float()
    for row, changes in st.session_state[key]["edited_rows"].items():
        for column, value in changes.items():
            table[int(row), columns.index(column)] = math.nan if value is None else float(value)
    try:
        edits = Edits.parse(state.get("edits")).with_table(name, unedited[name], table, first_column=first_column)
    except AttnvizError as error:
        st.session_state["edit-refused"] = str(error)
        st.session_state["edit-tries"] = st.session_state.get("edit-tries", 0) + 1
        return
    state.set_values(edits=str(edits))


# ---- Why scores are divided, and why there are several heads


def _render_why_scaled() -> None:
    """Show what the number of dimensions does to scores, weights and gradients."""
    st.subheader("Why scores are divided by √d", anchor=False)
    st.caption(
        "Queries and keys of d random numbers (normal, mean 0, variance 1). The more dimensions, the further the "
        "scores q·k spread, the closer the weights come to all on one key, and the less a small change of a score "
        "still moves them, so the less there is to learn from. Divided by √d the spread stays 1. With d = 2 it hardly "
        "matters."
    )
    with st.container(horizontal=True, key="boxes-spread"):
        largest = st.select_slider("Up to d", DIMENSIONS[1:], DIMENSIONS[-1], key="spread-largest")
        seed = st.number_input("Seed", 0, 9999, 0, key="spread-seed")
    shown = tuple(size for size in DIMENSIONS if size <= largest)
    table = cache.reading(("spread", shown, seed), lambda: score_spread(shown, seed=seed))
    look.render_figure(plot_spread(table, theme=look.theme()), "spread")
    st.caption("Bars are one standard error of the samples; dotted, what theory says of the variance: d, or 1.")
    names = {"dimension": "d", "scaled": "Divided by √d", "entropy": "Entropy of the weights, nats"}
    names |= {"variance": "Variance of the scores", "gradient": "Size of the softmax's gradient"}
    names |= {f"{measure}_error": "± one standard error" for measure in MEASURES}
    st.dataframe(table.round(4), hide_index=True, key="spread-table", column_config=names)


def _render_why_several() -> None:
    """Show one sentence through one head, and through more."""
    st.subheader("Why several heads", anchor=False)
    experiment = state.experiment()
    if state.get("source") != "Modules":
        st.caption("This uses the toy module of the source Modules, whatever model is looked at.")
    if experiment.pretrained:
        experiment = replace(experiment, embedding="random")
    experiment = replace(experiment, edits="")
    try:
        table = cache.reading(("diversity", repr(experiment)), lambda: heads_diversity(experiment))
    except AttnvizError as error:
        look.render_failure(str(error))
        return
    st.caption(
        "A head gives each query one set of weights. Divided into several, the same projections give several sets at "
        "once, and each head may look elsewhere. The divergence says how unlike they are."
    )
    st.dataframe(
        table,
        hide_index=True,
        key="diversity-table",
        column_config={
            "heads": st.column_config.NumberColumn("Heads"),
            "d_head": st.column_config.NumberColumn("Width of one"),
            "divergence": st.column_config.NumberColumn("Mean JS divergence between heads, nats", format="%.4f"),
        },
    )
    counts = table["heads"].tolist()
    heads = st.segmented_control("Heads shown", counts, default=counts[-1], required=True, key="diversity-heads")
    outcome = cache.outcome(with_heads(experiment, int(heads)), "")
    if isinstance(outcome, cache.Failure):
        look.render_failure(outcome.sentence)
        return
    trace = outcome.trace
    maps = torch.stack([trace.weights(0, head) for head in range(int(heads))])
    labels = trace.query_tokens().labels, trace.key_tokens().labels
    if max(map(len, labels)) > sending.MOST_BESIDE:
        st.caption(f"Maps of more than {sending.MOST_BESIDE} tokens would be too small to read side by side.")
        return
    figure = plot_heads(maps, *labels, allowed=trace.allowed(0), **look.chosen())
    look.render_figure(figure, "diversity")
