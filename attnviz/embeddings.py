"""From text to vectors: made by hand, at random, by position, or taken from a pretrained model."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.errors import LoadError, OptionError, TextError
from attnviz.hub import Progress
from attnviz.pretrained import MINILM, load_tokenizer, load_weights, locate, longest_input
from attnviz.tokens import TokenSequence

ARTICLE_VECTORS: dict[str, tuple[float, float]] = {
    "karina": (1.0, 0.0),
    "is": (0.0, 1.0),
    "to": (1.0, 1.0),
    "the": (1.0, 1.0),
    "store": (0.5, 1.0),
}
"""The five words of the worked example of self-attention, with their vectors of two numbers."""

LONGEST_WAVELENGTH = 10_000.0  # Vaswani et al. 2017, section 3.5, in units of 2π positions


def article_vectors(words: Sequence[str]) -> Tensor:
    """The vectors of the worked example, whatever the case of the words.

    Args:
        words: [token], each one of `ARTICLE_VECTORS`.

    Returns:
        [token, 2] float32.

    Raises:
        TextError: There is no word, or one that the example does not know.
    """
    known = [word.casefold() for word in _some(words)]
    strange = [word for word in words if word.casefold() not in ARTICLE_VECTORS]
    if strange:
        raise TextError(
            f"The worked example has vectors for {', '.join(ARTICLE_VECTORS)} only, got {strange[0]!r}; "
            "use these words, or choose random or pretrained vectors for others."
        )
    return torch.tensor([ARTICLE_VECTORS[word] for word in known], dtype=torch.float32)


def random_vectors(words: Sequence[str], dimension: int, *, seed: int = 0) -> Tensor:
    """A standard normal vector for each word, the same wherever and whenever the word appears.

    A word's generator is seeded by the SHA-256 of the seed and the word, so neither the sentence nor the process has
    a say, and torch's own random state stays as it is. "The" and "the" are different words.

    Args:
        words: [token].
        dimension: d_model, 1 or more.
        seed: Another seed gives other vectors.

    Returns:
        [token, d_model] float32.

    Raises:
        TextError: There is no word.
        OptionError: The dimension is below 1.
    """
    _check_size("dimension", dimension)
    return torch.stack([_random_vector(word, dimension, seed) for word in _some(words)])


def one_hot_vectors(words: Sequence[str], dimension: int, *, vocabulary: Sequence[str] | None = None) -> Tensor:
    """A vector with a single 1 for each word, at the word's place in the vocabulary.

    Args:
        words: [token].
        dimension: d_model, at least the number of different words.
        vocabulary: The words in the order of their places; by default the given words as they first appear.

    Returns:
        [token, d_model] float32, of 0 and 1.

    Raises:
        TextError: There is no word, or one that the vocabulary lacks.
        OptionError: More different words than dimensions.
    """
    _check_size("dimension", dimension)
    places = {
        word: place for place, word in enumerate(dict.fromkeys(_some(words) if vocabulary is None else vocabulary))
    }
    if len(places) > dimension:
        raise OptionError(
            f"Expected at most {dimension} different words, one for each dimension, got {len(places)}; "
            f"choose {len(places)} dimensions or more, a shorter text, or random vectors."
        )
    strange = [word for word in _some(words) if word not in places]
    if strange:
        raise TextError(f"Expected words of the vocabulary, got {strange[0]!r}; add it, or leave the vocabulary out.")
    return torch.eye(dimension)[[places[word] for word in words]]


def sinusoidal_positions(length: int, dimension: int) -> Tensor:
    """The positional encoding of "Attention Is All You Need" (Vaswani et al. 2017, section 3.5).

    Column 2i holds sin(position / 10000^(2i / d_model)) and column 2i + 1 the cosine of the same angle; with an odd
    d_model the last sine has no cosine.

    Args:
        length: Number of positions, 1 or more, counted from 0.
        dimension: d_model, 1 or more.

    Returns:
        [token, d_model] float32 within [-1, 1].

    Raises:
        OptionError: The length or the dimension is below 1.
    """
    _check_size("length", length)
    _check_size("dimension", dimension)
    exponents = torch.arange(0, dimension, 2, dtype=torch.float64) / dimension
    angles = torch.arange(length, dtype=torch.float64)[:, None] / LONGEST_WAVELENGTH**exponents  # [token, pair]
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1)  # [token, pair, 2]
    return waves.flatten(1)[:, :dimension].float()


@dataclass(frozen=True)
class EmbeddedText:
    """A text as a model reads it.

    Attributes:
        tokens: The model's own tokens, special ones included.
        vectors: [token, d_model] float32 on the CPU.
        dropped: How many tokens at the end went because the model takes no more.
    """

    tokens: TokenSequence
    vectors: Tensor
    dropped: int


class PretrainedEmbedding:
    """A pretrained model as a source of vectors; made by `load_embedding`.

    Attributes:
        name: What a person calls the model.
        dimension: The length of a vector from `input_vectors`.
        max_length: The most tokens the model takes, special ones included; None when nothing limits it.
    """

    def __init__(self, name: str, model: nn.Module, tokenizer: Any) -> None:
        """Takes a loaded model of transformers and its tokenizer."""
        self.name = name
        self.max_length = longest_input(model, tokenizer)
        self._model: Any = model
        self._tokenizer = tokenizer
        self._table = _input_table(model, name)  # [vocabulary, d_model]
        self.dimension = int(self._table.shape[1])

    def input_vectors(self, text: str) -> EmbeddedText:
        """The rows of the model's input embedding matrix, before any position is added.

        Args:
            text: One text.

        Returns:
            Tokens and vectors [token, d_model]. A factorised model (ALBERT) has shorter rows than hidden states.

        Raises:
            TextError: The text is empty.
        """
        encoding, dropped = self._encode(text)
        with torch.no_grad():
            rows = self._table[torch.tensor(encoding["input_ids"], device=self._table.device)]
        return EmbeddedText(self._tokens(text, encoding), _plain(rows), dropped)

    def contextual_vectors(self, text: str) -> EmbeddedText:
        """The last hidden state: of the encoder where there is an encoder and a decoder.

        Args:
            text: One text.

        Returns:
            Tokens and vectors [token, d_model of the last layer].

        Raises:
            TextError: The text is empty.
        """
        encoding, dropped = self._encode(text)
        stack = self._model.get_encoder() if self._model.config.is_encoder_decoder else self._model
        names = [name for name in self._tokenizer.model_input_names if name in encoding]
        inputs = {name: torch.tensor([encoding[name]], device=self._table.device) for name in names}
        with torch.no_grad():
            states = stack(**inputs).last_hidden_state[0]
        return EmbeddedText(self._tokens(text, encoding), _plain(states), dropped)

    def _encode(self, text: str) -> tuple[dict[str, Any], int]:
        """The tokenizer's lists for a text, cut to what the model takes, and how many tokens went."""
        _check_text(text)
        options = {"return_special_tokens_mask": True, "return_offsets_mapping": self._tokenizer.is_fast}
        encoding = self._tokenizer(text, verbose=False, **options)
        length = len(encoding["input_ids"])
        if self.max_length is not None and length > self.max_length:
            encoding = self._tokenizer(text, truncation=True, max_length=self.max_length, **options)
        self._check_ids(encoding["input_ids"])
        return encoding, length - len(encoding["input_ids"])

    def _check_ids(self, ids: list[int]) -> None:
        if not ids:
            raise TextError(f"The tokenizer of {self.name!r} finds nothing in this text; write a word or two.")
        if max(ids) >= len(self._table):
            raise LoadError(
                f"Expected token numbers below {len(self._table)}, the rows of the embedding matrix of {self.name!r}, "
                f"got {max(ids)} from its tokenizer; take model and tokenizer from the same place."
            )

    def _tokens(self, text: str, encoding: Any) -> TokenSequence:
        return TokenSequence.from_tokenizer(
            self._tokenizer,
            encoding["input_ids"],
            text=text,
            offsets=encoding.get("offset_mapping"),
            word_ids=encoding.word_ids() if self._tokenizer.is_fast else None,
            special_mask=encoding["special_tokens_mask"],
        )


def load_embedding(
    name_or_path: str | Path = MINILM,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> PretrainedEmbedding:
    """Opens a pretrained model as a source of vectors.

    Args:
        name_or_path: A name on the Hugging Face hub, a folder, a .gguf file, or `"minilm"`, the copy installed here.
        device: From `available_devices()`.
        dtype: `"auto"` keeps the checkpoint's; vectors come back as float32 either way.
        revision: Branch, tag or commit on the hub.
        trust_remote_code: Run Python code that comes with the model.
        progress: Called with a fraction or None and a sentence.

    Returns:
        The model, ready for texts.

    Raises:
        LoadError: The model or its tokenizer cannot be found, read, trusted or held, or has no embedding matrix.
        OptionError: This machine has no such device, or attnviz no such dtype.
    """
    location = locate(name_or_path)
    origin: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code, "progress": progress}
    tokenizer = load_tokenizer(location, **origin)
    model = load_weights(location, device=device, dtype=dtype, **origin)
    return PretrainedEmbedding(location.name, model, tokenizer)


def _random_vector(word: str, dimension: int, seed: int) -> Tensor:
    digest = hashlib.sha256(f"{seed}\0{word}".encode("utf-8", "surrogatepass")).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return torch.randn(dimension, generator=generator, dtype=torch.float32)


def _input_table(model: Any, name: str) -> Tensor:
    """[vocabulary, d_model], the matrix that token numbers are looked up in."""
    try:
        table = getattr(model.get_input_embeddings(), "weight", None)
    except NotImplementedError:
        table = None
    reads_text = model.main_input_name == "input_ids"  # a speech model may have such a matrix for what it writes
    if not reads_text or not isinstance(table, Tensor) or table.ndim != 2:  # noqa: PLR2004
        raise LoadError(f"{name!r} has no matrix with one vector for each token; choose a model that reads text.")
    return table


def _plain(vectors: Tensor) -> Tensor:
    return vectors.detach().to("cpu", torch.float32)


def _some(words: Sequence[str]) -> Sequence[str]:
    if not words:
        raise TextError("There is no word to make a vector of; write a word or two.")
    return words


def _check_size(what: str, size: int) -> None:
    if size < 1:
        raise OptionError(f"Expected a {what} of 1 or more, got {size}; choose a larger one.")


def _check_text(text: str) -> None:
    if not text.strip():
        raise TextError("There is no text to read yet; write a word or a sentence.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise TextError("Expected Unicode text, got half of a surrogate pair in it; paste the text again.")
