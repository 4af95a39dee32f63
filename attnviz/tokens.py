"""Tokens and what a person reads of them: the only file that knows Ġ, ▁ and ##."""

import html
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple, overload

import regex

from attnviz.errors import ShapeError, TextError

# A possible emoji, as Unicode's UTS #51 spells it (section 1.4.9): flag, or pictures with tones and joiners.
_PICTURE = r"\p{Emoji}(?:\p{Emoji_Modifier}|[\uFE0E\uFE0F]\u20E3?|[\U000E0020-\U000E007E]+\U000E007F)?"
_EMOJI = rf"\p{{RI}}\p{{RI}}|{_PICTURE}(?:\u200D{_PICTURE})*"
# Arabic, Syriac, Mongolian and Indic scripts spell with joiners: they are kept between two letters.
_JOINING = r"[[\p{Arabic}\p{Syriac}\p{Mongolian}\u0900-\u0DFF]&&[\p{L}\p{M}]]"
_UNSEEN = r"[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]"
_SEEN_OR_NOT = regex.compile(rf"(?P<kept>{_EMOJI}|(?<={_JOINING})[\u200C\u200D](?={_JOINING}))|{_UNSEEN}", regex.V1)
_WORD_BOUNDARY = regex.compile(r"\b", regex.WORD)
_RIGHT_TO_LEFT = regex.compile(r"[\p{bc=R}\p{bc=AL}\p{bc=AN}]")
_COLUMNS = ("labels", "is_special", "words", "ids", "offsets", "segments")
_SIGNS = {"\n": "⏎", "\t": "⇥", " ": "␣"}
_PART = r" \d+/\d+(?: |$)"  # of a character, in a label: "猫 1/3"
_PUNCTUATION = regex.compile(rf"(?:##)?[␣⏎⇥]*(?:\p{{P}}(?:{_PART})?)+[␣⏎⇥]*")


def split_words(text: str) -> list[str]:
    """Split a text into words and punctuation, in any script, by Unicode's word boundaries (UAX #29).

    "didn't" and "3.14" stay whole, each punctuation mark stands alone, a Chinese, Japanese or Thai text falls into
    characters (katakana into words), an emoji with its tones and joiners is one word. White space separates; case
    is kept; markup is text like any other.

    Args:
        text: Anything a person types.

    Returns:
        The words in the order of the text; empty when there is nothing but white space.
    """
    return [word.strip() for word in _WORD_BOUNDARY.split(text) if word.strip()]


def readable(text: str) -> str:
    """Show every character of a text: white space as ⏎ ⇥ ␣, nothing as ∅, unseen characters as their code point.

    Args:
        text: One token.

    Returns:
        A label without control, direction or zero-width characters, except the joiners inside an emoji or between
        letters that need them. A combining mark that has lost its letter stands on ◌.
    """
    shown = _SEEN_OR_NOT.sub(lambda found: found[0] if found["kept"] else _sign(found[0]), text)
    return regex.sub(r"^(?=\p{M})", "◌", shown) or "∅"


def _sign(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # how Python decodes a byte that is part of no character
        return f"<0x{ord(char) - 0xDC00:02X}>"
    return _SIGNS.get(char, f"U+{ord(char):04X}")


@dataclass(frozen=True)
class TokenSequence:
    """The tokens of one axis of an attention map. Tokens repeat: the identity of a token is its position.

    Attributes:
        labels: What a person reads, uncut and not escaped; see `readable`, and `for_plotly` and its siblings.
        is_special: True where the tokenizer put the token in, such as `[CLS]` or `<s>`.
        words: The number of the word a token belongs to, counted from 0; None for special tokens.
        ids: The tokenizer's own numbers.
        offsets: The span of characters in `text` a token stands for, (start, end).
        segments: 0 or 1, the sentence of a pair.
        text: The text that was tokenized.

    Raises:
        ShapeError: If two of them differ in length.
    """

    labels: tuple[str, ...]
    is_special: tuple[bool, ...]
    words: tuple[int | None, ...]
    ids: tuple[int, ...] | None = None
    offsets: tuple[tuple[int, int], ...] | None = None
    segments: tuple[int | None, ...] | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        _check_lengths(len(self), **{name: getattr(self, name) for name in _COLUMNS})

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_punctuation(self) -> tuple[bool, ...]:
        """True where a token is nothing but punctuation (Unicode's P, so no $ + < = > ^ ` | ~) and is not special.

        White space beside it and the ## of a WordPiece continuation do not count.
        """
        matches = (_PUNCTUATION.fullmatch(label) is not None for label in self.labels)
        return tuple(found and not special for found, special in zip(matches, self.is_special, strict=True))

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice | Sequence[int]) -> "TokenSequence": ...
    def __getitem__(self, position: int | slice | Sequence[int]) -> "str | TokenSequence":
        return self.labels[position] if isinstance(position, int) else self.select(position)

    def select(self, positions: slice | Iterable[int]) -> "TokenSequence":
        """Keep some positions, such as those that are not padding.

        Args:
            positions: A slice, or positions in the order wanted.

        Returns:
            The tokens there; their words keep their numbers and their offsets still point into `text`.
        """
        chosen = range(len(self))[positions] if isinstance(positions, slice) else [int(at) for at in positions]
        columns = {name: getattr(self, name) for name in _COLUMNS}
        kept: dict[str, Any] = {key: column and tuple(column[at] for at in chosen) for key, column in columns.items()}
        return replace(self, **kept)

    def by_words(self) -> tuple[tuple[int, ...], ...]:
        """Return the positions of each word's tokens, in the order of their first ones; special tokens stand alone.

        Where the text is known, what a tokenizer calls several words is one where Unicode sees no boundary (UAX #29):
        "didn't" and "3.14" stay whole, as in `split_words`.
        """
        groups: dict[tuple[str, int], list[int]] = {}
        for at, word in enumerate(self._words_of_text()):
            groups.setdefault(("token", at) if word is None else ("word", word), []).append(at)
        return tuple(map(tuple, groups.values()))

    def _words_of_text(self) -> Sequence[int | None]:
        """The word numbers, with words joined that touch where the text has no boundary."""
        if self.text is None or self.offsets is None:
            return self.words
        boundaries = {found.start() for found in _WORD_BOUNDARY.finditer(self.text)}
        joined: dict[int, int] = {}  # a word, and the first of those it is joined to
        for before, at in pairwise(range(len(self))):
            (_, end), (start, stop) = self.offsets[before], self.offsets[at]
            left, right = self.words[before], self.words[at]
            if left is None or right is None or left == right:
                continue
            if end == start < stop and start not in boundaries:
                joined[right] = joined.get(left, left)
        return [None if word is None else joined.get(word, word) for word in self.words]

    def merged(self, groups: Sequence[Sequence[int]]) -> "TokenSequence":
        """Make one token of each group of positions, such as those of `by_words`.

        Args:
            groups: The positions of each token to be, at least one; what is in no group is left out.

        Returns:
            A word for each group, numbered from 0 and without ids. Its label is what stands in the text from its first
            piece to its last, or its pieces put together where the text is not known. Its offsets are that span. A
            group of special tokens stays special, is no word, and keeps its label.
        """
        special = [all(self.is_special[at] for at in group) for group in groups]
        spans = self.offsets and tuple(_span([self.offsets[at] for at in group]) for group in groups)
        labels = [_joined([self.labels[at] for at in group]) for group in groups]
        if self.text is not None and spans is not None:
            written = [self.text[start:end].strip() for start, end in spans]
            labels = [readable(word) if word else label for word, label in zip(written, labels, strict=True)]
        own = [self.labels[group[0]] for group in groups]
        labels = [mark if kept else label for mark, label, kept in zip(own, labels, special, strict=True)]
        return TokenSequence(
            labels=tuple(labels),
            is_special=tuple(special),
            words=_count_words([None] * len(groups), [None] * len(groups), special),
            offsets=spans,
            segments=self.segments and tuple(self.segments[group[0]] for group in groups),
            text=self.text,
        )

    @classmethod
    def from_words(cls, words: Sequence[str]) -> "TokenSequence":
        """Make one token of each word.

        Args:
            words: The words, as `split_words` gives them or chosen by hand.

        Returns:
            A sequence without special tokens.

        Raises:
            TextError: If there is no word, or a text was given in place of its words.
        """
        if isinstance(words, str) or not words:
            raise TextError(
                f"Expected a list of at least one word, got {words!r}; split a text with split_words(text)."
            )
        return cls(tuple(map(readable, words)), (False,) * len(words), tuple(range(len(words))))

    @classmethod
    def numbered(cls, count: int) -> "TokenSequence":
        """Label `count` vectors that come without tokens by their positions, "0", "1", …."""
        return cls(tuple(map(str, range(count))), (False,) * count, tuple(range(count)))

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: Any,
        ids: Iterable[int],
        *,
        text: str | None = None,
        offsets: Sequence[tuple[int, int]] | None = None,
        word_ids: Sequence[int | None] | None = None,
        segments: Sequence[int | None] | None = None,
        special_mask: Sequence[int | bool] | None = None,
    ) -> "TokenSequence":
        """Read ids as the tokenizer's tokens, whatever its kind.

        Spaces inside tokens become ␣, a token that holds only part of a character becomes that character and which
        part ("猫 1/3"), a WordPiece continuation keeps its ##, an id without a token becomes "id 12345". In a label a
        plain space stands only beside such a number.

        Args:
            tokenizer: A Hugging Face tokenizer, fast or slow.
            ids: [token], of one text.
            text: The text they were made from.
            offsets: [token], (start, end) in the text.
            word_ids: [token], the tokenizer's word numbers. Found from the text of the tokens where they are not given
                or call everything one word, as tokenizers without a pre-tokenizer do.
            segments: [token], 0 or 1, the sentence of a pair.
            special_mask: [token], True for positions that are special besides the tokenizer's special tokens.

        Returns:
            One token for each id. The unknown token stands for a word of the text and so is not special.

        Raises:
            ShapeError: If the arguments differ in length.
        """
        numbers = tuple(int(number) for number in ids)
        _check_lengths(len(numbers), offsets=offsets, word_ids=word_ids, segments=segments, special_mask=special_mask)
        sides = None if segments is None else tuple(None if side is None else int(side) for side in segments)
        special_ids = _special_ids(tokenizer)
        is_special = [number in special_ids for number in numbers]
        if special_mask is not None:
            is_special = [known or bool(more) for known, more in zip(is_special, special_mask, strict=True)]
        spelling = _Spelling.of(tokenizer)
        tokens = [_token(tokenizer, number) for number in numbers]
        pieces = [spelling.piece(number, token) for number, token in zip(numbers, tokens, strict=True)]
        labels = [label if token is not None else None for token, label in zip(tokens, _labels(pieces), strict=True)]
        if word_ids is None or len(set(word_ids) - {None}) <= 1:
            word_ids = _find_words(spelling.spaced(pieces, is_special))
        return cls(
            labels=tuple(label or f"id {number}" for label, number in zip(labels, numbers, strict=True)),
            is_special=tuple(is_special),
            words=_count_words(word_ids, sides or [None] * len(numbers), is_special),
            ids=numbers,
            offsets=None if offsets is None else tuple((int(start), int(end)) for start, end in offsets),
            segments=sides,
            text=text,
        )


def _check_lengths(count: int, **columns: Sequence[Any] | None) -> None:
    for name, column in columns.items():
        if column is not None and len(column) != count:
            raise ShapeError(f"Expected {count} values in `{name}`, one for each token, got {len(column)}.")


def _token(tokenizer: Any, number: int) -> str | bytes | None:
    try:
        return tokenizer.convert_ids_to_tokens(number)
    except (LookupError, OverflowError, TypeError, ValueError):  # what tokenizers raise for an id they do not have
        return None


def _special_ids(tokenizer: Any) -> set[int]:
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {number for number, token in added.items() if token.special} | set(tokenizer.all_special_ids)
    placed = {getattr(tokenizer, f"{role}_token_id", None) for role in ("bos", "eos", "sep", "pad", "cls", "mask")}
    return special - ({tokenizer.unk_token_id} - placed)  # GPT-2's unknown token is also its end of text


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's letter for each byte: printable ones stand for themselves, the rest are numbered from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


class _Spelling(NamedTuple):
    """How a tokenizer writes text into its tokens; a mark is only read where its tokenizer uses it."""

    literal: set[int]  # ids of tokens that are written as they are
    byte_level: bool  # one letter per byte, as in GPT-2
    raw_bytes: bool  # one character per byte, as in ByT5
    byte_fallback: bool  # <0xF0> for a byte, as in Llama
    space: str  # "▁" of SentencePiece, else ""
    word_end: str  # "</w>" of CLIP, else ""
    continuation: str  # "##" of WordPiece

    @classmethod
    def of(cls, tokenizer: Any) -> "_Spelling":
        model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
        steps = list(_steps(tokenizer))
        kinds = {step["type"] for step in steps}
        slow = hasattr(tokenizer, "sp_model")  # around SentencePiece itself
        marks = [step["replacement"] for step in steps if step["type"] == "Metaspace"]
        space = marks[0] if marks else "▁" if slow or any("▁" in str(step) for step in steps) else ""
        return cls(
            literal=_special_ids(tokenizer) | (set() if space else set(getattr(tokenizer, "added_tokens_decoder", ()))),
            byte_level="ByteLevel" in kinds or hasattr(tokenizer, "byte_decoder"),
            raw_bytes=getattr(tokenizer, "_utf_vocab_size", None) == len(_BYTE_OF),
            byte_fallback=slow or "ByteFallback" in kinds or getattr(model, "byte_fallback", False),
            space=space,
            word_end=getattr(model, "end_of_word_suffix", None) or "",
            continuation=getattr(model, "continuing_subword_prefix", None) or "##",
        )

    def piece(self, number: int, token: str | bytes | None) -> bytes:
        """The bytes of text a token stands for."""
        if token is None or isinstance(token, bytes):
            return token or b""
        if number in self.literal:
            return _encode(token)
        if self.byte_fallback and (found := regex.fullmatch(r"<0x([0-9A-F]{2})>", token)):
            return bytes.fromhex(found[1])
        stem = token.removesuffix(self.word_end)
        ending = b" " if stem != token else b""
        if self.byte_level and all(letter in _BYTE_OF for letter in stem):
            return bytes(_BYTE_OF[letter] for letter in stem) + ending
        if self.raw_bytes:
            return b"".join(bytes([ord(char)]) if ord(char) < len(_BYTE_OF) else _encode(char) for char in token)
        return _encode(stem.replace(self.space, " ") if self.space else stem) + ending

    def spaced(self, pieces: Sequence[bytes], is_special: Sequence[bool]) -> list[bytes]:
        """The pieces with the spaces between words that some tokenizers leave out; special tokens end a line."""
        prefix = self.continuation.encode()
        has_spaces = self.byte_level or self.raw_bytes or self.space or self.word_end or b" " in pieces
        whole = pieces if has_spaces else [p.removeprefix(prefix) if p.startswith(prefix) else b" " + p for p in pieces]
        return [b"\n" if special else piece for special, piece in zip(is_special, whole, strict=True)]


def _steps(tokenizer: Any) -> Iterator[dict[str, Any]]:
    """The normalizers, pre-tokenizers and decoders of a fast tokenizer, as in its tokenizer.json."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        step: Any = getattr(backend, part, None)
        if step is None:
            continue
        try:
            description = json.loads(step.__getstate__())
        except Exception:  # a step written in Python has no description; tokenizers raises a plain Exception
            continue
        yield from description.get(f"{part}s".replace("_", ""), [description])  # a Sequence lists its steps


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _characters(pieces: Sequence[bytes]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Each character of the pieces read one after another, and the positions of the pieces it is spread over."""
    owners, at = [position for position, piece in enumerate(pieces) for _ in piece], 0
    for char in b"".join(pieces).decode("utf-8", "surrogateescape"):
        size = len(char.encode("utf-8", "surrogateescape"))
        yield char, tuple(dict.fromkeys(owners[at : at + size]))
        at += size


def _labels(pieces: Sequence[bytes]) -> list[str]:
    contents: list[list[tuple[str, str]]] = [[] for _ in pieces]
    for char, owners in _characters(pieces):
        for part, owner in enumerate(owners, start=1):
            contents[owner].append((f" {part}/{len(owners)} " if len(owners) > 1 else "", char))
    return [_label(content) for content in contents]


def _label(content: Sequence[tuple[str, str]]) -> str:
    runs = groupby(content, key=lambda entry: entry[0])
    return "".join(readable("".join(char for _, char in run)) + part for part, run in runs).rstrip() or readable("")


def _find_words(pieces: Sequence[bytes]) -> list[int | None]:
    """The word, by the boundaries of `split_words`, that holds the first character of each piece."""
    chars = list(_characters(pieces))
    words = _WORD_BOUNDARY.split("".join(char for char, _ in chars))
    numbers = [number for number, word in enumerate(words) for _ in word]
    found: dict[int, int] = {}
    for number, (char, owners) in zip(numbers, chars, strict=True):
        for owner in owners if char != " " else ():
            found.setdefault(owner, number)
    result: list[int | None] = [-1] * (len(pieces) + 1)
    for position in reversed(range(len(pieces))):  # a lone space belongs to the word after it
        result[position] = found.get(position, result[position + 1])
    return result[:-1]


def _span(offsets: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The characters from the first of some spans to the last; empty ones, as of a lone ▁, count where all are."""
    spans = [span for span in offsets if span[0] < span[1]] or list(offsets)
    return min(start for start, _ in spans), max(end for _, end in spans)


def _joined(labels: Sequence[str]) -> str:
    """The label of a word, from those of its pieces: without ## and the spaces around it, each character once."""
    if len(labels) == 1:
        return labels[0].strip("␣") or labels[0]
    pieces = [label.removeprefix("##") or label if at else label for at, label in enumerate(labels)]
    pieces = [regex.sub(rf"(?:U\+[0-9A-F]{{4,6}}|◌?.)(?! 1/){_PART}", "", piece) for piece in pieces]
    word = "".join(regex.sub(_PART, "", piece) for piece in pieces)
    return word.strip("␣") or word


def _count_words(
    word_ids: Sequence[int | None], segments: Sequence[int | None], is_special: Sequence[bool]
) -> tuple[int | None, ...]:
    """Count words through the whole sequence: a tokenizer starts at 0 again in the second sentence of a pair."""
    words: list[int | None] = []
    count, previous = -1, None
    for word, segment, special in zip(word_ids, segments, is_special, strict=True):
        count += not special and (word is None or (word, segment) != previous)
        previous = None if special else (word, segment)
        words.append(None if special else count)
    return tuple(words)


def shorten(label: str, limit: int | None) -> str:
    """Cut a label to at most `limit` characters as a person counts them, the last one …; None leaves it whole."""
    if limit is None or len(label) <= limit or len(clusters := regex.findall(r"\X", label)) <= limit:
        return label
    return "".join(clusters[: max(limit - 1, 0)]) + "…"


def isolate(label: str) -> str:
    """Keep a right-to-left label from reordering what stands around it (U+2068 … U+2069)."""
    return f"\u2068{label}\u2069" if _RIGHT_TO_LEFT.search(label) else label


def for_plotly(label: str, limit: int | None = 24) -> str:
    """Write a label for any text of a Plotly figure: ticks, hover text and its templates, titles, names.

    Character references, which Plotly decodes last, keep `<b>` from being markup, `$x$` from being LaTeX, `%{x}` from
    being filled in, and `#000032` from being replaced by a colour of Streamlit's theme.

    Args:
        label: A label of a `TokenSequence`.
        limit: The most characters shown; None for hover text, where the whole label belongs.

    Returns:
        Text that Plotly draws as the label itself.
    """
    escaped = html.escape(isolate(shorten(label, limit)), quote=False)
    return regex.sub(r"#(?=\d)|\$|%(?=\{)", lambda found: f"&#{ord(found[0])};", escaped)


def for_markdown(label: str) -> str:
    r"""Write a label for Streamlit's Markdown, in texts and widget labels alike.

    Backslashes keep `*`, `$`, `:smile:` and the like. Streamlit also reads what is left when these are gone: it turns
    `->` into an arrow, `a@b.com` and `www.b.com` into links, `:streamlit:` into a picture. A word joiner (U+2060, of no
    width) breaks those.

    Args:
        label: A label of a `TokenSequence`.

    Returns:
        Markdown that Streamlit draws as the label itself.
    """
    broken = regex.sub(r"(?i)(?<=[-<>=~])(?=[-<>=])|(?<=[:@])(?=\S)|(?<=www)(?=\.)", "\u2060", isolate(label))
    return regex.sub(r"([!-/:-@\[-`{-~])", r"\\\1", broken)


def for_html(label: str) -> str:
    """Write a label for an HTML page, between tags or inside a quoted attribute."""
    return html.escape(isolate(label), quote=True)
