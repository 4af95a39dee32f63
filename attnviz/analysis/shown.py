"""A trace seen by words, without some tokens, or with rows divided anew: a view that leaves the trace as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from torch import Tensor

from attnviz.analysis.shown_layer import Groups, refuse, shown_layer
from attnviz.errors import OptionError
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace


@dataclass(frozen=True)
class ShownOptions:
    """What is shown of a trace; with all as they are here, the trace itself.

    What is on is done in this order.

    Attributes:
        words: one row and column per word of the tokenizer: the sum over the pieces attended to, the mean over the
            pieces that attend. Special tokens stay alone.
        hide_special: leave out special tokens, as rows and as columns.
        hide_punctuation: leave out what is nothing but punctuation (`TokenSequence.is_punctuation`).
        hide_first: leave out the first query and the first key, on which many heads rest what they do not need; with
            `words`, the words that hold them.
        normalise: divide each row by what remains of it, so that it sums to 1; rows of 0 stay 0.
        threshold: weights below it become 0; 0 to 1.

    Raises:
        OptionError: the threshold is outside 0 to 1.
    """

    words: bool = False
    hide_special: bool = False
    hide_punctuation: bool = False
    hide_first: bool = False
    normalise: bool = False
    threshold: float = 0.0

    def __post_init__(self) -> None:
        """Check the threshold."""
        if not 0 <= self.threshold <= 1:
            raise OptionError(f"Expected a threshold of 0 to 1, got {self.threshold}.")

    @property
    def hidden(self) -> str:
        """What is hidden, in words: "special tokens and punctuation"; empty where nothing is."""
        kinds = ("the first token", "special tokens", "punctuation")
        chosen = (self.hide_first, self.hide_special, self.hide_punctuation)
        *most, last = [kind for kind, hides in zip(kinds, chosen, strict=True) if hides] or [""]
        return f"{', '.join(most)} and {last}" if most else last


def show(trace: AttentionTrace, options: ShownOptions) -> AttentionTrace:
    """Return a view of a trace, which every page, picture and statistic reads like any other trace.

    Args:
        trace: what was traced; it is read on request and never changed.
        options: what is shown of it.

    Returns:
        A `ShownTrace`, or the trace itself where no option is on.

    Raises:
        OptionError: nothing would be left of a role's rows or columns.
    """
    return trace if options == ShownOptions() else ShownTrace(trace, options)


def words_said(options: ShownOptions, has_sink: bool) -> str:
    """Return plain sentences on what a view shows; empty where it shows the trace itself.

    Args:
        options: what is shown.
        has_sink: whether the layer has an attention sink, a part of each row that goes to no key.
    """
    said = []
    if options.words:
        said.append("Words: sum over the pieces attended to, mean over the pieces that attend.")
    hiding = f"{options.hidden[:1].upper()}{options.hidden[1:]} {_verb(options)} hidden" if options.hidden else ""
    sums = "a row and its sink no longer sum to 1" if has_sink and not options.normalise else "rows no longer sum to 1"
    if options.normalise:
        divisor = f"what remains{' without the sink' if has_sink else ''}" if hiding or has_sink else "its sum"
        said.append(f"{hiding + ', and each' if hiding else 'Each'} row is divided by {divisor}.")
    elif hiding:
        said.append(f"{hiding}, so {sums}.")
    if options.threshold:
        ending = "" if hiding and not options.normalise else f", so {sums}"  # said once
        said.append(f"Weights below {options.threshold:g} are shown as 0{ending}.")
    return " ".join(said)


def _verb(options: ShownOptions) -> str:
    """Return "is" or "are", as what is hidden wants it."""
    several = options.hide_special or options.hide_first + options.hide_punctuation > 1
    return "are" if several else "is"


class ShownTrace(AttentionTrace):
    """A view of a trace. It keeps no weights of its own: each request reads the rows it needs of the stored layers.

    Vectors go with the tokens: `inputs`, `outputs` and `key_inputs` are those of the shown tokens, of a word the mean
    over its pieces.

    Attributes:
        base: the trace that is seen.
        options: what is shown of it.
    """

    def __init__(self, base: AttentionTrace, options: ShownOptions) -> None:
        """See a trace through the options; OptionError where nothing would be left of a role's rows or columns."""
        self.base, self.options = base, options
        known: dict[int, _Side] = {}  # the same tokens stay the same

        def side(tokens: TokenSequence, role: str) -> _Side:
            if id(tokens) not in known:
                known[id(tokens)] = _side(tokens, options, role)
            return known[id(tokens)]

        queries = {role: side(base.query_tokens(role), role) for role in base.roles}
        keys = {role: side(base.key_tokens(role), role) for role in base.roles}
        of_vectors = next((queries[role] for role in ("decoder", "encoder", "cross") if role in queries), None)
        super().__init__(
            [
                shown_layer(
                    base.layer(number, role),
                    queries[role].groups,
                    keys[role].groups,
                    normalise=options.normalise,
                    threshold=options.threshold,
                )
                for role in base.roles
                for number in base.layers(role)
            ],
            query_tokens={role: one.tokens for role, one in queries.items()},
            key_tokens={role: one.tokens for role, one in keys.items()},
            inputs=_vectors(base.inputs, of_vectors),
            outputs=_vectors(base.outputs, of_vectors),
            key_inputs=_vectors(base.key_inputs, keys.get("cross")),
            hidden_states={role: _states(base, role, queries[role]) for role in base.roles},
            support=base.support,
            name=base.name,
            notices=base.notices,
        )

    def _computed(self, layer: int, role: str | None) -> NoReturn:
        refuse(self.layer(layer, role), "queries, keys and values")


class _Side(NamedTuple):
    """One axis of a view."""

    groups: Groups
    tokens: TokenSequence


def _side(tokens: TokenSequence, options: ShownOptions, role: str) -> _Side:
    """Return what is shown of an axis; OptionError where that is nothing."""
    groups = tokens.by_words() if options.words else tuple((at,) for at in range(len(tokens)))
    named = tokens.merged(groups) if options.words else tokens
    hidden = [
        (options.hide_special and special) or (options.hide_punctuation and mark) or (options.hide_first and 0 in group)
        for group, special, mark in zip(groups, named.is_special, named.is_punctuation, strict=True)
    ]
    kept = [group for group, hides in zip(groups, hidden, strict=True) if not hides]
    if not kept:
        raise OptionError(
            f"Without {options.hidden} there is no token left to show ({role}, {len(tokens)} tokens). "
            "Show some of them again."
        )
    shown = tokens.merged(kept) if options.words else tokens.select([at for group in kept for at in group])
    return _Side(Groups.of(kept, len(tokens)), shown)


def _states(base: AttentionTrace, role: str, side: _Side) -> list[Tensor]:
    """Return the vectors between the layers of the tokens that are shown."""
    states = (_vectors(state, side) for state in base.hidden_states(role))
    return [state for state in states if state is not None]


def _vectors(vectors: Tensor | None, side: _Side | None) -> Tensor | None:
    """Return the vectors of the shown tokens; None where they do not go with these tokens."""
    if vectors is None or side is None or len(vectors) != side.groups.length:
        return None
    return side.groups.mean(vectors)
