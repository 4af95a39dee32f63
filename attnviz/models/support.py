"""The self-check: the weights of a trace against those the model gives out itself, on a short probe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from attnviz.errors import SupportError
from attnviz.models.capture import Recorded
from attnviz.models.running import evaluating, without_cache
from attnviz.models.sequences import Axis, is_index, pick
from attnviz.models.stacks import choose_stacks

PROBE_TOKENS = 16
OTHER_INPUTS = {"pixel_values", "input_features", "inputs_embeds"}
EXACT = {torch.float32: 5e-5, torch.float64: 5e-5}
ROUNDED = 3e-2
"""Largest difference that counts as the same weights; in half precision the model's own are rounded that much."""
NAMES = {
    "encoder": ("encoder_attentions", "attentions"),
    "decoder": ("decoder_attentions", "attentions"),
    "cross": ("cross_attentions",),
}


def shortened(inputs: Mapping[str, Any], config: Any, item: int) -> dict[str, Any] | None:
    """Return inputs of the first few real tokens of one item, None where the inputs are not a text's ids."""
    ids = inputs.get("input_ids")
    if not is_index(ids) or ids.dim() != 2 or set(inputs) & OTHER_INPUTS:  # noqa: PLR2004
        return None
    short: dict[str, Any] = {}
    for name, mask in (("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")):
        if is_index(inputs.get(name)):
            axis = Axis.of(inputs[name], inputs.get(mask), item)
            kept = torch.tensor([(pick(axis.ids, axis.keep) or [])[:PROBE_TOKENS]], device=ids.device)
            short |= {name: kept, mask: torch.ones_like(kept)} if mask in inputs else {name: kept}
    hidden = inputs.get("encoder_hidden_states")
    if isinstance(hidden, Tensor):
        short["encoder_hidden_states"] = hidden[item : item + 1]
    return short


def own_weights(model: Any, inputs: Mapping[str, Any]) -> dict[str, list[Tensor]]:
    """Return the weights a model gives itself, per role, [batch, head, query, key] each; empty where it gives none."""
    with evaluating(model), torch.no_grad():
        output = model(**{**without_cache(model, inputs), "output_attentions": True, "return_dict": True})
    found: dict[str, list[Tensor]] = {}
    for names in NAMES.values():
        for name in names:
            given = getattr(output, name, None)
            if given:
                found[name] = [one for one in given if isinstance(one, Tensor)]
    return found


@contextmanager
def eager_attention(model: Any) -> Iterator[None]:
    """Run a model with its own eager attention during the block. For a model that nobody else is using."""
    configs = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}
    before = [(config, getattr(config, "_attn_implementation", None)) for config in configs.values()]
    try:
        for config, implementation in before:  # set here: `set_attn_implementation` refuses models off the interface
            if implementation is not None:
                config._attn_implementation = "eager"
        yield
    finally:
        for config, implementation in before:
            if implementation is not None:
                config._attn_implementation = implementation


def own_difference(chosen: Mapping[str, list[Recorded]], own: Mapping[str, list[Tensor]]) -> float | None:
    """Return the largest difference between recorded layers and the model's own weights; None where it gives none.

    Args:
        chosen: the layers of each role.
        own: what the model gives out, from `own_weights`.

    Raises:
        SupportError: there are more or fewer layers, other shapes, or a difference that rounding does not explain.
    """
    if not own:
        return None
    differences = []
    for role, recorded in chosen.items():
        layers = sorted(recorded, key=lambda one: one.layer.layer)
        given = _maps(next((own[name] for name in NAMES[role] if name in own), []), layers)
        if len(given) != len(layers):
            raise SupportError(
                f"Expected {len(given)} {role} layers from the model's own weights, got {len(layers)} from its calls. "
                "It cannot be shown exactly."
            )
        differences += [_difference(one, weights) for one, weights in zip(layers, given, strict=True)]
    return max(differences, default=None)


def _maps(given: list[Tensor], layers: list[Recorded]) -> list[Tensor]:
    """Return what is given for the layers that attend; linear attention beside them gives its states (MiniMax)."""
    if len(given) == len(layers):
        return given
    shapes = {one.shape for one in layers}
    return [one for one in given if tuple(one.shape[-2:]) in shapes]


def _difference(one: Recorded, own: Tensor) -> float:
    layer = one.layer
    own = own[0].float().cpu()
    if tuple(own.shape) != layer.shape:
        raise SupportError(
            f"Layer {layer.layer} ({layer.role}) gives out weights {list(own.shape)}, but attends over "
            f"{list(layer.shape)} (head, query, key). It cannot be shown exactly."
        )
    weights = layer.weights(slice(None))
    difference = float((weights - _as_weights(own, weights, sink=layer.rule.sink is not None)).abs().max())
    if not difference <= EXACT.get(layer.tensors[0].dtype, ROUNDED):
        raise SupportError(
            f"The trace of layer {layer.layer} ({layer.role}) differs from the model's own weights by "
            f"{difference:.1e}. It cannot be shown exactly."
        )
    return difference


def _as_weights(own: Tensor, weights: Tensor, *, sink: bool) -> Tensor:
    """Return what a model gives out as weights where it is something close to them."""
    if float(own.min()) < 0 or float(own.max()) > 1 + ROUNDED:
        return own.softmax(-1)  # the scores (SqueezeBERT, ProphetNet)
    if sink and bool((own.sum(-1) > 1 - ROUNDED).all()):
        return own * weights.sum(-1, keepdim=True)  # before the sink takes its part (GraniteSwa)
    return own


def run_difference(model: Any, inputs: Mapping[str, Any], recorded: list[Recorded]) -> float | None:
    """Return how far recorded layers are from what the model says without a change of its implementation.

    Layers known by queries and keys were compared with attention's outputs when they were recorded; weights alone are
    compared with those the model gives out.

    Raises:
        SupportError: the difference is more than rounding, or a layer is missing.
    """
    if all(one.difference is not None for one in recorded):
        return max((one.difference for one in recorded if one.difference is not None), default=None)
    return own_difference(choose_stacks(recorded)[0], own_weights(model, inputs))


def check(model: Any, inputs: Mapping[str, Any], chosen: Mapping[str, list[Recorded]]) -> float | None:
    """Return the largest difference between recorded layers and the model's own eager weights for the same inputs.

    None where the model gives none. For a model that nobody else is using: its implementation is switched meanwhile.

    Raises:
        SupportError: the difference is more than rounding, or a layer is missing.
    """
    with eager_attention(model):
        return own_difference(chosen, own_weights(model, inputs))


def rounding(dtype: torch.dtype) -> str:
    """Return what limits the comparison in half precision; nothing in float32."""
    if dtype in EXACT:
        return ""
    return f"the model's own are rounded to {str(dtype).removeprefix('torch.')}"
