"""Names for heads that follow a pattern, and none for those that spread their weight, however short the text."""

import math

import circuits
import numpy as np
import pandas as pd
import pytest
import torch

import attnviz
from attnviz.analysis.names import FEWEST_ROWS, MULTIPLE, THRESHOLD, head_names
from attnviz.analysis.patterns import PATTERNS, Baseline, baseline, patterns
from attnviz.layers import StoredLayer
from attnviz.rules import ScoreRule
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace, Support

TOKENS = TokenSequence(
    labels=("[CLS]", "new", "##s", ".", "old", "##s", ",", "new", "##s", ".", "old", "##s", ";", "[SEP]"),
    is_special=(True, *[False] * 12, True),
    words=(None, 0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, None),
)


def trace_of(tables, tokens, role):
    layer = StoredLayer(
        layer=0, role=role, rule=ScoreRule(scaling=1.0, causal=role == "decoder"), stored=torch.stack(tables)
    )
    return AttentionTrace([layer], query_tokens={role: tokens}, key_tokens={role: tokens}, support=Support("module"))


def names_of(trace):
    return head_names(patterns(trace), baseline(trace))


def follows(*targets):
    """A map in which each row's weight is on its targets, and spread where it has none."""
    table = torch.zeros(len(targets), len(targets))
    for row, keys in enumerate(targets):
        table[row, keys or slice(None)] = 1 / (len(keys) or len(targets))
    return table


def keys_of(condition):
    return follows(*([key for key in range(14) if condition(row, key)] for row in range(14)))


def same(row, key):
    return TOKENS.labels[row] == TOKENS.labels[key] and not TOKENS.is_special[row]


PERFECT = {
    "previous-token": keys_of(lambda row, key: key == row - 1),
    "duplicate-token": keys_of(lambda row, key: key != row and same(row, key)),
    "induction": keys_of(lambda row, key: 0 < key != row != key - 1 and key < 13 and same(row, key - 1)),
    "same-word": keys_of(lambda row, key: key != row and TOKENS.words[row] == TOKENS.words[key] is not None),
    "punctuation": keys_of(lambda row, key: key in (3, 6, 9, 12)),
    "special": keys_of(lambda row, key: key in (0, 13)),
    "first-token": keys_of(lambda row, key: key == 0),
}


@pytest.mark.parametrize("name", PERFECT)
def test_a_head_that_follows_one_pattern_is_named_for_it(name):
    score = patterns(trace_of([PERFECT[name]], TOKENS, "encoder"))[name.replace("-", "_")][0]
    assert score == pytest.approx(1)
    assert f"{name}: 1.00" in names_of(trace_of([PERFECT[name]], TOKENS, "encoder"))[0]


@pytest.mark.parametrize("name", ["previous-token", "special", "duplicate-token", "same-word"])
def test_most_of_the_weight_elsewhere_takes_the_name_away(name):
    most, less = (share * PERFECT[name] + (1 - share) / 14 for share in (0.75, 0.25))
    found = names_of(trace_of([most, less], TOKENS, "encoder"))
    assert [entry.split(":")[0] for entry in found[0]] == [name]
    assert found[1] == []


def sentences():
    """Texts of few tokens, and of few different ones."""
    for count in (1, 2, 3, 4, 5, 7, 11, 14):
        yield TokenSequence.numbered(count)
        yield TOKENS.select(range(count))
        yield TokenSequence.from_words(["a"] * count)
        yield TokenSequence.from_words([".", "a"] * count).select(range(count))


@pytest.mark.parametrize("role", ["encoder", "decoder", "cross"])
def test_a_uniform_head_has_no_name(role):
    for tokens in sentences():
        table = torch.ones(len(tokens), len(tokens))
        table = table.tril() if role == "decoder" else table
        assert names_of(trace_of([table / table.sum(-1, keepdim=True)], tokens, role)) == [[]]


@pytest.mark.parametrize("seed", range(20))
def test_a_diffuse_head_has_no_name(seed):
    torch.manual_seed(seed)
    table = torch.randn(14, 14).softmax(-1)
    assert names_of(trace_of([table], TOKENS, "encoder")) == [[]]


def test_a_pattern_that_few_rows_can_follow_gives_no_name():
    tokens = TokenSequence.from_words("the cat saw the dog and it ran".split())
    twice = follows([3], [], [], [0], [], [], [], [])
    trace = trace_of([twice], tokens, "encoder")
    assert patterns(trace)["duplicate_token"][0] == 1
    assert names_of(trace) == [[]]


def tables(**columns):
    """Scores, and a baseline, of heads 0, 1, … of layer 4, from (score, uniform, rows) each."""
    count = len(next(iter(columns.values())))
    heads = pd.DataFrame({"layer": [4] * count, "head": range(count)})
    parts = []
    for at, nothing in enumerate((math.nan, math.nan, 0)):
        part = heads.copy()
        for name in PATTERNS:
            part[name] = [entry[at] for entry in columns[name]] if name in columns else nothing
        parts.append(part)
    return parts[0], Baseline(*parts[1:])


def test_all_three_limits_must_be_met():
    score, uniform, rows = THRESHOLD, THRESHOLD / MULTIPLE - 0.01, FEWEST_ROWS
    met = (score, uniform, rows)
    missed = [(score - 0.01, uniform, rows), (score, THRESHOLD / MULTIPLE, rows), (score, uniform, rows - 1)]
    assert head_names(*tables(same_word=[met, *missed])) == [["same-word: 0.50"], [], [], []]


def test_the_highest_score_comes_first():
    scores, held_against = tables(
        previous_token=[(0.6, 0.1, 9)], special=[(0.934, 0.1, 9)], first_token=[(0.2, 0.1, 9)]
    )
    assert head_names(scores, held_against) == [["special: 0.93", "previous-token: 0.60"]]


def test_rows_may_be_some_and_in_any_order():
    scores, held_against = tables(induction=[(0.9, 0.1, 9), (0.8, 0.7, 9), (0.7, 0.1, 9)])
    expected = [["induction: 0.90"], [], ["induction: 0.70"]]
    assert head_names(scores, held_against) == expected
    for order in ([2, 1, 0], [2, 0], [1], []):
        chosen = scores.iloc[order].reset_index(drop=True)
        assert head_names(chosen, held_against) == [expected[at] for at in order]
    fewer = scores[["layer", "head", "induction"]]
    assert head_names(fewer, held_against) == expected


def test_the_heads_of_a_circuit_are_named():
    ids = [*range(2, 17), *range(2, 17)]
    trace = attnviz.trace_model(circuits.gpt2(), torch.tensor([ids]), tokenizer=circuits.tokenizer())
    found = [[entry.split(":")[0] for entry in names] for names in names_of(trace)]
    assert found == [["previous-token"], ["induction"], ["duplicate-token"], ["first-token"], []]
    assert np.array_equal(patterns(trace)["layer"], range(5))
