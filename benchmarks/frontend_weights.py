"""The weights that every tool of `frontend.py` is given: a trace of random queries and keys, and words for its tokens."""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch
from torch import Tensor

from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace, ComputedLayer, ScoreRule, Support

HEAD_SIZE = 64
SPREAD = 2.0
"""Standard deviation of the scores: some weights stand out, as in a trained model."""
SENTENCE = "the animal did not cross the street because it was too tired and nobody else had seen it before ."


def words(count: int) -> list[str]:
    """Return so many tokens of a sentence said again and again: of ordinary length, and repeating, as text does."""
    return list(itertools.islice(itertools.cycle(SENTENCE.split()), count))


def make_trace(layers: int, heads: int, tokens: int) -> AttentionTrace:
    """Return the trace of a model of BERT's kind, where every cell of every head is allowed.

    The queries and keys are drawn, not computed by a random model: in one, all maps below the first few layers are
    one even grey.
    """
    torch.manual_seed(0)
    known = {"encoder": TokenSequence.from_words(words(tokens))}
    return AttentionTrace(
        [_layer(number, heads, tokens) for number in range(layers)],
        query_tokens=known,
        key_tokens=known,
        support=Support("interface"),
        name="random",
    )


def _layer(number: int, heads: int, tokens: int) -> ComputedLayer:
    query, key, value = (torch.randn(heads, tokens, HEAD_SIZE) for _ in range(3))
    layer = ComputedLayer(
        layer=number,
        role="encoder",
        rule=ScoreRule(HEAD_SIZE**-0.5),
        query=SPREAD * query,
        key=key,
        value=value,
        logsumexp=torch.zeros(heads, tokens),
    )
    return replace(layer, logsumexp=layer.sum_exponentials())


def all_weights(trace: AttentionTrace) -> list[Tensor]:
    """Return what a model gives with output_attentions=True: per layer, weights [1, head, query, key]."""
    return [
        torch.stack([trace.weights(layer, head) for head in range(trace.heads(layer))])[None]
        for layer in trace.layers()
    ]
