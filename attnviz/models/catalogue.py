"""Small, well-known models to look at, as data, and which models are on this machine; nothing is opened or fetched."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.locations import HUB_NAME, MINILM, locate

if TYPE_CHECKING:
    import pandas as pd

ENCODER, DECODER, BOTH = ("encoder",), ("decoder",), ("encoder", "decoder", "cross")

MOST_CACHED = 50
MOST_FOLDERS = 300  # of the cache that are looked into; a look costs about 0.1 ms
LONGEST_CONFIG = 1_000_000  # bytes; some hold a million labels


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """One model.

    Attributes:
        name: what `load_model` takes.
        family: architecture.
        roles: kinds of attention it has; empty where its config.json does not tell.
        layers: number of layers; the decoder's, in a model with two stacks.
        heads: query heads of each of these layers.
        key_heads: key-value heads of each of these layers; fewer than `heads` where queries share keys.
        encoder_layers: the encoder's layers in a model with two stacks, else None.
        encoder_heads: the heads of each of these, else None.
        parameters: how many `load_model` builds, shared ones counted once; None where not known.
        megabytes: size of its weights' files, in 10⁶ bytes.
        licence: SPDX identifier, or the name of the model's own licence; None where not known.
        gated: True when the hub asks for an account and for consent to its terms before the first download.
        note: what it is good for.
        on_this_machine: True when it loads without a download.
    """

    name: str
    family: str
    roles: tuple[str, ...]
    layers: int
    heads: int
    key_heads: int
    encoder_layers: int | None = None
    encoder_heads: int | None = None
    parameters: int | None = None
    megabytes: int
    licence: str | None = None
    gated: bool = False
    note: str = ""
    on_this_machine: bool = False


def _model(name: str, family: str, roles: tuple[str, ...], shape: tuple[int, ...], **more: Any) -> CatalogueEntry:
    """Build an entry whose stacks, where it has two, have the same shape: (layers, heads) or (…, key-value heads)."""
    layers, heads, key_heads = (*shape, shape[1])[:3]
    encoder = (layers, heads) if roles == BOTH else (None, None)
    return CatalogueEntry(
        name=name,
        family=family,
        roles=roles,
        layers=layers,
        heads=heads,
        key_heads=key_heads,
        encoder_layers=encoder[0],
        encoder_heads=encoder[1],
        **more,
    )


_apache = partial(_model, licence="Apache-2.0")
_mit = partial(_model, licence="MIT")

# Shapes and licences as published with each model; parameters counted in the classes of transformers 5.24 built from
# these shapes. Files may hold more than the model: a copy of a shared matrix, the mask of each layer, another head.
CATALOGUE: tuple[CatalogueEntry, ...] = (
    _apache(MINILM, "BERT", ENCODER, (6, 12), parameters=22_713_216, megabytes=91,
            note="Quick and small; its vectors compare sentences. The place to start."),
    _apache("google-bert/bert-base-uncased", "BERT", ENCODER, (12, 12), parameters=109_482_240, megabytes=440,
            note="An encoder that many studies of attention heads describe."),
    _mit("FacebookAI/roberta-base", "RoBERTa", ENCODER, (12, 12), parameters=124_645_632, megabytes=499,
         note="BERT's shape, trained longer and without sentence pairs."),
    _apache("distilbert/distilbert-base-uncased", "DistilBERT", ENCODER, (6, 12), parameters=66_362_880, megabytes=268,
            note="BERT in half its layers; compare the two."),
    _apache("albert/albert-base-v2", "ALBERT", ENCODER, (12, 12), parameters=11_683_584, megabytes=47,
            note="One layer's weights used twelve times: see how the maps still differ."),
    _apache("answerdotai/ModernBERT-base", "ModernBERT", ENCODER, (22, 12), parameters=149_014_272, megabytes=599,
            note="An encoder for long texts; two of three layers see a window only."),
    _mit("FacebookAI/xlm-roberta-base", "XLM-RoBERTa", ENCODER, (12, 12), parameters=278_043_648, megabytes=1115,
         note="One encoder for 100 languages."),
    _mit("openai-community/gpt2", "GPT-2", DECODER, (12, 12), parameters=124_439_808, megabytes=548,
         note="A decoder that many studies of attention heads describe."),
    _apache("EleutherAI/pythia-70m", "GPT-NeoX", DECODER, (6, 8), parameters=70_426_624, megabytes=166,
            note="The smallest decoder here; its training steps are on the hub as revisions."),
    _apache("HuggingFaceTB/SmolLM2-135M-Instruct", "Llama", DECODER, (30, 9, 3), parameters=134_515_008, megabytes=269,
            note="A small chat model in Llama's form; three queries share a key."),
    _apache("HuggingFaceTB/SmolLM2-360M-Instruct", "Llama", DECODER, (32, 15, 5), parameters=361_821_120,
            megabytes=724, note="The same at more than twice the size."),
    _apache("Qwen/Qwen3-0.6B", "Qwen3", DECODER, (28, 16, 8), parameters=596_049_920, megabytes=1503,
            note="A chat model of many languages that can reason before it answers."),
    _model("meta-llama/Llama-3.2-1B", "Llama", DECODER, (16, 32, 8), parameters=1_235_814_400, megabytes=2472,
           licence="llama3.2", gated=True, note="The smallest Llama 3.2; four queries share a key."),
    _model("google/gemma-3-270m", "Gemma 3", DECODER, (18, 4, 1), parameters=268_098_176, megabytes=536,
           licence="gemma", gated=True, note="All queries share one key; most layers see a window only."),
    _apache("google-t5/t5-small", "T5", BOTH, (6, 8), parameters=60_506_624, megabytes=242,
            note="Translates and summarises; distances enter its scores as a bias."),
    _apache("facebook/bart-base", "BART", BOTH, (6, 12), parameters=139_420_416, megabytes=558,
            note="An encoder-decoder trained to repair damaged text."),
    _model("Helsinki-NLP/opus-mt-en-de", "Marian", BOTH, (6, 8), parameters=74_410_496, megabytes=298,
           licence="CC-BY-4.0", note="English to German: cross-attention as the alignment of words."),
)  # fmt: skip


def list_models() -> pd.DataFrame:
    """List models to look at, those on this machine first.

    Besides the catalogue it names the text models of the Hugging Face cache. Reads file names and config.json only,
    without a network. "On this machine" means that config.json and all weights of the main revision are in the cache,
    or, for MiniLM, that its package is installed.

    Returns:
        One row for each model, with the fields of `CatalogueEntry` as columns. Numbers that are not known are
        `pandas.NA`, and so are the encoder's where there is one stack.
    """
    import pandas as pd

    catalogue = [replace(entry, on_this_machine=is_on_this_machine(entry.name)) for entry in CATALOGUE]
    rows = sorted([*catalogue, *cached_models()], key=lambda entry: not entry.on_this_machine)
    frame = pd.DataFrame([asdict(entry) for entry in rows], columns=[field.name for field in fields(CatalogueEntry)])
    numbers = ["layers", "heads", "key_heads", "encoder_layers", "encoder_heads", "parameters", "megabytes"]
    return frame.astype(dict.fromkeys(numbers, "Int64"))


def cached_models() -> tuple[CatalogueEntry, ...]:
    """List text models of the Hugging Face cache that the catalogue lacks, as their config.json describes them.

    Returns:
        At most `MOST_CACHED` entries, by name. Models for pictures or sound are left out, and so are those whose
        config.json gives no layers, heads or vocabulary; `load_model` may open them all the same.
    """
    known = {entry.name for entry in CATALOGUE}
    found: list[CatalogueEntry] = []
    for name in _cached_names():
        entry = None if name in known else _read(name)
        if entry is not None:
            found.append(entry)
        if len(found) == MOST_CACHED:
            break
    return tuple(found)


def is_on_this_machine(name: str) -> bool:
    """Return whether a model loads without a download: a folder, a file, the installed copy, or from the cache.

    Raises:
        LoadError: the name is neither a path that exists nor of the form of a hub name.
    """
    return locate(name).is_local or bool(_weights(_snapshot(name)))


def megabytes_to_load(name: str) -> int | None:
    """Return the size of a model's weights in 10⁶ bytes, None where it is known neither here nor in the catalogue."""
    location = locate(name)
    if location.path is None:
        here = _weights(_snapshot(name))
    else:
        here = [location.path] if location.gguf_file else _weights(location.path)
    known = next((entry.megabytes for entry in CATALOGUE if entry.name == name), None)
    return round(sum(file.stat().st_size for file in here) / 1e6) if here else known


def _cache() -> Path:
    # The module of constants alone: the package's functions take most of a second to import.
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _cached_names() -> Iterator[str]:
    try:
        folders = sorted(_cache().glob("models--*"))[:MOST_FOLDERS]
    except OSError:
        return
    for folder in folders:
        name = folder.name.removeprefix("models--").replace("--", "/")
        if HUB_NAME.fullmatch(name):
            yield name


def _snapshot(name: str) -> Path:
    """Return the folder that the main revision has in the cache, whether or not it is there."""
    folder = _cache() / f"models--{name.replace('/', '--')}"
    try:
        commit = (folder / "refs" / "main").read_text().strip()
    except (OSError, UnicodeDecodeError):
        commit = "main"
    return folder / "snapshots" / commit


def _weights(folder: Path) -> list[Path]:
    """Return the files of a model's weights; none when one of them or config.json is missing."""
    # os.path.isfile: in a folder that may not be read, Path.is_file raises an error.
    if not os.path.isfile(folder / "config.json"):
        return []
    for name in ("model.safetensors", "pytorch_model.bin"):
        index = _json(folder / f"{name}.index.json").get("weight_map")
        parts = {str(part) for part in index.values()} if isinstance(index, dict) else {name}
        files = [folder / part for part in sorted(parts)]
        if files and all(os.path.isfile(file) for file in files):
            return files
    return []


def _json(file: Path, longest: int = 20 * LONGEST_CONFIG) -> dict[str, Any]:
    """Return what a file says; nothing when it is missing, too long or no JSON object."""
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if file.stat().st_size <= longest else None
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _read(name: str) -> CatalogueEntry | None:
    folder = _snapshot(name)
    config, weights = _json(folder / "config.json", LONGEST_CONFIG), _weights(folder)
    two_stacks = config.get("is_encoder_decoder") is True
    stack = ("decoder_", "num_decoder_") if two_stacks else ("", "")
    layers = _number(config, f"{stack[0]}layers", f"{stack[1]}layers", *LAYERS)
    heads = _number(config, f"{stack[0]}attention_heads", *HEADS)
    if not weights or layers is None or heads is None or not _reads_text(config):
        return None
    return CatalogueEntry(
        name=name,
        family=str(config.get("model_type", "")),
        roles=_roles(config),
        layers=layers,
        heads=heads,
        key_heads=_number(config, "num_key_value_heads") or heads,
        encoder_layers=_number(config, "encoder_layers", *LAYERS) if two_stacks else None,
        encoder_heads=_number(config, "encoder_attention_heads", *HEADS) if two_stacks else None,
        megabytes=round(sum(file.stat().st_size for file in weights) / 1e6),
        note="In this machine's Hugging Face cache.",
        on_this_machine=True,
    )


# Names that config.json has for the same thing, in the order in which they are asked for.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
OTHER_SENSES = ("vision_config", "audio_config", "image_size", "num_mel_bins", "feat_extract_norm")


def _number(config: dict[str, Any], *names: str) -> int | None:
    """Return the first of the names that is a count."""
    values = (config.get(name) for name in names)
    return next((value for value in values if type(value) is int and value > 0), None)


def _reads_text(config: dict[str, Any]) -> bool:
    return _number(config, "vocab_size") is not None and not any(name in config for name in OTHER_SENSES)


def _roles(config: dict[str, Any]) -> tuple[str, ...]:
    """Return the roles that a configuration gives away; none for a bare model of a type that is no BERT."""
    if config.get("is_encoder_decoder") is True:
        return BOTH
    architectures = config.get("architectures")
    saved_as = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    if saved_as.endswith(("ForCausalLM", "LMHeadModel")):
        return DECODER
    is_encoder = saved_as.endswith("ForMaskedLM") or any(
        kind in str(config.get("model_type")) for kind in ("bert", "electra", "mpnet")
    )
    return ENCODER if is_encoder and not config.get("is_decoder") else ()
