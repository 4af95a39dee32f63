"""Tiny random models of any architecture that transformers registers, and what stock eager attention gives for them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch

# Sizes are small and mostly distinct primes or unlike each other, so that no swapped axis passes.
WIDTH, HEADS, KEY_HEADS, HEAD_DIM, LAYERS, DECODER_LAYERS, VOCABULARY = 48, 6, 2, 8, 3, 2, 103
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "model_dim", "embed_dim"), WIDTH),
    **dict.fromkeys(("embedding_size", "input_embedding_size", "word_embed_proj_dim"), WIDTH),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "layers"), LAYERS),
    **dict.fromkeys(("num_encoder_layers",), LAYERS),
    **dict.fromkeys(("decoder_layers", "num_decoder_layers"), DECODER_LAYERS),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads", "heads"), HEADS),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"), KEY_HEADS),
    **dict.fromkeys(("head_dim", "d_kv", "d_head", "attention_head_dim", "kv_channels", "global_head_dim"), HEAD_DIM),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "d_inner", "ffn_hidden_size"), 40),
    **dict.fromkeys(("hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size", "intermediate_dim"), 40),
    **dict.fromkeys(("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"), 24),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "top_k", "moe_k", "num_experts_per_token"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "num_shared_experts", "first_k_dense_replace"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"), 64),
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 7, "kv_lora_rank": 11, "q_lora_rank": 13,
    "index_n_heads": 3, "index_head_dim": 8, "index_topk": 64,
    "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 4, "mamba_n_heads": 6,
    "mamba_d_head": 16, "mamba_d_ssm": 96, "mamba_num_heads": 6, "mamba_head_dim": 16, "mamba_ngroups": 1,
    "mamba_n_groups": 1, "mamba_headdim": 16, "n_mamba_heads": 2, "mamba_chunk_size": 8, "chunk_size": 8,
    "ssm_state_size": 8, "state_size": 8, "n_groups": 1,
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "per_layer_embed_dim": 5, "hidden_size_per_layer_input": 5, "vocab_size_per_layer_input": VOCABULARY,
    "num_kv_shared_layers": 0, "image_token_id": 99, "video_token_id": 98, "audio_token_id": 97,
    "image_token_index": 99, "video_token_index": 98, "audio_token_index": 97, "vision_start_token_id": 96,
    "vision_end_token_id": 95, "image_size": 8, "patch_size": 2, "projection_dim": 24,
}  # fmt: skip
NO_DROPOUT = ("dropout", "drop", "pdrop")
LATENT = {"head_dim": 4, "num_key_value_heads": HEADS, "kv_lora_rank": 12, "q_lora_rank": 14, "qk_head_dim": 10}
LAYER_COUNTS = ("num_hidden_layers", "num_layers", "n_layer", "encoder_layers")
SPECIAL_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
WINDOWS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("mistral", "starcoder2"), {"sliding_window": 5}),
    **dict.fromkeys(
        ("gemma2", "gemma3_text", "gemma4_text", "gpt_oss", "granite_swa"),
        {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    "modernbert": {
        "local_attention": 6,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    },
}
"""Windows shorter than the texts."""
STRENGTH = {"mobilebert": 0.12}  # without layer norms, larger weights grow the rounding with them
MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
SPECIAL: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("gptj", "codegen"), {"rotary_dim": 4}),
    **dict.fromkeys(("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"), {"rope_parameters": MROPE}),
    **dict.fromkeys(
        ("glm4v", "glm4v_text", "glm_ocr", "glm_ocr_text", "glm46v", "paddleocr_vl"), {"rope_parameters": MROPE}
    ),
    **dict.fromkeys(("glm_image", "glm_image_text", "glmga"), {"rope_parameters": MROPE}),
    **dict.fromkeys(
        ("glm4v_moe", "glm4v_moe_text"),
        {"rope_parameters": {**MROPE, "mrope_section": [1, 1, 0], "partial_rotary_factor": 0.5}},
    ),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral", "hunyuan_vl_text"), {"head_dim": HEAD_DIM}),
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 0, "mask_token_id": 3},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "nemotron": {"num_key_value_heads": KEY_HEADS},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "bamba": {"attn_layer_indices": [1]},
    "mobilebert": {"embedding_size": WIDTH, "true_hidden_size": 24, "intra_bottleneck_size": 24},
    "xmod": {"default_language": "en_XX"},
    "reformer": {
        "axial_pos_embds": False,
        "attn_layers": ["local", "lsh", "local"],
        "num_attention_heads": 2,
        "attention_head_size": 8,
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"]},
    "zamba2": {
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention"],
        "hybrid_layer_ids": [1],
        "attention_head_dim": 16,
        "attention_hidden_size": 96,
        "num_key_value_heads": HEADS,
        "num_mem_blocks": 1,
        "n_mamba_heads": 6,
    },
    "funnel": {"block_sizes": [1, 1], "block_repeats": [1, 1], "num_decoder_layers": 1},
}
"""What an architecture needs besides the sizes above to be buildable."""


@dataclass(frozen=True)
class Reference:
    """What stock transformers gives: the weights per role, in the order of the layers, [batch, head, query, key]."""

    output: Any
    weights: dict[str, list[torch.Tensor]] = field(default_factory=dict)


def tiny_config(model_type: str, **overrides: Any) -> Any:
    """Return a small configuration of an architecture; `overrides` win over the sizes below."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    default = AutoConfig.for_model(model_type)
    overrides = {**SPECIAL.get(model_type, {}), **overrides}
    sizes = _sizes(default, overrides)
    try:
        config = AutoConfig.for_model(model_type, **sizes)
    except (StrictDataclassError, AttributeError, ImportError, NotImplementedError, ValueError):  # of 49 architectures
        config = default
        _change(config, sizes)
    _change(config, sizes)
    for part in _parts(config):
        for name, number in SPECIAL_IDS.items():
            if name == "pad_token_id" or _get(part, name) is not None:
                _set(part, name, overrides.get(name, number))
    return config


def tiny_model(config: Any, *, auto_class: str = "AutoModel", seed: int = 0, implementation: str | None = None) -> Any:
    """Return a model with random weights large enough for its heads to differ, in eval mode, float32."""
    import transformers

    torch.manual_seed(seed)
    options = {} if implementation is None else {"attn_implementation": implementation}
    model = getattr(transformers, auto_class).from_config(copy.deepcopy(config), **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=STRENGTH.get(config.model_type, 0.2), generator=generator)
    return model.eval().float()


def token_ids(batch: int, length: int, *, seed: int = 0) -> torch.Tensor:
    """Return ordinary ids [batch, length], above the special ones and below those that stand for pictures."""
    return torch.randint(5, 90, (batch, length), generator=torch.Generator().manual_seed(seed))


def inputs_of(config: Any, *, length: int = 17, decoder_length: int = 7, padding: str | None = None) -> dict[str, Any]:
    """Return a batch of 2 texts; with padding "left" or "right", the second is 5 tokens shorter."""
    ids = token_ids(2, length)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = token_ids(2, decoder_length, seed=1)
        inputs["decoder_input_ids"][:, 0] = 1
    if padding:
        gone = slice(0, 5) if padding == "left" else slice(length - 5, length)
        inputs["input_ids"][1, gone] = 0
        inputs["attention_mask"][1, gone] = 0
    return inputs


def reference(model: Any, inputs: dict[str, Any]) -> Reference:
    """Return what a twin of the model, built with stock eager attention, gives for the inputs."""
    twin = type(model)._from_config(copy.deepcopy(model.config), attn_implementation="eager").eval().float()
    twin.load_state_dict(model.state_dict())
    extra = {"use_cache": False} if _takes_cache(twin) else {}
    with torch.no_grad():
        output = twin(**inputs, output_attentions=True, **extra)
    return Reference(output, {role: _given(output, role) for role in ("encoder", "decoder", "cross")})


def plain_output(model: Any, inputs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors a model gives untraced."""
    extra = {"use_cache": False} if _takes_cache(model) else {}
    with torch.no_grad():
        return tensors_of(model(**inputs, **extra))


def tensors_of(output: Any) -> list[torch.Tensor]:
    """Return every tensor inside a model's output, in order."""
    if isinstance(output, torch.Tensor):
        return [output]
    values = output.values() if hasattr(output, "values") else output if isinstance(output, (tuple, list)) else []
    return [tensor for value in values for tensor in tensors_of(value)]


def differences(trace: Any, stock: Reference, kept: dict[str, tuple[Any, Any]], item: int) -> dict[str, float]:
    """Return, per role, the largest difference between a trace and stock eager on the real tokens.

    Args:
        trace: of one item.
        stock: what stock eager gives for the batch.
        kept: per role, the real (queries, keys): slices.
        item: the row of the batch.
    """
    found = {}
    merged = trace.roles == ("encoder", "cross") and bool(stock.weights["decoder"])
    for role in trace.roles:
        rows, columns = kept.get(role, (slice(None), slice(None)))
        layers = trace.layers(role)
        given = _maps(stock.weights[role], layers)
        if merged and role == "cross":  # T5Gemma 2: one softmax over the decoder's own keys and the encoder's
            rows, columns = slice(None), _after(columns, stock.weights["decoder"][0].shape[-1])
            given = [torch.cat(both, dim=-1) for both in zip(stock.weights["decoder"], given, strict=True)]
        if len(layers) != len(given):
            raise AssertionError(f"{role}: {len(layers)} layers traced, {len(given)} from stock eager")
        pairs = [
            (layer.weights(slice(None)), _as_weights(own[item][:, rows, columns], layer))
            for layer, own in zip((trace.layer(number, role) for number in layers), given, strict=True)
        ]
        shapes = [(tuple(ours.shape), tuple(own.shape)) for ours, own in pairs]
        if any(ours != own for ours, own in shapes):
            raise AssertionError(f"{role}: shapes {shapes}")
        found[role] = max(float((ours - own).abs().max()) for ours, own in pairs)
    return found


def _after(columns: slice, count: int) -> list[int]:
    """Return `count` columns, then those of a slice of the columns after them."""
    return [*range(count), *(count + at for at in range(columns.stop or 0)[columns])]


def _maps(given: list[torch.Tensor], layers: tuple[int, ...]) -> list[torch.Tensor]:
    """Return stock's weights of the layers traced, whatever else it gives out beside them."""
    if len(given) == len(layers):
        return given
    # MiniMax's linear attention gives its states, CANINE shorter texts, DeepSeek V4 keys of compressed tokens.
    longest = max(one.shape[-2] for one in given)
    return [one for one in given if one.shape[-2] == one.shape[-1] == longest]


def _as_weights(own: torch.Tensor, layer: Any) -> torch.Tensor:
    """Return weights from what stock gives out under that name."""
    if float(own.min()) < 0 or float(own.max()) > 1.01:
        return own.softmax(-1)  # scores: SqueezeBERT, ProphetNet's encoder and cross-attention
    sinks = layer.sink_weights(0)
    if sinks is not None and float((own.sum(-1) - 1).abs().max()) < 1e-4:
        part = torch.stack([layer.sink_weights(head) for head in range(layer.shape[0])])
        return own * (1 - part)[..., None]  # before the sink takes its part: GraniteSwa
    return own


def kept_of(inputs: dict[str, Any], item: int, *, paired: bool) -> dict[str, tuple[slice, slice]]:
    """Return the real queries and keys of each role."""
    at = inputs["attention_mask"][item].nonzero().flatten()
    real, whole = slice(int(at[0]), int(at[-1]) + 1), slice(None)
    if paired:
        return {"encoder": (real, real), "decoder": (whole, whole), "cross": (whole, real)}
    return {"encoder": (real, real), "decoder": (real, real), "cross": (real, whole)}


def _given(output: Any, role: str) -> list[torch.Tensor]:
    name = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}[role]
    given = getattr(output, name, None)
    if given is None and role != "cross":
        given = getattr(output, "attentions", None)
    return [one for one in given or () if isinstance(one, torch.Tensor)]


def _takes_cache(model: Any) -> bool:
    import inspect

    return "use_cache" in inspect.signature(model.forward).parameters


def _parts(config: Any) -> list[Any]:
    """Return a configuration and those inside it."""
    inner = [value for value in vars(config).values() if hasattr(value, "to_dict") and hasattr(value, "model_type")]
    return [config] + [part for one in inner for part in _parts(one)]


def _sizes(config: Any, overrides: dict[str, Any]) -> dict[str, Any]:
    """Return the small sizes of a configuration and of those inside it; lists that go by layers are cut."""
    count = next((_get(config, name) for name in LAYER_COUNTS if isinstance(_get(config, name), int)), None)
    given = {**SIZES, **(LATENT if _get(config, "qk_rope_head_dim") else {})}
    found: dict[str, Any] = {"per_layer_config": None} if config.to_dict().get("per_layer_config") else {}
    for name, value in vars(config).items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            found[name] = {**_sizes(value, overrides), "model_type": value.model_type}
        elif isinstance(value, list) and count and len(value) == count:
            found[name] = _cut(value)
        elif isinstance(value, float) and any(word in name for word in NO_DROPOUT):
            found[name] = 0.0
    for name, size in given.items():
        if isinstance(_get(config, name), int) and not isinstance(_get(config, name), bool):
            found[name] = size
    is_home = not any(isinstance(value, dict) and "model_type" in value for value in found.values())
    return {**found, **{name: value for name, value in overrides.items() if is_home or hasattr(config, name)}}


def _cut(values: list[Any]) -> list[Any]:
    """Return the first layers' entries, with the rarer kind (the attention of a hybrid) among them."""
    short = values[:LAYERS]
    missing = [value for value in values if value not in short]
    return [short[0], missing[0], *short[2:]] if missing else short


def _change(config: Any, sizes: dict[str, Any]) -> None:
    for name, value in sizes.items():
        part = _get(config, name)
        if isinstance(value, dict) and hasattr(part, "model_type"):
            _change(part, value)
        else:
            _set(config, name, value)


def _get(config: Any, name: str) -> Any:
    """Return an attribute, None where it is absent or differs between layers (which raises a RuntimeError)."""
    try:
        return getattr(config, name, None)
    except RuntimeError:
        return None


def _set(config: Any, name: str, value: Any) -> None:
    """Set an attribute that may be a read-only name for another."""
    try:
        setattr(config, name, value)
    except (AttributeError, NotImplementedError):
        return


def pads(model: Any, config: Any) -> bool:
    """Whether a model takes an attention mask, and so a padded batch."""
    import inspect

    return "attention_mask" in inspect.signature(model.forward).parameters
