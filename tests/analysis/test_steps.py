"""The steps of a head: by hand, against torch's own attention, and multiplied out from nothing but what they show."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from layer_cases import KINDS, case
from torch import nn
from torch.nn import functional as F

import attnviz
from attnviz.analysis.shown import ShownOptions, show
from attnviz.analysis.steps import steps
from attnviz.errors import OptionError, ShapeError
from attnviz.experiment import ARTICLE_EXAMPLE, Experiment, run_experiment
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace, Support

sys.path.append(str(Path(__file__).parent.parent / "models"))
import zoo

TEXTS = {"text": "the cat saw the dog", "context": "le chien a vu le chat ."}
TOY = Experiment(**TEXTS, heads=3, dimension=15, seed=7, device="cpu")
BIASED = "bq:0.1=0.5;bk:0.7=-0.25;bv:0.11=2;bo:0.3=-1"
STREET = "The animal didn't cross the street because it was too tired."


def close(one, two, tolerance=1e-6):
    torch.testing.assert_close(one.double(), torch.as_tensor(two).double(), atol=tolerance, rtol=tolerance)


def by_key(found):
    keyed = {step.key: step for step in found}
    assert len(keyed) == len(found)
    return keyed


def toy_steps(experiment=TOY, head=0, **options):
    outcome = run_experiment(experiment)
    return by_key(steps(outcome.trace, 0, head, matrices=outcome.matrices, **options))


def factor(step, symbol):
    (found,) = [one.matrix.double() for one in step.factors if one.symbol.startswith(symbol)]
    return found


def multiplied_out(found):
    """Work every step out from those before it, from its factors and from the values of its symbols; all must agree.

    Returns the weights and the head's output.
    """
    numbers = {key: step.matrix.double() for key, step in found.items()}
    if "inputs" in found:
        for name in ("inputs", "context"):
            placed = found.get(f"placed_{name}")
            if placed is not None:
                numbers[name] = numbers[name] + factor(placed, "P")
                close(numbers[name], placed.matrix)
        for name, inputs in (("queries", "inputs"), ("keys", "context"), ("values", "context")):
            vectors = numbers.get(inputs, numbers["inputs"])
            close(vectors @ factor(found[name], "W") + factor(found[name], "b"), found[name].matrix)
    scores = numbers["queries"] @ numbers["keys"].T
    close(scores, found["products"].matrix, 1e-5)
    if "scaled" in found:
        value = dict(found["scaled"].symbols)
        scores = scores / float(value["d_k"]) ** 0.5 if "d_k" in value else scores * float(value["c"])
        close(scores, found["scaled"].matrix, 1e-5)
    if "capped" in found:
        cap = float(dict(found["capped"].symbols)["c"])
        scores = cap * (scores / cap).tanh()
        close(scores, found["capped"].matrix, 1e-5)
    if "biased" in found:
        scores = scores + factor(found["biased"], "B")
        close(scores, found["biased"].matrix, 1e-5)
    if "masked" in found:
        allowed = factor(found["masked"], "M").bool()
        assert torch.equal(allowed, found["masked"].matrix.isfinite())
        close(scores[allowed], found["masked"].matrix[allowed], 1e-5)
        scores = scores.masked_fill(~allowed, -torch.inf)
    exponentials = scores.exp()
    total = exponentials.sum(-1, keepdim=True)
    if "sink" in found:
        sink = factor(found["weights"], "z").exp()
        total = total + sink
        close(sink / total, found["sink"].matrix, 1e-5)
    weights = exponentials / total.where(total > 0, 1)
    close(weights, found["weights"].matrix, 1e-5)
    output = weights @ numbers["values"]
    close(output, found["head_output"].matrix, 1e-5)
    if "output" in found:
        inside = numbers.get("concatenated", numbers["head_output"])
        bias = factor(found["output"], "b") if len(found["output"].factors) == 2 else 0
        close(inside @ factor(found["output"], "W") + bias, found["output"].matrix, 1e-4)
    return weights, output


def check(trace, layer, head, role=None):
    """The steps multiply out to what the trace gives, and each shape is said."""
    found = by_key(steps(trace, layer, head, role))
    weights, output = multiplied_out(found)
    close(weights, trace.weights(layer, head, role), 1e-5)
    close(output, trace.head_output(layer, head, role), 1e-5)
    if "concatenated" in found:
        width = output.shape[1]
        close(output, found["concatenated"].matrix[:, head * width : (head + 1) * width], 1e-5)
    for step in found.values():
        rows, columns = step.matrix.shape
        assert (rows, columns) == (len(step.row_labels), len(step.column_labels))
        assert f"{rows} × {columns}" in dict(step.symbols).values() or step.key in ("products", "scaled", "capped")
        assert step.matrix.dtype == torch.float32
    return found


def test_the_article_by_hand():
    found = toy_steps(replace(ARTICLE_EXAMPLE, device="cpu"))
    assert list(found) == [
        *("inputs", "queries", "keys", "values", "products", "scaled", "masked", "weights", "head_output"),
    ]  # fmt: skip
    words = torch.tensor([[1, 0], [0, 1], [1, 1], [1, 1], [0.5, 1]])
    for key in ("inputs", "queries", "keys", "values"):
        assert torch.equal(found[key].matrix, words)
    products = [[1, 0, 1, 1, 0.5], [0, 1, 1, 1, 1], [1, 1, 2, 2, 1.5], [1, 1, 2, 2, 1.5], [0.5, 1, 1.5, 1.5, 1.25]]
    close(found["products"].matrix, products)
    close(found["scaled"].matrix[0], [0.70711, 0, 0.70711, 0.70711, 0.35355], 1e-5)
    close(found["weights"].matrix[2], [0.1337, 0.1337, 0.2711, 0.2711, 0.1904], 1e-4)
    close(found["head_output"].matrix[0], [0.7988, 0.7616], 1e-4)
    assert found["queries"].formula == "Q = X W^Q + b^Q"
    assert found["scaled"].formula == r"S = \frac{Q K^{\top}}{\sqrt{d_k}}"
    assert dict(found["scaled"].symbols) == {"S": "5 × 5", "d_k": "2"}
    assert "every cell is allowed" in found["masked"].sentence
    assert found["weights"].row_labels == ("karina", "is", "to", "the", "store")
    assert "no W^O" in found["head_output"].note


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("module", ["multi-head self", "multi-head cross"])
def test_many_heads_are_those_of_torchs_own_module(module, positions):
    outcome = run_experiment(replace(TOY, module=module, positions=positions, edits=BIASED))
    given = outcome.matrices
    own = nn.MultiheadAttention(15, 3, batch_first=True)
    with torch.no_grad():
        own.in_proj_weight.copy_(torch.cat([given[name].T for name in "qkv"]))
        own.in_proj_bias.copy_(torch.cat([given[f"b{name}"][0] for name in "qkv"]))
        own.out_proj.weight.copy_(given["o"].T)
        own.out_proj.bias.copy_(given["bo"][0])
        texts = [given[name] for name in ("x", "context") if name in given]
        if positions:
            texts = [vectors + given["positions"][: len(vectors)] for vectors in texts]
        output, weights = own(texts[0], texts[-1], texts[-1], average_attn_weights=False)
    for head in range(3):
        found = toy_steps(replace(TOY, module=module, positions=positions, edits=BIASED), head)
        close(found["weights"].matrix, weights[head])
        close(found["output"].matrix, output)
        multiplied_out(found)
    assert (found["keys"].matrix.shape[0] == 7) == ("cross" in module)
    assert ("context" in found) == ("cross" in module)
    assert ("placed_inputs" in found) == positions


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize(("module", "causal"), [("self", True), ("self", False), ("cross", False)])
def test_one_head_is_torchs_own_function(module, causal, scale):
    experiment = replace(TOY, module=module, causal=causal, scale=scale)
    found = toy_steps(experiment)
    query, key, value = (found[name].matrix for name in ("queries", "keys", "values"))
    expected = F.scaled_dot_product_attention(
        query[None, None], key[None, None], value[None, None], is_causal=causal, scale=None if scale else 1.0
    )
    close(found["head_output"].matrix, expected[0, 0])
    multiplied_out(found)
    assert ("scaled" in found) == scale
    assert ("does not divide" in found["products"].note) == (not scale)
    assert (found["weights"].allowed is not None) == causal
    assert ("no key later" in found["masked"].sentence) == causal


@pytest.mark.parametrize("kind", KINDS)
def test_every_rule_cell_by_cell(kind):
    layer, scores, allowed, weights, sink = case(kind)
    trace = AttentionTrace(
        [layer],
        query_tokens={layer.role: TokenSequence.numbered(layer.shape[1])},
        key_tokens={layer.role: TokenSequence.numbered(layer.shape[2])},
        support=Support("interface"),
    )
    head = layer.shape[0] - 1
    found = by_key(steps(trace, 2, head))
    before = [found[key] for key in ("products", "scaled", "capped", "biased") if key in found]
    relative = scores[head].abs().max().clamp_min(1)
    close(before[-1].matrix.double() / relative, scores[head] / relative, 1e-5)
    assert ("masked" in found) == layer.rule.restricts
    if layer.rule.restricts:
        assert torch.equal(found["masked"].matrix.isfinite(), allowed[head])
        assert torch.equal(found["weights"].allowed, allowed[head])
        assert ("no allowed cell" in found["masked"].note) == bool((~allowed[head].any(-1)).any())
    else:
        assert found["weights"].allowed is None
    close(found["weights"].matrix, weights[head], 1e-5)
    assert ("sink" in found) == (layer.rule.sink is not None)
    if "sink" in found:
        close(found["sink"].matrix[:, 0], sink[head], 1e-5)
    value = layer.value[layer.key_head(head)].double()
    close(found["head_output"].matrix, weights[head] @ value, 1e-5)
    assert ("Grouped" in found["keys"].note) == (layer.group > 1)


def test_a_sink_may_differ_from_row_to_row():
    layer = case("sink").layer
    sinks = torch.randn(layer.shape[:2], generator=torch.Generator().manual_seed(11))
    layer = replace(layer, rule=replace(layer.rule, sink=sinks))
    tokens = {layer.role: TokenSequence.numbered(layer.shape[1])}
    trace = AttentionTrace([layer], query_tokens=tokens, key_tokens=tokens, support=Support("interface"))
    found = by_key(steps(trace, 2, 1, rows=[31, 2]))
    assert torch.equal(factor(found["weights"], "z")[:, 0].float(), sinks[1, [31, 2]])
    weights, _ = multiplied_out(found)
    close(weights, trace.weights(2, 1)[[31, 2]], 1e-5)
    assert found["sink"].matrix.min() > 0.005


MODELS = {
    "llama": ({"scaled", "masked", "concatenated", "output"}, {"capped", "biased", "sink"}),
    "t5": ({"biased"}, {"scaled", "capped", "sink"}),
    "gemma2": ({"scaled", "capped", "masked"}, {"biased", "sink"}),
    "mistral": ({"scaled", "masked"}, {"capped", "biased"}),
    "gpt_oss": ({"scaled", "sink", "masked"}, {"capped", "biased"}),
    "deepseek_v2": ({"scaled", "masked", "output"}, {"sink"}),
}


@pytest.mark.parametrize("model_type", MODELS)
def test_a_models_steps_multiply_out_to_its_trace(model_type):
    model = zoo.tiny_model(zoo.tiny_config(model_type, **zoo.WINDOWS.get(model_type, {})))
    trace = attnviz.trace_model(model, zoo.inputs_of(model.config, padding="left"), item=1)
    there, absent = MODELS[model_type]
    for role in trace.roles:
        seen = set()
        for number in trace.layers(role):
            found = check(trace, number, 5, role)
            seen |= set(found)
            assert list(found)[:4] == ["queries", "keys", "values", "products"]
            assert not any(one.edit for step in found.values() for one in (step, *step.factors))
            assert ("a window" in (found["masked"].sentence if "masked" in found else "")) == (
                trace.layer(number, role).rule.window is not None
            )
        assert (there - ({"biased"} if role == "cross" else set())) <= seen  # T5's cross-attention has no bias
        assert not absent & seen


def test_grouped_queries_say_who_shares():
    model = zoo.tiny_model(zoo.tiny_config("llama"))
    trace = attnviz.trace_model(model, zoo.inputs_of(model.config))
    one, other, apart = (by_key(steps(trace, 1, head)) for head in (3, 5, 2))
    assert torch.equal(one["keys"].matrix, other["keys"].matrix)
    assert not torch.equal(one["keys"].matrix, apart["keys"].matrix)
    assert "heads 3 to 5" in one["keys"].note
    assert "heads 0 to 2" in apart["values"].note


def test_minilm():
    trace = attnviz.load_model("minilm", device="cpu").trace(STREET)
    found = check(trace, 3, 1)
    labels = found["weights"].row_labels
    assert found["weights"].matrix[labels.index("it"), labels.index("animal")] == pytest.approx(0.677, abs=5e-4)
    assert dict(found["scaled"].symbols)["d_k"] == "32"
    assert "adds it to the vectors" in found["output"].sentence
    close(found["output"].matrix, trace.projected(3), 1e-5)


@pytest.mark.parametrize("rows", [[3], [4, 0], slice(1, 3)])
def test_some_rows_are_the_same_rows_of_all(rows):
    whole = toy_steps(replace(TOY, module="multi-head cross"), 2)
    part = toy_steps(replace(TOY, module="multi-head cross"), 2, rows=rows)
    assert list(part) == list(whole)
    for key, step in part.items():
        same = key in ("inputs", "context", "keys", "values")
        close(step.matrix, whole[key].matrix if same else whole[key].matrix[rows])
        assert len(step.row_labels) == len(step.matrix)
        assert all(len(one.row_labels) == len(one.matrix) for one in step.factors)
    labels = [TEXTS["text"].split()[at] for at in (range(5)[rows] if isinstance(rows, slice) else rows)]
    assert part["weights"].row_labels == tuple(labels)


def test_masked_rows_are_zero_and_said():
    edits = ";".join(f"mask:{row}.{column}=0" for row in (1, 3) for column in range(5))
    found = toy_steps(replace(TOY, edits=edits))
    multiplied_out(found)
    assert torch.equal(found["weights"].matrix.sum(1) > 0, torch.tensor([True, False, True, False, True]))
    assert found["masked"].note == "2 rows have no allowed cell: all its weights are 0."
    assert not found["head_output"].matrix[[1, 3]].any()


def test_an_edit_of_one_projection_changes_what_is_below_and_nothing_above():
    before = toy_steps(head=1)
    after = toy_steps(replace(TOY, edits="q:3.6=0.9"), 1)  # columns 5 to 9 are head 1's
    changed = {key: before[key].matrix != after[key].matrix for key in before}
    for key in ("inputs", "keys", "values"):
        assert not changed[key].any()
    assert changed["queries"].nonzero().tolist() == [[row, 1] for row in range(5)]  # the second column of the head
    for key in ("products", "scaled", "weights", "head_output", "output"):
        assert changed[key].all()
    width = changed["concatenated"].any(0).nonzero().flatten()
    assert width.tolist() == [5, 6, 7, 8, 9]
    moved = after["queries"].matrix[:, 1] - before["queries"].matrix[:, 1]
    old = factor(before["queries"], "W")[3, 1]
    close(moved, before["inputs"].matrix[:, 3].double() * (0.9 - old))
    other = toy_steps(replace(TOY, edits="q:3.6=0.9"), 0)
    same = toy_steps(head=0)
    assert all(
        torch.equal(same[key].matrix, other[key].matrix) for key in same if key not in ("concatenated", "output")
    )


def test_factors_name_the_cells_they_are_edited_by():
    found = toy_steps(replace(TOY, module="multi-head cross"), 2)
    named = {one.edit: one for step in found.values() for one in step.factors}
    assert set(named) == {"q", "bq", "k", "bk", "v", "bv", "o", "bo", "mask"}
    assert {found["inputs"].edit, found["context"].edit} == {"x", "context"}
    given = run_experiment(replace(TOY, module="multi-head cross")).matrices
    for name, one in named.items():
        columns = slice(one.first_column, one.first_column + one.matrix.shape[1])
        assert torch.equal(one.matrix, given[name][:, columns])
    assert (named["q"].first_column, named["bv"].first_column, named["o"].first_column) == (10, 10, 0)


def test_of_weights_alone_the_reason_is_said():
    model = zoo.tiny_model(zoo.tiny_config("bloom"))
    trace = attnviz.trace_model(model, zoo.inputs_of(model.config))
    (only,) = steps(trace, 1, 2)
    assert torch.equal(only.matrix, trace.weights(1, 2))
    assert "traced by its weights alone" in only.note
    assert only.allowed is not None

    view = show(run_experiment(TOY).trace, ShownOptions(hide_first=True))
    (only,) = steps(view, 0, 1)
    assert only.matrix.shape == (4, 4)
    assert "Turn the view off" in only.note


def test_what_does_not_fit_is_said():
    outcome, other = run_experiment(TOY), run_experiment(replace(TOY, text="two words"))
    with pytest.raises(ShapeError, match=r"x \[2, 15\] for \[5, 15\]"):
        steps(outcome.trace, 0, 0, matrices=other.matrices)
    with pytest.raises(OptionError, match="heads 0 to 2, got head 3"):
        steps(outcome.trace, 0, 3)
    assert "inputs" not in by_key(steps(outcome.trace, 0, -1))
