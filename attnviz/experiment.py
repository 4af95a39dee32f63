"""A toy experiment: a text, its vectors and a module of one's own choice, and the trace they leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from attnviz.edits import Edits, Module, put_weights, weights_of
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
        edits: numbers put into cells of the vectors, the projections and the mask, as `attnviz.edits.Edits` writes
            them; `run_experiment` reads it.

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
    edits: str = ""

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
        matrices: what the trace was made of, [row, column] each, by the names of `attnviz.edits.MATRICES`: vectors
            without positions, projections as in Q = XW^Q + b^Q with biases [1, column], the mask as booleans. With
            positions, also these, "positions", which are no one's to edit.
        unedited: the same before the edits.
    """

    trace: AttentionTrace
    notices: tuple[str, ...]
    matrices: Mapping[str, Tensor]
    unedited: Mapping[str, Tensor]


def run_experiment(experiment: Experiment, embedding: PretrainedEmbedding | None = None) -> Outcome:
    """Return the trace of an experiment.

    Edits come in where a person reads the numbers: the vectors of the words before positions are added, then the
    projections and the mask.

    Args:
        experiment: what was chosen.
        embedding: the loaded model, where vectors come from a pretrained one.

    Raises:
        TextError: a text is empty, or has words the chosen vectors do not know.
        OptionError: two choices do not fit each other, as heads that do not divide the width, or an edit is of a
            matrix or a cell that there is not.
    """
    edits = Edits.parse(experiment.edits)
    texts = [experiment.text, experiment.context] if experiment.crosses else [experiment.text]
    embedded = _embed(experiment, texts, embedding)
    module = _module(experiment, embedded[0].vectors.shape[-1])
    unedited = _matrices(experiment, embedded, module)
    matrices = edits.applied(unedited)
    put_weights(module, matrices)
    trace = _traced(experiment, module, matrices, [part.tokens for part in embedded])
    return Outcome(trace, tuple(_notices(experiment, embedded, matrices)), matrices, unedited)


def _matrices(experiment: Experiment, embedded: Sequence[EmbeddedText], module: Module) -> dict[str, Tensor]:
    """Return every matrix of the computation, by name."""
    vectors = dict(zip(("x", "context"), (part.vectors for part in embedded), strict=False))
    queries, keys = len(embedded[0].vectors), len(embedded[-1].vectors)
    causal = experiment.causal and not experiment.crosses
    mask = causal_mask(queries) if causal else torch.ones(queries, keys, dtype=torch.bool)
    longest = max(queries, keys)
    positions = {"positions": sinusoidal_positions(longest, vectors["x"].shape[-1])} if experiment.positions else {}
    return {**vectors, **positions, **weights_of(module), "mask": mask}


def _traced(
    experiment: Experiment, module: Module, matrices: Mapping[str, Tensor], tokens: Sequence[TokenSequence]
) -> AttentionTrace:
    """Return the trace of the module on the vectors, with positions where there are some."""
    device = resolve_device(experiment.device)
    module = module.to(device)
    vectors = [_with_positions(matrices[name], matrices).to(device) for name in ("x", "context") if name in matrices]
    mask = None if matrices["mask"].all() else matrices["mask"]
    if isinstance(module, CrossAttention | MultiHeadCrossAttention):
        return module.trace(*vectors, tokens=tokens[0], key_tokens=tokens[1], mask=mask)
    return module.trace(vectors[0], tokens=tokens[0], mask=mask)


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


def _with_positions(vectors: Tensor, matrices: Mapping[str, Tensor]) -> Tensor:
    """Return the vectors, with positions added where there are some."""
    return vectors + matrices["positions"][: len(vectors)] if "positions" in matrices else vectors


def _notices(experiment: Experiment, embedded: Sequence[EmbeddedText], matrices: Mapping[str, Tensor]) -> list[str]:
    """Return what a person should know beside the picture."""
    notices = [
        f"Shortened to the {len(part.tokens)} tokens the model takes; the last {part.dropped} tokens went."
        for part in embedded
        if part.dropped
    ]
    repeated = None if experiment.positions else _first_repeated(embedded[0].tokens.labels, matrices["x"])
    if repeated:
        label, first, second = repeated
        alike = f"“{label}” stands at positions {first} and {second} with the same vector, so its queries are the same "
        if matrices["mask"].all():
            alike += "and no head can tell the two apart."
        else:
            alike += "and only the mask tells the two apart."
        notices.append(f"{alike} Add sinusoidal positions to see them differ.")
    return notices


def _first_repeated(labels: Sequence[str], vectors: Tensor) -> tuple[str, int, int] | None:
    """Return a label that stands twice with one vector, and the first two such positions."""
    seen: dict[tuple[str, bytes], int] = {}
    for position, (label, vector) in enumerate(zip(labels, vectors, strict=True)):
        first = seen.setdefault((label, vector.numpy().tobytes()), position)
        if first != position:
            return label, first, position
    return None
