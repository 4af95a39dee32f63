"""`load_model`: a pretrained model with its tokenizer, checked, ready to trace texts."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.errors import OptionError, SupportError
from attnviz.hub import Progress
from attnviz.load_errors import explained
from attnviz.models.capture import Recorded
from attnviz.models.fallback import BUDGET
from attnviz.models.stacks import choose_stacks
from attnviz.models.support import check, rounding
from attnviz.models.texts import Encoded, add_generated, add_target, encode
from attnviz.models.tracing import (
    Run,
    assemble,
    check_layers,
    check_vocabulary,
    hidden_states,
    input_table,
    run_once,
)
from attnviz.models.vectors import HIDDEN_BUDGET
from attnviz.pretrained import load_tokenizer, load_weights, locate, longest_input, model_files
from attnviz.trace import ROLES, AttentionTrace, Support

PROBE = "The animal didn't cross the street because it was too tired."
PROBE_LIMIT = 16
COLD_SECONDS = 1.0  # a probe faster than this is run again, as the first run of a process is slower than later ones


@dataclass(frozen=True)
class LayerShape:
    """What one layer of a loaded model looks like.

    Attributes:
        layer: the model's own number.
        heads: query heads.
        key_heads: key-value heads; fewer than `heads` where queries share keys in groups.
        d_head: width of a head's queries and keys; None where only weights are known.
        window: how many tokens a sliding window holds, None where the layer sees everything.
        has_sink: whether each row may give weight to no token at all.
    """

    layer: int
    heads: int
    key_heads: int
    d_head: int | None
    window: int | None
    has_sink: bool

    @classmethod
    def of(cls, recorded: Recorded) -> LayerShape:
        """Read a layer of the probe's run."""
        layer = recorded.layer
        key = getattr(layer, "key", None)
        return cls(
            layer=layer.layer,
            heads=layer.shape[0],
            key_heads=layer.shape[0] if key is None else key.shape[0],
            d_head=None if key is None else key.shape[-1],
            window=recorded.window,
            has_sink=layer.rule.sink is not None,
        )


@dataclass(frozen=True)
class Estimate:
    """What a trace is about to take.

    Attributes:
        tokens: how many tokens the model reads.
        seconds: the run's time, roughly.
        bytes: what the trace keeps.
    """

    tokens: int
    seconds: float
    bytes: int


@functools.lru_cache(maxsize=16)
def operations_per_second(device: torch.device, dtype: torch.dtype) -> float:
    """Return how many floating-point operations a model does in a second here: half of what one matrix product does."""
    side = 512
    matrix = torch.ones(side, side, device=device, dtype=dtype)
    times = []
    for _ in range(4):
        start = time.perf_counter()
        (matrix @ matrix).sum().item()
        times.append(time.perf_counter() - start)
    return side**3 / min(times)


class PretrainedModel:
    """A pretrained model and its tokenizer. Several threads may trace one model at once.

    Attributes:
        name: what it was loaded as.
        hf_model: the model of transformers, in eval mode.
        tokenizer: its tokenizer.
        support: how it is traced, and the largest difference from its own weights on a short probe.
        shapes: per role, its layers.
        max_length: how many tokens it takes at most, None for no limit.
    """

    def __init__(self, name: str, hf_model: nn.Module, tokenizer: Any) -> None:
        """Wrap a model and check it on a short probe."""
        self.name = name
        self.hf_model = hf_model
        self.tokenizer = tokenizer
        self.max_length = longest_input(hf_model, tokenizer)
        self._overhead = 0.0  # seconds of the probe's run
        self._widths: tuple[int, ...] = ()  # of the vectors that a trace keeps between the layers, stack by stack
        self.support, recorded = self._check()
        self.shapes = {role: tuple(map(LayerShape.of, recorded[role])) for role in ROLES if role in recorded}

    def __repr__(self) -> str:
        """Return the shape in a line."""
        parts = ", ".join(f"{role}: {len(shapes)} × {shapes[0].heads}" for role, shapes in self.shapes.items())
        return f"PretrainedModel({self.name!r}, {parts or 'no attention'}, {self.parameters:,} parameters)"

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that have layers, of "encoder", "decoder", "cross"."""
        return tuple(self.shapes)

    def layers(self, role: str | None = None) -> tuple[int, ...]:
        """Return the numbers of the layers that attend in a role, rising; they may have gaps."""
        return tuple(shape.layer for shape in self.shapes[self.role(role)])

    def heads(self, layer: int, role: str | None = None) -> int:
        """Return the number of query heads of a layer."""
        return self.shape(layer, role).heads

    def shape(self, layer: int, role: str | None = None) -> LayerShape:
        """Return what a layer looks like; OptionError when there is no such layer."""
        role = self.role(role)
        for shape in self.shapes[role]:
            if shape.layer == layer:
                return shape
        raise OptionError(f"Expected a {role} layer of {list(self.layers(role))}, got {layer}. Choose one of these.")

    def role(self, role: str | None = None) -> str:
        """Return the role asked for, or the only one; OptionError where it is absent or must be chosen."""
        if role is None and len(self.roles) == 1:
            return self.roles[0]
        if role not in self.shapes:
            got = "none given" if role is None else repr(role)
            raise OptionError(f"Expected a role of {list(self.roles)}, got {got}. Pass role=.")
        return role

    @property
    def parameters(self) -> int:
        """The number of the model's parameters."""
        return sum(parameter.numel() for parameter in self.hf_model.parameters())

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the model's weights."""
        return next(part.dtype for part in self.hf_model.parameters() if part.is_floating_point())

    @property
    def device(self) -> torch.device:
        """Where the model takes its inputs."""
        return _input_device(self.hf_model)

    @property
    def writes_target(self) -> bool:
        """Whether the model has a decoder's side, which `trace` takes as `target`."""
        config: Any = self.hf_model.config
        return bool(getattr(config, "is_encoder_decoder", False))

    def trace(
        self,
        text: str,
        target: str | None = None,
        pair: str | None = None,
        *,
        layers: Collection[int] | None = None,
        progress: Progress | None = None,
        budget: int = BUDGET,
    ) -> AttentionTrace:
        """Tokenize a text, run the model once, and return the trace.

        A text longer than the model takes is shortened, and `trace.notices` says so.

        Args:
            text: what the model reads.
            target: for an encoder-decoder, the decoder's side; left out, the model writes it greedily.
            pair: a second text after the first, as in BERT's sentence pairs; tokens keep their side in `segments`.
            layers: numbers of the layers to keep; None for all.
            progress: called with a fraction or None and a sentence.
            budget: bytes that may be kept of a model that shows nothing but its weights.

        Raises:
            TextError: a text is empty.
            OptionError: a target for a model without a decoder's side, or no such layer.
            SupportError: the model cannot be traced, or gave NaN.
            LoadError: the tokenizer does not belong to the model.
        """
        if self.support.how == "none":
            raise SupportError(self.support.reason)
        encoded = self.encode(text, target, pair, progress=progress)
        if progress:
            progress(None, f"Running {self.name}")
        run = run_once(self.hf_model, encoded.inputs, item=0, layers=layers, budget=budget)
        check_layers(run.collector, layers)
        trace = assemble(run, self.hf_model, encoded.inputs, self.tokenizer, known=encoded.tokens)
        trace.name, trace.support = self.name, self.support
        trace.notices = (*encoded.notices, *trace.notices)
        return trace

    def encode(
        self, text: str, target: str | None = None, pair: str | None = None, *, progress: Progress | None = None
    ) -> Encoded:
        """Return the inputs of the run that `trace` does, with their tokens."""
        if target is not None and not self.writes_target:
            raise OptionError(f"{self.name} has no decoder's side, so it takes no target. Leave it out.")
        encoded = encode(self.tokenizer, text, pair, limit=self.max_length, device=self.device)
        check_vocabulary(self.hf_model, int(encoded.inputs["input_ids"].max()))
        if target is not None:
            add_target(encoded, self.tokenizer, self.hf_model, target, limit=self.max_length)
        elif self.writes_target:
            add_generated(encoded, self.tokenizer, self.hf_model, limit=self.max_length, progress=progress)
        return encoded

    def _timed_run(self, inputs: dict[str, Tensor]) -> Run:
        """Run the probe and remember how fast it went; once more where a first, cold run would mislead."""
        for limit in (COLD_SECONDS, 0):
            start = time.perf_counter()
            run = run_once(self.hf_model, inputs, item=0, layers=None, budget=BUDGET)
            seconds = time.perf_counter() - start
            self._overhead = seconds
            if seconds > limit:
                break
        return run

    def estimate(self, text: str, pair: str | None = None) -> Estimate:
        """Return about how long a trace takes and how much it keeps, from the probe's time and this machine's speed.

        What an encoder-decoder writes by itself is not counted.
        """
        ids = self.tokenizer(text, pair, verbose=False)["input_ids"]
        tokens = len(ids) if self.max_length is None else min(len(ids), self.max_length)
        shapes = [shape for layers in self.shapes.values() for shape in layers]
        vectors = [tokens * width for width in self._widths]
        kept = sum(size for size in vectors if 4 * size <= HIDDEN_BUDGET) + sum(
            tokens**2 * shape.heads
            if shape.d_head is None
            else tokens * shape.d_head * (shape.heads + 2 * shape.key_heads)
            for shape in shapes
        )
        scores = sum(4 * tokens**2 * shape.heads * (shape.d_head or 0) for shape in shapes)
        model: Any = self.hf_model
        table = getattr(model.get_input_embeddings(), "weight", None)
        looked_up = 0 if table is None else table.numel()
        operations = 2 * (self.parameters - looked_up) * tokens + scores
        return Estimate(tokens, self._overhead + operations / operations_per_second(self.device, self.dtype), 4 * kept)

    def _check(self) -> tuple[Support, dict[str, list[Recorded]]]:
        """Trace a short probe and compare it with the model's own eager weights."""
        limit = min(PROBE_LIMIT, self.max_length or PROBE_LIMIT)
        encoded = encode(self.tokenizer, PROBE, None, limit=limit, device=self.device)
        largest = max(int(encoded.inputs["input_ids"].max()), self.tokenizer.vocab_size - 1)
        check_vocabulary(self.hf_model, largest)
        if self.writes_target:
            add_target(encoded, self.tokenizer, self.hf_model, PROBE, limit=limit)
        try:
            run = self._timed_run(encoded.inputs)
            chosen, _ = choose_stacks(run.collector.recorded)
            difference = check(self.hf_model, encoded.inputs, chosen)
            self._widths = _widths(run, chosen)
        except SupportError as error:
            return Support("none", None, str(error)), {}
        return Support(run.how, difference, rounding(self.dtype) if difference else ""), chosen


def _widths(run: Run, chosen: dict[str, list[Recorded]]) -> tuple[int, ...]:
    """Return how many numbers a token's vectors between the layers are together, for each stack they are kept of."""
    found = {id(states): sum(state.shape[-1] for state in states) for states in hidden_states(run, chosen)[0].values()}
    return tuple(found.values())


def load_model(
    name_or_path: str | Path,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> PretrainedModel:
    """Load a pretrained model by its name on the hub, a folder, or a .gguf file, and check that it can be traced.

    A model that does not fit in the memory of the device is spread over all devices and the disk (by accelerate).

    Args:
        name_or_path: such as "minilm" (installed with attnviz), "gpt2", "/models/mine", "model.Q4.gguf".
        device: "auto" for the fastest, or one of `attnviz.devices.available_devices()`.
        dtype: "auto" for the checkpoint's own, or "float32", "bfloat16", "float16".
        revision: branch, tag or commit on the hub.
        trust_remote_code: run Python code that comes with the model; read it first.
        progress: called with a fraction or None and a sentence.

    Returns:
        The model. `model.support` says whether it is traced exactly, and how far its weights differ from the model's
        own on a probe; a model that cannot be traced is returned all the same and says why there.

    Raises:
        LoadError: what was looked for, where, and what to do.
        OptionError: no such device, dtype, or revision.
    """
    location = locate(name_or_path)
    options: dict[str, Any] = {
        "revision": revision,
        "trust_remote_code": trust_remote_code,
        "progress": progress,
    }
    folder = model_files(location, **options)
    tokenizer = load_tokenizer(location, **options)
    auto_class = _auto_class(location.name, folder, location.gguf_file, trust_remote_code)
    model = load_weights(location, auto_class=auto_class, device=device, dtype=dtype, **options)
    if progress:
        progress(None, f"Checking {location.name} against its own weights")
    return PretrainedModel(location.name, model, tokenizer)


def _auto_class(name: str, folder: Path, gguf_file: str | None, trust_remote_code: bool) -> str:
    """Return the class of transformers that builds the model with the head it was saved with, where it writes text."""
    if gguf_file:
        return "AutoModelForCausalLM"
    with explained(name, where=str(folder)):
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    if getattr(config, "is_encoder_decoder", False):
        return "AutoModelForSeq2SeqLM"
    saved_as = (getattr(config, "architectures", None) or [""])[0]
    return "AutoModelForCausalLM" if saved_as.endswith(("ForCausalLM", "LMHeadModel")) else "AutoModel"


def _input_device(model: Any) -> torch.device:
    table = input_table(model)
    part = next((table if table is not None else model).parameters())
    # A layer that accelerate keeps on the disk has no device of its own; its hook moves the inputs.
    if part.device.type == "meta":
        return torch.device(getattr(getattr(table, "_hf_hook", None), "execution_device", "cpu"))
    return part.device
