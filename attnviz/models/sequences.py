"""The sequences a model reads, and which of their positions are real tokens: the two axes of every map."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch
from torch import Tensor

from attnviz.models.places import Place
from attnviz.tokens import TokenSequence

EVERY = slice(None)


@dataclass
class Axis:
    """One sequence of a batch: its ids where it has any, and the positions that are not padding.

    Attributes:
        length: positions, padding included; None until known.
        keep: the positions that are real: a slice, or a list where there are holes.
        ids: the token ids of all positions.
        segments: 0 or 1 per position, the sentence of a pair.
    """

    length: int | None = None
    keep: slice | list[int] = field(default_factory=lambda: EVERY)
    ids: list[int] | None = None
    segments: list[int] | None = None

    @classmethod
    def of(cls, ids: Tensor | None, mask: Tensor | None, item: int, segments: Tensor | None = None) -> Axis:
        """Read row `item` of [batch, token] ids and of the [batch, token] attention mask."""
        table = ids if ids is not None else mask
        if table is None or table.dim() != 2:  # noqa: PLR2004
            return cls()
        fits = mask is not None and mask.dim() == 2 and mask.shape[-1] == table.shape[-1]  # noqa: PLR2004
        return cls(
            length=table.shape[1],
            keep=_kept(mask[item]) if fits and mask is not None else EVERY,
            ids=None if ids is None else ids[item].tolist(),
            segments=_sides(segments, table, item),
        )

    def cut(self, length: int) -> slice | list[int]:
        """Return the real positions of an axis this long; all of them when this is not that sequence."""
        return self.keep if length == self.length else EVERY

    def joined(self, other: Axis) -> Axis:
        """Return this sequence followed by another, as T5Gemma 2's decoder attends to itself and the encoder."""
        first, second = self.length or 0, other.length or 0
        kept = [*_listed(self.keep, first), *(first + at for at in _listed(other.keep, second))]
        ids = None if self.ids is None or other.ids is None else [*self.ids, *other.ids]
        return Axis(first + second, EVERY if len(kept) == first + second else kept, ids)

    def tokens(self, length: int, count: int, tokenizer: Any) -> TokenSequence:
        """Return the tokens of an axis of `length` positions of which `count` are kept; numbered where unknown."""
        if self.length != length or self.ids is None or tokenizer is None:
            return TokenSequence.numbered(count)
        ids, segments = pick(self.ids, self.keep), pick(self.segments, self.keep)
        return TokenSequence.from_tokenizer(tokenizer, ids or [], segments=segments)


@dataclass
class Sequences:
    """The sequences of one run.

    Attributes:
        item: the row of the batch.
        batch: rows of the batch; None where the inputs do not say.
        main: what the encoder, or a model of one stack, reads.
        decoder: what the decoder of an encoder-decoder reads.
        memory: what a lone decoder with cross-attention attends to.
        is_encoder_decoder: whether main and decoder are two sequences.
    """

    item: int
    batch: int | None
    main: Axis
    decoder: Axis = field(default_factory=Axis)
    memory: Axis = field(default_factory=Axis)
    is_encoder_decoder: bool = False

    @classmethod
    def of(cls, inputs: Mapping[str, Any], config: Any, item: int) -> Sequences:
        """Read the inputs of a transformers model."""
        get = inputs.get
        paired = bool(getattr(config, "is_encoder_decoder", False))
        tensors = [value for value in inputs.values() if isinstance(value, Tensor) and value.dim()]
        main = Axis.of(get("input_ids"), get("attention_mask"), item, get("token_type_ids"))
        decoder = Axis.of(get("decoder_input_ids"), get("decoder_attention_mask"), item) if paired else Axis()
        _warn_of_padding(main, get("attention_mask"), config)
        return cls(
            item=item,
            batch=tensors[0].shape[0] if tensors else None,
            main=main,
            decoder=decoder,
            memory=Axis.of(None, get("encoder_attention_mask"), item),
            is_encoder_decoder=paired,
        )

    def axes(self, place: Place, keys: int) -> tuple[Axis, Axis]:
        """Return the sequence that attends and the one attended to, of `keys` positions, at a place."""
        reading = self.decoder if self.is_encoder_decoder and not place.in_encoder else self.main
        if reading is self.decoder and keys == (self.decoder.length or 0) + (self.main.length or 0):
            return reading, self.decoder.joined(self.main)
        if not place.crosses:
            return reading, reading
        return reading, self.main if self.is_encoder_decoder else self.memory

    def hear_decoder(self, ids: Tensor) -> None:
        """Learn the ids that the model itself made for its decoder."""
        if self.decoder.ids is None and ids.dim() == 2:  # noqa: PLR2004
            self.decoder = Axis.of(ids, None, min(self.item, len(ids) - 1))


def _listed(keep: slice | list[int], length: int) -> list[int]:
    """Return the kept positions of a sequence, one by one."""
    return list(range(length)[keep]) if isinstance(keep, slice) else keep


def pick(values: list[Any] | None, keep: slice | list[int]) -> list[Any] | None:
    """Return the values at the kept positions."""
    if values is None:
        return None
    return values[keep] if isinstance(keep, slice) else [values[at] for at in keep]


def _sides(segments: Tensor | None, table: Tensor, item: int) -> list[int] | None:
    """Return the sentence of each position where there are two."""
    if segments is None or segments.shape != table.shape or not bool(segments[item].any()):
        return None
    return segments[item].tolist()


def _kept(mask: Tensor) -> slice | list[int]:
    """Return where a mask [token] is not 0: a slice when these follow one another."""
    at = mask.nonzero().flatten().tolist()
    if not at or len(at) == len(mask):
        return EVERY
    return slice(at[0], at[-1] + 1) if at[-1] - at[0] + 1 == len(at) else at


def _warn_of_padding(main: Axis, mask: Any, config: Any) -> None:
    pad = getattr(config, "pad_token_id", None)
    if mask is not None or main.ids is None or len(main.ids) < 2 or not isinstance(pad, int):  # noqa: PLR2004
        return
    ends = getattr(config, "eos_token_id", None)
    doubtful = pad in (ends if isinstance(ends, list) else [ends])  # then a lone pad id may be the text's own end
    runs = (main.ids[:1], main.ids[-1:]) if not doubtful else (main.ids[:2], main.ids[-2:])
    if any(set(run) == {pad} for run in runs):
        warnings.warn(
            f"The text starts or ends with padding (id {pad}), but no attention_mask was given, so the model attends "
            "to the padding and the trace shows it. Pass attention_mask to leave it out.",
            stacklevel=4,
        )


def is_index(value: Any) -> TypeGuard[Tensor]:
    """Whether a value is a tensor of token ids."""
    return isinstance(value, Tensor) and value.dtype in (torch.int64, torch.int32)
