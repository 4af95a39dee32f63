"""How much of a head's weight lies on a pattern: the token before, an earlier occurrence, punctuation, and the like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from attnviz.layers import Block, ComputedLayer, LayerAttention, precise
from attnviz.statistics import STATISTICS, summarize
from attnviz.trace import AttentionTrace
from attnviz.workers import each

if TYPE_CHECKING:
    import pandas as pd

SHARE = "0 to 1"


class Pattern(NamedTuple):
    """What a score says: for a heading, a help text and a reference.

    Attributes:
        title: what a person reads above the column.
        definition: one sentence.
        range: the numbers it can take.
        source: where the pattern comes from.
        statistic: the column of `AttentionTrace.statistics` that it is; empty where it is worked out here.
    """

    title: str
    definition: str
    range: str
    source: str
    statistic: str = ""


CIRCUITS = "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits"
INDUCTION = "Olsson et al. 2022, In-context Learning and Induction Heads"
INDIRECT_OBJECTS = "Wang et al. 2023, Interpretability in the Wild"
BERT_LOOKS = "Clark et al. 2019, What Does BERT Look At?, section 3"
STREAMING = "Xiao et al. 2024, Efficient Streaming Language Models with Attention Sinks"

PATTERNS = {
    "previous_token": Pattern(
        "Previous token",
        "Mean weight on the key one before the query, over the queries that have one.",
        SHARE,
        f"{CIRCUITS}; Voita et al. 2019, Analyzing Multi-Head Self-Attention",
        "previous_weight",
    ),
    "duplicate_token": Pattern(
        "Duplicate token",
        "Mean weight on the other occurrences of the query's token that it may attend to, under a causal mask the "
        "earlier ones, over the queries that have any; special tokens are left out.",
        SHARE,
        INDIRECT_OBJECTS,
    ),
    "induction": Pattern(
        "Induction",
        "Mean weight on the tokens that follow the other occurrences of the query's token, under a causal mask the "
        "earlier ones, over the queries that may attend to any; special tokens and the query itself are left out.",
        SHARE,
        f"{CIRCUITS}; {INDUCTION}",
    ),
    "same_word": Pattern(
        "Same word",
        "Mean weight on the other pieces of the query's word, over the queries that may attend to any.",
        SHARE,
        "attnviz; the words are those of the tokenizer",
    ),
    "punctuation": Pattern(
        "Punctuation",
        "Mean weight on the tokens that hold nothing but punctuation, over the queries that may attend to any.",
        SHARE,
        BERT_LOOKS,
    ),
    "special": Pattern(
        "Special tokens",
        "Mean weight on the tokens that the tokenizer put in, such as [CLS] and [SEP], over all queries.",
        SHARE,
        BERT_LOOKS,
        "special_weight",
    ),
    "first_token": Pattern(
        "First token", "Mean weight on the first key, over all queries.", SHARE, STREAMING, "first_weight"
    ),
}
"""The patterns a head is compared with, by the names of the columns of `patterns`.

A pattern says where weight lies, not what it is for, and says it of one text. The idea of such an overlap is that of
`head_detector` in TransformerLens, whose "mul" measure is the mean over every row. Here a row without a target does
not count: a text in which little repeats could never score high on what repeats, however well the head follows it.

Tokens are the same when their ids are, or their labels where there are no ids: "The" and "the" may differ.
"""

COMPARED = tuple(name for name, pattern in PATTERNS.items() if not pattern.statistic)
"""The patterns that are worked out here, in the order of the rows of targets."""

NOTHING = -1
"""Stands in place of a token's number, or its word's, where nothing is to be equal to it."""


class Baseline(NamedTuple):
    """What a score is to be held against: tables of the same heads and columns as `patterns` gives."""

    uniform: pd.DataFrame  # the score of a head that gives every key it may attend to the same weight
    rows: pd.DataFrame  # how many queries the score is a mean over


def patterns(trace: AttentionTrace, role: str | None = None) -> pd.DataFrame:
    """Return how much of each head's weight lies on each pattern of `PATTERNS`.

    Args:
        trace: the trace to read; the weights are made block by block and never held whole.
        role: the role, where there is more than one.

    Returns:
        A row per head: layer, head, and a float32 column per pattern, 0 to 1. A score is the mean, over the query
        rows that have a target, of the sum of the row's weights on its targets. NaN where no row has one, as for all
        of cross-attention but punctuation, special and first_token. Those that are a statistic count rows as
        `STATISTICS` has it.

    Raises:
        OptionError: the role is absent or must be chosen.
    """
    role = trace.role(role)
    statistics = trace.statistics(role)
    compared = _overlaps([trace.layer(number, role) for number in trace.layers(role)], _Targets.of(trace, role))
    return _table(trace, role, _in_order(compared.values, lambda name: torch.tensor(statistics[name].to_numpy())))


def baseline(trace: AttentionTrace, role: str | None = None) -> Baseline:
    """Return what `patterns` would give for uniform heads under the same masks, and over how many rows.

    A uniform head scores high where a text is short or a query may attend to little: a score says something only by
    how far it is above this. An attention sink takes nothing of a uniform head's weight.

    Args:
        trace: the trace whose masks and tokens count; its weights do not.
        role: the role, where there is more than one.

    Raises:
        OptionError: the role is absent or must be chosen.
    """
    role = trace.role(role)
    targets, special = _Targets.of(trace, role), torch.tensor(trace.key_tokens(role).is_special)
    layers = [trace.layer(number, role) for number in trace.layers(role)]
    unlike = {_visible(layer): layer for layer in layers}
    made = {visible: _uniform_scores(layer, targets, special) for visible, layer in unlike.items()}
    found = [made[_visible(layer)] for layer in layers]
    uniform, rows = (torch.cat(tables) for tables in zip(*found, strict=True))
    return Baseline(_table(trace, role, uniform), _table(trace, role, rows))


class _Scores(NamedTuple):
    """Scores of some heads, and over how many rows each is a mean, for all patterns or those of `COMPARED`."""

    values: Tensor  # float32 [head, pattern], NaN where no row has a target
    rows: Tensor  # int64 [head, pattern], how many rows have one


@dataclass(frozen=True)
class _Targets:
    """Which keys are the targets of a query, for every pattern of `COMPARED`.

    In self-attention a query is the token at its own place among the keys.

    Attributes:
        token: int64 [key], equal for the same tokens; `NOTHING` for special ones.
        token_before: int64 [key], that of the key before; `NOTHING` for the first and for special tokens.
        word: int64 [key], the word a token belongs to; `NOTHING` for special ones.
        punctuation: bool [key].
        crosses: whether queries and keys are two sequences, so that no query is a token among the keys.
    """

    token: Tensor
    token_before: Tensor
    word: Tensor
    punctuation: Tensor
    crosses: bool

    @classmethod
    def of(cls, trace: AttentionTrace, role: str) -> _Targets:
        """Read the tokens that are attended to in a role."""
        tokens = trace.key_tokens(role)
        numbers: dict[int | str, int] = {}
        names = tokens.labels if tokens.ids is None else tokens.ids
        ordinary = torch.tensor([not special for special in tokens.is_special])
        token = torch.tensor([numbers.setdefault(name, len(numbers)) for name in names]).where(ordinary, NOTHING)
        return cls(
            token=token,
            token_before=torch.cat([torch.tensor([NOTHING]), token[:-1]]).where(ordinary, NOTHING),
            word=torch.tensor([NOTHING if word is None else word for word in tokens.words]),
            punctuation=torch.tensor(tokens.is_punctuation),
            crosses=role == "cross",
        )

    def to(self, device: torch.device) -> _Targets:
        """Return the same on a device."""
        names = ("token", "token_before", "word", "punctuation")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    @property
    def any(self) -> bool:
        """Whether any query may have a target at all."""
        known = (numbers[numbers != NOTHING] for numbers in (self.token, self.word))
        repeats = any(len(numbers.unique()) < len(numbers) for numbers in known)
        return bool(self.punctuation.any()) or (repeats and not self.crosses)

    def among(self, places: Tensor, columns: slice) -> Tensor:
        """Return which keys are targets, bool [pattern, row, column], of queries at these places among the keys."""
        size = (len(COMPARED), len(places), columns.stop - columns.start)
        found = torch.zeros(size, dtype=torch.bool, device=places.device)
        found[COMPARED.index("punctuation")] = self.punctuation[columns]
        if self.crosses:
            return found
        keys = torch.arange(columns.start, columns.stop, device=places.device)
        other, follows = keys != places[:, None], keys == places[:, None] + 1
        token, word = self._own(self.token, places), self._own(self.word, places)
        found[COMPARED.index("duplicate_token")] = (self.token[columns] == token) & other
        found[COMPARED.index("induction")] = (self.token_before[columns] == token) & other & ~follows
        found[COMPARED.index("same_word")] = (self.word[columns] == word) & other
        return found

    def _own(self, numbers: Tensor, places: Tensor) -> Tensor:
        """Return a query's own number [row, 1]; one that no key has where it has none."""
        inside = (places >= 0) & (places < len(numbers))
        own = numbers[places.clamp(0, len(numbers) - 1)].where(inside, NOTHING)
        return own.where(own != NOTHING, NOTHING - 1)[:, None]


def _overlaps(layers: list[LayerAttention], targets: _Targets) -> _Scores:
    """Return the scores of all heads of some layers for the patterns of `COMPARED`."""
    if not targets.any:
        shape = (sum(layer.shape[0] for layer in layers), len(COMPARED))
        return _Scores(torch.full(shape, torch.nan), torch.zeros(shape, dtype=torch.int64))
    device = layers[0].tensors[0].device
    parts = each(lambda part: _overlap(part, targets), [part for layer in layers for part in layer.parts()], device)
    return _Scores(*(torch.cat(tables) for tables in zip(*parts, strict=True)))


def _overlap(layer: LayerAttention, targets: _Targets) -> _Scores:
    """Return the scores of a layer whose blocks hold all its heads."""
    device, heads = layer.tensors[0].device, layer.shape[0]
    targets = targets.to(device)
    sums = torch.zeros(heads, len(COMPARED), dtype=precise(device), device=device)
    rows = torch.zeros(heads, len(COMPARED), dtype=torch.int64, device=device)
    for block in layer.blocks():
        if block.columns.start == block.columns.stop:
            continue
        places = torch.arange(block.rows.start, block.rows.stop, device=device) + layer.rule.offset
        wanted = targets.among(places, block.columns)  # [pattern, row, column]
        sums += block.weights.flatten(1) @ wanted.flatten(1).to(block.weights).T
        rows += _rows_with_target(block, wanted)
    return _Scores((sums / rows.where(rows > 0, torch.nan)).float().cpu(), rows.cpu())


def _rows_with_target(block: Block, wanted: Tensor) -> Tensor:
    """Return how many rows of a block may attend to a target, [head or 1, pattern]."""
    if block.allowed is None:
        return wanted.any(-1).sum(-1)[None]
    allowed = block.allowed.reshape(-1, 1, *block.allowed.shape[-2:])  # [head or 1, 1, row, column]
    return (wanted & allowed).any(-1).sum(-1)


def _in_order(compared: Tensor, statistic: Callable[[str], Tensor]) -> Tensor:
    """Return [head, pattern] in the order of `PATTERNS`, from those of `COMPARED` and the statistics [head]."""
    rest = iter(compared.unbind(1))
    return torch.stack([statistic(one.statistic) if one.statistic else next(rest) for one in PATTERNS.values()], 1)


def _table(trace: AttentionTrace, role: str, values: Tensor) -> pd.DataFrame:
    """Return layer, head and the patterns [head, pattern]."""
    import pandas as pd

    places = [(number, head) for number in trace.layers(role) for head in range(trace.heads(number, role))]
    layers, heads = zip(*places, strict=True)
    columns = {name: values[:, at].numpy() for at, name in enumerate(PATTERNS)}
    return pd.DataFrame({"layer": layers, "head": heads, **columns})


def _visible(layer: LayerAttention) -> tuple[Any, ...]:
    """Return what decides which cells of a layer are allowed, equal for equal layers of one model."""
    rule = layer.rule
    return layer.shape, rule.causal, rule.offset, rule.window, id(rule.mask)


def _uniform_scores(layer: LayerAttention, targets: _Targets, special: Tensor) -> _Scores:
    """Return the scores of uniform heads in place of a layer's own, for all patterns."""
    level = _uniform(layer)
    statistics = summarize(level, special=special, size=1).statistics
    compared = _overlaps([level], targets)
    values = _in_order(compared.values, lambda name: statistics[:, STATISTICS.index(name)])
    rows = _in_order(compared.rows, lambda name: _rows_of_statistic(level, name)).where(~values.isnan(), 0)
    every = (layer.shape[0], len(PATTERNS))
    return _Scores(values.expand(every), rows.expand(every))


def _uniform(layer: LayerAttention) -> ComputedLayer:
    """Return a layer under the same mask in which all scores are 0; of one head, where the mask is one for all."""
    heads, queries, keys = layer.shape
    mask = layer.rule.mask
    if mask is None or mask.dim() == 2 or mask.shape[0] == 1:  # noqa: PLR2004
        heads = 1
    device = layer.tensors[0].device
    level = ComputedLayer(
        layer=layer.layer,
        role=layer.role,
        rule=replace(layer.rule, scaling=1.0, bias=None, softcap=None, sink=None),
        query=torch.zeros(heads, queries, 1, device=device),
        key=torch.zeros(heads, keys, 1, device=device),
        value=torch.zeros(heads, keys, 1, device=device),
        logsumexp=torch.zeros(heads, queries, device=device),
    )
    return replace(level, logsumexp=level.sum_exponentials())


def _rows_of_statistic(uniform: ComputedLayer, name: str) -> Tensor:
    """Return how many rows a statistic is a mean over, [head]: those with an allowed key, and with one before."""
    _, queries, keys = uniform.shape
    places = torch.arange(queries) + uniform.rule.offset
    rows = uniform.logsumexp.cpu() > -torch.inf
    if name == "previous_weight":
        rows &= (places > 0) & (places <= keys)
    return rows.sum(-1)
