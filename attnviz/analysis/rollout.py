"""Attention beyond one head: means over heads, rollout and flow through the layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnviz.errors import OptionError, SupportError
from attnviz.layers import LayerAttention
from attnviz.trace import AttentionTrace

UNIT = 1 << 20
"""Capacities of a flow are whole numbers of 1/UNIT, about a millionth."""

MOST_EDGES = 100_000
"""Edges, layers × tokens², of the largest network through which a flow is sought."""

HeadWeights = Mapping[tuple[int, int], float]
"""What each (layer, head) counts in a mean, 0 or more; one that is not there counts 0."""


class Rollout(NamedTuple):
    """How much of each token of the input is in each token of the last layer, as attention alone tells it."""

    matrix: Tensor  # float32 [query, key], 0 to 1; rows sum to 1, for the role "cross" together with those of `own`
    sentence: str  # what the matrix shows
    own: Tensor | None = None  # for the role "cross": float32 [query, query], what stays with the decoder's own tokens


def mean_weights(
    trace: AttentionTrace,
    role: str | None = None,
    *,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    head_weights: HeadWeights | None = None,
) -> Tensor:
    """Return the mean of the weights over heads, float32 [query, key] in 0 to 1; NaN where none of them may attend.

    A head whose own mask forbids a cell gives 0 there.

    Args:
        trace: what was traced.
        role: the role, where there is more than one.
        layers: the layers; all of the role where left out.
        heads: the heads of each of these layers; all where left out.
        head_weights: what each head counts; the same for all where left out.

    Raises:
        OptionError: a layer or head is not there, a head's weight is negative, or no head counts.
    """
    role = trace.role(role)
    counts = _head_counts(trace, role, layers, heads, head_weights)
    total = torch.zeros(len(trace.query_tokens(role)), len(trace.key_tokens(role)))
    allowed = torch.zeros(total.shape, dtype=torch.bool)
    for number, count in counts.items():
        if count.any():
            layer = trace.layer(number, role)
            total += _weighted_sum(layer, count)
            allowed |= _allowed_in_any(layer, count)
    return total.div_(sum(float(count.sum()) for count in counts.values())).masked_fill_(~allowed, torch.nan)


def rollout(
    trace: AttentionTrace,
    role: str | None = None,
    *,
    layers: Iterable[int] | None = None,
    head_weights: HeadWeights | None = None,
) -> Rollout:
    """Return attention rollout (Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3.1).

    With Ā the mean of a layer's weights over its heads, a layer is Â = ½Ā + ½I, its rows divided by their sums, which
    are 1 unless a row gives weight to an attention sink or may attend to nothing. The ½I stands for the residual
    connection. From the first layer that attends to the last, R ← Â R, starting at R = I.

    The role "cross" follows a decoder to the encoder's tokens, with two tables: R_dd onto the decoder's own inputs,
    starting at I, and R_de onto the encoder's, starting at 0. R_ee is the encoder's rollout through all its layers, I
    where it was not traced. Each decoder layer does
        self-attention    R_dd ← Â R_dd,   R_de ← Â R_de
        cross-attention   R_dd ← ½R_dd,    R_de ← ½R_de + ½ C̄ R_ee
    with C̄ the mean of the cross-attention over its heads. Where rows of C̄ sum to s < 1, both are divided by ½ + ½s. So
    rows of [R_dd, R_de] sum to 1 after each step.

    Args:
        trace: what was traced.
        role: the role, where there is more than one. "decoder" is the decoder's self-attention alone.
        layers: the layers to go through; all that attend where left out. For "cross", those of the decoder.
        head_weights: what each head of the role counts in Ā (for "cross", in C̄); the same for all where left out. A
            layer of which no head counts is passed by its residual connection alone.

    Raises:
        OptionError: a layer or head is not there, a head's weight is negative, or no head counts.
        SupportError: queries and keys are not the same tokens, as where earlier ones are cached.
    """
    role = trace.role(role)
    if role == "cross":
        return _cross_rollout(trace, layers, head_weights)
    counts = _head_counts(trace, role, layers, head_weights=head_weights)
    said = [_said(role, counts), *_also_said(trace, {role: counts}, is_weighted=head_weights is not None)]
    return Rollout(_roll(trace, role, counts), " ".join(said))


def flow(trace: AttentionTrace, query: int, role: str | None = None, *, layers: Iterable[int] | None = None) -> Tensor:
    """Return attention flow (Abnar and Zuidema 2020, section 3.2) from one token of the last layer to the input.

    The network has a node per token and layer and one per token of the input; an edge from a token to one of the layer
    below has the capacity Â of `rollout`. The flow to each token of the input is sought by itself.

    Args:
        trace: what was traced.
        query: the position of the token.
        role: "encoder" or "decoder", where there is more than one.
        layers: the layers to go through; all that attend where left out.

    Returns:
        float32 [key], the maximum flow, 0 to 1; the sum may be above 1. Capacities are rounded to multiples of 2⁻²⁰,
        so a flow is off by at most 2⁻²¹ for each edge of its smallest cut.

    Raises:
        OptionError: the token or a layer is not there, or the network has more than `MOST_EDGES` edges.
        SupportError: queries and keys are not the same tokens.
    """
    from scipy.sparse.csgraph import maximum_flow

    role = trace.role(role)
    counts, tokens = _head_counts(trace, role, layers), len(trace.query_tokens(role))
    if not 0 <= query < tokens:
        raise OptionError(f"Expected a query of 0 to {tokens - 1}, got {query}.")
    if len(counts) * tokens**2 > MOST_EDGES:
        raise OptionError(
            f"Flow through {len(counts)} layers of {tokens} tokens takes {len(counts) * tokens**2:,} edges, more than "
            f"the {MOST_EDGES:,} that are quick to solve. Choose a shorter text, fewer layers, or rollout."
        )
    network = _network([_residual_layer(trace, role, number, count) for number, count in counts.items()])
    source = len(counts) * tokens + query
    return torch.tensor([maximum_flow(network, source, key).flow_value / UNIT for key in range(tokens)])


def _network(steps: Sequence[Tensor]) -> Any:
    """Return the capacities between nodes as a sparse array; node l·tokens + t is token t after l layers."""
    from scipy.sparse import csr_array

    tokens = len(steps[0])
    capacities = torch.stack(list(steps)).mul(UNIT).round().int()  # [layer, query, key]
    layer, query, key = capacities.nonzero(as_tuple=True)
    nodes = (((layer + 1) * tokens + query).int().numpy(), (layer * tokens + key).int().numpy())
    size = (len(steps) + 1) * tokens
    return csr_array((capacities[layer, query, key].numpy(), nodes), shape=(size, size))


def _cross_rollout(trace: AttentionTrace, layers: Iterable[int] | None, head_weights: HeadWeights | None) -> Rollout:
    """Return the rollout of a decoder onto the encoder's tokens."""
    own_layers, cross_layers = trace.layers("decoder") if "decoder" in trace.roles else (), trace.layers("cross")
    chosen = sorted({*own_layers, *cross_layers} if layers is None else set(layers))
    crossing = [number for number in chosen if number in cross_layers or number not in own_layers]
    cross_counts = _head_counts(trace, "cross", crossing, head_weights=head_weights)
    own_chosen = [number for number in chosen if number in own_layers]
    own_counts = _head_counts(trace, "decoder", own_chosen) if own_chosen else {}
    encoder = _encoder_rollout(trace)
    own = torch.eye(len(trace.query_tokens("cross")))
    matrix = torch.zeros(len(own), len(trace.key_tokens("cross")))
    for number in chosen:
        if number in own_counts:
            step = _residual_layer(trace, "decoder", number, own_counts[number])
            own, matrix = step @ own, step @ matrix
        if number in cross_counts and cross_counts[number].any():
            mean = _mean_map(trace.layer(number, "cross"), cross_counts[number])
            sums = 1 + mean.sum(-1, keepdim=True)
            own, matrix = own / sums, (matrix + (mean if encoder is None else mean @ encoder)) / sums
    counts = {"decoder": own_counts, "cross": cross_counts}
    if "encoder" in trace.roles:
        counts["encoder"] = _head_counts(trace, "encoder", None)
    said = [_cross_said(counts), *_also_said(trace, counts, is_weighted=head_weights is not None)]
    return Rollout(matrix, " ".join(said), own)


def _encoder_rollout(trace: AttentionTrace) -> Tensor | None:
    """Return the rollout of the tokens attended to, [key, key]; None where it was not traced."""
    if "encoder" not in trace.roles:
        return None
    expected, keys = len(trace.key_tokens("encoder")), len(trace.key_tokens("cross"))
    if keys != expected:
        raise SupportError(
            f"Expected a decoder that attends to the encoder's {expected} tokens, got {keys} keys: its own tokens are "
            "among them. Look at the encoder's rollout, or at single layers."
        )
    return _roll(trace, "encoder", _head_counts(trace, "encoder", None))


def _roll(trace: AttentionTrace, role: str, counts: Mapping[int, Tensor]) -> Tensor:
    """Return the product of the layers of self-attention, the last one leftmost."""
    matrix = None
    for number, count in counts.items():
        step = _residual_layer(trace, role, number, count)
        matrix = step if matrix is None else step @ matrix
    return torch.eye(len(trace.query_tokens(role))) if matrix is None else matrix


def _residual_layer(trace: AttentionTrace, role: str, number: int, count: Tensor) -> Tensor:
    """Return Â = ½Ā + ½I of a layer with rows that sum to 1, float32 [query, key]."""
    layer = trace.layer(number, role)
    if role == "cross" or layer.shape[1] != layer.shape[2]:
        raise SupportError(
            f"Expected a layer whose tokens attend to themselves, got {layer.shape[1]} queries and {layer.shape[2]} "
            f"keys ({role} layer {number}), which cannot be followed through the layers. Choose another role."
        )
    if not count.any():
        return torch.eye(layer.shape[1])
    mean = _mean_map(layer, count)
    mean.diagonal().add_(1)
    return mean.div_(mean.sum(-1, keepdim=True))


def _head_counts(
    trace: AttentionTrace,
    role: str,
    layers: Iterable[int] | None,
    heads: Iterable[int] | None = None,
    head_weights: HeadWeights | None = None,
) -> dict[int, Tensor]:
    """Return what each head counts, float32 [head] per layer, layers rising; OptionError where none counts."""
    numbers = trace.layers(role) if layers is None else sorted(set(layers))
    chosen = None if heads is None else list(heads)
    if head_weights is not None:
        head_weights = {(at, trace.layer(at, role).checked(head)): one for (at, head), one in head_weights.items()}
    counts = {number: _counts_of(trace.layer(number, role), chosen, head_weights) for number in numbers}
    if not any(bool(count.any()) for count in counts.values()):
        raise OptionError("Expected at least one head that counts, got none. Choose a head.")
    return counts


def _counts_of(layer: LayerAttention, heads: list[int] | None, head_weights: HeadWeights | None) -> Tensor:
    """Return what each head of a layer counts, float32 [head]."""
    counts = torch.zeros(layer.shape[0])
    for head in range(layer.shape[0]) if heads is None else map(layer.checked, heads):
        counts[head] = 1.0 if head_weights is None else head_weights.get((layer.layer, head), 0.0)
    if not bool((counts >= 0).all() and counts.isfinite().all()):
        raise OptionError(
            f"Expected heads to count 0 or more, got {[round(count, 6) for count in counts.tolist()]} "
            f"in layer {layer.layer} ({layer.role})."
        )
    return counts


def _mean_map(layer: LayerAttention, counts: Tensor) -> Tensor:
    """Return the mean of a layer's weights over its heads, float32 [query, key]; 0 where not allowed."""
    return _weighted_sum(layer, counts / counts.sum())


def _weighted_sum(layer: LayerAttention, counts: Tensor) -> Tensor:
    """Return the sum of count · weights over the heads of a layer: those of all block by block, some one by one."""
    total = torch.zeros(layer.shape[1:])
    if counts.all():
        for block in layer.blocks():
            total[block.rows, block.columns] = torch.tensordot(counts.to(block.weights), block.weights, 1).cpu()
    else:
        for head in counts.nonzero().flatten().tolist():
            total.add_(layer.weights(head), alpha=float(counts[head]))
    return total


def _allowed_in_any(layer: LayerAttention, counts: Tensor) -> Tensor:
    """Return which cells any head that counts may attend, bool [query, key]."""
    if counts.all():
        return layer.allowed()
    heads = counts.nonzero().flatten().tolist()
    return torch.stack([layer.allowed(head=head) for head in heads]).any(0)


def _said(role: str, counts: Mapping[int, Tensor]) -> str:
    """Return what a rollout within one sequence shows."""
    return (
        f"Rollout through the {role}'s {_numbers(counts)}: in each, half the mean over its heads and half the token "
        "itself, multiplied from the first layer to the last."
    )


def _cross_said(counts: Mapping[str, Mapping[int, Tensor]]) -> str:
    """Return what a rollout from a decoder onto an encoder shows."""
    steps = "self- and cross-attention" if counts["decoder"] else "cross-attention"
    after = "after the encoder's own rollout" if "encoder" in counts else "whose own layers are not in this trace"
    return (
        f"Rollout through the decoder's {_numbers({**counts['decoder'], **counts['cross']})} ({steps}) onto the "
        f"encoder's tokens, {after}: in each step half the mean over heads and half the token itself. What a row lacks "
        "of 1 stays with the decoder's own tokens."
    )


def _also_said(trace: AttentionTrace, counts: Mapping[str, Mapping[int, Tensor]], *, is_weighted: bool) -> list[str]:
    """Return what is special about a rollout, a sentence each.

    Args:
        trace: what was traced.
        counts: per role, what the heads of each layer count.
        is_weighted: whether heads count differently.
    """
    layers = [trace.layer(number, role) for role, numbers in counts.items() for number in numbers]
    words = []
    if is_weighted:
        words.append("Heads count by their weights; where none of a layer counts, the token passes as it is.")
    if any(layer.rule.sink is not None for layer in layers):
        words.append("What rows give to attention sinks is left out: rows are divided by what they give to tokens.")
    if any(_has_gaps(trace.layers(role)) for role in counts if counts[role]):
        words.append("Layers that do not attend, or are not in this trace, are passed over.")
    return words


def _has_gaps(numbers: Sequence[int]) -> bool:
    return list(numbers) != list(range(numbers[0], numbers[0] + len(numbers)))


def _numbers(layers: Iterable[int]) -> str:
    """Return layers in words: "layer 3", "layers 0 to 5", "layers 1, 4"."""
    numbers = sorted(layers)
    if len(numbers) == 1:
        return f"layer {numbers[0]}"
    return f"layers {', '.join(map(str, numbers)) if _has_gaps(numbers) else f'{numbers[0]} to {numbers[-1]}'}"
