"""Pretrained models opened without running anything that came with them, and every failure said in a sentence."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import nn

from attnviz.devices import resolve_device
from attnviz.errors import LoadError, OptionError
from attnviz.hub import Progress, bar_class
from attnviz.load_errors import explained
from attnviz.locations import MINILM, Location, locate, model_files

__all__ = ["MINILM", "Location", "load_tokenizer", "load_weights", "locate", "longest_input", "model_files"]

DTYPES = ("auto", "float32", "bfloat16", "float16")
WEIGHTS = (".safetensors", ".bin", ".gguf")
NO_LIMIT = 10**9  # tokenizers write 1e30 for "no limit"
_QUIET = Lock()


def load_tokenizer(
    location: Location,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> Any:
    """The tokenizer of a model.

    Args:
        location: From `locate`.
        revision: Branch, tag or commit on the hub.
        trust_remote_code: Run Python code that comes with the model.
        progress: Called with a fraction or None and a sentence.

    Returns:
        A tokenizer of transformers, with a vocabulary.

    Raises:
        LoadError: There is no tokenizer beside the model, or it cannot be read.
    """
    folder = model_files(location, revision=revision, trust_remote_code=trust_remote_code, progress=progress)
    _report(progress, f"Reading the tokenizer of {location.name}")
    with explained(location.name, where=str(folder)), _quietly():
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder, **_options(location, trust_remote_code))
        _check_vocabulary(tokenizer, location.name, folder)
    return tokenizer


def load_weights(
    location: Location,
    *,
    auto_class: str = "AutoModel",
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> nn.Module:
    """A model with its weights, in eval mode.

    Safetensors are preferred; a pickle is opened for its tensors only, never for code.

    Args:
        location: From `locate`.
        auto_class: The class of transformers that chooses the model's class, such as `"AutoModelForCausalLM"`.
        device: From `available_devices()`.
        dtype: `"auto"` keeps the checkpoint's; else `"float32"`, `"bfloat16"`, `"float16"` or a torch dtype.
        revision: Branch, tag or commit on the hub.
        trust_remote_code: Run Python code that comes with the model.
        progress: Called with a fraction or None and a sentence.

    Returns:
        The model on `device`, or spread by accelerate over all devices and the disk where it does not fit there.

    Raises:
        LoadError: The model is nowhere, cannot be read, built, trusted or held, or lacks weights it computes with.
        OptionError: This machine has no such device, or attnviz no such dtype.
    """
    where, kind = resolve_device(device), _dtype(dtype)
    folder = model_files(location, revision=revision, trust_remote_code=trust_remote_code, progress=progress)
    _report(progress, f"Loading the weights of {location.name}")
    with explained(location.name, where=str(folder), device=str(where)), _quietly(progress, location.name):
        import transformers

        spread = _spread(folder, where)
        model, loading = getattr(transformers, auto_class).from_pretrained(
            folder,
            dtype=kind,
            weights_only=True,
            output_loading_info=True,
            **spread,
            **_options(location, trust_remote_code),
        )
        _check_complete(model, loading["missing_keys"], location.name, folder)
        return model.eval() if spread else model.to(where).eval()


def longest_input(model: nn.Module, tokenizer: Any) -> int | None:
    """How many tokens a model takes at most, special tokens included.

    The smallest of what the tokenizer says, what the configuration says, and the rows that a table of learned
    positions has left after its padding row (RoBERTa counts positions from there).

    Args:
        model: A model of transformers.
        tokenizer: Its tokenizer.

    Returns:
        The number of tokens, or None when nothing limits it (T5's relative positions).
    """
    settings: Any = model.config
    config = settings.get_text_config()
    limits = [getattr(tokenizer, "model_max_length", None), getattr(config, "max_position_embeddings", None)]
    limits += [
        table.num_embeddings - table.padding_idx - 1
        for name, table in model.named_modules()
        if name.endswith("position_embeddings") and isinstance(table, nn.Embedding) and table.padding_idx is not None
    ]
    known = [int(limit) for limit in limits if limit is not None and 0 < limit < NO_LIMIT]
    return min(known, default=None)


def free_bytes(device: torch.device) -> int:
    """How much memory a device has left."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _spread(folder: Path, device: torch.device) -> dict[str, Any]:
    """How accelerate spreads a model over all devices and the disk; nothing for one that fits on its device."""
    size = sum(file.stat().st_size for file in folder.iterdir() if file.suffix in WEIGHTS)
    if size <= free_bytes(device):
        return {}
    return {"device_map": "auto", "offload_folder": tempfile.mkdtemp(prefix="attnviz-offload-")}


def _options(location: Location, trust_remote_code: bool) -> dict[str, Any]:
    """What every opening has in common: files on this machine only, and no question at the terminal about code."""
    gguf = {"gguf_file": location.gguf_file} if location.gguf_file else {}
    return {"local_files_only": True, "trust_remote_code": trust_remote_code, **gguf}


def _dtype(dtype: str | torch.dtype) -> str | torch.dtype:
    if isinstance(dtype, torch.dtype) or dtype in DTYPES:
        return dtype
    raise OptionError(f"Expected a dtype of {', '.join(DTYPES)}, got {dtype!r}; 'auto' keeps the checkpoint's.")


def _check_vocabulary(tokenizer: Any, name: str, folder: Path) -> None:
    """For a folder without a tokenizer, transformers makes an empty one and says nothing."""
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        raise LoadError(
            f"Looked for the tokenizer of {name!r} (tokenizer.json, or the vocabulary its kind uses) in {folder} and "
            "found none; save the tokenizer beside the model."
        )


def _check_complete(model: nn.Module, missing: Any, name: str, folder: Path) -> None:
    """Weights it does not find transformers fills with random numbers; nothing computed with them is true.

    A pooler or a head on top may be missing: attention does not pass through it.
    """
    base = f"{getattr(model, 'base_model_prefix', '')}."
    inside = hasattr(model, base[:-1])
    lost = sorted(key for key in missing if "pooler" not in key and (not inside or key.startswith(base)))
    if lost:
        raise LoadError(
            f"The weights of {name!r} in {folder} lack {len(lost)} tensors that its config.json asks for, such as "
            f"{lost[0]}; take both from the same place."
        )


def _report(progress: Progress | None, sentence: str) -> None:
    if progress:
        progress(None, sentence)


@contextmanager
def _quietly(progress: Progress | None = None, name: str = "") -> Iterator[None]:
    """Keeps transformers' bars and notices off the terminal for the block, and turns its bars into progress.

    Its verbosity and its bars belong to the whole process, so one block at a time; both are put back.
    """

    def report(done: float, total: float, unit: str) -> None:
        if progress:
            progress(min(done / total, 1.0), f"Loading the weights of {name}: {done:.0f} of {total:.0f}")

    from transformers.utils import logging

    bar = bar_class(report)
    with _QUIET:
        verbosity = logging.get_verbosity()
        hook = logging.set_tqdm_hook(lambda factory, args, options: bar(*args, **options))
        logging.set_verbosity_error()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            logging.set_tqdm_hook(hook)
