"""A person's text turned into a model's inputs and into the tokens of the trace's axes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.errors import OptionError, TextError
from attnviz.hub import Progress
from attnviz.models.running import evaluating
from attnviz.tokens import TokenSequence

LONGEST_GENERATION = 128
_TOKENIZING = threading.Lock()  # a fast tokenizer keeps its truncation setting inside


@dataclass
class Encoded:
    """What a model reads: its inputs, the tokens they stand for, and what was done to the text."""

    inputs: dict[str, Tensor]
    tokens: dict[str, TokenSequence]
    notices: list[str] = field(default_factory=list)


def encode(tokenizer: Any, text: str, pair: str | None, *, limit: int | None, device: torch.device) -> Encoded:
    """Return the inputs of one text, or of a pair, shortened to the model's limit.

    Raises:
        TextError: a text is empty.
        OptionError: a pair was given to a tokenizer without room for one.
    """
    for part in (text, pair):
        if part is not None and not part.strip():
            raise TextError("Expected a text, got nothing but white space. Type a sentence.")
    encoding, notices = _shortened(tokenizer, {"text": text, "text_pair": pair}, limit)
    inputs = {
        name: torch.tensor([encoding[name]], device=device)
        for name in ("input_ids", "attention_mask", "token_type_ids")
        if name in encoding
    }
    if not inputs["input_ids"].numel():
        raise TextError(f"The tokenizer finds no token in {text!r}. Type a sentence.")
    return Encoded(inputs, {"main": _tokens(tokenizer, encoding, text, pair)}, notices)


def add_target(encoded: Encoded, tokenizer: Any, model: Any, target: str, *, limit: int | None) -> None:
    """Add the decoder's side: the start token, then the target without its end, which is never a query.

    Raises:
        TextError: the target is empty.
    """
    if not target.strip():
        raise TextError("Expected a target, got nothing but white space. Leave it out to let the model write it.")
    room = None if limit is None else limit - 1
    encoding, notices = _shortened(tokenizer, {"text_target": target}, room)
    ids = [_start(model), *_without_end(list(encoding["input_ids"]), model)]
    _add_decoder(encoded, tokenizer, ids, target)
    encoded.notices += notices


def add_generated(
    encoded: Encoded, tokenizer: Any, model: Any, *, limit: int | None, progress: Progress | None
) -> None:
    """Add the decoder's side as the model writes it greedily, at most `LONGEST_GENERATION` tokens or its limit."""
    from transformers import StoppingCriteriaList

    longest = LONGEST_GENERATION if limit is None else min(LONGEST_GENERATION, limit - 1)
    step = _Step(progress)
    with evaluating(model), torch.no_grad():
        ids = model.generate(
            **{name: value for name, value in encoded.inputs.items() if name != "token_type_ids"},
            num_beams=1,
            do_sample=False,
            max_new_tokens=longest,
            stopping_criteria=StoppingCriteriaList([step]),
        )[0].tolist()
    if len(ids) > longest and ids[-1] not in _ends(model):
        encoded.notices.append(f"The model was still writing after {longest} tokens; the rest is left out.")
    _add_decoder(encoded, tokenizer, _without_end(ids, model), None)


class _Step:
    """Tells the progress of a generation; never stops it."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    def __call__(self, ids: Tensor, scores: Any, **_: Any) -> Tensor:
        done = ids.shape[1]
        if self._progress:
            self._progress(min(done / (LONGEST_GENERATION + 1), 1.0), f"The model writes its target: {done} tokens")
        return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)


def _shortened(tokenizer: Any, texts: dict[str, str | None], limit: int | None) -> tuple[Any, list[str]]:
    """Return the encoding, and a notice when it had to be cut."""
    given = {name: text for name, text in texts.items() if text is not None}
    options = {"return_special_tokens_mask": True, "verbose": False}
    if getattr(tokenizer, "is_fast", False):
        options["return_offsets_mapping"] = True
    with _TOKENIZING:
        encoding = tokenizer(**given, **options)
        count = len(encoding["input_ids"])
        if limit is None or count <= limit:
            return encoding, []
        cut = tokenizer(**given, **options, truncation=True, max_length=limit)
    return cut, [f"Shortened to {len(cut['input_ids'])} of {count} tokens, the model's limit."]


def _tokens(tokenizer: Any, encoding: Any, text: str | None, pair: str | None) -> TokenSequence:
    fast = getattr(tokenizer, "is_fast", False)
    segments = None
    if pair is not None:
        segments = encoding.sequence_ids(0) if fast else encoding.get("token_type_ids")
        if segments is None:
            raise OptionError("This model's tokenizer does not tell the two texts of a pair apart. Give one text.")
    return TokenSequence.from_tokenizer(
        tokenizer,
        encoding["input_ids"],
        text=text if pair is None else None,  # offsets count in each text of a pair
        offsets=encoding.get("offset_mapping") if pair is None else None,
        word_ids=encoding.word_ids(0) if fast else None,
        segments=segments,
        special_mask=encoding.get("special_tokens_mask"),
    )


def _add_decoder(encoded: Encoded, tokenizer: Any, ids: list[int], text: str | None) -> None:
    encoded.inputs["decoder_input_ids"] = torch.tensor([ids], device=encoded.inputs["input_ids"].device)
    special = [True, *[False] * (len(ids) - 1)]  # the start token, whichever id the model uses for it
    encoded.tokens["decoder"] = TokenSequence.from_tokenizer(tokenizer, ids, special_mask=special)


def _start(model: Any) -> int:
    """Return the id a decoder starts from."""
    for config in (getattr(model, "generation_config", None), model.config, getattr(model.config, "decoder", None)):
        for name in ("decoder_start_token_id", "bos_token_id"):
            found = getattr(config, name, None)
            if isinstance(found, int):
                return found
    raise OptionError("This model does not say which token its decoder starts from. Use trace_model with its inputs.")


def _ends(model: Any) -> set[int]:
    found = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    found = getattr(model.config, "eos_token_id", None) if found is None else found
    ends = found if isinstance(found, list) else [found]
    return {int(end) for end in ends if end is not None}


def _without_end(ids: list[int], model: nn.Module) -> list[int]:
    return ids[:-1] if len(ids) > 1 and ids[-1] in _ends(model) else ids
