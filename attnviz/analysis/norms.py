"""Weights times what they weigh: how long the vectors are that attention adds up (Kobayashi et al. 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnviz.errors import SupportError
from attnviz.layers import LayerAttention
from attnviz.trace import AttentionTrace

if TYPE_CHECKING:
    import pandas as pd


def value_norms(trace: AttentionTrace, layer: int, head: int, role: str | None = None) -> Tensor:
    """Return how long each key's value is after the head's part of the output projection, ‖v W_O^h‖, float32 [key].

    This is ‖f(x)‖ of Kobayashi et al. 2020, "Attention is Not Only a Weight" (section 2.3), 0 or more, in the model's
    own unit; the projection's bias, which belongs to no head, is not in it. A module without a projection (the
    article's single-head ones) has W_O = I.

    Args:
        trace: what was traced.
        layer: the layer's number.
        head: the head's number.
        role: the role, where there is more than one.

    Raises:
        SupportError: the layer's values or its output projection are not known.
    """
    values = trace.values(layer, head, role)  # [key, d_value]
    output = _head_projection(trace, trace.layer(layer, role), head, values.shape[1])
    return (values if output is None else values @ output).norm(dim=-1)


def norm_weighted(trace: AttentionTrace, layer: int, head: int, role: str | None = None) -> Tensor:
    """Return ‖weight · v W_O^h‖ = weight · ‖v W_O^h‖, float32 [query, key], 0 or more, in the model's own unit.

    Arguments and errors are those of `value_norms`. Rows do not sum to 1; cells that are not allowed are 0.
    """
    return trace.weights(layer, head, role) * value_norms(trace, layer, head, role)


def head_norms(trace: AttentionTrace, role: str | None = None) -> pd.DataFrame:
    """Return one row per head: layer, head and value_norm, the mean of `value_norms` over keys; NaN where not known."""
    import pandas as pd

    rows = [
        (number, head, norm)
        for number in trace.layers(role)
        for head, norm in enumerate(_mean_norms(trace, trace.layer(number, role)))
    ]
    return pd.DataFrame(rows, columns=["layer", "head", "value_norm"])


def _mean_norms(trace: AttentionTrace, layer: LayerAttention) -> list[float]:
    """Return the mean over keys of each head's `value_norms`."""
    try:
        norms = [value_norms(trace, layer.layer, head, layer.role).mean() for head in range(layer.shape[0])]
    except SupportError:
        return [torch.nan] * layer.shape[0]
    return [float(norm) for norm in norms]


def _head_projection(trace: AttentionTrace, layer: LayerAttention, head: int, width: int) -> Tensor | None:
    """Return a head's part of W^O, float32 [d_value, d_model]; None for a module that has none."""
    if layer.projection is None and trace.support.how == "module":
        return None
    if layer.projection is None or layer.projection.weight.shape[1] != layer.shape[0] * width:
        raise SupportError(
            f"The output projection of layer {layer.layer} ({layer.role}) is not known, so norms cannot be told. "
            "Look at its weights instead."
        )
    start = layer.checked(head) * width
    return layer.projection.weight[:, start : start + width].detach().float().cpu().T
