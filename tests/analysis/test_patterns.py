"""Scores of patterns made block by block, against loops over every cell; and on heads that were made to follow one."""

import math
from dataclasses import replace
from functools import cache

import circuits
import numpy as np
import pytest
import torch
from layer_cases import KINDS, case

import attnviz
from attnviz import layers
from attnviz.analysis.patterns import COMPARED, PATTERNS, baseline, patterns
from attnviz.errors import OptionError
from attnviz.layers import StoredLayer
from attnviz.rules import ScoreRule
from attnviz.statistics import STATISTICS
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace, Support

NAN = math.nan
MARKS = (".", "␣—")
PIECES = ("the", "cat", ".", "␣—", "saw", "##s", "it")


@pytest.fixture(params=[None, 1], ids=["one block", "several blocks"])
def blocks(request, monkeypatch):
    if request.param is not None:
        monkeypatch.setattr(layers, "BLOCK_BYTES", request.param)


def text(count):
    """Tokens that repeat, in words of one to three pieces, with special ones at both ends and one amid."""
    rng = np.random.default_rng(count)
    ids = rng.integers(0, len(PIECES), count).tolist()
    special = [count > 3 and at in (0, count // 2, count - 1) for at in range(count)]
    word = np.cumsum(rng.integers(0, 2, count)).tolist()
    return TokenSequence(
        labels=tuple(PIECES[number] for number in ids),
        is_special=tuple(special),
        words=tuple(None if yes else number for number, yes in zip(word, special, strict=True)),
        ids=tuple(ids),
    )


def trace_of(*kept, tokens=None):
    role, (_, queries, keys) = kept[0].role, kept[0].shape
    key_tokens = text(keys) if tokens is None else tokens
    query_tokens = key_tokens if queries == keys else TokenSequence.numbered(queries)
    return AttentionTrace(
        kept, query_tokens={role: query_tokens}, key_tokens={role: key_tokens}, support=Support("module")
    )


def is_target(name, tokens, place, key, cross):
    """The definitions, said once more; a query is the token at its place."""
    special, ids, words = tokens.is_special, tokens.ids, tokens.words
    if name == "punctuation":
        return tokens.labels[key] in MARKS and not special[key]
    if cross or not 0 <= place < len(tokens) or key == place:
        return False
    if name == "same_word":
        return words[key] is not None and words[key] == words[place]
    if special[place] or special[key]:
        return False
    if name == "duplicate_token":
        return ids[key] == ids[place]
    return key > 0 and key - 1 != place and not special[key - 1] and ids[key - 1] == ids[place]


def mean(values):
    return sum(values) / len(values) if values else NAN


@cache
def targets(queries, keys, offset, cross):
    """For each pattern of COMPARED and each row its targets, allowed or not."""
    tokens = text(keys)
    return [
        [[key for key in range(keys) if is_target(name, tokens, row + offset, key, cross)] for row in range(queries)]
        for name in COMPARED
    ]


def looped(weights, allowed, wanted):
    """One head's scores of COMPARED, and over how many rows each is a mean."""
    scores, rows = [], []
    for keys_of in wanted:
        on = [[key for key in keys if allowed[row][key]] for row, keys in enumerate(keys_of)]
        sums = [sum(weights[row][key] for key in keys) for row, keys in enumerate(on) if keys]
        scores.append(mean(sums))
        rows.append(len(sums))
    return scores, rows


def looped_heads(layer, weights, allowed):
    wanted = targets(*layer.shape[1:], layer.rule.offset, layer.role == "cross")
    heads = zip(weights.tolist(), allowed.tolist(), strict=True)
    return tuple(map(np.array, zip(*(looped(*head, wanted) for head in heads), strict=True)))


def level(allowed):
    """The weights of uniform heads."""
    return allowed / allowed.sum(-1, keepdim=True).clamp_min(1).double()


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("kind", KINDS)
def test_scores_equal_loops_over_the_full_maps(kind):
    layer, _, allowed, weights, _ = case(kind)
    stored = StoredLayer(layer=2, role=layer.role, rule=layer.rule, stored=weights.float())
    expected, _ = looped_heads(layer, weights, allowed)
    for kept in (layer, stored):
        trace = trace_of(kept)
        found = patterns(trace)
        assert list(found.columns) == ["layer", "head", *PATTERNS]
        assert found["layer"].tolist() == [2] * layer.shape[0]
        assert found["head"].tolist() == list(range(layer.shape[0]))
        np.testing.assert_allclose(found[[*COMPARED]], expected, atol=3e-6, rtol=1e-5)
        for name in set(PATTERNS) - set(COMPARED):
            np.testing.assert_array_equal(found[name], trace.statistics()[PATTERNS[name].statistic])


def test_the_loops_meet_every_pattern():
    layer, _, allowed, weights, _ = case("mask per head")
    scores, rows = looped_heads(layer, weights, allowed)
    assert not np.isnan(scores).any()
    assert rows.min() > 20
    assert rows[:, :3].max() < 37
    assert len(set(scores.flatten())) == len(set(map(tuple, rows.T))) * 4 == 16


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("kind", KINDS)
def test_the_baseline_is_that_of_uniform_weights(kind):
    layer, _, allowed, _, _ = case(kind)
    tokens, uniform = text(layer.shape[2]), level(allowed)
    expected, rows = looped_heads(layer, uniform, allowed)
    found = baseline(trace_of(layer))
    np.testing.assert_allclose(found.uniform[[*COMPARED]], expected, atol=3e-6, rtol=1e-5)
    np.testing.assert_array_equal(found.rows[[*COMPARED]], rows)

    live = allowed.any(-1)  # [head, query]
    first = [mean(head[:, 0][seen].tolist()) for head, seen in zip(uniform, live, strict=True)]
    on_special = uniform[..., torch.tensor(tokens.is_special)].sum(-1)
    special = [mean(head[seen].tolist()) for head, seen in zip(on_special, live, strict=True)]
    np.testing.assert_allclose(found.uniform["first_token"], first, atol=3e-6, rtol=1e-5)
    np.testing.assert_array_equal(found.rows["first_token"], live.sum(-1))
    if any(tokens.is_special):
        np.testing.assert_allclose(found.uniform["special"], special, atol=3e-6, rtol=1e-5)
        np.testing.assert_array_equal(found.rows["special"], live.sum(-1))
    else:
        assert found.uniform["special"].isna().all()
        assert not found.rows["special"].any()


@pytest.mark.parametrize("kind", ["plain", "causal, offset", "empty rows per head", "window past the keys"])
def test_the_baseline_of_the_token_before(kind):
    layer, _, allowed, _, _ = case(kind)
    found = baseline(trace_of(layer))
    for head, cells in enumerate(level(allowed).tolist()):
        places = [(row, row + layer.rule.offset - 1) for row in range(len(cells)) if allowed[head, row].any()]
        beside = [(row, key) for row, key in places if 0 <= key < len(cells[0])]
        if not any(allowed[head, row, key] for row, key in beside):
            beside = []
        expected = mean([cells[row][key] for row, key in beside])
        np.testing.assert_allclose(found.uniform["previous_token"][head], expected, atol=1e-6)
        assert found.rows["previous_token"][head] == len(beside)


def test_layers_keep_their_numbers_their_masks_and_their_heads():
    per_head, plain, causal, mask = (case(kind).layer for kind in ("mask per head", "plain", "causal", "mask"))
    kept = [
        replace(layer, layer=number, role="encoder")
        for number, layer in ((7, per_head), (3, plain), (4, causal), (11, per_head), (9, mask))
    ]
    trace = trace_of(*kept)
    tables = (patterns(trace), *baseline(trace))
    for table in tables:
        assert list(zip(table["layer"], table["head"], strict=True)) == [
            (number, head) for number, heads in ((3, 3), (4, 4), (7, 4), (9, 4), (11, 4)) for head in range(heads)
        ]
    for layer in kept:
        alone = trace_of(layer)
        for whole, one in zip(tables, (patterns(alone), *baseline(alone)), strict=True):
            part = whole[whole["layer"] == layer.layer].reset_index(drop=True)
            np.testing.assert_array_equal(part, one)


def stored(weights, role="encoder", **rule):
    table = torch.tensor(weights, dtype=torch.float32)[None]
    return StoredLayer(layer=0, role=role, rule=ScoreRule(scaling=1.0, **rule), stored=table)


def row_of(layer, tokens):
    found = patterns(trace_of(layer, tokens=tokens)).iloc[0]
    return {name: round(float(found[name]), 6) for name in PATTERNS}


def without_meaning(scores):
    return {name for name, score in scores.items() if math.isnan(score)}


def test_scores_by_hand():
    tokens = TokenSequence(
        labels=("[CLS]", "new", "##s", ".", "new"),
        is_special=(True, False, False, False, False),
        words=(None, 0, 0, 1, 2),
        ids=(5, 3, 4, 2, 3),
    )
    weights = [
        [1, 0, 0, 0, 0],
        [0.5, 0.5, 0, 0, 0],
        [0.25, 0.5, 0.25, 0, 0],
        [0, 0, 0, 1, 0],
        [0.125, 0.125, 0.5, 0.25, 0],
    ]
    assert row_of(stored(weights, role="decoder", causal=True), tokens) == {
        "previous_token": (0.5 + 0.5 + 0 + 0.25) / 4,
        "duplicate_token": 0.125,
        "induction": 0.5,
        "same_word": 0.5,
        "punctuation": (1 + 0.25) / 2,
        "special": (1 + 0.5 + 0.25 + 0 + 0.125) / 5,
        "first_token": (1 + 0.5 + 0.25 + 0 + 0.125) / 5,
    }


def test_in_an_encoder_both_occurrences_look_at_each_other_and_at_what_follows():
    tokens = replace(TokenSequence.from_words(["a", "b", "a", "c"]), ids=(3, 7, 3, 5))
    weights = [[0, 0, 0.5, 0.25], [1, 0, 0, 0], [0.125, 0.75, 0, 0.125], [1, 0, 0, 0]]
    found = row_of(stored(weights), tokens)
    assert found["duplicate_token"] == round((0.5 + 0.125) / 2, 6)
    assert found["induction"] == (0.25 + 0.75) / 2


def test_a_token_said_twice_in_a_row_does_not_follow_itself():
    """What follows the first "ha" is the second: a head that looks at its own token is no induction."""
    tokens = TokenSequence.from_words(["ha", "ha", "ha"])
    own = row_of(stored(torch.eye(3).tolist(), role="decoder", causal=True), tokens)
    assert own["duplicate_token"] == own["induction"] == 0


def test_the_same_token_is_one_of_the_same_id():
    by_id = replace(TokenSequence.from_words(["same", "same", "other"]), ids=(1, 2, 1))
    looks_back = stored([[1, 0, 0], [1, 0, 0], [1, 0, 0]], role="decoder", causal=True)
    assert row_of(looks_back, by_id)["duplicate_token"] == 1
    by_label = TokenSequence.from_words(["the", "The", "the"])
    looks_at_first = stored([[1, 0, 0], [1, 0, 0], [0.25, 0.75, 0]], role="decoder", causal=True)
    assert row_of(looks_at_first, by_label)["duplicate_token"] == 0.25


def test_a_query_past_the_keys_is_no_token_among_them():
    """As where a cache holds fewer keys than there are queries: nothing is the same as the third query."""
    tokens = TokenSequence.from_words(["a", "a"])
    assert row_of(stored([[0, 1], [0.5, 0.5], [0.25, 0.75]]), tokens)["duplicate_token"] == 0.75


def test_a_word_in_pieces_in_a_text_where_nothing_else_repeats():
    tokens = replace(TokenSequence.from_words(["un", "likely", "so"]), words=(0, 0, 1))
    found = row_of(stored([[0.5, 0.5, 0], [0.25, 0.75, 0], [0, 0, 1]]), tokens)
    assert found["same_word"] == 0.375
    assert without_meaning(found) == {"duplicate_token", "induction", "punctuation", "special"}


@pytest.mark.parametrize("label", [".", "␣,", "—", "...", "⏎.␣", "'", "— 1/3", "##-", "¿", "。"])
def test_punctuation(label):
    tokens = TokenSequence.from_words(["a", "b"])
    marked = replace(tokens, labels=("a", label))
    assert row_of(stored([[0.25, 0.75], [1, 0]]), marked)["punctuation"] == 0.375


@pytest.mark.parametrize("label", ["a.", "␣", "⏎", "$", "+", "3", "∅", "猫 1/3", "U+00A0", "id 7"])
def test_no_punctuation(label):
    tokens = replace(TokenSequence.from_words(["a", "b"]), labels=("a", label))
    assert math.isnan(row_of(stored([[0.25, 0.75], [1, 0]]), tokens)["punctuation"])


def test_a_special_token_is_no_punctuation():
    tokens = TokenSequence(("a", "."), (False, True), (0, None))
    assert math.isnan(row_of(stored([[0.25, 0.75], [1, 0]]), tokens)["punctuation"])


def test_what_has_no_meaning_is_nan():
    one = row_of(stored([[1.0]]), TokenSequence.from_words(["a"]))
    assert without_meaning(one) == set(PATTERNS) - {"first_token"}
    tokens = TokenSequence(("[CLS]", "a", ".", "a"), (True, False, False, False), (None, 0, 0, 1))
    cross = row_of(stored([[0.25] * 4] * 4, role="cross"), tokens)
    assert without_meaning(cross) == {"previous_token", "duplicate_token", "induction", "same_word"}
    masked = row_of(stored([[0] * 4] * 4, mask=torch.zeros(4, 4, dtype=torch.bool)), tokens)
    assert without_meaning(masked) == set(PATTERNS)
    numbers = row_of(stored(torch.eye(5).tolist()), TokenSequence.numbered(5))
    assert without_meaning(numbers) == set(COMPARED) | {"special"}


def test_the_role_must_be_chosen_where_there_are_two():
    layer = case("plain").layer
    trace = AttentionTrace(
        [layer, replace(layer, role="decoder")],
        query_tokens=dict.fromkeys(("encoder", "decoder"), text(37)),
        key_tokens=dict.fromkeys(("encoder", "decoder"), text(37)),
        support=Support("module"),
    )
    for ask in (patterns, baseline):
        with pytest.raises(OptionError, match="none given"):
            ask(trace)
    assert len(patterns(trace, "decoder")) == layer.shape[0]


def test_every_pattern_says_what_it_is():
    for pattern in PATTERNS.values():
        assert pattern.definition.endswith(".")
        assert pattern.title
        assert pattern.source
        assert pattern.statistic in ("", *STATISTICS)


def test_each_head_of_a_circuit_scores_on_its_own_pattern():
    """A real GPT-2, traced through its attention interface, on a text in which every token occurs twice."""
    ids = [*range(2, 17), *range(2, 17)]
    trace = attnviz.trace_model(circuits.gpt2(), torch.tensor([ids]), tokenizer=circuits.tokenizer())
    found = patterns(trace).set_index("layer")
    own = {
        circuits.PREVIOUS: "previous_token",
        circuits.INDUCTION: "induction",
        circuits.DUPLICATE: "duplicate_token",
        circuits.FIRST: "first_token",
    }
    scored = found[list(own.values())]
    for layer, name in own.items():
        assert scored.loc[layer, name] > 0.95
        assert scored.loc[layer].drop(name).max() < 0.2
    np.testing.assert_allclose(found.loc[circuits.UNIFORM], baseline(trace).uniform.iloc[-1, 1:], atol=1e-5)


def test_a_module_that_looks_at_the_token_before():
    module = attnviz.SelfAttention(7)
    with torch.no_grad():
        for linear in (module.q_linear, module.k_linear, module.v_linear):
            linear.weight.copy_(torch.eye(7))
            linear.bias.zero_()
        module.q_linear.weight.copy_(50 * torch.eye(7).roll(-1, 0))  # the query of place i is that of place i − 1
    found = patterns(module.trace(torch.eye(7))).iloc[0]
    assert found["previous_token"] > 0.95
    assert found["first_token"] < 0.2
