"""The logit lens: what a decoder would say next if the vectors after a layer were its last (nostalgebraist 2020)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.errors import OptionError, SupportError
from attnviz.models.fallback import BUDGET
from attnviz.models.load import PretrainedModel
from attnviz.models.running import evaluating, without_cache
from attnviz.models.stacks import choose_stacks
from attnviz.models.support import shortened
from attnviz.models.tracing import hidden_states, run_once
from attnviz.models.vectors import first_hidden
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace

if TYPE_CHECKING:
    import pandas as pd

MOST_VECTORS = 2048
"""Vectors that are read where no positions are chosen: those of the last tokens, after every layer."""
MOST_LOGITS = 1 << 25  # held at once
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}
ROUNDED = 3e-2  # in half precision
READING: ContextVar[object] = ContextVar("attnviz_reading", default=None)

NO_DECODER = (
    "The logit lens reads the next token, which a decoder predicts; this trace has {} alone. Choose a decoder, such as "
    "GPT-2."
)
NO_HEAD = (
    "{} was loaded without a head that turns vectors into next tokens, so there is no logit lens. Load a model that "
    "was saved with one (its class ends in ForCausalLM, LMHeadModel or ForConditionalGeneration)."
)


@dataclass(frozen=True)
class Lens:
    """The likeliest next tokens after each layer; axis "state" is that of `trace.hidden_states`, 0 before the layers.

    Where the vectors between the layers are not known there is one state: what the model itself says in the end.

    Attributes:
        names: what each state is, such as "input" or "after layer 3".
        positions: int [position], the tokens after which the next one is read.
        ids: int64 [state, position, rank], the likeliest first.
        probabilities: float32 [state, position, rank], of the whole vocabulary's softmax, 0 to 1.
        labels: str [state, position, rank], what a person reads.
        difference: the largest difference between the last layer's logits read so and the model's own, on the first
            tokens of this text; 0 where they are the model's own.
        note: why the last layer stands alone; empty where all are there.
    """

    names: tuple[str, ...]
    positions: tuple[int, ...]
    ids: Tensor
    probabilities: Tensor
    labels: np.ndarray
    difference: float
    note: str = ""

    def table(self) -> pd.DataFrame:
        """Return one row per cell: state, position, rank (from 1), token_id, token, probability."""
        import pandas as pd

        states, places, ranks = (at.flatten() for at in np.indices(self.ids.shape))
        return pd.DataFrame(
            {
                "state": states,
                "position": np.array(self.positions)[places],
                "rank": ranks + 1,
                "token_id": self.ids.numpy().flatten(),
                "token": self.labels.flatten(),
                "probability": self.probabilities.numpy().flatten(),
            }
        )


@dataclass(frozen=True)
class Readout:
    """What a model does after its last layer: its own final norm, head and whatever scaling or capping it has.

    It is the model itself, run on one token, whose last layer hands on the vectors to read in place of its own; so
    nothing of the model need be known or copied. Others may run the model meanwhile.

    Attributes:
        hf_model: the model.
        last_layer: the last layer of its decoder.
        inputs: one token.
        vocabulary: how many tokens the head tells apart.
        in_batch: whether the vectors stand in a row of the batch each, with a token of their own, which is slower;
            needed where the model gives its vectors the shape of its inputs again (GPT-BigCode).
        difference: the largest difference between logits read so and the model's own.
    """

    hf_model: nn.Module
    last_layer: nn.Module
    inputs: Mapping[str, Any]
    vocabulary: int
    in_batch: bool = False
    difference: float = 0.0

    @torch.no_grad()
    def logits(self, vectors: Tensor) -> Tensor:
        """Return the logits [vector, vocabulary] of vectors [vector, d_model] as they leave a layer, on the device."""
        inputs, handed = self.inputs, vectors[None]
        if self.in_batch:
            inputs = {name: value.expand(len(vectors), *value.shape[1:]) for name, value in self.inputs.items()}
            handed = vectors[:, None]
        with evaluating(self.hf_model), _handing_on(self.last_layer, handed):
            output = self.hf_model(**without_cache(self.hf_model, inputs))
        return output.logits.flatten(0, -2)

    def likeliest(self, vectors: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Return the ids and the probabilities of the likeliest next tokens [vector, rank], on the CPU."""
        step = max(1, MOST_LOGITS // self.vocabulary)
        found = [_likeliest(self.logits(part), most) for part in vectors.split(step)]
        ids, probabilities = zip(*found, strict=True)
        return torch.cat(ids), torch.cat(probabilities)


def _likeliest(logits: Tensor, most: int) -> tuple[Tensor, Tensor]:
    logits = logits.float()
    best = logits.topk(most)
    return best.indices.cpu(), (best.values - logits.logsumexp(-1, keepdim=True)).exp().cpu()


@contextmanager
def _handing_on(layer: nn.Module, vectors: Tensor) -> Iterator[None]:
    """Let a layer give out other vectors [batch, token, d_model] in this thread's runs during the block."""
    mark = object()

    def hand_on(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        return _replaced(output, vectors) if READING.get() is mark else output

    handle, token = layer.register_forward_hook(hand_on), READING.set(mark)
    try:
        yield
    finally:
        READING.reset(token)
        handle.remove()


def _replaced(output: Any, vectors: Tensor) -> Any:
    """Return a layer's output with other vectors, [1, vector, d_model], in the place of its own."""
    if isinstance(output, Tensor):
        return vectors.to(output)
    at = next(at for at, part in enumerate(output) if first_hidden(part) is not None)
    return type(output)([*output[:at], _replaced(output[at], vectors), *output[at + 1 :]])


def find_readout(hf_model: Any, inputs: Mapping[str, Any]) -> Readout:
    """Return what a decoder does after its last layer, checked on the first tokens of a text.

    Args:
        hf_model: a decoder, or an encoder-decoder, of transformers with its head.
        inputs: a text's ids as the model takes them; the first row of the batch is read.

    Raises:
        SupportError: the model has no decoder or no head, its layers are not known, or the logits are not its own.
    """
    name = getattr(hf_model, "name_or_path", "") or type(hf_model).__name__
    head = hf_model.get_output_embeddings() if hasattr(hf_model, "get_output_embeddings") else None
    short = shortened(inputs, hf_model.config, 0)
    if short is None:
        raise SupportError(f"The logit lens reads texts; {name} was given other inputs. Give it input_ids.")
    run = run_once(hf_model, short, item=0, layers=None, budget=BUDGET)
    chosen, _ = choose_stacks(run.collector.recorded)
    role = decoder_role(tuple(chosen))
    own = getattr(run.output, "logits", None)
    if head is None or own is None:
        raise SupportError(NO_HEAD.format(name))
    states, reasons = hidden_states(run, chosen)
    if role not in states:
        raise SupportError(f"There is no logit lens of this model. {' '.join(reasons)}")
    one = {key: value[:, :1] if key != "encoder_hidden_states" else value for key, value in short.items()}
    last = run.vectors.layers(chosen[role][0].place.stack)[-1]
    return _checked(Readout(hf_model, last, one, own.shape[-1]), states[role][-1], own[0], name)


def _checked(readout: Readout, last: Tensor, own: Tensor, name: str) -> Readout:
    """Return a readout that gives the model's own logits [token, vocabulary] of its last vectors [token, d_model]."""
    allowed = TOLERANCE.get(own.dtype, ROUNDED) * max(1.0, float(own.abs().max()))
    for tried in (readout, replace(readout, in_batch=True)):
        difference = _difference(tried, last, own)
        if difference <= allowed:
            return replace(tried, difference=difference)
    raise SupportError(
        f"What {name} says cannot be read off its last layer alone: the logits would differ from its own by "
        f"{difference:.1e}. So there is no logit lens of it."
    )


def _difference(readout: Readout, last: Tensor, own: Tensor) -> float:
    """Return the largest difference of logits; infinite where the model does not take vectors so.

    The vectors are read from the last to the first, so that what depends on their places is found out.
    """
    try:
        read = readout.logits(last.flip(0)).flip(0)
    except RuntimeError:
        return torch.inf
    return float((read - own).abs().max()) if read.shape == own.shape else torch.inf


def decoder_role(roles: Sequence[str]) -> str:
    """Return the role whose vectors become next tokens; SupportError where there is none."""
    for role in ("decoder", "cross"):  # in T5Gemma 2 the decoder's own attention is within its cross-attention
        if role in roles:
            return role
    raise SupportError(NO_DECODER.format("an encoder" if roles else "no attention"))


def logit_lens(
    model: PretrainedModel, trace: AttentionTrace, *, top: int = 5, positions: Sequence[int] | None = None
) -> Lens:
    """Return the likeliest next tokens at each layer, by the model's own final norm and head.

    After the last layer they are what the model says, and that alone is given where the vectors between its layers are
    not known. Before it they are what its head makes of vectors it was not trained on: a reading, not what the layer
    "thinks" (nostalgebraist 2020, "interpreting GPT: the logit lens").

    Args:
        model: a decoder or an encoder-decoder.
        trace: what it left, as `model.trace` gives it; not a view of it.
        top: how many tokens for each place.
        positions: tokens of the decoder after which the next one is read; where left out the last ones, as many as
            give at most `MOST_VECTORS` vectors, which is every one of a short text.

    Raises:
        SupportError: no decoder, no head, or a view of a trace by words, which has no ids.
        OptionError: no such position, or no such number of tokens.
    """
    role = decoder_role(trace.roles)
    states, inputs = trace.hidden_states(role), _inputs(model, trace, role)
    chosen = _positions(positions, len(trace.query_tokens(role)), max(1, len(states)))
    if not states:
        return _of_the_end(model, inputs, chosen, top, " ".join(trace.notices))
    try:
        readout = find_readout(model.hf_model, inputs)
    except SupportError as error:
        return _of_the_end(model, inputs, chosen, top, str(error))
    _check_top(top, readout.vocabulary)
    vectors = torch.cat([state[list(chosen)] for state in states])
    shape = (len(states), len(chosen), top)
    ids, probabilities = (part.reshape(shape) for part in readout.likeliest(vectors, top))
    names = ("input", *(f"after layer {at}" for at in range(len(states) - 1)))
    return Lens(names, chosen, ids, probabilities, _labels(model.tokenizer, ids), readout.difference)


def _of_the_end(
    model: PretrainedModel, inputs: Mapping[str, Tensor], chosen: tuple[int, ...], top: int, reason: str
) -> Lens:
    """Return what a model itself says after its last layer, with the reason why nothing before it is read."""
    logits = own_logits(model.hf_model, inputs)[list(chosen)]
    _check_top(top, logits.shape[-1])
    ids, probabilities = (part[None] for part in _likeliest(logits, top))
    labels = _labels(model.tokenizer, ids)
    return Lens(("after the last layer",), chosen, ids, probabilities, labels, 0.0, reason)


@torch.no_grad()
def own_logits(hf_model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the logits [token, vocabulary] that a model gives for the first row; SupportError without a head."""
    with evaluating(hf_model):
        output = hf_model(**without_cache(hf_model, inputs))
    logits = getattr(output, "logits", None)
    if logits is None or hf_model.get_output_embeddings() is None:
        raise SupportError(NO_HEAD.format(getattr(hf_model, "name_or_path", "") or type(hf_model).__name__))
    found: Tensor = logits[0]
    return found


def _check_top(top: int, vocabulary: int) -> None:
    if not 1 <= top <= vocabulary:
        raise OptionError(f"Expected 1 to {vocabulary} tokens for each place, got top={top}.")


def _positions(positions: Sequence[int] | None, tokens: int, states: int) -> tuple[int, ...]:
    if positions is None:
        return tuple(range(max(0, tokens - max(1, MOST_VECTORS // states)), tokens))
    wrong = [at for at in positions if not 0 <= at < tokens]
    if wrong or not len(positions):
        raise OptionError(f"Expected positions of 0 to {tokens - 1}, got {list(wrong or positions)}.")
    return tuple(positions)


def _inputs(model: PretrainedModel, trace: AttentionTrace, role: str) -> dict[str, Tensor]:
    """Return the ids that a trace was made from."""
    sides = {"input_ids": trace.query_tokens("encoder" if model.writes_target else role).ids}
    if model.writes_target:
        sides["decoder_input_ids"] = trace.query_tokens(role).ids
    if any(ids is None for ids in sides.values()):
        raise SupportError("The logit lens needs the ids of the tokens; a view by words has none. Turn the view off.")
    inputs = {name: torch.tensor([ids], device=model.device) for name, ids in sides.items()}
    return inputs | {"attention_mask": torch.ones_like(inputs["input_ids"])}


def _labels(tokenizer: Any, ids: Tensor) -> np.ndarray:
    """Return what a person reads of each id, str of the same shape; each by itself, not as one text."""
    unique = ids.unique()
    between = tokenizer.all_special_ids[:1]  # keeps parts of a character from being put together with the next token's
    spelled = [number for one in unique.tolist() for number in (one, *between)]
    labels = TokenSequence.from_tokenizer(tokenizer, spelled).labels[:: 1 + len(between)]
    return np.array(labels, dtype=object)[torch.searchsorted(unique, ids).numpy()]
