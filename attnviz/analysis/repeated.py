"""A decoder's heads on random tokens said twice: what they do with a repetition where the words mean nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attnviz.analysis.patterns import patterns
from attnviz.errors import OptionError, SupportError
from attnviz.hub import Progress
from attnviz.models.load import PretrainedModel
from attnviz.models.tracing import input_table, trace_model
from attnviz.trace import AttentionTrace

if TYPE_CHECKING:
    import pandas as pd

REPEATED = ("previous_token", "duplicate_token", "induction")
"""The patterns that have a meaning on random tokens."""

LENGTH = 50
"""How many random tokens are repeated, where the model has room for them."""

SHORTEST = 2
"""With one token, what follows its first occurrence is the query itself."""


def repeated_patterns(
    model: PretrainedModel,
    role: str = "decoder",
    *,
    length: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Return how much of each head's weight lies on the repetition in random tokens said twice.

    The measure of Olsson et al. 2022 ("In-context Learning and Induction Heads", the prefix-matching score), and of
    the induction demo of TransformerLens. No token occurs more than twice, so of `patterns` on this text
    duplicate_token is the weight on the key `length` before the query and induction on the key `length − 1` before,
    both means over the second half; previous_token is the weight on the key 1 before, a mean over both halves.

    Args:
        model: a loaded model that reads from left to right.
        role: the role of the heads; only "decoder" has such scores.
        length: how many tokens are repeated, at least 2; left out, `LENGTH` or as many as fit.
        seed: chooses the tokens.
        progress: called with a fraction or None and a sentence.

    Returns:
        A row per head: layer, head, previous_token, duplicate_token and induction, 0 to 1; NaN where a layer's
        window is too short to look back that far.

    Raises:
        OptionError: the model has no such heads, or no room for the length.
        SupportError: the model cannot be traced.
    """
    if role != "decoder":
        raise OptionError(f'Expected the role "decoder", got {role!r}: only a decoder reads from left to right.')
    trace = repeated_trace(model, length=length, seed=seed, progress=progress)
    return patterns(trace, role)[["layer", "head", *REPEATED]]


def repeated_trace(
    model: PretrainedModel, *, length: int | None = None, seed: int = 0, progress: Progress | None = None
) -> AttentionTrace:
    """Run a decoder on its start token, where it has one, `length` random tokens, and the same tokens again.

    Args:
        model: a loaded model that reads from left to right.
        length: how many tokens are repeated, at least 2; left out, `LENGTH` or as many as fit.
        seed: chooses the tokens, no two the same and none special.
        progress: called with a fraction or None and a sentence.

    Raises:
        OptionError: the model has no such heads, or no room for the length.
        SupportError: the model cannot be traced.
    """
    if model.support.how == "none":
        raise SupportError(model.support.reason)
    if model.roles != ("decoder",):
        raise OptionError(
            f"Expected a model that reads from left to right and nothing else, such as GPT-2, got {model.name} with "
            f"the roles {list(model.roles)}. Choose a decoder to see what its heads do with a repetition."
        )
    ids = _repeated_ids(model, length, seed)
    if progress:
        progress(None, f"Running {model.name} on {len(ids)} tokens")
    tokens = torch.tensor([ids], device=model.device)
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    trace = trace_model(model.hf_model, inputs, tokenizer=model.tokenizer)
    trace.name, trace.support = model.name, model.support
    return trace


def _repeated_ids(model: PretrainedModel, length: int | None, seed: int) -> list[int]:
    """Return the start token, where there is one, and the random ids twice."""
    start = [] if model.tokenizer.bos_token_id is None else [int(model.tokenizer.bos_token_id)]
    ordinary = _ordinary_ids(model)
    most = len(ordinary) if model.max_length is None else min(len(ordinary), (model.max_length - len(start)) // 2)
    chosen = min(LENGTH, most) if length is None else length
    if not SHORTEST <= chosen <= most:
        raise OptionError(
            f"Expected {SHORTEST} to {most} tokens to repeat, as many as {model.name} takes twice, got {chosen}."
        )
    order = torch.randperm(len(ordinary), generator=torch.Generator().manual_seed(seed))[:chosen].tolist()
    once = [ordinary[at] for at in order]
    return [*start, *once, *once]


def _ordinary_ids(model: PretrainedModel) -> list[int]:
    """Return the ids of the vocabulary that are not special and that the model has a vector for, rising."""
    tokenizer: Any = model.tokenizer
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {*tokenizer.all_special_ids, *(number for number, token in added.items() if token.special)}
    rows = getattr(input_table(model.hf_model), "num_embeddings", None)
    return sorted(number for number in set(tokenizer.get_vocab().values()) - special if rows is None or number < rows)
