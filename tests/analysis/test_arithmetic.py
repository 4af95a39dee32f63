"""What is printed of a cell, read back from the print and worked out anew."""

import math
import re
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
import torch
from layer_cases import KINDS, case

import attnviz
from attnviz.analysis.arithmetic import dimension_products, dot_product, score, softmax_of, weighted_sum, written_cell
from attnviz.errors import OptionError, ShapeError, SupportError
from attnviz.experiment import ARTICLE_EXAMPLE, Experiment, run_experiment
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace, Support

FUNCTIONS = {"__builtins__": {}, "exp": math.exp, "tanh": math.tanh, "sqrt": math.sqrt}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def worked_out(side):
    """The value of one side of an equation, as Python reads it: an oracle that shares no code with the printing."""
    text = side.replace("−", "-").replace("·", "*").replace("÷", "/")
    text = re.sub(r"… \(\d+ smaller terms?: (-?[\d.]+)\)", r"(\1)", text)
    text = re.sub(r"e\^(-?[\d.]+)", r"exp(\1)", text)
    text = re.sub(r"√(\d+)", r"sqrt(\1)", text)
    return eval(text, FUNCTIONS)


def holds(line):
    """Whether every side of an equation that can be worked out rounds to its last."""
    *sides, last = re.split(" [=≈] ", line)
    decimals = len(last.partition(".")[2])
    step = Decimal(1).scaleb(-decimals)
    result = Decimal(last.replace("−", "-"))
    given = [side for side in sides if re.search(r"\d\.\d", side) and "Σ" not in side]
    assert given
    return all(Decimal(repr(round(worked_out(side), 12))).quantize(step, ROUND_HALF_UP) == result for side in given)


def check(written):
    """Every line with = is true as printed; ≈ stands where, and only where, a line is not; the last line is the value."""
    for line, latex in zip(written.lines, written.latex, strict=True):
        assert holds(line) == ("≈" not in line), line
        assert ("≈" in line) == (r"\approx" in latex)
        assert not re.search(r"-0\.0+(?!\d)|−0\.0+(?!\d)", line), line
        assert not set("−·÷√≈…") & set(latex), latex
        assert latex.count("{") == latex.count("}")
        numbers = re.findall(r"\d+\.\d+", line)
        assert [*numbers] == re.findall(r"\d+\.\d+", latex)
    assert written.exact == all("≈" not in line for line in written.lines)
    assert bool(written.note) == (not written.exact)
    last = written.lines[-1].rpartition("= " if written.exact else " ")[2].replace("−", "-")
    assert float(last) == pytest.approx(written.value, abs=0.5001 * 10 ** -len(last.partition(".")[2]))
    return written


def test_the_article_by_hand():
    trace = run_experiment(ARTICLE_EXAMPLE).trace
    assert check(written_cell(trace, 0, 0, 2, 3)).lines == (
        "q·k = 1.00·1.00 + 1.00·1.00 = 2.00",
        "2.00 ÷ √2 = 1.41",
        "Σ = e^0.707 + e^0.707 + e^1.414 + e^1.414 + e^1.061 = 15.17",
        "weight = e^1.41 ÷ Σ = e^1.41 ÷ 15.17 = 0.27",
    )
    written = weighted_sum(trace.weights(0, 0)[2], trace.values(0, 0)[:, 0], name="o_0")
    assert check(written).lines == ("o_0 = 0.13·1.00 + 0.13·0.00 + 0.27·1.00 + 0.27·1.00 + 0.19·0.50 = 0.77",)


def test_latex_is_the_same_line():
    assert dot_product([0.5, -2], [-1, 3], name="q·k").latex == (
        r"q \cdot k = 0.50 \cdot (-1.00) + (-2.00) \cdot 3.00 = -6.50",
    )  # fmt: skip
    assert dot_product([0.5, -2], [-1, 3]).lines == ("q·k = 0.50·(−1.00) + (−2.00)·3.00 = −6.50",)
    assert (
        r"\underbrace{0.25}_{\text{5 smaller terms}}"
        in dot_product([1.0] * 6 + [0.5] * 5, [1.0] * 6 + [0.1] * 5).latex[0]
    )


def test_as_few_decimals_as_are_true():
    assert check(dot_product([1 / 3, 1 / 3], [5, 5])).lines == ("q·k = 0.333·5.000 + 0.333·5.000 = 3.33",)
    written = check(dot_product([0.004], [0.5]))
    assert written.lines == ("q·k = 0.004·0.500 = 0.002",)  # two decimals would print 0
    assert (written.decimals, written.exact) == (3, True)


def test_what_six_decimals_do_not_show_is_said():
    written = check(dot_product([1e-9, 1e-9], [1.0, 1.0]))
    assert written.lines == ("q·k = 0.00·1.00 + 0.00·1.00 = 0.00",)
    large = check(dot_product([1e6 + 1 / 3], [1e6 + 1 / 7]))
    assert "≈" in large.lines[0]
    assert not large.exact
    assert "more digits" in large.note


@pytest.mark.parametrize("width", [1, 8, 9, 64, 384])
def test_random_products_of_any_length_add_up_as_printed(width):
    exact = 0
    for seed in range(20):
        query, key = normal(width, seed=seed), normal(width, seed=seed + 1000)
        written = check(dot_product(query, key))
        assert written.value == pytest.approx(float(query.double() @ key.double()))
        terms = len(re.findall(r"·\(?−?\d", written.lines[0]))
        assert terms == (width if width <= 8 else 6)
        if width > 8:
            assert f"… ({width - 6} smaller term{'s' if width > 7 else ''}: " in written.lines[0]
            shown = [abs(worked_out(term)) for term in written.lines[0].split(" = ")[1].split(" + ")[:6]]
            assert shown == sorted(shown, reverse=True) or max(np.diff(shown)) < 0.02  # printed, so rounded
            assert min(shown) > sorted((query * key).abs().tolist())[-7] - 0.02
        exact += written.exact
    assert exact >= 19


@pytest.mark.parametrize(
    ("options", "second"),
    [
        ({"scaling": 0.25}, "÷ √16"),
        ({"scaling": 1.0}, None),
        ({"scaling": 0.3}, "·0.3"),
        ({"scaling": 0.25, "softcap": 5.0}, "÷ √16"),
        ({"scaling": 1.0, "softcap": 5.0, "bias": -0.75}, "5·tanh("),
        ({"scaling": 0.3, "bias": 0.5}, "·0.3"),
    ],
)
def test_a_score_is_made_in_the_order_of_the_rule(options, second):
    for seed in range(10):
        query, key = normal(16, seed=seed), normal(16, seed=seed + 50)
        written = check(score(query, key, **options))
        expected = float(query.double() @ key.double()) * options["scaling"]
        if "softcap" in options:
            expected = 5 * math.tanh(expected / 5)
        expected += options.get("bias", 0)
        assert written.value == pytest.approx(expected)
        assert len(written.lines) == 1 + (options["scaling"] != 1) + ("softcap" in options) + ("bias" in options)
        assert second is None or second in written.lines[1]
        for before, after in zip(written.lines, written.lines[1:], strict=False):  # the next starts where one ends
            end = float(before.rpartition(" ")[2].replace("−", "-"))
            start = float(re.search(r"−?\d+\.\d+", after)[0].replace("−", "-"))
            assert start == pytest.approx(end, abs=0.006)


@pytest.mark.parametrize("sink", [None, 1.5])
@pytest.mark.parametrize("offset", [0.0, 40.0, -300.0])
@pytest.mark.parametrize("keys", [1, 5, 17])
def test_the_softmax_of_a_row(keys, offset, sink):
    scores = normal(keys, seed=keys).double() + offset
    logits = scores if sink is None else torch.cat([scores, torch.tensor([sink + offset]).double()])
    for column in {0, keys - 1}:
        written = check(softmax_of(scores, column, sink=None if sink is None else sink + offset))
        assert written.value == pytest.approx(float(logits.softmax(0)[column]))
        assert len(written.lines) == (2 if offset == 0 else 3)
        assert ("smaller terms" in written.lines[-2]) == (len(logits) > 8)
        assert written.lines[-1].startswith("weight = e^")
        assert written.lines[0].startswith("Σ" if offset == 0 else "s − max = ")


def test_a_masked_key_takes_no_part():
    scores, allowed = [1.0, 900.0, 0.5], torch.tensor([True, False, True])
    written = check(softmax_of(scores, 2, allowed=allowed))
    assert written.value == pytest.approx(1 / (1 + math.exp(0.5)))
    assert "900" not in written.lines[0]
    masked = softmax_of(scores, 1, allowed=allowed)
    assert (masked.lines, masked.value) == ((), 0)
    assert "mask does not allow" in masked.note
    nothing = weighted_sum([0.5, 0.0, 0.5], [2.0, 900.0, 1.0])
    assert nothing.lines == ("o = 0.50·2.00 + 0.50·1.00 = 1.50",)
    assert weighted_sum([0.0, 0.0], [2.0, 3.0]).lines == ("o = 0.00·2.00 = 0.00",)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_of_every_rule(kind):
    layer, scores, allowed, weights, _ = case(kind)
    trace = AttentionTrace(
        [layer],
        query_tokens={layer.role: TokenSequence.numbered(layer.shape[1])},
        key_tokens={layer.role: TokenSequence.numbered(layer.shape[2])},
        support=Support("interface"),
    )
    head, (_, queries, keys) = layer.shape[0] - 1, layer.shape
    for query, key in {(0, 0), (queries - 1, keys - 1), (queries // 2, keys // 3)}:
        written = written_cell(trace, 2, head, query, key)
        assert written.value == pytest.approx(float(weights[head, query, key]), abs=1e-6)
        if not allowed[head, query, key]:
            assert written.lines == ()
            continue
        check(written)
        made = [line for line in written.lines if not line.startswith(("s − max", "Σ", "weight"))]
        end = float(made[-1].rpartition(" ")[2].replace("−", "-"))
        expected = float(scores[head, query, key])
        assert end == pytest.approx(expected, abs=0.0051, rel=1e-6)


def test_minilm_is_true_as_printed_almost_everywhere():
    trace = attnviz.load_model("minilm", device="cpu").trace("the cat sat on the mat, and it purred")
    places = [
        (layer, head, query, key) for layer in (0, 5) for head in (2, 11) for query in (3, 7) for key in range(1, 10)
    ]
    written = [(check(written_cell(trace, *place)), trace.weights(*place[:2])[place[2:]]) for place in places]
    assert all(one.value == pytest.approx(float(weight), abs=1e-6) for one, weight in written)
    assert sum(one.exact for one, _ in written) >= 0.95 * len(places)


def test_the_products_of_dimensions_are_sorted_and_add_up():
    query, key = normal(13, seed=3), normal(13, seed=4)
    table = dimension_products(query, key)
    assert list(table) == ["dimension", "q", "k", "product"]
    assert sorted(table["dimension"]) == list(range(13))
    assert (np.diff(table["product"].abs()) <= 0).all()
    assert table["product"].sum() == pytest.approx(float(query @ key), abs=1e-5)
    for row in table.itertuples():
        assert row.q == query[row.dimension]
        assert row.product == pytest.approx(float(query[row.dimension]) * float(key[row.dimension]))
    assert dimension_products([1, 2, 2], [2, 1, -1])["dimension"].tolist() == [0, 1, 2]


def test_what_does_not_fit_is_said():
    with pytest.raises(ShapeError, match="got 2 and 3"):
        dot_product([1, 2], [1, 2, 3])
    with pytest.raises(ShapeError, match="got 0 and 0"):
        dimension_products([], [])
    with pytest.raises(OptionError, match="finite numbers, got nan"):
        dot_product([1, math.nan], [1, 2])
    with pytest.raises(OptionError, match="key of 0 to 2, got 3"):
        softmax_of([1.0, 2.0, 3.0], 3)
    with pytest.raises(ShapeError, match="mask of 3 keys, got 2"):
        softmax_of([1.0, 2.0, 3.0], 0, allowed=[True, False])
    trace = run_experiment(Experiment(text="two words")).trace
    with pytest.raises(OptionError, match="query of 0 to 1, got -1"):
        written_cell(trace, 0, 0, -1, 0)
    with pytest.raises(OptionError, match="key of 0 to 1, got 2"):
        written_cell(trace, 0, 0, 0, 2)
    from attnviz.analysis.shown import ShownOptions, show

    with pytest.raises(SupportError, match="Turn the view off"):
        written_cell(show(trace, ShownOptions(hide_first=True)), 0, 0, 0, 0)
