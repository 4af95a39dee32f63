"""The trace as a whole: roles, layers, tokens, checks, tables and pictures."""

import dataclasses
import threading

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from layer_cases import case

from attnviz import statistics as statistics_module
from attnviz import trace as trace_module
from attnviz.errors import OptionError, ShapeError, SupportError
from attnviz.layers import Projection
from attnviz.statistics import STATISTICS
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace, StoredLayer, Support


def tokens(count, special=()):
    return dataclasses.replace(
        TokenSequence.numbered(count), is_special=tuple(position in special for position in range(count))
    )


def layer(kind, **changes):
    return dataclasses.replace(case(kind).layer, **changes)


def translation(**changes):
    """A trace of all roles, whose encoder has layers 1, 3 and 8 and 3, 6 and 4 heads."""
    layers = [
        *(layer("cross", layer=0), layer("causal", layer=0, role="decoder"), layer("causal", layer=1)),
        *(layer("bias", layer=8), layer("plain", layer=1), layer("grouped", layer=3)),
    ]
    options = {
        "query_tokens": {"encoder": tokens(37, [0]), "decoder": tokens(37), "cross": tokens(37)},
        "key_tokens": {"encoder": tokens(37, [0]), "decoder": tokens(37), "cross": tokens(41, [0, 40])},
        "support": Support("interface"),
        "name": "translation",
    }
    return AttentionTrace(**{"layers": layers, **options, **changes})


def single(kind="causal", **changes):
    one = layer(kind)
    queries, keys = one.shape[1:]
    options = {
        **{"layers": [one], "query_tokens": {one.role: tokens(queries)}, "key_tokens": {one.role: tokens(keys)}},
        "support": Support("module"),
    }
    return AttentionTrace(**options | changes)


def test_roles_have_their_own_layers_heads_and_tokens():
    trace = translation()
    assert trace.roles == ("encoder", "decoder", "cross")
    assert [trace.layers(role) for role in trace.roles] == [(1, 3, 8), (0, 1), (0,)]
    assert [trace.heads(number, "encoder") for number in (1, 3, 8)] == [3, 6, 4]
    assert (len(trace.query_tokens("cross")), len(trace.key_tokens("cross"))) == (37, 41)
    assert trace.weights(0, 3, "cross").shape == trace.allowed(0, "cross").shape == (37, 41)
    assert trace.weights(3, 5, "encoder", rows=[2], columns=slice(0, 7)).shape == (1, 7)
    assert trace.queries(3, 5, "encoder").shape == (37, 13)
    assert torch.equal(trace.keys(3, 5, "encoder"), trace.layer(3, "encoder").key[1])
    assert torch.equal(trace.values(3, 2, "encoder"), trace.layer(3, "encoder").value[0])
    assert "translation" in repr(trace)
    assert "encoder: 3 layers" in repr(trace)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda: translation().layers(), ["encoder", "decoder", "cross", "none given", "role="]),
        (lambda: translation().weights(0, 0), ["none given"]),
        (lambda: single().layers("cross"), ["decoder", "'cross'"]),
        (lambda: translation().weights(2, 0, "encoder"), ["[1, 3, 8]", "got 2"]),
        (lambda: translation().weights(8, 4, "encoder"), ["0 to 3", "got head 4"]),
        (lambda: single().weights(2, 0, rows=[37]), ["0 to 36", "37"]),
    ],
)
def test_what_is_not_there_is_said(action, words):
    with pytest.raises(OptionError) as raised:
        action()
    assert all(word in str(raised.value) for word in words), str(raised.value)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"query_tokens": {"decoder": tokens(7)}}, ShapeError, ["[7, 37]", "[37, 37]", "layer 2"]),
        ({"key_tokens": {"decoder": tokens(41)}}, ShapeError, ["[37, 41]", "[37, 37]"]),
        ({"key_tokens": {"encoder": tokens(37)}}, ShapeError, ["'decoder'"]),
        ({"layers": [layer("causal"), layer("causal")]}, ShapeError, ["one decoder layer 2", "two"]),
        ({"layers": [layer("causal", role="both")]}, OptionError, ["encoder", "'both'", "layer 2"]),
    ],
)
def test_a_trace_checks_itself(changes, error, words):
    with pytest.raises(error) as raised:
        single(**changes)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_a_trace_without_attention_says_why():
    trace = AttentionTrace(
        [], query_tokens={}, key_tokens={}, support=Support("none", reason="Mamba has no attention layers")
    )
    assert trace.roles == ()
    assert (trace.nbytes, trace.support.exact) == (0, False)
    assert "no attention" in repr(trace)
    for action in (trace.layers, trace.statistics, trace.thumbnails, trace.query_tokens):
        with pytest.raises(SupportError, match="Mamba has no attention layers"):
            action()


def test_stored_weights_have_no_queries():
    one = case("causal")
    stored = StoredLayer(layer=2, role="decoder", rule=one.layer.rule, stored=one.weights.float())
    trace = single(layers=[stored], support=Support("fallback"))
    torch.testing.assert_close(trace.weights(2, 1), one.weights[1].float())
    for action in (trace.queries, trace.keys, trace.values, trace.scores, trace.head_output):
        with pytest.raises(SupportError, match=r"layer 2|Layer 2"):
            action(2, 0)


def test_support_reads_as_a_sentence():
    assert str(Support("module")).startswith("exact")
    assert str(Support("interface", 2e-7)).endswith("(max difference from the model's own numbers 2.0e-07)")
    assert str(Support("none", reason="no attention")) == "not shown: no attention"


def test_projection_mixes_the_heads():
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(11, 20, generator=generator), torch.randn(11, generator=generator)
    for projection in (Projection(weight, bias), Projection(torch.nn.Parameter(weight), None), None):
        trace = single(layers=[layer("causal", projection=projection)])
        expected = trace.concatenated(2)
        assert expected.shape == (37, 4 * 5)
        if projection is not None:
            expected = expected @ weight.T + (0 if projection.bias is None else bias)
        torch.testing.assert_close(trace.projected(2), expected, atol=1e-5, rtol=1e-5)
        assert not trace.projected(2).requires_grad


def test_sinks_take_what_the_keys_do_not_get():
    trace = single("sink")
    total = trace.weights(2, 3).sum(-1) + trace.sink_weights(2, 3)
    torch.testing.assert_close(total, torch.ones(37))
    assert single("causal").sink_weights(2, 3) is None


def test_vectors_are_plain_whatever_came():
    vectors = torch.randn(37, 3, dtype=torch.float64, requires_grad=True)
    trace = single(inputs=vectors, outputs=vectors.bfloat16())
    assert trace.inputs.dtype == trace.outputs.dtype == torch.float32
    assert not trace.inputs.requires_grad
    assert trace.key_inputs is None


def test_bytes_of_a_shared_storage_count_once():
    one = layer("causal")
    fused = torch.randn(4 + 2 + 2, 37, 13)
    views = {"query": fused[:4], "key": fused[4:6], "value": fused[6:]}
    shared = [dataclasses.replace(one, layer=number, **views) for number in (0, 1)]
    trace = single(layers=shared, inputs=fused[0])
    assert trace.nbytes == fused.nbytes + one.logsumexp.nbytes
    assert single().nbytes == sum(tensor.nbytes for tensor in one.tensors)
    masked = layer("mask")
    assert single("mask").nbytes == sum(tensor.nbytes for tensor in (*masked.tensors[:4], masked.rule.mask))


def test_a_trace_keeps_nothing_that_grows_with_the_square():
    trace = single()
    before = trace.nbytes
    trace.statistics(), trace.thumbnails(), trace.weights(2, 0)
    assert trace.nbytes == before
    assert all(tensor[0].numel() < 37 * 37 for tensor in trace.layer(2).tensors)


def test_statistics_are_a_row_per_head():
    trace = translation()
    table = trace.statistics("encoder")
    assert list(table.columns) == ["layer", "head", *STATISTICS]
    assert list(zip(table["layer"], table["head"], strict=True)) == [
        (number, head) for number in (1, 3, 8) for head in range(trace.heads(number, "encoder"))
    ]
    weights = trace.weights(3, 4, "encoder")
    row = table[(table["layer"] == 3) & (table["head"] == 4)].iloc[0]
    assert row["peak_weight"] == pytest.approx(float(weights.amax(-1).mean()), abs=1e-6)
    assert row["special_weight"] == pytest.approx(float(weights[:, 0].mean()), abs=1e-6)
    assert trace.statistics("decoder")[["next_weight", "special_weight"]].isna().all(axis=None)
    assert trace.statistics("cross")["special_weight"].notna().all()

    table.loc[:, "entropy"] = -1.0
    pd.testing.assert_frame_equal(trace.statistics("encoder"), translation().statistics("encoder"))


@pytest.mark.parametrize("size", [5, 32, 64])
def test_thumbnails_are_the_pooled_weights_in_bytes(size):
    trace = translation()
    pictures = trace.thumbnails("encoder", size=size)
    assert (pictures.dtype, pictures.shape) == (torch.uint8, (3, 6, size, size))
    for at, number in enumerate(trace.layers("encoder")):
        heads = trace.heads(number, "encoder")
        weights = torch.stack([trace.weights(number, head, "encoder") for head in range(heads)])
        expected = (255 * F.adaptive_max_pool2d(weights, size)).round()
        difference = (pictures[at, :heads].float() - expected).abs()
        assert difference.max() <= 1  # where 255·weight is within rounding of a half
        assert (difference > 0).float().mean() < 1e-3
        assert not pictures[at, heads:].any()
    assert trace.thumbnails("cross").shape == (1, 4, 32, 32)


def test_threads_share_one_pass_over_the_weights(monkeypatch):
    calls = []

    def counted(*arguments, **options):
        calls.append(1)
        return statistics_module.summarize(*arguments, **options)

    monkeypatch.setattr(trace_module, "summarize", counted)
    trace, tables = translation(), []
    threads = [threading.Thread(target=lambda: tables.append(trace.statistics("encoder"))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trace.thumbnails("encoder")
    assert len(calls) == 3
    assert len(tables) == 5
    assert all(table.equals(tables[0]) for table in tables)
