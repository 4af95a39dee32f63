"""The equations of attention as functions, then the four modules made of them.

Source: Vaswani et al. 2017, "Attention Is All You Need", sections 3.2.1 (scaled dot-product attention) and
3.2.2 (multi-head attention). Axes: batch, head, query, key, d_model, d_head.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from attnviz.errors import MaskError, OptionError, ShapeError
from attnviz.layers import ComputedLayer, Projection, precise
from attnviz.rules import ScoreRule
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace, Support


def attention_scores(query: Tensor, key: Tensor, scaling: float) -> Tensor:
    """Return QKᵀ·scaling, [..., query, key], from query [..., query, d_head] and key [..., key, d_head]."""
    return query @ key.transpose(-2, -1) * scaling


def attention_weights(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Return the softmax over keys of the allowed scores, [..., query, key].

    Args:
        scores: [..., query, key].
        allowed: bool, broadcastable to scores, True = may attend; None when every cell is allowed.

    Returns:
        Weights in 0 to 1; a row sums to 1, or to 0 where nothing is allowed (as PyTorch's attention has it).
    """
    if allowed is None:
        return torch.softmax(scores, dim=-1)
    masked = scores.masked_fill(~allowed, -torch.inf)
    empty = ~allowed.any(dim=-1, keepdim=True)
    return torch.softmax(masked.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)


def attention_output(weights: Tensor, value: Tensor) -> Tensor:
    """Return weights · V, [..., query, d_head], from value [..., key, d_head]."""
    return weights @ value


def causal_mask(queries: int, keys: int | None = None) -> Tensor:
    """Return bool [query, key], True where the key is not later than the query."""
    return torch.ones(queries, queries if keys is None else keys, dtype=torch.bool).tril()


class _Attention(nn.Module):
    """What the four modules share: projections in, attention per head, and the trace of it."""

    projections: tuple[str, str, str]
    crosses: bool

    def __init__(self, embed_dim: int, num_heads: int, *, scale: bool) -> None:
        super().__init__()
        _check_sizes(embed_dim, num_heads)
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.scaling = self.head_dim**-0.5 if scale else 1.0
        for name in self.projections:
            setattr(self, name, nn.Linear(embed_dim, embed_dim))

    def split_heads(self, vectors: Tensor) -> Tensor:
        """Return [batch, head, token, d_head] from [batch, token, d_model]."""
        return vectors.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def project(self, x_query: Tensor, x_key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return Q, K, V, each [batch, head, token, d_head]."""
        to_query, to_key, to_value = (self.get_submodule(name) for name in self.projections)
        return (
            self.split_heads(to_query(x_query)),  # [batch, head, query, d_head]
            self.split_heads(to_key(x_key)),  # [batch, head, key, d_head]
            self.split_heads(to_value(x_key)),  # [batch, head, key, d_head]
        )

    def attend(self, x_query: Tensor, x_key: Tensor, mask: Tensor | None) -> Tensor:
        """Return the module's output [batch, query, d_model]."""
        _check_vectors(x_query, self.embed_dim, dims=3)
        _check_vectors(x_key, self.embed_dim, dims=3)
        if len(x_query) != len(x_key):
            raise ShapeError(f"Expected as many decoder as encoder sequences, got {len(x_query)} and {len(x_key)}.")
        mask = _checked_mask(mask, (len(x_query), x_query.shape[1], x_key.shape[1]), x_query.device)
        query, key, value = self.project(x_query, x_key)
        allowed = None if mask is None else mask[:, None]  # [batch or 1, 1, query, key]
        weights = attention_weights(attention_scores(query, key, self.scaling), allowed)
        heads = attention_output(weights, value)  # [batch, head, query, d_head]
        return self.merge(heads.transpose(1, 2).flatten(2))  # [batch, query, d_model]

    def merge(self, concatenated: Tensor) -> Tensor:
        """Return the output [..., d_model] from the heads' outputs side by side [..., d_model]."""
        return concatenated

    @torch.no_grad()
    def record(
        self,
        x_query: Tensor,
        x_key: Tensor,
        query_tokens: TokenSequence | list[str] | None,
        key_tokens: TokenSequence | list[str] | None,
        mask: Tensor | None,
    ) -> AttentionTrace:
        """Return the trace of attending from x_query [query, d_model] to x_key [key, d_model]."""
        for vectors in (x_query, x_key):
            _check_vectors(vectors, self.embed_dim, dims=2)
        queries, keys = len(x_query), len(x_key)
        checked = _checked_mask(mask, (1, queries, keys), x_query.device)
        mask = None if checked is None else checked[0].clone()  # [query, key]
        query, key, value = (part[0] for part in self.project(x_query[None], x_key[None]))
        numbers = precise(query.device)  # as the trace will compute the scores
        scores = attention_scores(query.to(numbers), key.to(numbers), self.scaling)
        masked = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        causal = not self.crosses and mask is not None and torch.equal(mask.cpu(), causal_mask(queries))
        role = "cross" if self.crosses else "decoder" if causal else "encoder"
        layer = ComputedLayer(
            layer=0,
            role=role,
            rule=ScoreRule(scaling=self.scaling, causal=causal, mask=None if causal else mask),
            projection=self.output_projection(),
            query=query,
            key=key,
            value=value,
            logsumexp=masked.logsumexp(-1),
        )
        return AttentionTrace(
            [layer],
            query_tokens={role: _tokens(query_tokens, queries)},
            key_tokens={role: _tokens(key_tokens, keys)},
            inputs=x_query.clone(),
            outputs=self.attend(x_query[None], x_key[None], mask)[0],
            key_inputs=x_key.clone() if self.crosses else None,
            support=Support("module"),
            name=type(self).__name__,
        )

    def output_projection(self) -> Projection | None:
        """Return W^O, None for a module without one."""
        return None


class _FromOneSequence(_Attention):
    """Queries, keys and values from one sequence."""

    crosses = False

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the output [batch, query, d_model].

        Args:
            x: vectors [batch, token, d_model].
            mask: bool [query, key] or [batch, query, key], True = may attend; see `causal_mask`.

        Raises:
            ShapeError: x is not [batch, token, embed_dim].
            MaskError: the mask is not boolean or has another shape.
        """
        return self.attend(x, x, mask)

    def trace(
        self,
        x: Tensor,
        *,
        tokens: TokenSequence | list[str] | None = None,
        key_tokens: TokenSequence | list[str] | None = None,
        mask: Tensor | None = None,
    ) -> AttentionTrace:
        """Return the trace of the computation that `forward` does, under no gradient.

        Args:
            x: vectors [token, d_model].
            tokens: a label per token; numbered where left out.
            key_tokens: labels for the columns where they are to differ from the rows'.
            mask: bool [query, key], True = may attend. A causal mask traces as role "decoder".

        Raises:
            ShapeError: x is not [token, embed_dim], or there are not as many tokens as vectors.
            MaskError: the mask is not boolean or has another shape.
        """
        return self.record(x, x, tokens, tokens if key_tokens is None else key_tokens, mask)


class _FromTwoSequences(_Attention):
    """Queries from a decoder's sequence, keys and values from an encoder's."""

    crosses = True

    def forward(self, x_dec: Tensor, x_enc: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the output [batch, query, d_model].

        Args:
            x_dec: vectors that attend [batch, query, d_model].
            x_enc: vectors attended to [batch, key, d_model].
            mask: bool [query, key] or [batch, query, key], True = may attend.

        Raises:
            ShapeError: x_dec or x_enc is not [batch, token, embed_dim].
            MaskError: the mask is not boolean or has another shape.
        """
        return self.attend(x_dec, x_enc, mask)

    def trace(
        self,
        x_dec: Tensor,
        x_enc: Tensor,
        *,
        tokens: TokenSequence | list[str] | None = None,
        key_tokens: TokenSequence | list[str] | None = None,
        mask: Tensor | None = None,
    ) -> AttentionTrace:
        """Return the trace of the computation that `forward` does, under no gradient; role "cross".

        Args:
            x_dec: vectors that attend [query, d_model].
            x_enc: vectors attended to [key, d_model].
            tokens: a label per query; numbered where left out.
            key_tokens: a label per key; numbered where left out.
            mask: bool [query, key], True = may attend.

        Raises:
            ShapeError: x_dec or x_enc is not [token, embed_dim], or tokens and vectors differ in number.
            MaskError: the mask is not boolean or has another shape.
        """
        return self.record(x_dec, x_enc, tokens, key_tokens, mask)


class _SingleHead(_Attention):
    """One head as wide as the vectors, and no output projection."""

    projections = ("q_linear", "k_linear", "v_linear")

    def __init__(self, embed_dim: int, *, scale: bool = True) -> None:
        """Make the projections W^Q, W^K, W^V (with biases), each embed_dim × embed_dim.

        Args:
            embed_dim: width of the vectors, d_model.
            scale: divide the scores by sqrt(d_head); False to see why it is there.
        """
        super().__init__(embed_dim, 1, scale=scale)


class _MultiHead(_Attention):
    """Several heads side by side, mixed by an output projection."""

    projections = ("q", "k", "v")

    def __init__(self, embed_dim: int, num_heads: int, *, scale: bool = True) -> None:
        """Make the projections W^Q, W^K, W^V, W^O (with biases), each embed_dim × embed_dim.

        Args:
            embed_dim: width of the vectors, d_model.
            num_heads: number of heads; it divides embed_dim.
            scale: divide the scores by sqrt(d_head); False to see why it is there.

        Raises:
            OptionError: num_heads does not divide embed_dim.
        """
        super().__init__(embed_dim, num_heads, scale=scale)
        self.out = nn.Linear(embed_dim, embed_dim)

    def merge(self, concatenated: Tensor) -> Tensor:
        """Return the concatenation through W^O."""
        return self.out(concatenated)

    def output_projection(self) -> Projection:
        """Return W^O as it is now; a trace keeps it while the module learns on."""
        return Projection(self.out.weight.detach().clone(), self.out.bias.detach().clone())


class SelfAttention(_FromOneSequence, _SingleHead):
    """Self-attention of one head: each token attends to the tokens of its own sequence."""


class CrossAttention(_FromTwoSequences, _SingleHead):
    """Cross-attention of one head: each decoder token attends to the encoder's tokens."""


class MultiHeadSelfAttention(_FromOneSequence, _MultiHead):
    """Multi-head self-attention: `num_heads` attentions of width embed_dim / num_heads, mixed by W^O."""


class MultiHeadCrossAttention(_FromTwoSequences, _MultiHead):
    """Multi-head cross-attention: the decoder's tokens attend to the encoder's in `num_heads` ways."""


WeightKind = Literal["identity", "random"]


@torch.no_grad()
def set_weights(module: nn.Module, kind: WeightKind, *, seed: int = 0) -> None:
    """Give every projection of a module its weights.

    Args:
        module: one of the four modules; changed in place.
        kind: "identity" for W = I, as in a worked example, or "random" for Xavier-normal matrices (Glorot and
            Bengio 2010), which keep Q, K and V about as long as the vectors they come from. Biases become 0.
        seed: the seed of the random matrices; torch's own random state is neither read nor changed.
    """
    generator = torch.Generator().manual_seed(seed)
    for linear in (part for part in module.modules() if isinstance(part, nn.Linear)):
        nn.init.zeros_(linear.bias)
        if kind == "identity":
            nn.init.eye_(linear.weight)
        else:
            nn.init.xavier_normal_(linear.weight, generator=generator)


def _check_sizes(embed_dim: int, num_heads: int) -> None:
    if embed_dim < 1 or num_heads < 1:
        raise OptionError(f"Expected embed_dim and num_heads of at least 1, got {embed_dim} and {num_heads}.")
    if embed_dim % num_heads:
        raise OptionError(
            f"Expected a number of heads that divides embed_dim = {embed_dim}, got num_heads = {num_heads}. "
            f"Choose one of {[n for n in range(1, embed_dim + 1) if embed_dim % n == 0]}."
        )


def _check_vectors(vectors: Tensor, embed_dim: int, *, dims: int) -> None:
    shape = list(vectors.shape)
    if len(shape) != dims or shape[-1] != embed_dim:
        axes = "[batch, token, d_model]" if dims == 3 else "[token, d_model]"  # noqa: PLR2004
        raise ShapeError(f"Expected vectors {axes} with d_model = {embed_dim}, got shape {shape}.")
    if not vectors.shape[-2]:
        raise ShapeError(f"Expected at least one token, got shape {shape}.")
    if not vectors.is_floating_point():
        raise ShapeError(f"Expected vectors of floating-point numbers, got {vectors.dtype}. Use x.float().")


def _checked_mask(mask: Tensor | None, shape: tuple[int, int, int], device: torch.device) -> Tensor | None:
    """Return the mask as [batch or 1, query, key] on the device; MaskError where it does not fit `shape`."""
    if mask is None:
        return None
    if mask.dtype != torch.bool:
        raise MaskError(f"Expected a boolean mask (True = may attend), got {mask.dtype}. Use mask.bool().")
    batch, queries, keys = shape
    if tuple(mask.shape) not in {(queries, keys), (1, queries, keys), (batch, queries, keys)}:
        raise MaskError(
            f"Expected a mask [query, key] = [{queries}, {keys}] or [batch, query, key] = {list(shape)}, "
            f"got shape {list(mask.shape)}."
        )
    return mask.reshape(-1, queries, keys).to(device)


def _tokens(tokens: TokenSequence | list[str] | None, count: int) -> TokenSequence:
    if tokens is None:
        return TokenSequence.numbered(count)
    sequence = tokens if isinstance(tokens, TokenSequence) else TokenSequence.from_words(tokens)
    if len(sequence) != count:
        raise ShapeError(f"Expected one token per vector ({count}), got {len(sequence)} tokens.")
    return sequence
