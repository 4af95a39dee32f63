"""The computation of one head as a column of steps: each with its formula, its numbers and one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from attnviz.errors import ShapeError, SupportError
from attnviz.layers import ComputedLayer, LayerAttention, Projection
from attnviz.rules import EVERY, Index, ScoreRule, cells, picked, positions
from attnviz.trace import AttentionTrace

Kind = Literal["vectors", "scores", "weights"]
Labels = tuple[str, ...]

SOFTMAX = r"A_{ij} = \frac{e^{S_{ij}}}{\sum_{j'} e^{S_{ij'}}}"
CLOSE = 1e-6
"""How far a scaling may be from 1/√d_k, or from 1, as a share, and still be called that: float32's rounding."""


@dataclass(frozen=True, eq=False)
class Factor:
    """What a step takes in that no earlier step gives: a projection, its bias, positions, a mask, a bias of scores.

    Attributes:
        symbol: LaTeX, as in the step's formula.
        matrix: [row, column]; of a projection the part that this head reads.
        row_labels: what stands at each row.
        column_labels: what stands at each column.
        edit: the name under which its cells may be edited, as in `attnviz.edits.MATRICES`; empty for none.
        first_column: the column of the whole matrix that is the first here.
    """

    symbol: str
    matrix: Tensor
    row_labels: Labels
    column_labels: Labels
    edit: str = ""
    first_column: int = 0


@dataclass(frozen=True, eq=False)
class Step:
    """One equation with its numbers.

    Attributes:
        key: what the step is called in code, such as "queries"; each once in a list of steps.
        title: what a person reads above it.
        formula: LaTeX without dollar signs.
        symbols: (symbol in LaTeX, shape in words such as "5 × 2", or its value) of everything in the formula.
        sentence: what the step does.
        matrix: float32 [row, column], what it gives; after the mask −∞ where a cell is not allowed.
        row_labels: what stands at each row.
        column_labels: what stands at each column.
        kind: "vectors" [token, dimension], "scores" or "weights", both [query, key].
        allowed: bool [query, key] where the step knows a mask, None otherwise.
        note: what is particular to this layer; empty for nothing.
        factors: what it takes in that no earlier step gives.
        edit: the name under which the cells of its own matrix may be edited; empty for none.
    """

    key: str
    title: str
    formula: str
    symbols: tuple[tuple[str, str], ...]
    sentence: str
    matrix: Tensor
    row_labels: Labels
    column_labels: Labels
    kind: Kind
    allowed: Tensor | None = None
    note: str = ""
    factors: tuple[Factor, ...] = ()
    edit: str = ""


def steps(
    trace: AttentionTrace,
    layer: int,
    head: int,
    role: str | None = None,
    *,
    rows: Index = EVERY,
    matrices: Mapping[str, Tensor] | None = None,
) -> list[Step]:
    """Return the steps from the vectors to the output, with the numbers of one head.

    Which steps there are is the layer's own: division, soft-cap, bias, mask and sink appear where it has them, the
    concatenation where there are several heads, W^O where it is known. A model's steps begin with Q, K and V.

    Args:
        trace: of a module or a model.
        layer: the layer's number.
        head: the head's number.
        role: the role, where there is more than one.
        rows: the query tokens whose rows are given, from Q on; all where left out. Keys are always all there.
        matrices: of a module, what `attnviz.experiment.Outcome.matrices` holds: the steps then begin with X, show the
            projections, and name what may be edited. Without it a module's steps begin with Q, K and V as well.

    Returns:
        The steps in the order of the computation. Of a layer known by its weights alone (the fallback, or a view of a
        trace) these, with the reason as their note, and the head's output where its values are known.

    Raises:
        OptionError: there is no such layer, head or row.
        ShapeError: the matrices are of another module or text than the trace.
    """
    place = trace.layer(layer, role)
    head = place.checked(head)
    context = _Context(trace, place, head, rows, matrices or {})
    if not isinstance(place, ComputedLayer):
        return _of_weights_alone(context)
    found = [*_vectors(context), *_projections(context), *_scores(context, place)]
    return [*found, *_weights(context), *_outputs(context)]


@dataclass(frozen=True, eq=False)
class _Context:
    """What every step is made of."""

    trace: AttentionTrace
    place: LayerAttention
    head: int
    rows: Index
    matrices: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        """Check that the matrices belong to the trace."""
        names = [("x", self.trace.inputs), ("context", self.trace.key_inputs)]
        for name, vectors in names:
            given = self.matrices.get(name)
            if given is not None and (vectors is None or given.shape != vectors.shape):
                got = None if vectors is None else list(vectors.shape)
                raise ShapeError(f"Expected matrices of this trace, got {name} {list(given.shape)} for {got}.")

    @property
    def is_module(self) -> bool:
        return self.trace.support.how == "module"

    @property
    def heads(self) -> int:
        return self.place.shape[0]

    @property
    def crosses(self) -> bool:
        return self.place.role == "cross"

    @property
    def queries(self) -> Labels:
        labels = self.trace.query_tokens(self.place.role).labels
        return tuple(labels[at] for at in positions(self.rows, len(labels)).tolist())

    @property
    def keys(self) -> Labels:
        return self.trace.key_tokens(self.place.role).labels

    @property
    def index(self) -> str:
        """The head as a subscript, where there are several."""
        return f"_{{{self.head}}}" if self.heads > 1 else ""

    def of(self, symbol: str) -> str:
        """Return a symbol with the head's number."""
        return f"{symbol}{self.index}"

    @property
    def inputs(self) -> tuple[str, str]:
        """The symbols of the vectors that attend and of those attended to."""
        return (r"X_{\text{dec}}", r"X_{\text{enc}}") if self.crosses else ("X", "X")

    @property
    def which(self) -> str:
        return f"head {self.head}" if self.heads > 1 else "the only head"

    @property
    def allowed(self) -> Tensor | None:
        """Which of the rows' cells this head may attend to, None where nothing forbids any."""
        if not self.place.rule.restricts:
            return None
        return self.place.allowed(self.rows, head=self.head)

    def weights(self, head: int) -> Tensor:
        return self.place.weights(head, self.rows)

    def head_output(self, head: int) -> Tensor:
        if isinstance(self.rows, slice) and self.rows == EVERY:
            return self.trace.head_output(self.place.layer, head, self.place.role)
        if not isinstance(self.place, ComputedLayer):
            return picked(self.trace.head_output(self.place.layer, head, self.place.role), self.rows, 0)
        return self.weights(head) @ self.trace.values(self.place.layer, head, self.place.role)


def _vectors(context: _Context) -> Iterable[Step]:
    """Yield X, and of cross-attention both of them, each with its positions where there are some."""
    sides = [("x", context.inputs[0], context.trace.inputs, context.trace.query_tokens(context.place.role).labels)]
    if context.crosses:
        sides.append(("context", context.inputs[1], context.trace.key_inputs, context.keys))
    for name, symbol, vectors, labels in sides:
        if name in context.matrices and vectors is not None:
            yield from _vectors_of(context, name, symbol, vectors, labels)


def _vectors_of(context: _Context, name: str, symbol: str, vectors: Tensor, labels: Labels) -> Iterable[Step]:
    """Yield the vectors of one text: as they are, or without positions and then with them."""
    which = {"x": "that attends", "context": "attended to"}[name] if context.crosses else "of the text"
    placed = context.matrices.get("positions")
    words = symbol if placed is None else symbol.replace("X", "E")
    yield _step(
        "context" if name == "context" else "inputs",
        "Vectors" if not context.crosses else f"Vectors of the text {which}",
        words,
        f"Each token {which} is a vector: one row of numbers.",
        context.matrices[name],
        labels,
        symbols={words: context.matrices[name]},
        edit=name,
    )
    if placed is not None:
        table = Factor("P", placed[: len(vectors)], labels, _numbers(vectors.shape[1]))
        yield _step(
            "placed_context" if name == "context" else "placed_inputs",
            "Positions added",
            f"{symbol} = {words} + P",
            "Sines and cosines of the position are added, so that the same word at another place has another vector.",
            vectors,
            labels,
            symbols={symbol: vectors, words: context.matrices[name], "P": table.matrix},
            factors=(table,),
        )


def _projections(context: _Context) -> Iterable[Step]:
    """Yield Q, K and V of the head."""
    trace, where = context.trace, (context.place.layer, context.head, context.place.role)
    sides = (
        ("q", "queries", "Q", picked(trace.queries(*where), context.rows, 0), context.queries, context.inputs[0]),
        ("k", "keys", "K", trace.keys(*where), context.keys, context.inputs[1]),
        ("v", "values", "V", trace.values(*where), context.keys, context.inputs[1]),
    )
    for name, key, symbol, matrix, labels, inputs in sides:
        factors = _columns_of(context, name, symbol, matrix.shape[1])
        parts = {factor.symbol: factor.matrix for factor in factors}
        vectors = trace.key_inputs if inputs == r"X_{\text{enc}}" else trace.inputs
        given = {} if vectors is None or not factors else {inputs: vectors}
        yield _step(
            key,
            key.capitalize(),
            " = ".join([context.of(symbol), *([f"{inputs} {' + '.join(parts)}"] if factors else [])]),
            _PROJECTED[key] + (f" Computed from the vectors by {context.which}." if factors else _AS_COMPUTED[key]),
            matrix,
            labels,
            symbols={context.of(symbol): matrix, **given, **parts},
            factors=factors,
            note=_group_words(context) if name in "kv" else "",
        )


_PROJECTED = {
    "queries": "What is compared with the keys, one row for each token that attends.",
    "keys": "What the queries are compared with, one row for each token attended to.",
    "values": "What is added up, one row for each token attended to.",
}
_AS_COMPUTED = {
    "queries": " As the layer computed them, after rotary embedding where the model has one.",
    "keys": " As the layer computed them, after rotary embedding where the model has one.",
    "values": " As the layer computed them.",
}


def _columns_of(context: _Context, name: str, symbol: str, width: int) -> tuple[Factor, ...]:
    """Return the head's columns of W and of b, where they are known."""
    if name not in context.matrices:
        return ()
    weight, bias = context.matrices[name], context.matrices[f"b{name}"]
    if weight.shape[1] != context.heads * width:
        raise ShapeError(f"Expected {context.heads} heads of {width} columns in {name}, got {list(weight.shape)}.")
    first = context.head * width
    part, rows, columns = slice(first, first + width), _numbers(len(weight)), _numbers(width)
    of_weight, of_bias = (context.of(f"{letter}^{symbol}") for letter in "Wb")
    return (
        Factor(of_weight, weight[:, part], rows, columns, name, first),
        Factor(of_bias, bias[:, part], ("bias",), columns, f"b{name}", first),
    )


def _group_words(context: _Context) -> str:
    """Return which other heads read the same keys and values, empty for none."""
    size = context.place.group
    if size == 1:
        return ""
    first = context.head // size * size
    return f"Grouped queries: heads {first} to {first + size - 1} read the same keys and values."


def _scores(context: _Context, place: ComputedLayer) -> Iterable[Step]:
    """Yield the products and what becomes of them before the softmax."""
    rule, query, key = place.rule, context.of("Q"), context.of("K")
    width, products = place.query.shape[2], place.scores(context.head, context.rows, scaled=False)
    unscaled = _is(rule.scaling, 1)
    yield _map(
        context,
        "products",
        "Products of queries and keys",
        f"{'S = ' if unscaled else ''}{query} {key}^{{\\top}}",
        "Each query times each key, dimension by dimension, added up: large where the two point the same way.",
        products,
        symbols={query: (len(products), width), key: (products.shape[1], width)},
        note="This layer does not divide by √d_k." if unscaled and width > 1 else "",
    )
    logits = products.double()
    for change in filter(None, (_scaled(context, width), _capped(rule), _biased(context))):
        logits = change.of(logits)
        yield _map(
            context,
            change.key,
            change.title,
            change.formula,
            change.sentence,
            logits.float(),
            symbols={change.formula.split(" = ")[0]: tuple(logits.shape), **change.symbols},
            factors=_tables(context, change),
        )
    allowed = context.allowed
    editable = "mask" in context.matrices
    if allowed is not None or editable:
        shown = torch.ones(products.shape, dtype=torch.bool) if allowed is None else allowed
        yield _map(
            context,
            "masked",
            "Mask",
            r"S_{ij} = -\infty \ \text{where } M_{ij} = 0",
            f"A cell that is not allowed has no score: its weight will be 0. {_mask_words(rule, allowed)}",
            logits.float().masked_fill(~shown, -torch.inf),
            symbols={"S": tuple(products.shape), "M": tuple(products.shape)},
            factors=(Factor("M", shown, context.queries, context.keys, "mask" if editable else ""),),
            note=_empty_words(shown),
        )


def _tables(context: _Context, change: _Change) -> tuple[Factor, ...]:
    """Return the tables that a change takes in."""
    tables = [(symbol, table) for symbol, table in change.symbols.items() if isinstance(table, Tensor)]
    return tuple(Factor(symbol, table, context.queries, context.keys) for symbol, table in tables)


class _Change(NamedTuple):
    """What is done to every score; `ScoreRule.logits` says in which order: softcap(q·k · scaling) + bias."""

    key: str
    title: str
    formula: str
    sentence: str
    symbols: Mapping[str, str | Tensor]
    of: Callable[[Tensor], Tensor]


def _scaled(context: _Context, width: int) -> _Change | None:
    """Return the division by √d_k, or the layer's own factor; None for a factor of 1."""
    factor, products = context.place.rule.scaling, f"{context.of('Q')} {context.of('K')}^{{\\top}}"
    if _is(factor, 1):
        return None
    if _is(factor, width**-0.5):
        title, formula = "Division by √d_k", rf"S = \frac{{{products}}}{{\sqrt{{d_k}}}}"
        sentence = f"Divided by √d_k = √{width}, so that scores do not grow with the number of dimensions."
        symbols = {"d_k": str(width)}
    else:
        title, formula = "Scaling", rf"S = c \cdot {products}"
        sentence = f"Times this layer's own factor, {factor:.6g}; 1/√d_k would be {width**-0.5:.6g}."
        symbols = {"c": f"{factor:.6g}"}
    return _Change("scaled", title, formula, sentence, symbols, lambda scores: scores * factor)


def _capped(rule: ScoreRule) -> _Change | None:
    """Return the soft-cap, where the layer has one."""
    if rule.softcap is None:
        return None
    cap, formula = rule.softcap, r"S' = c \cdot \tanh(S / c)"
    sentence = f"Bent so that no score is beyond ±{cap:.6g}."
    return _Change(
        "capped", "Soft-cap", formula, sentence, {"c": f"{cap:.6g}"}, lambda scores: (scores / cap).tanh() * cap
    )


def _biased(context: _Context) -> _Change | None:
    """Return the bias of scores, where the layer has one."""
    bias = context.place.rule.bias
    if bias is None:
        return None
    own = bias if bias.dim() == 2 else bias[context.head if len(bias) > 1 else 0]  # noqa: PLR2004
    table = cells(own, context.rows, EVERY).float().cpu()
    sentence = "The layer's own bias is added to each score, such as one for the distance between the two tokens."
    return _Change("biased", "Bias", "S' = S + B", sentence, {"B": table}, lambda scores: scores + table)


def _mask_words(rule: ScoreRule, allowed: Tensor | None) -> str:
    """Return what the mask forbids here."""
    if allowed is None or bool(allowed.all()):
        return "Here every cell is allowed."
    words = []
    if rule.causal:
        words.append("no key later than the query")
    if rule.window is not None:
        words.append(f"only keys fewer than {rule.window} positions away (a window)")
    if rule.mask is not None:
        words.append("a mask cell by cell")
    return f"Here: {'; '.join(words)}."


def _empty_words(allowed: Tensor) -> str:
    """Return how many rows may attend to nothing, empty for none."""
    empty = int((~allowed.any(1)).sum())
    if not empty:
        return ""
    return f"{empty} {'row has' if empty == 1 else 'rows have'} no allowed cell: all its weights are 0."


def _weights(context: _Context) -> Iterable[Step]:
    """Yield the softmax, and what a sink takes of it."""
    weights, sink, formula = context.weights(context.head), context.place.rule.sink, SOFTMAX
    sentence = "Each row becomes shares of 1: e to the power of each score, divided by the sum of the row."
    if sink is not None:
        formula = r"A_{ij} = \frac{e^{S_{ij}}}{e^{z_{i}} + \sum_{j'} e^{S_{ij'}}}"
        sentence += " A sink z, one more score that belongs to no key, takes its share too."
    shape = tuple(weights.shape)
    yield _map(context, "weights", "Softmax", formula, sentence, weights, symbols={"A": shape, "S": shape},
               factors=() if sink is None else (_sink(context, sink),), kind="weights")  # fmt: skip
    if sink is not None:
        share = (1 - weights.double().sum(1, keepdim=True)).clamp(0, 1).float()
        yield _step(
            "sink",
            "What the sink takes",
            r"a_{i} = 1 - \sum_{j} A_{ij}",
            "This part of each row goes to no token: nothing is handed on for it.",
            share,
            context.queries,
            columns=("sink",),
            symbols={"a": share},
            kind="weights",
        )


def _sink(context: _Context, sink: Tensor) -> Factor:
    """Return the logit of the sink, one for each row."""
    logits = sink[context.head].float().cpu().expand(context.place.shape[1])
    return Factor("z", picked(logits, context.rows, 0)[:, None], context.queries, ("sink",))


def _outputs(context: _Context) -> Iterable[Step]:
    """Yield the head's output, the heads side by side, and what W^O makes of them."""
    projection = _whole(context.place)
    yield _head_output(context, "" if projection is not None or context.heads > 1 else _no_projection(context))
    concatenated = torch.cat([context.head_output(head) for head in range(context.heads)], dim=1)
    width = concatenated.shape[1] // context.heads
    columns = tuple(f"head {at // width} · {at % width}" for at in range(concatenated.shape[1]))
    if context.heads > 1:
        yield _step(
            "concatenated",
            "Heads side by side",
            f"O = [{_listed(context.heads)}]",
            f"The outputs of all {context.heads} heads are put side by side; head {context.head} has columns "
            f"{context.head * width} to {(context.head + 1) * width - 1}.",
            concatenated,
            context.queries,
            columns=columns,
            symbols={"O": concatenated, context.of("O"): (len(concatenated), width)},
            note="" if projection is not None else _no_projection(context),
        )
    if projection is not None:
        yield _projected(context, projection, concatenated, columns)


def _listed(heads: int) -> str:
    """Return the symbols of all heads' outputs, the middle ones left out where they are many."""
    symbols = [f"O_{{{head}}}" for head in range(heads)]
    return ", ".join(symbols if heads <= 4 else [*symbols[:2], r"\dots", symbols[-1]])  # noqa: PLR2004


def _whole(place: LayerAttention) -> Projection | None:
    """Return W^O where it is known and takes all heads."""
    projection = place.projection
    if projection is None or not isinstance(place, ComputedLayer):
        return None
    return projection if projection.weight.shape[1] == place.shape[0] * place.value.shape[2] else None


def _no_projection(context: _Context) -> str:
    if context.is_module:
        return "This module has no W^O: this is its output."
    return "The output projection W^O of this layer is not known."


def _head_output(context: _Context, note: str = "") -> Step:
    output = context.head_output(context.head)
    symbol, value = context.of("O"), context.of("V")
    return _step(
        "head_output",
        "Weights times values",
        f"{symbol} = A {value}",
        "Each row is the sum of all values, each as much as its weight says.",
        output,
        context.queries,
        symbols={symbol: output, "A": context.weights(context.head).shape, value: (len(context.keys), output.shape[1])},
        note=note,
    )


def _projected(context: _Context, projection: Projection, concatenated: Tensor, columns: Labels) -> Step:
    """Return what leaves the layer's attention, float32 [query, d_model]."""
    weight = projection.weight.detach().float().cpu().T
    known = "o" in context.matrices
    outgoing = _numbers(weight.shape[1])
    factors = [Factor("W^O", weight, columns, outgoing, "o" if known else "")]
    if projection.bias is not None:
        bias = projection.bias.detach().float().cpu()[None]
        factors.append(Factor("b^O", bias, ("bias",), outgoing, "bo" if known else ""))
    output = torch.nn.functional.linear(concatenated, weight.T, factors[1].matrix[0] if len(factors) > 1 else None)
    parts = {factor.symbol: factor.matrix for factor in factors}
    symbol = "O" if context.heads > 1 else context.of("O")
    return _step(
        "output",
        "Output",
        f"Y = {symbol} {' + '.join(parts)}",
        "W^O mixes the heads into one vector for each token."
        + ("" if context.is_module else " The model then adds it to the vectors that came in."),
        output,
        context.queries,
        symbols={"Y": output, symbol: concatenated, **parts},
        factors=tuple(factors),
    )


def _of_weights_alone(context: _Context) -> list[Step]:
    """Return the weights with the reason why there is no more, and the output where the values are known."""
    try:
        context.trace.queries(context.place.layer, context.head, context.place.role)
        reason = ""
    except SupportError as error:
        reason = str(error)
    weights = context.weights(context.head)
    shape = tuple(weights.shape)
    sentence = "Each row is shares of 1, which the softmax made of scores."
    found = [
        _map(context, "weights", "Weights", SOFTMAX, sentence, weights, symbols={"A": shape}, note=reason,
             kind="weights")
    ]  # fmt: skip
    with suppress(SupportError):
        found.append(_head_output(context))
    return found


def _map(
    context: _Context,
    key: str,
    title: str,
    formula: str,
    sentence: str,
    matrix: Tensor,
    *,
    symbols: Mapping[str, str | Tensor | tuple[int, ...]],
    factors: tuple[Factor, ...] = (),
    note: str = "",
    kind: Kind = "scores",
) -> Step:
    """Return a step whose matrix is [query, key]; the mask goes with it from where it is applied."""
    return _step(
        key, title, formula, sentence, matrix, context.queries, columns=context.keys, symbols=symbols,
        factors=factors, note=note, kind=kind, allowed=context.allowed if key in ("masked", "weights") else None,
    )  # fmt: skip


def _step(
    key: str,
    title: str,
    formula: str,
    sentence: str,
    matrix: Tensor,
    rows: Sequence[str],
    *,
    symbols: Mapping[str, str | Tensor | tuple[int, ...]],
    columns: Sequence[str] | None = None,
    kind: Kind = "vectors",
    allowed: Tensor | None = None,
    note: str = "",
    factors: tuple[Factor, ...] = (),
    edit: str = "",
) -> Step:
    """Return a step; its columns are numbered where they have no names."""
    named = tuple((symbol, _shape_words(what)) for symbol, what in symbols.items())
    labels = _numbers(matrix.shape[1]) if columns is None else tuple(columns)
    return Step(key, title, formula, named, sentence, matrix, tuple(rows), labels, kind, allowed, note, factors, edit)


def _shape_words(what: str | Tensor | tuple[int, ...]) -> str:
    """Return "5 × 2" of a matrix or a shape; a value in words as it is."""
    return what if isinstance(what, str) else " × ".join(map(str, what.shape if isinstance(what, Tensor) else what))


def _numbers(count: int) -> Labels:
    return tuple(map(str, range(count)))


def _is(factor: float, expected: float) -> bool:
    return math.isclose(factor, expected, rel_tol=CLOSE)
