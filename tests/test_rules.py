"""Which cells are allowed, written out, and what a score rule refuses."""

import pytest
import torch

from attnviz.errors import MaskError, OptionError
from attnviz.rules import ScoreRule, cells, positions


def drawn(allowed):
    return ["".join("x" if cell else "." for cell in row) for row in allowed.tolist()]


@pytest.mark.parametrize(
    ("options", "shape", "expected"),
    [
        ({"causal": True}, (3, 3), ["x..", "xx.", "xxx"]),
        ({"causal": True, "offset": 2}, (2, 4), ["xxx.", "xxxx"]),
        ({"causal": True, "window": 2}, (4, 4), ["x...", "xx..", ".xx.", "..xx"]),
        ({"causal": True, "window": 2, "offset": 1}, (3, 4), ["xx..", ".xx.", "..xx"]),
        ({"window": 2}, (4, 4), ["xx..", "xxx.", ".xxx", "..xx"]),
        ({"window": 1}, (3, 2), ["x.", ".x", ".."]),
        ({"window": 2, "offset": 2}, (2, 5), [".xxx.", "..xxx"]),
        ({"causal": True, "mask": torch.tensor([[1, 1], [0, 1]]).bool()}, (2, 2), ["x.", ".x"]),
    ],
)
def test_allowed_cells(options, shape, expected):
    rule = ScoreRule(scaling=1.0, **options)
    assert rule.restricts
    assert drawn(rule.allowed(shape)) == expected
    for row in range(shape[0]):
        span = rule.columns(slice(row, row + 1), shape[1])
        assert "x" not in expected[row][: span.start] + expected[row][span.stop :]
        assert drawn(rule.allowed(shape, [row], [0, 1])) == [expected[row][:2]]


def test_a_rule_without_restriction_says_so():
    rule = ScoreRule(scaling=1.0)
    assert not rule.restricts
    assert rule.allowed((3, 4)) is None
    assert rule.columns(slice(0, 3), 4) == slice(0, 4)


def test_a_mask_per_head_is_read_per_head():
    mask = torch.stack([torch.ones(2, 3), torch.zeros(2, 3)]).bool()
    rule = ScoreRule(scaling=1.0, causal=True, mask=mask)
    rule.check(2, 2, 3)
    assert drawn(rule.allowed((2, 3), heads=0)) == ["x..", "xx."]
    assert drawn(rule.allowed((2, 3), heads=1)) == ["...", "..."]
    assert rule.allowed((2, 3)).shape == (2, 2, 3)


def test_logits_scale_then_cap_then_add_the_bias():
    products, bias = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, 0.25]])
    rule = ScoreRule(scaling=3.0, softcap=2.0, bias=bias)
    expected = 2 * torch.tanh(torch.tensor([[3.0, -6.0]]) / 2) + bias
    torch.testing.assert_close(rule.logits(products, slice(None), slice(None), 0), expected)
    assert bias.tolist() == [[0.5, 0.25]]


INDICES = [
    *(slice(None), slice(2, 5), slice(5, 2), slice(1, 100), slice(-3, None), slice(0, 7, 3)),
    *(slice(None, None, -1), slice(5, 1, -2), [3], [], [6, 0, 0], [-1, 2], (1, 2), range(2, 4)),
    *(torch.tensor([4, 1]), torch.tensor([True, False] * 3 + [True]), torch.tensor([], dtype=torch.int64)),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_positions_and_cells_pick_as_python_does(index):
    everything = list(range(7))
    if isinstance(index, slice):
        expected = everything[index]
    elif isinstance(index, torch.Tensor) and index.dtype == torch.bool:
        expected = [0, 2, 4, 6]
    else:
        expected = [everything[int(at)] for at in index]
    assert positions(index, 7).tolist() == expected
    table = torch.arange(2 * 7 * 7).view(2, 7, 7)
    assert cells(table, index, slice(None)).tolist() == [[head[at] for at in expected] for head in table.tolist()]
    assert cells(table, slice(None), index).tolist() == [
        [[row[at] for at in expected] for row in head] for head in table.tolist()
    ]


@pytest.mark.parametrize("index", [[7], [-8, 0], torch.tensor([1, 9])])
def test_positions_outside_are_refused_with_both_numbers(index):
    with pytest.raises(OptionError, match=r"0 to 6, got -?\d"):
        positions(index, 7)
    with pytest.raises(OptionError, match="7 booleans, one per position, got 2"):
        positions([True, False], 7)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mask": torch.ones(7, 5).bool()}, ["[7, 11]", "[3, 7, 11]", "[7, 5]"]),
        ({"mask": torch.ones(2, 7, 11).bool()}, ["[3, 7, 11]", "[2, 7, 11]"]),
        ({"mask": torch.ones(7, 11)}, ["boolean", "float32"]),
        ({"bias": torch.ones(11, 7)}, ["bias", "[7, 11]", "[11, 7]"]),
        ({"bias": torch.full((7, 11), -torch.inf)}, ["finite", "-inf", "mask"]),
        ({"bias": torch.full((7, 11), torch.nan)}, ["finite", "nan"]),
        ({"sink": torch.ones(5)}, ["[3]", "(5,)"]),
    ],
)
def test_tables_that_do_not_fit_are_refused(options, words):
    with pytest.raises(MaskError) as raised:
        ScoreRule(scaling=1.0, **options).check(3, 7, 11)
    assert all(word in str(raised.value) for word in words), str(raised.value)
