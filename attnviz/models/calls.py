"""One attention call of a model, turned into a layer of the trace and checked against what the model computed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.errors import SupportError
from attnviz.layers import ComputedLayer
from attnviz.models.masks import Crop, MaskReader, table_of
from attnviz.rules import ScoreRule

CHECKED_ROWS = 4
"""Rows at each end of a layer whose output is computed again from the trace, to compare it with the model's."""
TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 1e-2}
"""Largest difference between the two outputs, in units of the largest value, that rounding explains."""
BEYOND_ROUNDING = 1.5
"""A weight, at most 1 by its definition, that no rounding of ordinary scores explains."""


@dataclass(eq=False)
class AttentionCall:
    """What a model hands to an attention function, and what comes out.

    Attributes:
        module: the module that attends.
        query: [batch, head, query, d_head].
        key: [batch, kv_head, key, d_head].
        value: [batch, kv_head, key, d_value].
        mask: bool or additive float [batch or 1, head or 1, query or 1, key], None for none.
        scaling: factor on q·k.
        options: the other keywords: position_bias, softcap, s_aux, …
        causal: whether the function itself forbade later keys (`is_causal` of PyTorch's attention).
        used_keys: how many keys the function used; the rest of a longer cache is empty.
        logsumexp: [batch, head, query] where the function gave it.
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scaling: float
    options: dict[str, Any] = field(default_factory=dict)
    causal: bool = False
    used_keys: int | None = None
    logsumexp: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(queries, keys)."""
        return self.query.shape[-2], self.key.shape[-2] if self.used_keys is None else self.used_keys

    def layer(self, number: int, role: str, crop: Crop, masks: MaskReader) -> ComputedLayer:
        """Return the call as a layer: views of its tensors, its rule, its log-sum-exp.

        Raises:
            SupportError: the call has a shape that no [query, key] map has, or gave NaN.
        """
        query = pick_tokens(self.query, crop.item, crop.rows)
        key = pick_tokens(self.key[..., : self.shape[1], :], crop.item, crop.columns)
        value = pick_tokens(self.value[..., : self.shape[1], :], crop.item, crop.columns)
        rule = self.rule(crop, masks)
        known = None if self.logsumexp is None else self.logsumexp[min(crop.item, len(self.logsumexp) - 1)]
        layer = ComputedLayer(
            layer=number,
            role=role,
            rule=rule,
            query=query,
            key=key,
            value=value,
            logsumexp=query.new_zeros(query.shape[:2], dtype=torch.float32)
            if known is None
            else known[:, crop.rows].float(),
        )
        return replace(layer, logsumexp=layer.sum_exponentials()) if known is None else layer

    def rule(self, crop: Crop, masks: MaskReader) -> ScoreRule:
        """Return which cells of the cropped map are allowed, and how a score is made."""
        shape = self.shape
        parts = masks.read(self.mask, crop, shape, causal=self.causal)
        bias, position_bias = parts.bias, self.options.get("position_bias")
        if position_bias is not None:
            table = table_of(position_bias, crop, shape)
            bias = table if bias is None else table + bias
        return ScoreRule(
            scaling=self.scaling,
            causal=parts.causal,
            window=parts.window,
            mask=parts.mask,
            bias=bias,
            softcap=self.options.get("softcap"),
            sink=self._sink(crop),
        )

    def _sink(self, crop: Crop) -> Tensor | None:
        """Return the sink's logit [head], or [head, query] where each token has its own (Inkling)."""
        sink = self.options.get("s_aux", self.options.get("sinks"))
        if sink is None:
            return None
        if sink.dim() == 4 and sink.shape[-2] == self.shape[0] > 1:  # noqa: PLR2004
            return sink.detach()[min(crop.item, len(sink) - 1), :, crop.rows, 0]
        return sink.detach().reshape(-1)


def pick_tokens(heads: Tensor, item: int, tokens: slice | list[int]) -> Tensor:
    """Return [head, token, width] of one row of the batch; a view where the tokens are a slice."""
    return heads[min(item, heads.shape[0] - 1)][:, tokens].detach()


def output_difference(layer: ComputedLayer, output: Tensor, crop: Crop) -> float:
    """Return the largest difference between weights · V and the function's own output on some rows.

    In units of the largest value. Rows in which nothing is allowed are left out.

    Args:
        layer: the layer made from the call.
        output: [batch, query, head, d_value], what the function returned.
        crop: which part of the call the layer shows.

    Raises:
        SupportError: the difference is larger than rounding explains, so the trace would not be the model's.
    """
    given = pick_tokens(output.transpose(1, 2), crop.item, crop.rows)  # [head, query, d_value]
    # All three: PyTorch's attention on the CPU turns a query of NaN into an output of zeros.
    if not all(bool(numbers.isfinite().all()) for numbers in (given, layer.query, layer.key)):
        raise SupportError(
            f"Expected numbers, got NaN or infinity in layer {layer.layer} ({layer.role}), "
            f"{str(output.dtype).removeprefix('torch.')}. Trace it in float32, or without padding."
        )
    worst = 0.0
    for rows in _checked_rows(layer.shape[1]):
        block = layer.block(rows)
        _check_size(layer, block.weights)
        value = layer.value[:, block.columns].float()
        found = torch.bmm(block.weights, value.repeat_interleave(layer.group, dim=0))  # [head, row, d_value]
        live = 1 if block.allowed is None else block.allowed.any(-1)[..., None]
        worst = max(worst, float(((found - given[:, rows].float()) * live).abs().max()))
    difference = worst / float(layer.value.abs().max()) if worst else worst
    if not difference <= TOLERANCE.get(layer.query.dtype, 1e-4):
        raise SupportError(
            f"Layer {layer.layer} ({layer.role}) does something besides softmax(QKᵀ)·V: its output differs from the "
            f"trace's by {difference:.1e}. It cannot be shown exactly."
        )
    return difference


def _check_size(layer: ComputedLayer, weights: Tensor) -> None:
    """Raise SupportError where scores are so large that the difference of two of them is lost in float32."""
    largest = float(weights.max()) if weights.numel() else 0.0
    if largest > BEYOND_ROUNDING:
        raise SupportError(
            f"Expected weights of at most 1 in layer {layer.layer} ({layer.role}), got {largest:.1e}: its scores are "
            "so large that float32 cannot tell them apart. It cannot be shown exactly; choose another model."
        )


def _checked_rows(queries: int) -> list[slice]:
    """Return the first and the last few rows."""
    if queries <= 2 * CHECKED_ROWS:
        return [slice(0, queries)] if queries else []
    return [slice(0, CHECKED_ROWS), slice(queries - CHECKED_ROWS, queries)]
