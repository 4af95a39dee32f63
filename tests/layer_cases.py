"""Layers of every kind of rule, beside what a plain float64 computation, cell by cell, makes of them."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.layers import ComputedLayer
from attnviz.rules import ScoreRule

WIDTH, VALUE_WIDTH = 13, 5


class Case(NamedTuple):
    layer: ComputedLayer
    scores: Tensor  # float64 [head, query, key], before masks
    allowed: Tensor  # bool [head, query, key]
    weights: Tensor  # float64 [head, query, key]
    sink: Tensor  # float64 [head, query], 0 without a sink


def _noise(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _holes(*shape, empty=()):
    mask = _noise(*shape, seed=7) > -0.3
    mask[..., list(empty), :] = False
    return mask


# kind: (query heads, key heads, queries, keys), rule
KINDS = {
    "plain": ((3, 3, 37, 37), lambda h, q, k: {}),
    "unscaled": ((3, 3, 37, 37), lambda h, q, k: {"scaling": 1.0}),
    "one token": ((2, 1, 1, 1), lambda h, q, k: {}),
    "one causal token": ((2, 1, 1, 1), lambda h, q, k: {"causal": True}),
    "grouped": ((6, 2, 37, 37), lambda h, q, k: {}),
    "causal": ((4, 2, 37, 37), lambda h, q, k: {"causal": True}),
    "causal, offset": ((4, 2, 29, 37), lambda h, q, k: {"causal": True, "offset": 8}),
    "causal window": ((4, 2, 37, 37), lambda h, q, k: {"causal": True, "window": 5}),
    "causal window, offset": ((4, 2, 29, 37), lambda h, q, k: {"causal": True, "window": 5, "offset": 8}),
    "window": ((4, 2, 37, 37), lambda h, q, k: {"window": 4}),
    "window of one": ((4, 2, 37, 37), lambda h, q, k: {"window": 1}),
    "window past the keys": ((4, 2, 37, 11), lambda h, q, k: {"window": 3}),
    "mask": ((4, 2, 37, 37), lambda h, q, k: {"mask": _holes(q, k)}),
    "mask with an axis": ((4, 2, 37, 37), lambda h, q, k: {"mask": _holes(1, q, k)}),
    "mask per head": ((4, 2, 37, 37), lambda h, q, k: {"mask": _holes(h, q, k)}),
    "empty rows": ((4, 2, 37, 37), lambda h, q, k: {"mask": _holes(q, k, empty=[0, 5, 36])}),
    "empty rows per head": ((4, 2, 37, 37), lambda h, q, k: {"mask": _triangles(h, q, k)}),
    "nothing allowed": ((4, 2, 37, 37), lambda h, q, k: {"mask": torch.zeros(q, k, dtype=torch.bool)}),
    "causal mask and window": ((4, 2, 37, 37), lambda h, q, k: {"mask": _holes(q, k), "causal": True, "window": 9}),
    "bias": ((4, 2, 37, 37), lambda h, q, k: {"bias": _noise(q, k, seed=4)}),
    "bias per head": ((4, 2, 37, 37), lambda h, q, k: {"bias": _noise(h, q, k, seed=4), "causal": True}),
    "huge negative bias": ((4, 2, 37, 37), lambda h, q, k: {"bias": -1e9 * _holes(q, k).float()}),
    "soft-cap": ((4, 2, 37, 37), lambda h, q, k: {"softcap": 0.7}),
    "soft-cap and bias": ((4, 2, 37, 37), lambda h, q, k: {"softcap": 0.7, "bias": _noise(1, q, k, seed=4)}),
    "sink": ((4, 2, 37, 37), lambda h, q, k: {"sink": _noise(h, seed=6) + 1, "causal": True}),
    "sink and empty rows": (
        (4, 2, 37, 37),
        lambda h, q, k: {"sink": _noise(h, seed=6), "mask": _holes(q, k, empty=[3])},
    ),
    "cross": ((4, 4, 37, 41), lambda h, q, k: {}),
    "cross with empty rows": ((4, 4, 37, 19), lambda h, q, k: {"mask": _holes(q, k, empty=[2, 36])}),
}


def _triangles(heads, queries, keys):
    """Head 0 sees later keys only, head 1 earlier ones only, head 2 nothing, the others all."""
    mask = torch.ones(heads, queries, keys, dtype=torch.bool)
    mask[0], mask[1], mask[2] = mask[0].triu(1), mask[1].tril(-1), False
    return mask


def _may_attend(rule, head, row, column):
    if rule.causal and column > row + rule.offset:
        return False
    if rule.window is not None and abs(column - row - rule.offset) >= rule.window:
        return False
    if rule.mask is None:
        return True
    mask = rule.mask if rule.mask.dim() == 3 else rule.mask[None]
    return bool(mask[head if len(mask) > 1 else 0, row, column])


@cache
def case(kind):
    """A layer of this kind, its log-sum-exp included, and what is right for it."""
    (heads, kv_heads, queries, keys), options = KINDS[kind]
    rule = ScoreRule(**{"scaling": WIDTH**-0.5, **options(heads, queries, keys)})
    query, key = _noise(heads, queries, WIDTH, seed=1), _noise(kv_heads, keys, WIDTH, seed=2)
    value = _noise(kv_heads, keys, VALUE_WIDTH, seed=3)

    scores = query.double() @ key.double().repeat_interleave(heads // kv_heads, 0).mT * rule.scaling
    if rule.softcap is not None:
        scores = rule.softcap * (scores / rule.softcap).tanh()
    if rule.bias is not None:
        scores = scores + rule.bias
    allowed = torch.tensor(
        [[[_may_attend(rule, h, i, j) for j in range(keys)] for i in range(queries)] for h in range(heads)]
    )
    exponentials = scores.exp() * allowed
    sink = torch.zeros(heads, queries).double() if rule.sink is None else rule.sink.double().exp()[:, None]
    total = exponentials.sum(-1) + sink
    layer = ComputedLayer(
        layer=2,
        role="cross" if kind.startswith("cross") else "decoder" if rule.causal else "encoder",
        rule=rule,
        query=query,
        key=key,
        value=value,
        logsumexp=total.log().float(),
    )
    divisor = total.where(total > 0, 1)
    return Case(layer, scores, allowed, exponentials / divisor[..., None], (sink / divisor).expand(heads, queries))
