"""One cell's arithmetic written out in full, with as many decimals as it takes for the printed numbers to be true."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from attnviz.errors import OptionError, ShapeError
from attnviz.trace import AttentionTrace

if TYPE_CHECKING:
    import pandas as pd

DECIMALS = range(2, 7)
"""How many decimals are tried, fewest first."""

MOST_FURTHER = 2
"""How many decimals a line may have in its operands beyond those of its result."""

MOST_TERMS = 8
"""Terms of a sum that are all written; of more, the `LARGEST_TERMS` and what the others come to."""

LARGEST_TERMS = 6
LARGEST_EXPONENT = 3.0
"""Scores are written less the row's largest where that is beyond this, so that e^s has few digits before the point."""

CLOSE = 1e-6
"""How far a scaling may be from 1/√d_head, as a share, and still be called that: float32's rounding."""

MORE_DIGITS = "≈: more digits are behind these numbers than are printed."


@dataclass(frozen=True)
class Arithmetic:
    """A calculation as a person would write it down.

    Attributes:
        lines: plain text, such as "q·k = 0.71·1.00 + 0.71·1.00 = 1.42", one equation each.
        latex: the same lines in LaTeX, without dollar signs.
        value: what comes out, not rounded.
        decimals: how many are printed of every result, or, where no number does for all lines, of the longest.
        exact: whether each printed equation, worked out with the printed numbers and rounded to their decimals, is
            true. Where one is not, it has ≈ for =.
        note: what to read below; empty for nothing.
    """

    lines: tuple[str, ...]
    latex: tuple[str, ...]
    value: float
    decimals: int
    exact: bool
    note: str = ""


def dot_product(query: Any, key: Any, *, name: str = "q·k") -> Arithmetic:
    """Return "q·k = 0.71·1.00 + … = 1.41".

    Of more than `MOST_TERMS` products the largest are written, and what the others come to.

    Args:
        query: [d_head], numbers or a tensor.
        key: [d_head].
        name: what stands to the left.

    Raises:
        ShapeError: the two are not of one length, or of none.
    """
    return _written(lambda digits: [_sum_of_products(name, *_two(query, key), digits)])


def score(
    query: Any, key: Any, *, scaling: float, softcap: float | None = None, bias: float | None = None
) -> Arithmetic:
    """Return the whole way from q·k to the score the softmax sees, a line for each thing done.

    Args:
        query: [d_head], numbers or a tensor.
        key: [d_head].
        scaling: the factor on q·k; written as a division by √d_head where it is that, left out where it is 1.
        softcap: of the layer, None for none.
        bias: of the cell, None for none.

    Raises:
        ShapeError: the two are not of one length, or of none.
    """
    return _written(lambda digits: _score_lines(*_two(query, key), scaling, softcap, bias, digits))


def softmax_of(scores: Any, column: int, *, allowed: Any = None, sink: float | None = None) -> Arithmetic:
    """Return "Σ = e^1.00 + e^0.71 + … = 10.03" and "weight = e^1.00 ÷ Σ = e^1.00 ÷ 10.03 = 0.27".

    Where the row's largest score is beyond ±`LARGEST_EXPONENT`, a line before takes it off, which changes no weight.

    Args:
        scores: [key], the row's scores, numbers or a tensor.
        column: the key that is chosen.
        allowed: bool [key]; the scores of keys that are not allowed take no part.
        sink: the logit of the row's attention sink, None for none.

    Raises:
        ShapeError: scores and mask are not of one length.
        OptionError: there is no such key.
    """
    row = _allowed_row(scores, column, allowed)
    if column not in row:
        return _masked()
    return _written(lambda digits: _softmax_lines(_numbers([*row.values()]), [*row].index(column), sink, digits))


def weighted_sum(weights: Any, values: Any, *, name: str = "o") -> Arithmetic:
    """Return one number of a head's output: "o = 0.27·1.00 + 0.13·0.00 + … = 0.80".

    Args:
        weights: [key], a row of weights.
        values: [key], one dimension of the keys' values; those whose weight is 0 are not written.
        name: what stands to the left.

    Raises:
        ShapeError: the two are not of one length, or of none.
    """
    pairs = [*zip(*_two(weights, values), strict=True)]
    some = [pair for pair in pairs if pair[0]] or pairs[:1]
    given, taken = zip(*some, strict=True)
    return _written(lambda digits: [_sum_of_products(name, given, taken, digits)])


def written_cell(
    trace: AttentionTrace, layer: int, head: int, query: int, key: int, role: str | None = None
) -> Arithmetic:
    """Return the whole way from a query and a key to their weight, with one number of decimals throughout.

    Args:
        trace: of a module or a model.
        layer: the layer's number.
        head: the head's number.
        query: the position of the query.
        key: the position of the key.
        role: the role, where there is more than one.

    Returns:
        The lines of `score` and then those of `softmax_of`; one sentence where the cell is not allowed.

    Raises:
        SupportError: the layer is known by its weights alone.
        OptionError: there is no such layer, head, query or key.
    """
    place = trace.layer(layer, role)
    head, rule = place.checked(head), place.rule
    queries, keys = trace.queries(layer, head, role), trace.keys(layer, head, role)
    if not 0 <= query < len(queries):
        raise OptionError(f"Expected a query of 0 to {len(queries) - 1}, got {query}. Choose one of these.")
    row = _allowed_row(trace.scores(layer, head, role, [query])[0], key, place.allowed([query], head=head)[0])
    if key not in row:
        return _masked()
    bias = None if rule.bias is None else float(rule.bias.expand(*place.shape)[head, query, key])
    sink = None if rule.sink is None else float(rule.sink.reshape(place.shape[0], -1)[head].expand(len(queries))[query])
    vectors = _two(queries[query], keys[key])

    def lines(digits: _Digits) -> list[_Line]:
        first = _score_lines(*vectors, rule.scaling, rule.softcap, bias, digits)
        return [*first, *_softmax_lines([*row.values()], [*row].index(key), sink, digits)]

    return _written(lines)


def dimension_products(query: Any, key: Any) -> pd.DataFrame:
    """Return which dimensions make a score: dimension, q, k and product, the largest |product| first.

    The products add up to q·k. Of equal ones the earlier dimension comes first.

    Raises:
        ShapeError: the two are not of one length, or of none.
    """
    import pandas as pd

    q, k = _two(query, key)
    table = pd.DataFrame({"dimension": range(len(q)), "q": q, "k": k})
    table["product"] = table["q"] * table["k"]
    return table.sort_values("product", key=lambda column: -column.abs(), kind="stable", ignore_index=True)


class _Digits(NamedTuple):
    """How many decimals are printed: of what a line is worked out from, and of what comes out."""

    operands: int
    results: int


class _Line(NamedTuple):
    """An equation, with the signs between its sides: "=" where the printed numbers make it true, else "≈"."""

    plain: tuple[str, ...]  # the sides of the equation
    latex: tuple[str, ...]
    true: tuple[bool, ...]  # of each sign between two sides
    value: float  # of the last side, not rounded
    printed: Decimal  # the last side

    @property
    def faults(self) -> int:
        """How many signs are not true, and one more where a number that is not 0 is printed as 0."""
        return self.true.count(False) + (not self.printed and self.value != 0)

    def text(self, sides: Sequence[str], equal: str, about: str) -> str:
        """Return the equation with its signs."""
        signs = [equal if true else about for true in self.true]
        return sides[0] + "".join(f" {sign} {side}" for sign, side in zip(signs, sides[1:], strict=True))


def _written(lines_to: Callable[[_Digits], list[_Line]]) -> Arithmetic:
    """Return the lines with the fewest decimals that make them true and let no number vanish.

    All results have the same decimals where some do for all of them, and else each its own. The operands of a line
    have up to `MOST_FURTHER` decimals more, where it takes them: e^1.41 is 4.10, and e^1.4142 is 4.11.
    """
    with localcontext(prec=100):
        for results in DECIMALS:
            lines = _best([lines_to(digits) for digits in _digits(results)])
            if not any(line.faults for line in lines):
                break
        else:
            lines = _best([lines_to(digits) for results in DECIMALS for digits in _digits(results)])
    exact = all(all(line.true) for line in lines)
    return Arithmetic(
        tuple(line.text(line.plain, "=", "≈") for line in lines),
        tuple(line.text(line.latex, "=", r"\approx") for line in lines),
        lines[-1].value,
        max(-int(line.printed.as_tuple().exponent) for line in lines),
        exact,
        "" if exact else MORE_DIGITS,
    )


def _digits(results: int) -> list[_Digits]:
    """Return the digits that are tried for results of so many decimals, fewest first."""
    operands = range(results, min(results + MOST_FURTHER, DECIMALS[-1]) + 1)
    return [_Digits(further, results) for further in operands]


def _best(tried: list[list[_Line]]) -> list[_Line]:
    """Return each line as it has the fewest faults, of equal ones the first."""
    return [min(versions, key=lambda line: line.faults) for versions in zip(*tried, strict=True)]


def _masked() -> Arithmetic:
    sentence = "The mask does not allow this cell: it has no score, and its weight is 0."
    return Arithmetic((), (), 0.0, DECIMALS[0], True, sentence)


def _sum_of_products(name: str, left: Sequence[float], right: Sequence[float], digits: _Digits) -> _Line:
    """Return "name = a·b + c·d + … = sum"; it is true where the printed products add up to the printed sum."""
    shown, others = _largest([abs(a * b) for a, b in zip(left, right, strict=True)])
    pairs = [(_rounded(left[at], digits.operands), _rounded(right[at], digits.operands)) for at in shown]
    value = math.fsum(a * b for a, b in zip(left, right, strict=True))
    rest = _rounded(math.fsum(left[at] * right[at] for at in others), digits.operands)
    result = _rounded(value, digits.results)
    plain = [f"{_plain(a, first=not at)}·{_plain(b)}" for at, (a, b) in enumerate(pairs)]
    latex = [rf"{_latex(a, first=not at)} \cdot {_latex(b)}" for at, (a, b) in enumerate(pairs)]
    return _Line(
        (name, _added(plain, rest, len(others)), _plain(result, first=True)),
        (name.replace("·", r" \cdot "), _added_latex(latex, rest, len(others)), _latex(result, first=True)),
        (True, _rounded(sum((a * b for a, b in pairs), rest), digits.results) == result),
        value,
        result,
    )


def _largest(sizes: Sequence[float]) -> tuple[list[int], list[int]]:
    """Return which terms of a sum are written and which are not: all in their order, or the largest, largest first."""
    if len(sizes) <= MOST_TERMS:
        return list(range(len(sizes))), []
    order = sorted(range(len(sizes)), key=lambda at: -sizes[at])
    return order[:LARGEST_TERMS], order[LARGEST_TERMS:]


def _added(terms: Sequence[str], rest: Decimal, count: int) -> str:
    """Return the sum of terms, and after them what so many others come to."""
    return " + ".join([*terms, *([f"… ({_smaller(count)}: {_plain(rest, first=True)})"] if count else [])])


def _added_latex(terms: Sequence[str], rest: Decimal, count: int) -> str:
    """Return the same in LaTeX."""
    under = rf"\underbrace{{{_latex(rest, first=True)}}}_{{\text{{{_smaller(count)}}}}}"
    return " + ".join([*terms, *([under] if count else [])])


def _smaller(count: int) -> str:
    return f"{count} smaller term{'' if count == 1 else 's'}"


def _score_lines(
    query: Sequence[float],
    key: Sequence[float],
    scaling: float,
    softcap: float | None,
    bias: float | None,
    digits: _Digits,
) -> list[_Line]:
    """Return q·k and what is done to it, as `ScoreRule.logits` does it."""
    lines, width = [_sum_of_products("q·k", query, key, digits)], len(query)
    if math.isclose(scaling, 1, rel_tol=CLOSE):
        pass
    elif math.isclose(scaling, width**-0.5, rel_tol=CLOSE):
        forms = (f"{{}} ÷ √{width}", rf"{{}} \div \sqrt{{{{{width}}}}}")
        lines.append(_applied(lines[-1], forms, _over_root, width, width, digits))
    else:
        factor = f"{scaling:.6g}"
        forms = (f"{{}}·{factor}", rf"{{}} \cdot {factor}")
        lines.append(_applied(lines[-1], forms, _times, scaling, float(factor), digits))
    if softcap is not None:
        cap = f"{softcap:.6g}"
        forms = (f"{cap}·tanh({{}} ÷ {cap})", rf"{cap} \cdot \tanh({{}} \div {cap})")
        lines.append(_applied(lines[-1], forms, _capped, softcap, float(cap), digits))
    if bias is not None:
        printed = _rounded(bias, digits.operands)
        forms = (f"{{}} + {_plain(printed)}", f"{{}} + {_latex(printed)}")
        lines.append(_applied(lines[-1], forms, _plus, bias, float(printed), digits))
    return lines


def _over_root(number: float, width: float) -> float:
    return number / math.sqrt(width)


def _times(number: float, factor: float) -> float:
    return number * factor


def _capped(number: float, cap: float) -> float:
    return cap * math.tanh(number / cap)


def _plus(number: float, bias: float) -> float:
    return number + bias


def _applied(
    before: _Line,
    forms: tuple[str, str],
    of: Callable[[float, float], float],
    constant: float,
    printed: float,
    digits: _Digits,
) -> _Line:
    """Return what is made of the number that the line before ends in.

    Args:
        before: that line.
        forms: how it is written, plain and in LaTeX, with {} for the number.
        of: does it to a number and a constant.
        constant: the constant.
        printed: the constant as it is printed.
        digits: how many decimals are printed.
    """
    value = of(before.value, constant)
    operand, result = _rounded(before.value, digits.operands), _rounded(value, digits.results)
    worked_out = Decimal(f"{of(float(operand), printed):.14g}")  # −3.15·0.3 is −0.945, not float's −0.94499…
    return _Line(
        (forms[0].format(_plain(operand, first=True)), _plain(result, first=True)),
        (forms[1].format(_latex(operand, first=True)), _latex(result, first=True)),
        (_rounded(worked_out, digits.results) == result,),
        value,
        result,
    )


def _softmax_lines(scores: Sequence[float], chosen: int, sink: float | None, digits: _Digits) -> list[_Line]:
    """Return the row's sum of exponentials and the share of one of them.

    Args:
        scores: of the keys that are allowed.
        chosen: which of them.
        sink: one more score that belongs to no key, None for none.
        digits: how many decimals are printed.
    """
    row = [*scores] if sink is None else [*scores, sink]
    largest = max(row)
    shift = largest if abs(largest) > LARGEST_EXPONENT else 0.0
    exponents = [number - shift for number in row]
    total = _sum_of_exponentials(exponents, digits)
    lines = [_shifted(row[chosen], shift, digits)] if shift else []
    return [*lines, total, _share(exponents[chosen], total.value, digits)]


def _shifted(number: float, largest: float, digits: _Digits) -> _Line:
    """Return a score less the row's largest."""
    value, result = number - largest, _rounded(number - largest, digits.results)
    score, most = _rounded(number, digits.operands), _rounded(largest, digits.operands)
    return _Line(
        ("s − max", f"{_plain(score, first=True)} − {_plain(most)}", _plain(result, first=True)),
        (r"s - \max", f"{_latex(score, first=True)} - {_latex(most)}", _latex(result, first=True)),
        (True, _rounded(score - most, digits.results) == result),
        value,
        result,
    )


def _sum_of_exponentials(exponents: Sequence[float], digits: _Digits) -> _Line:
    """Return "Σ = e^1.00 + e^0.71 + … = 10.03"."""
    powers = [math.exp(number) for number in exponents]
    shown, others = _largest(powers)
    printed = [_rounded(exponents[at], digits.operands) for at in shown]
    rest = _rounded(math.fsum(powers[at] for at in others), digits.operands)
    value = math.fsum(powers)
    result = _rounded(value, digits.results)
    plain, latex = (
        [f"e^{_plain(one, first=True)}" for one in printed],
        [f"e^{{{_latex(one, first=True)}}}" for one in printed],
    )
    return _Line(
        ("Σ", _added(plain, rest, len(others)), _plain(result)),
        (r"\Sigma", _added_latex(latex, rest, len(others)), _latex(result)),
        (True, _rounded(sum(map(_exp, printed), rest), digits.results) == result),
        value,
        result,
    )


def _share(exponent: float, total: float, digits: _Digits) -> _Line:
    """Return "weight = e^1.00 ÷ Σ = e^1.00 ÷ 10.03 = 0.27"."""
    value = math.exp(exponent) / total
    power, below = _rounded(exponent, digits.operands), _rounded(total, digits.operands)
    result = _rounded(value, digits.results)
    plain, latex = f"e^{_plain(power, first=True)} ÷ ", rf"e^{{{_latex(power, first=True)}}} \div "
    return _Line(
        ("weight", f"{plain}Σ", f"{plain}{_plain(below)}", _plain(result)),
        (r"\text{weight}", rf"{latex}\Sigma", f"{latex}{_latex(below)}", _latex(result)),
        (True, True, bool(below) and _rounded(_exp(power) / below, digits.results) == result),
        value,
        result,
    )


def _rounded(number: float | Decimal, to: int) -> Decimal:
    """Return a number with so many decimals, halves away from 0, and no −0."""
    return Decimal(number).quantize(Decimal(1).scaleb(-to), ROUND_HALF_UP) + 0


def _exp(number: Decimal) -> Decimal:
    return Decimal(math.exp(number))


def _plain(number: Decimal, *, first: bool = False) -> str:
    """Return a number as it is read; a negative one that is not the first of a term stands in brackets."""
    text = f"{number:f}".replace("-", "−")
    return text if first or number >= 0 else f"({text})"


def _latex(number: Decimal, *, first: bool = False) -> str:
    return _plain(number, first=first).replace("−", "-")


def _two(left: Any, right: Any) -> tuple[list[float], list[float]]:
    """Return two lists of numbers of one length; ShapeError where they are not."""
    one, two = _numbers(left), _numbers(right)
    if len(one) != len(two) or not one:
        raise ShapeError(f"Expected two vectors of one length, got {len(one)} and {len(two)} numbers.")
    return one, two


def _numbers(vector: Any) -> list[float]:
    """Return finite numbers as Python has them; OptionError where one is NaN or infinite."""
    numbers = torch.as_tensor(vector, dtype=torch.float64).detach().flatten().tolist()
    if not all(map(math.isfinite, numbers)):
        raise OptionError(f"Expected finite numbers, got {next(one for one in numbers if not math.isfinite(one))}.")
    return numbers


def _allowed_row(scores: Any, column: int, allowed: Any) -> dict[int, float]:
    """Return the scores of the allowed keys by their positions; the column must be a position."""
    row = torch.as_tensor(scores, dtype=torch.float64).flatten().tolist()
    kept = [True] * len(row) if allowed is None else torch.as_tensor(allowed).flatten().tolist()
    if len(kept) != len(row):
        raise ShapeError(f"Expected a mask of {len(row)} keys, got {len(kept)}.")
    if not 0 <= column < len(row):
        raise OptionError(f"Expected a key of 0 to {len(row) - 1}, got {column}. Choose one of these.")
    return {at: number for at, number in enumerate(row) if kept[at]}
