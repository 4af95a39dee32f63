"""A view of a trace against the same sums, means and divisions made with numpy, cell by cell of whole maps."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import KINDS, case

import attnviz
from attnviz import layers
from attnviz.analysis import shown_layer
from attnviz.analysis.pooled import pooled
from attnviz.analysis.shown import ShownOptions, ShownTrace, show, words_said
from attnviz.errors import OptionError, SupportError
from attnviz.layers import StoredLayer
from attnviz.rules import ScoreRule
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace, Support

CLOSE = {"atol": 1e-6, "rtol": 1e-5}
WORDS = ShownOptions(words=True)


def tokens(count, *, words=None, special=(), dots=()):
    """Tokens of which some are special and some full stops."""
    numbers = list(range(count)) if words is None else list(words)
    return TokenSequence(
        labels=tuple("." if at in dots else f"t{at}" for at in range(count)),
        is_special=tuple(at in special for at in range(count)),
        words=tuple(None if at in special else numbers[at] for at in range(count)),
    )


def words_of(count, longest=5):
    """Words of 1 to `longest` pieces, over so many tokens."""
    sizes, total = [], 0
    while total < count:
        sizes.append(1 + (len(sizes) * 7 + len(sizes) ** 2) % longest)
        total += sizes[-1]
    return [number for number, size in enumerate(sizes) for _ in range(size)][:count]


def trace_of(layer, queries=None, keys=None):
    queries = tokens(layer.shape[1]) if queries is None else queries
    keys = queries if keys is None and layer.shape[1] == layer.shape[2] else keys
    keys = tokens(layer.shape[2]) if keys is None else keys
    sides = {"query_tokens": {layer.role: queries}, "key_tokens": {layer.role: keys}}
    return AttentionTrace([layer], **sides, support=Support("module"))


def pieced(kind, longest=5):
    """A trace of this kind of layer whose tokens are pieces of words, some special, some full stops."""
    layer = case(kind).layer
    queries, keys = (
        tokens(count, words=words_of(count, longest), special=(0, count - 1), dots=(11, 12, 13))
        for count in layer.shape[1:]
    )
    return trace_of(layer, queries, queries if layer.shape[1] == layer.shape[2] else keys)


def groups_of(sequence, options):
    """The positions of each token that is shown, by a loop over them."""
    groups = {}
    for at, word in enumerate(sequence.words):
        groups.setdefault(word if options.words and word is not None else f"alone {at}", []).append(at)
    return [
        group
        for group in groups.values()
        if not (options.hide_special and sequence.is_special[group[0]])
        and not (options.hide_punctuation and all(sequence.labels[at] == "." for at in group))
        and not (options.hide_first and 0 in group)
    ]


def expected(trace, number, role, options):
    """Weights and what is allowed [head, query, key] of a layer as the options show it, in float64."""
    layer = trace.layer(number, role)
    rows, columns = (groups_of(side, options) for side in (trace.query_tokens(role), trace.key_tokens(role)))
    whole = layer.weights(slice(None)).double().numpy()
    free = np.stack([layer.allowed(head=head).numpy() for head in range(layer.shape[0])])
    weights = np.stack([whole[:, row].mean(1) for row in rows], 1)
    weights = np.stack([weights[:, :, column].sum(2) for column in columns], 2)
    allowed = np.stack([free[:, row].any(1) for row in rows], 1)
    allowed = np.stack([allowed[:, :, column].any(2) for column in columns], 2)
    if options.normalise:
        sums = weights.sum(-1, keepdims=True)
        weights = weights / np.where(sums > 0, sums, 1)
    return torch.tensor(np.where(weights < options.threshold, 0, weights)), torch.tensor(allowed)


@pytest.fixture(scope="module")
def minilm():
    return attnviz.load_model("minilm", device="cpu")


VIEWS = {
    "words": WORDS,
    "no special": ShownOptions(hide_special=True),
    "no punctuation": ShownOptions(hide_punctuation=True),
    "no first": ShownOptions(hide_first=True),
    "divided": ShownOptions(normalise=True),
    "cut": ShownOptions(threshold=0.0513),
    "all": ShownOptions(True, True, True, True, True, 0.0513),
    "all but divided": ShownOptions(True, True, True, True, False, 0.0513),
}
KINDS_SHOWN = [kind for kind in KINDS if case(kind).layer.shape[1] > 13]


SOME = ("causal", "mask per head", "sink and empty rows", "cross")
BOTH = [(kind, view) for kind in KINDS_SHOWN for view in VIEWS if kind in SOME or view in ("words", "all")]


@pytest.mark.parametrize(("kind", "options"), [(kind, VIEWS[view]) for kind, view in BOTH], ids=map(", ".join, BOTH))
def test_weights_and_what_is_allowed_are_right(kind, options):
    trace = pieced(kind)
    role = trace.roles[0]
    view = show(trace, options)
    weights, allowed = expected(trace, 2, role, options)
    layer = view.layer(2)
    assert layer.shape == tuple(weights.shape)
    assert weights.shape[1:] == (len(view.query_tokens()), len(view.key_tokens()))
    torch.testing.assert_close(layer.weights(slice(None)), weights.float(), **CLOSE)
    for head in range(layer.shape[0]):
        assert torch.equal(view.allowed(2, head=head), allowed[head])
    assert torch.equal(view.allowed(2), allowed.any(0))


@pytest.mark.parametrize("size", [None, 1], ids=["one block", "several blocks"])
@pytest.mark.parametrize("options", [WORDS, VIEWS["all"], VIEWS["no punctuation"]], ids=["words", "all", "holes"])
@pytest.mark.parametrize("kind", KINDS_SHOWN[::2])
def test_blocks_hold_the_same_weights(kind, options, size, monkeypatch):
    if size is not None:
        monkeypatch.setattr(layers, "BLOCK_BYTES", size)
    layer = show(pieced(kind, longest=23), options).layer(2)  # words longer than a block has rows
    whole, seen = layer.weights(slice(None)), torch.zeros(layer.shape)
    for block in layer.blocks():
        seen[:, block.rows, block.columns] = block.weights
        torch.testing.assert_close(block.log_weights.exp(), block.weights, **CLOSE)
        heads = range(layer.shape[0])
        allowed = torch.stack([layer.allowed(block.rows, block.columns, head) for head in heads])
        held = torch.ones_like(allowed) if block.allowed is None else block.allowed.expand(allowed.shape)
        assert torch.equal(held, allowed)
    torch.testing.assert_close(seen, whole, **CLOSE)
    apart = layer.of_heads(slice(0, layer.group))
    torch.testing.assert_close(apart.weights(slice(None)), whole[: layer.group], **CLOSE)


PARTS = [
    (slice(2, 7), slice(1, 9)),
    (slice(None), slice(-1, None)),
    (slice(None, None, -2), [0, 6, 3, 3]),
    ([4], [4]),
    ([-1, 0], slice(9, 9)),
    ([], [1]),
    (torch.tensor([7, 2, 5]), torch.tensor([0, 2, 4])),
]


@pytest.mark.parametrize("options", [WORDS, VIEWS["all"], VIEWS["divided"]], ids=["words", "all", "divided"])
@pytest.mark.parametrize("kind", ["mask per head", "causal mask and window"])
@pytest.mark.parametrize(("rows", "columns"), PARTS, ids=str)
def test_a_part_equals_the_part_of_the_whole(kind, rows, columns, options):
    layer = show(pieced(kind), options).layer(2)
    at = [list(range(layer.shape[1])[rows]) if isinstance(rows, slice) else list(map(int, rows))]
    at += [list(range(layer.shape[2])[columns]) if isinstance(columns, slice) else list(map(int, columns))]
    for head in (0, layer.shape[0] - 1):
        whole = layer.weights(head)[at[0]][:, at[1]]
        torch.testing.assert_close(layer.weights(head, rows, columns), whole, **CLOSE)
        allowed = layer.allowed(head=head)[at[0]][:, at[1]]
        assert torch.equal(layer.allowed(rows, columns, head), allowed)


def stored_again(trace, options):
    """A trace that stores what a view of another shows."""
    view, role = show(trace, options), trace.roles[0]
    weights, allowed = expected(trace, 2, role, options)
    rule = ScoreRule(scaling=1.0, mask=allowed)
    layer = StoredLayer(layer=2, role=role, rule=rule, stored=weights.float())
    sides = {"query_tokens": {role: view.query_tokens()}, "key_tokens": {role: view.key_tokens()}}
    return view, AttentionTrace([layer], **sides, support=Support("module"))


@pytest.mark.parametrize("options", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("kind", ["grouped", "causal", "window", "empty rows per head", "mask per head", "cross"])
def test_statistics_and_pictures_equal_those_of_the_same_maps_stored(kind, options):
    view, stored = stored_again(pieced(kind), options)
    seen, right = view.statistics(), stored.statistics()
    assert list(seen.columns) == list(right.columns)
    np.testing.assert_allclose(seen, right, atol=2e-6, rtol=1e-5)
    assert int((view.thumbnails(size=5).int() - stored.thumbnails(size=5).int()).abs().max()) <= 1
    assert torch.equal(view.allowed_thumbnails(size=5), stored.allowed_thumbnails(size=5))
    for one, other in zip(pooled(view.layer(2), 1, 4)[:3], pooled(stored.layer(2), 1, 4)[:3], strict=True):
        torch.testing.assert_close(one, other, **CLOSE, equal_nan=True)


def test_queries_after_a_cache_stand_at_their_own_keys():
    layer = case("causal, offset").layer  # 29 queries, from the key 8 on
    keys = tokens(37, words=words_of(37), special=(0,))
    trace = trace_of(layer, keys.select(range(8, 37)), keys)
    view = show(trace, WORDS)
    rule = view.layer(2).rule
    assert len(view.key_tokens()) == rule.offset + len(view.query_tokens())
    assert view.key_tokens().labels[rule.offset + 1 :] == view.query_tokens().labels[1:]  # the first word is cut
    weights, _ = expected(trace, 2, "decoder", WORDS)
    place = torch.arange(weights.shape[2]).double()
    steps = (place[rule.offset :, None] - place).abs()
    np.testing.assert_allclose(view.statistics().distance, (weights * steps).sum(-1).mean(-1), atol=1e-5)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_any_split_into_words_keeps_the_sum_of_each_row(data):
    """Also words whose pieces stand apart."""
    kind = data.draw(st.sampled_from(["plain", "causal", "cross", "window of one", "mask per head", "sink"]))
    layer = case(kind).layer
    splits = [data.draw(st.lists(st.integers(0, count), min_size=count, max_size=count)) for count in layer.shape[1:]]
    special = data.draw(st.sets(st.integers(0, 36)))
    queries, keys = (tokens(len(words), words=words, special=special) for words in splits)
    trace = trace_of(layer, queries, keys)
    seen, groups = show(trace, WORDS).layer(2), groups_of(queries, WORDS)
    assert sorted(at for group in groups for at in group) == list(range(layer.shape[1]))
    for head in range(layer.shape[0]):
        sums = layer.weights(head).double().sum(-1)
        right = torch.stack([sums[group].mean() for group in groups])
        torch.testing.assert_close(seen.weights(head).double().sum(-1), right, atol=1e-6, rtol=0)
    at = data.draw(st.integers(0, len(groups) - 1))
    block = seen.block(slice(at, len(groups)))
    torch.testing.assert_close(block.weights, seen.weights(slice(None), block.rows, block.columns), **CLOSE)
    assert seen.weights(slice(None), block.rows).sum() == pytest.approx(float(block.weights.sum()), rel=1e-5)


def test_a_sink_takes_its_mean_part_until_rows_are_divided():
    layer = case("sink").layer
    trace = trace_of(layer, tokens(37, words=words_of(37)))
    view, groups = show(trace, WORDS), groups_of(trace.query_tokens(), WORDS)
    given_away = view.sink_weights(2, 3)
    right = torch.stack([layer.sink_weights(3)[group].mean() for group in groups])
    torch.testing.assert_close(given_away, right, **CLOSE)
    torch.testing.assert_close(view.weights(2, 3).sum(-1) + given_away, torch.ones(len(groups)), **CLOSE)
    assert view.layer(2).rule.sink is not None
    divided = show(trace, ShownOptions(words=True, normalise=True))
    assert divided.sink_weights(2, 3) is divided.layer(2).rule.sink is None
    torch.testing.assert_close(divided.weights(2, 3).sum(-1), torch.ones(len(groups)), **CLOSE)
    per_query = dataclasses.replace(
        layer, rule=dataclasses.replace(layer.rule, sink=layer.rule.sink[:, None].expand(4, 37))
    )
    twin = show(trace_of(per_query, trace.query_tokens()), WORDS)
    torch.testing.assert_close(twin.sink_weights(2, 3), given_away, **CLOSE)
    np.testing.assert_allclose(twin.statistics(), view.statistics(), atol=1e-6)


def test_rows_of_nothing_stay_0():
    weights = torch.zeros(1, 3, 3)
    weights[0, 0], weights[0, 1, 0] = torch.tensor([0.5, 0.25, 0.25]), 1.0
    layer = StoredLayer(layer=2, role="encoder", rule=ScoreRule(scaling=1.0), stored=weights)
    view = show(trace_of(layer), ShownOptions(hide_first=True, normalise=True))
    assert view.weights(2, 0).tolist() == [[0, 0], [0, 0]]
    assert show(trace_of(layer), ShownOptions(normalise=True)).weights(2, 0).tolist() == [
        [0.5, 0.25, 0.25],
        [1, 0, 0],
        [0, 0, 0],
    ]


def test_nothing_is_done_where_nothing_is_on():
    trace = pieced("plain")
    assert show(trace, ShownOptions()) is trace
    assert words_said(ShownOptions(), has_sink=True) == ""


def test_reading_a_view_changes_nothing_that_is_stored():
    computed = pieced("causal")
    stored, role = stored_again(computed, ShownOptions(hide_first=True))[1], "decoder"
    for trace in (computed, stored):
        before = [tensor.clone() for tensor in trace.layer(2).tensors]
        for options in VIEWS.values():
            view = show(trace, options)
            view.weights(2, 1, role).zero_()
            view.allowed(2).zero_()
            for block in view.layer(2).blocks():
                block.weights.zero_()
            view.statistics()
        assert all(torch.equal(one, other) for one, other in zip(before, trace.layer(2).tensors, strict=True))
        assert view.nbytes == trace.nbytes


def test_vectors_go_with_the_tokens():
    module = attnviz.MultiHeadSelfAttention(6, 3)
    names = TokenSequence(("a", "b", ".", "c"), (True, False, False, False), (None, 0, 1, 0))
    trace = module.trace(torch.arange(24.0).reshape(4, 6), tokens=names)
    view = show(trace, ShownOptions(words=True, hide_punctuation=True))
    assert view.query_tokens().labels == ("a", "bc")
    for name in ("inputs", "outputs"):
        whole, seen = getattr(trace, name), getattr(view, name)
        torch.testing.assert_close(seen, torch.stack([whole[0], (whole[1] + whole[3]) / 2]))
    crossed = attnviz.CrossAttention(6).trace(torch.rand(2, 6), torch.rand(4, 6), key_tokens=names)
    assert torch.equal(show(crossed, ShownOptions(hide_special=True)).key_inputs, crossed.key_inputs[1:])


def test_what_leaves_each_layer_goes_with_the_tokens(minilm):
    trace = minilm.trace("a cat")
    view = show(trace, ShownOptions(hide_special=True))
    for seen, whole in zip(view.hidden_states(), trace.hidden_states(), strict=True):
        assert torch.equal(seen, whole[1:-1])
    assert len(view.hidden_states()) == 7


def test_the_same_tokens_stay_the_same_and_all_else_is_kept(minilm):
    trace = minilm.trace("a cat")
    view = show(trace, WORDS)
    assert isinstance(view, ShownTrace)
    assert view.query_tokens() is view.key_tokens()
    assert (view.base, view.support, view.name, view.notices) == (trace, trace.support, trace.name, trace.notices)
    again = show(view, ShownOptions(hide_special=True))  # a view of a view
    torch.testing.assert_close(again.weights(3, 1), view.weights(3, 1)[1:-1, 1:-1])
    assert again.allowed(3).all()


def test_a_view_of_a_view_keeps_its_mask():
    trace = pieced("causal mask and window")
    both, one = ShownOptions(words=True, hide_special=True), ShownOptions(hide_special=True)
    nested, direct = show(show(trace, WORDS), one), show(trace, both)
    assert nested.query_tokens() == direct.query_tokens()
    assert torch.equal(nested.allowed(2), direct.allowed(2))
    np.testing.assert_allclose(nested.statistics(), direct.statistics(), atol=1e-6)


TEXTS = {
    "unbelievableness of antidisestablishmentarianism": ["unbelievableness", "of", "antidisestablishmentarianism"],
    "👍🏽 and 👨‍👩‍👧!": ["👍🏽", "and", "👨‍👩‍👧", "!"],
    "猫が犬を見た": ["猫", "が", "犬", "を", "見", "た"],
    "It costs $5…": ["It", "costs", "$", "5", "…"],
}


@pytest.mark.parametrize("text", TEXTS)
def test_words_of_a_real_model(minilm, text):
    trace = minilm.trace(text)
    view = show(trace, WORDS)
    names = view.query_tokens()
    assert names.labels == ("[CLS]", *TEXTS[text], "[SEP]")
    assert names.words == (None, *range(len(TEXTS[text])), None)
    assert names.is_special == (True, *[False] * len(TEXTS[text]), True)
    assert (names.ids, names.text) == (None, text)
    weights, _ = expected(trace, 4, "encoder", WORDS)
    torch.testing.assert_close(view.layer(4).weights(slice(None)), weights.float(), **CLOSE)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]).double(), atol=1e-6, rtol=0)
    hidden = show(trace, ShownOptions(words=True, hide_special=True, hide_punctuation=True))
    assert hidden.key_tokens().labels == tuple(word for word in TEXTS[text] if word not in "!…")
    assert hidden.key_tokens().words == tuple(range(len(hidden.key_tokens())))


def test_long_texts_are_read_in_rows(monkeypatch):
    """Never more rows of the stored map at once than a block has, however long it is."""
    layer, read = case("causal").layer, []
    trace = trace_of(layer, tokens(37, words=[0] * 30 + words_of(7, 2)))
    monkeypatch.setattr(layers, "BLOCK_BYTES", 1)
    monkeypatch.setattr(
        type(layer), "block", watched(type(layer).block, lambda rows: read.append(rows.stop - rows.start))
    )
    monkeypatch.setattr(type(layer), "weights", watched(type(layer).weights, lambda head, rows: read.append(len(rows))))
    seen = show(trace, WORDS).layer(2)
    list(seen.blocks())
    seen.weights(0)
    assert sum(read) == 2 * 37
    assert max(read) == 16


def watched(reading, note):
    def noting(layer, *asked):
        note(*asked)
        return reading(layer, *asked)

    return noting


@pytest.mark.parametrize("name", ["scores", "head_output", "queries", "keys", "values", "concatenated", "projected"])
def test_what_a_view_does_not_have(name):
    view = show(pieced("plain"), WORDS)
    with pytest.raises(SupportError, match="Turn the view off"):
        getattr(view, name)(2, *[0] * (name not in {"concatenated", "projected"}))


def test_a_view_of_nothing_is_refused_with_what_hides_it():
    trace = trace_of(case("window past the keys").layer, tokens(37), tokens(11, special=range(5), dots=range(5, 11)))
    assert len(show(trace, ShownOptions(hide_special=True)).key_tokens()) == 6
    with pytest.raises(OptionError, match=r"Without special tokens and punctuation .*encoder, 11 tokens"):
        show(trace, ShownOptions(hide_special=True, hide_punctuation=True))
    one = trace_of(case("one token").layer)
    with pytest.raises(OptionError, match="Without the first token there is no token left"):
        show(one, ShownOptions(hide_first=True))


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan")])
def test_a_threshold_outside_0_to_1(threshold):
    with pytest.raises(OptionError, match="threshold of 0 to 1"):
        ShownOptions(threshold=threshold)


def test_a_head_that_is_not_there():
    with pytest.raises(OptionError, match="heads 0 to 2, got head 3"):
        show(pieced("plain"), WORDS).weights(2, 3)
    with pytest.raises(OptionError, match="heads 0 to 3, got head 4"):
        show(pieced("sink"), WORDS).sink_weights(2, 4)


@pytest.mark.parametrize(
    ("options", "has_sink", "said"),
    [
        (WORDS, False, "Words: sum over the pieces attended to, mean over the pieces that attend."),
        (ShownOptions(hide_special=True), False, "Special tokens are hidden, so rows no longer sum to 1."),
        (
            ShownOptions(hide_punctuation=True),
            True,
            "Punctuation is hidden, so a row and its sink no longer sum to 1.",
        ),
        (
            ShownOptions(hide_special=True, hide_punctuation=True, hide_first=True, normalise=True),
            True,
            "The first token, special tokens and punctuation are hidden, and each row is divided by what remains "
            "without the sink.",
        ),
        (ShownOptions(normalise=True), False, "Each row is divided by its sum."),
        (
            ShownOptions(hide_first=True, threshold=0.05),
            False,
            "The first token is hidden, so rows no longer sum to 1. Weights below 0.05 are shown as 0.",
        ),
        (
            ShownOptions(normalise=True, threshold=0.05),
            True,
            "Each row is divided by what remains without the sink. "
            "Weights below 0.05 are shown as 0, so rows no longer sum to 1.",
        ),
    ],
)
def test_what_is_said(options, has_sink, said):
    assert words_said(options, has_sink) == said


def test_gaps_between_rows_are_bridged_only_when_short():
    sizes = []
    layer = case("plain").layer
    watching = dataclasses.replace(layer)
    object.__setattr__(watching, "block", lambda rows: sizes.append((rows.start, rows.stop)) or layer.block(rows))
    pieces = torch.tensor([0, 1, 3, 3 + shown_layer.GAP, 4 + 2 * shown_layer.GAP, 2])
    every = shown_layer.Groups.of([(at,) for at in range(37)], 37)
    found = shown_layer._stored_rows(watching, pieces, every)
    assert sizes == [(0, 4 + shown_layer.GAP), (4 + 2 * shown_layer.GAP, 5 + 2 * shown_layer.GAP), (2, 3)]
    torch.testing.assert_close(found, layer.weights(slice(None))[:, pieces.tolist()], **CLOSE)
