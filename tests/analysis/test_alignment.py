"""Maps laid over each other, against words put together by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from attnviz.analysis.alignment import Side, align, alignment
from attnviz.analysis.comparison import compare
from attnviz.errors import OptionError, ShapeError
from attnviz.tokens import TokenSequence, split_words

NAN = math.nan


def maps(*shape, seed=0, sharp=2.0):
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (sharp * scores).softmax(-1)


def pieces(*words, special=(), text=None, offsets=None):
    """Tokens from words, each a string or a tuple of its pieces; those of `special` are special tokens."""
    labels, owners = [], []
    number = 0
    for word in words:
        parts = (word,) if isinstance(word, str) else word
        labels += parts
        owners += [None if word in special else number] * len(parts)
        number += word not in special
    return TokenSequence(
        tuple(labels), tuple(label in special for label in labels), tuple(owners), text=text, offsets=offsets
    )


def side(query_tokens, key_tokens=None, seed=0, allowed=None):
    key_tokens = query_tokens if key_tokens is None else key_tokens
    weights = maps(len(query_tokens), len(key_tokens), seed=seed)
    if allowed is not None:
        weights = weights * allowed
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-9)
    return Side(weights.float(), allowed, query_tokens, key_tokens)


def check_kept(given, laid, queries, keys, which):
    """The map is, cell by cell, the mean over query pieces of the sum over key pieces."""
    weights = given.weights.double().tolist()
    for row, rows_ in enumerate(getattr(queries, which)):
        for column, columns in enumerate(getattr(keys, which)):
            expected = sum(weights[i][j] for i in rows_ for j in columns) / len(rows_)
            assert float(laid[row, column]) == pytest.approx(expected, abs=1e-6)


BERT = {"special": ("[CLS]", "[SEP]")}
TROPHY = "The trophy does not fit in the suitcase because it is too {} ."


def test_the_same_tokens_stay_as_they_are():
    tokens = pieces("[CLS]", "the", "cat", "the", "[SEP]", **BERT)
    a, b = side(tokens), side(tokens, seed=1)
    laid = align(a, b)
    assert torch.equal(laid.left, a.weights)
    assert torch.equal(laid.right, b.weights)
    assert laid.queries.how == laid.keys.how == "same"
    assert laid.sentence == "A and B have the same 5 tokens."
    assert laid.keys.labels == tokens.labels


def test_a_minimal_pair_is_laid_token_on_token():
    a, b = (
        side(pieces("[CLS]", *TROPHY.format(word).split(), "[SEP]", **BERT), seed=at)
        for at, word in enumerate(["big", "small"])
    )
    laid = align(a, b)
    assert laid.keys.how == "position"
    assert laid.keys.labels[13:] == ("big → small", ".", "[SEP]")
    assert laid.keys.labels[:13] == a.key_tokens.labels[:13]
    assert laid.sentence == "Token by token, 16 places: 1 differs (big → small)."
    assert torch.equal(laid.right, b.weights)
    assert compare(laid.left, laid.right).divergence.isfinite().all()


def test_a_minimal_pair_of_other_pieces_is_laid_word_on_word():
    a = side(pieces("[CLS]", *TROPHY.format("big").split(), "[SEP]", **BERT))
    words = TROPHY.format("gigantic").split()
    b = side(pieces("[CLS]", *words[:12], ("gig", "##antic"), ".", "[SEP]", **BERT), seed=1)
    laid = align(a, b)
    assert laid.keys.how == "words"
    assert laid.keys.labels == ("[CLS]", *words[:12], "big → gigantic", ".", "[SEP]")
    assert "1 differs (big → gigantic)" in laid.sentence
    assert torch.equal(laid.left, a.weights)
    check_kept(b, laid.right, laid.queries, laid.keys, "right")


def test_two_tokenizations_of_one_text_meet_in_words():
    a = pieces("[CLS]", "didn", "'", "t", ("un", "##believ", "##able"), "street", ".", "[SEP]", **BERT)
    b = pieces("Didn", "'t", ("␣unbelie", "vable"), ("␣stre", "et"), ".")
    left, right = side(a), side(b, seed=1)
    laid = align(left, right)
    assert laid.keys.how == laid.queries.how == "words"
    assert laid.keys.labels == ("didn", "'t", "unbelievable", "street", ".")
    assert laid.keys.left == ((1,), (2, 3), (4, 5, 6), (7,), (8,))
    assert laid.keys.right == ((0,), (1,), (2, 3), (4, 5), (6,))
    check_kept(left, laid.left, laid.queries, laid.keys, "left")
    check_kept(right, laid.right, laid.queries, laid.keys, "right")
    torch.testing.assert_close(laid.right.sum(-1), torch.ones(5), atol=1e-6, rtol=0)
    special = left.weights[:, [0, 9]].sum(-1)
    lost = torch.stack([special[list(group)].mean() for group in laid.queries.left])
    torch.testing.assert_close(laid.left.sum(-1), 1 - lost, atol=1e-6, rtol=0)
    assert "the same text" in laid.sentence
    assert "Special tokens of A left out: [CLS], [SEP]." in laid.sentence
    assert laid.sentence.endswith("What a row gives to keys left out counts as one further key.")


def test_special_tokens_stay_where_both_have_the_same():
    a = pieces("[CLS]", ("wal", "##king"), "[SEP]", **BERT)
    b = pieces("[CLS]", ("w", "##alk", "##ing"), "[SEP]", **BERT)
    left, right = side(a), side(b, seed=1)
    laid = align(left, right)
    assert laid.keys.labels == ("[CLS]", "walking", "[SEP]")
    assert laid.keys.whole
    assert "left out" not in laid.sentence
    for weights in (laid.left, laid.right):
        torch.testing.assert_close(weights.sum(-1), torch.ones(3), atol=1e-6, rtol=0)


def test_white_space_after_the_last_special_token_is_not_lost():
    a = pieces("[CLS]", ("wal", "##king"), "[SEP]", "⏎", **BERT)
    b = pieces("[CLS]", "walking", "[SEP]", "⇥", **BERT)
    found = alignment(a, b)
    assert found.labels[:2] == ("[CLS]", "walking")
    assert found.left == ((0,), (1, 2), (3, 4))
    assert found.right == ((0,), (1,), (2, 3))


def test_texts_are_told_by_text_and_offsets_where_both_have_them():
    text = "Café 👍🏽 🐈 走る"
    a = TokenSequence(
        ("cafe", "[UNK]", "[UNK]", "走", "##る"),
        (False,) * 5,
        (0, 1, 2, 3, 3),
        offsets=((0, 4), (5, 7), (8, 9), (10, 11), (11, 12)),
        text=text,
    )
    b = TokenSequence(
        ("Caf", "é 1/2", "é 2/2", "␣👍 1/2", "👍 2/2", "🏽", "␣🐈", "␣走る"),
        (False,) * 8,
        (0, 0, 0, 1, 1, 1, 2, 3),
        offsets=((0, 3), (3, 4), (3, 4), (4, 6), (5, 6), (6, 7), (7, 9), (9, 12)),
        text=text,
    )
    found = alignment(a, b)
    assert found.how == "words"
    assert found.labels == ("Café", "👍🏽", "🐈", "走る")
    assert found.right == ((0, 1, 2), (3, 4, 5), (6,), (7,))
    other = TokenSequence(b.labels, b.is_special, b.words, offsets=b.offsets, text=text.replace("C", "D"))
    assert alignment(a, other).labels == ("Café → Dafé", "👍🏽", "🐈", "走る")


@pytest.mark.parametrize(
    ("a", "b", "labels"),
    [
        (("我", "爱", "猫", "。"), (("我爱", "猫"), "。"), ("我爱猫", "。")),
        (("我", "爱", "猫"), (("我",), ("␣爱", "猫")), ("我", "爱猫")),
        (("a", "👍"), ("A", ("␣👍 1/4", "👍 2/4", "👍 3/4", "👍 4/4")), ("a", "👍")),
        (("a\u200db",), (("a", "U+200D 1/3", "U+200D 2/3", "U+200D 3/3", "b"),), None),  # shown U+200D, not the joiner
        (("aU+200Db",), (("a", "U+200D 1/3", "U+200D 2/3", "U+200D 3/3", "b"),), ("aU+200Db",)),
        (("##", "Title"), (("#", "#"), ("␣Ti", "tle")), ("##", "Title")),
        (("one", "two"), ("one", "⏎", "two"), ("one", "two")),
        (("one", "two"), ("⏎", "one", "␣two"), ("one", "two")),
        (("x", "e\u0301"), ("x", ("e", "◌\u0301")), ("x", "e\u0301")),
        (("aa", "b"), (("a", "ab"),), ("aab",)),
    ],
)
def test_labels_alone_tell_one_text(a, b, labels):
    found = alignment(pieces(*a), pieces(*b))
    if labels is None:
        assert "the same text" not in found.sentence
        return
    assert found.how == "words"
    assert found.labels == labels
    assert sorted(at for group in found.left for at in group) == list(range(len(pieces(*a))))
    assert sorted(at for group in found.right for at in group) == list(range(len(pieces(*b))))


words = st.lists(st.sampled_from(["cat", "it's", "猫", "trophy", "the", "the"]), min_size=1, max_size=5)


@settings(deadline=None, max_examples=40)
@given(words, st.randoms(use_true_random=False))
def test_however_a_text_is_cut_no_weight_is_lost(text, random):
    def cut(word):
        at = random.randrange(len(word))
        return tuple(part for part in (word[:at], word[at:]) if part)

    a, b = (pieces(*map(cut, text)) for _ in range(2))
    laid = align(side(a), side(b, seed=1), "words")
    assert laid.keys.whole
    assert "".join(laid.keys.labels) == "".join(text)
    for weights in (laid.left, laid.right):
        torch.testing.assert_close(weights.sum(-1), torch.ones(len(weights)), atol=1e-6, rtol=0)


def test_the_longer_side_is_cut_and_it_is_said():
    a = side(pieces("the", "cat", "sat"))
    b = side(pieces("the", "dog", "sat", "down", "."), seed=1)
    laid = align(a, b)
    assert laid.keys.how == "position"
    assert laid.keys.labels == ("the", "cat → dog", "sat")
    assert torch.equal(laid.right, b.weights[:3, :3])
    assert "B is longer: its last 2 tokens left out." in laid.sentence
    assert laid.sentence.endswith("counts as one further key.")
    assert align(b, a).sentence.count("A is longer: its last 2 tokens left out.") == 1
    lacking = [
        np.concatenate([one, 1 - one.sum(1, keepdims=True)], 1)
        for one in (a.weights.numpy(), b.weights.numpy()[:3, :3])
    ]
    expected = jensenshannon(*np.clip(lacking, 0, None), axis=-1) ** 2
    np.testing.assert_allclose(compare(laid.left, laid.right).divergence, expected, atol=1e-6)


def test_axes_are_aligned_by_themselves():
    words_, cut = pieces("le", "chat", "dort"), pieces("le", ("ch", "##at"), "dort")
    a, b = side(pieces("the", "cat"), words_), side(pieces("the", "dog"), cut, seed=1)
    laid = align(a, b)
    assert (laid.queries.how, laid.keys.how) == ("position", "words")
    assert laid.left.shape == laid.right.shape == (2, 3)
    assert torch.equal(laid.left, a.weights)
    check_kept(b, laid.right, laid.queries, laid.keys, "right")
    assert laid.sentence.startswith("Queries: Token by token, 2 places: 1 differs (cat → dog). Keys: Word by word")


def test_masked_cells_stay_masked_and_empty_rows_are_no_part_of_a_mean():
    a = pieces("the", ("ca", "##t"), "sat")
    allowed = torch.ones(4, 4, dtype=torch.bool).tril()
    allowed[1] = False  # one piece of "cat" may attend to nothing
    left = side(a, allowed=allowed)
    b = pieces("the", "cat", "sat")
    right = side(b, seed=1, allowed=torch.ones(3, 3, dtype=torch.bool).tril())
    laid = align(left, right)
    causal = torch.ones(3, 3, dtype=torch.bool).tril()
    assert torch.equal(laid.left_allowed, causal)
    assert torch.equal(laid.right_allowed, causal)
    torch.testing.assert_close(laid.left[1, :2], torch.stack([left.weights[2, 0], left.weights[2, 1:3].sum()]))
    torch.testing.assert_close(laid.left.nansum(-1), torch.ones(3), atol=1e-6, rtol=0)
    unmasked = Side(left.weights.masked_fill(~allowed, NAN), None, a, a)
    assert torch.equal(align(unmasked, right).left.nan_to_num(-1), laid.left.nan_to_num(-1))


def test_a_person_may_choose_how():
    a, b = pieces("the", ("ca", "##t")), pieces("the", "cat", "sat")
    assert alignment(a, b, "position").labels == ("the", "ca → cat", "##t → sat")
    assert alignment(a, a, "words").labels == ("the", "cat")
    assert alignment(a, a, "position").sentence == "Token by token, 3 places: no difference."
    assert alignment(a, b, "none").how == "none"
    with pytest.raises(OptionError, match="to have the same tokens"):
        alignment(a, b, "same")
    with pytest.raises(OptionError, match="texts of as many words"):
        alignment(a, b, "words")
    with pytest.raises(OptionError, match="among same, words, position, none, got 'word'"):
        alignment(a, b, "word")
    with pytest.raises(OptionError, match="Draw each map by itself"):
        align(side(a), side(b), "none")


def test_only_special_tokens_are_laid_by_position():
    a, b = pieces("[CLS]", "[SEP]", **BERT), pieces("<s>", special=("<s>",))
    assert alignment(a, b).labels == ("[CLS] → <s>",)


def test_a_map_that_does_not_fit_its_tokens_is_refused():
    tokens = pieces("the", "cat")
    good = side(tokens)
    with pytest.raises(ShapeError, match=r"weights \[2, 2\] for the tokens of B, got \[2, 3\]"):
        align(good, Side(torch.rand(2, 3), None, tokens, tokens))
    with pytest.raises(ShapeError, match=r"a mask \[2, 2\] for the tokens of A, got \[3, 2\]"):
        align(good._replace(allowed=torch.ones(3, 2, dtype=torch.bool)), good)


def test_words_of_a_toy_text_are_its_tokens():
    a, b = (TokenSequence.from_words(split_words(TROPHY.format(word))) for word in ("big", "small"))
    assert alignment(a, b).labels[12] == "big → small"
    assert alignment(TokenSequence.numbered(3), TokenSequence.numbered(5)).labels == ("0", "1", "2")
