"""A toy experiment: a text, its vectors and a module of one's own choice, and the trace they leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from attnviz.attention import (
    CrossAttention,
    MultiHeadCrossAttention,
    MultiHeadSelfAttention,
    SelfAttention,
    WeightKind,
    causal_mask,
    set_weights,
)
from attnviz.devices import resolve_device
from attnviz.embeddings import (
    EmbeddedText,
    PretrainedEmbedding,
    article_vectors,
    one_hot_vectors,
    random_vectors,
    sinusoidal_positions,
)
from attnviz.errors import OptionError, TextError
from attnviz.tokens import TokenSequence, split_words
from attnviz.trace import AttentionTrace

ModuleName = Literal["self", "cross", "multi-head self", "multi-head cross"]
EmbeddingName = Literal["article", "random", "one-hot", "pretrained input", "pretrained contextual"]

Module = SelfAttention | CrossAttention | MultiHeadSelfAttention | MultiHeadCrossAttention


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything a person chooses.

    Attributes:
        text: what attends.
        context: for a cross-attention module, what is attended to.
        module: which of the four modules.
        embedding: where vectors come from.
        heads: number of heads of a multi-head module.
        dimension: width of random and one-hot vectors; the others bring their own.
        positions: add sinusoidal positions to the vectors.
        causal: a token may not attend to later ones (self-attention only).
        scale: divide scores by sqrt(d_head).
        weights: the module's projections.
        seed: of random vectors and random weights.
        device: where the module computes, "auto" for the fastest present.

    Raises:
        OptionError: module, embedding or weights is none of the choices.
    """

    text: str
    context: str = ""
    module: ModuleName = "multi-head self"
    embedding: EmbeddingName = "random"
    heads: int = 4
    dimension: int = 16
    positions: bool = False
    causal: bool = False
    scale: bool = True
    weights: WeightKind = "random"
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        for name, known in (("module", ModuleName), ("embedding", EmbeddingName), ("weights", WeightKind)):
            if (chosen := getattr(self, name)) not in get_args(known):
                raise OptionError(f"Expected a choice of {name} among {', '.join(get_args(known))}, got {chosen!r}.")

    @property
    def crosses(self) -> bool:
        """Whether two sequences take part."""
        return "cross" in self.module

    @property
    def pretrained(self) -> bool:
        """Whether vectors come from a pretrained model."""
        return self.embedding.startswith("pretrained")


ARTICLE_EXAMPLE = Experiment(
    text="karina is to the store",
    module="self",
    embedding="article",
    heads=1,
    dimension=2,
    weights="identity",
)
"""The worked example of self-attention: five words, vectors of two numbers, W^Q = W^K = W^V = I."""


@dataclass(frozen=True)
class Outcome:
    """What an experiment gives.

    Attributes:
        trace: the module's trace.
        notices: sentences a person should read beside the picture.
    """

    trace: AttentionTrace
    notices: tuple[str, ...]


def run_experiment(experiment: Experiment, embedding: PretrainedEmbedding | None = None) -> Outcome:
    """Return the trace of an experiment.

    Args:
        experiment: what was chosen.
        embedding: the loaded model, where vectors come from a pretrained one.

    Raises:
        TextError: a text is empty, or has words the chosen vectors do not know.
        OptionError: two choices do not fit each other, as heads that do not divide the width.
    """
    texts = [experiment.text, experiment.context] if experiment.crosses else [experiment.text]
    embedded = _embed(experiment, texts, embedding)
    device = resolve_device(experiment.device)
    vectors = [_with_positions(part.vectors, experiment.positions).to(device) for part in embedded]
    module = _module(experiment, vectors[0].shape[-1]).to(device)
    tokens = [part.tokens for part in embedded]
    if isinstance(module, CrossAttention | MultiHeadCrossAttention):
        trace = module.trace(*vectors, tokens=tokens[0], key_tokens=tokens[1])
    else:
        mask = causal_mask(len(vectors[0])) if experiment.causal else None
        trace = module.trace(vectors[0], tokens=tokens[0], mask=mask)
    return Outcome(trace, tuple(_notices(experiment, embedded)))


def _module(experiment: Experiment, width: int) -> Module:
    """Return the module with its weights set; torch's own random state is left as it was."""
    with torch.random.fork_rng(devices=[]):  # nn.Linear draws weights, which are then replaced
        module = _new_module(experiment, width)
    set_weights(module, experiment.weights, seed=experiment.seed)
    return module.eval()


def _new_module(experiment: Experiment, width: int) -> Module:
    match experiment.module:
        case "self":
            return SelfAttention(width, scale=experiment.scale)
        case "cross":
            return CrossAttention(width, scale=experiment.scale)
        case "multi-head self":
            return MultiHeadSelfAttention(width, experiment.heads, scale=experiment.scale)
        case "multi-head cross":
            return MultiHeadCrossAttention(width, experiment.heads, scale=experiment.scale)


def _embed(experiment: Experiment, texts: Sequence[str], embedding: PretrainedEmbedding | None) -> list[EmbeddedText]:
    """Return tokens and vectors of each text."""
    names = ("the text", "the text attended to")
    for name, text in zip(names, texts, strict=False):
        if not text.strip():
            raise TextError(f"Expected at least one word in {name}, got nothing. Type a sentence.")
    if experiment.pretrained:
        if embedding is None:
            raise OptionError("Expected a loaded model for pretrained vectors, got none. Load one first.")
        read = embedding.input_vectors if experiment.embedding == "pretrained input" else embedding.contextual_vectors
        return [read(text) for text in texts]
    words = [split_words(text) for text in texts]
    vocabulary = list(dict.fromkeys(word for part in words for word in part))
    return [EmbeddedText(TokenSequence.from_words(part), _toy(experiment, part, vocabulary), 0) for part in words]


def _toy(experiment: Experiment, words: Sequence[str], vocabulary: Sequence[str]) -> Tensor:
    """Return toy vectors [token, d_model]."""
    if experiment.embedding == "article":
        return article_vectors(words)
    if experiment.embedding == "one-hot":
        return one_hot_vectors(words, experiment.dimension, vocabulary=vocabulary)
    return random_vectors(words, experiment.dimension, seed=experiment.seed)


def _with_positions(vectors: Tensor, positions: bool) -> Tensor:
    """Return the vectors, with sinusoidal positions added where asked for."""
    return vectors + sinusoidal_positions(*vectors.shape) if positions else vectors


def _notices(experiment: Experiment, embedded: Sequence[EmbeddedText]) -> list[str]:
    """Return what a person should know beside the picture."""
    notices = [
        f"Shortened to the {len(part.tokens)} tokens the model takes; the last {part.dropped} tokens went."
        for part in embedded
        if part.dropped
    ]
    repeated = None if experiment.positions else _first_repeated(embedded[0])
    if repeated:
        label, first, second = repeated
        alike = f"“{label}” stands at positions {first} and {second} with the same vector, so its queries are the same "
        if experiment.causal and not experiment.crosses:
            alike += "and only the mask tells the two apart."
        else:
            alike += "and no head can tell the two apart."
        notices.append(f"{alike} Add sinusoidal positions to see them differ.")
    return notices


def _first_repeated(embedded: EmbeddedText) -> tuple[str, int, int] | None:
    """Return a label that stands twice with one vector, and the first two such positions."""
    labels, vectors = embedded.tokens.labels, embedded.vectors
    seen: dict[str, int] = {}
    for position, label in enumerate(labels):
        first = seen.setdefault(label, position)
        if first != position and torch.equal(vectors[first], vectors[position]):
            return label, first, position
    return None
