"""`trace_model`: one run of any transformers model in memory, turned into a trace."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from attnviz.errors import AttnvizError, LoadError, OptionError, SupportError, TextError
from attnviz.models.capture import Collector, Listener, Recorded
from attnviz.models.fallback import BUDGET, is_known, record_weights
from attnviz.models.running import run_listening
from attnviz.models.sequences import Sequences, is_index
from attnviz.models.stacks import choose_stacks
from attnviz.models.vectors import HIDDEN_BUDGET, StackVectors, rows_of
from attnviz.tokens import TokenSequence
from attnviz.trace import AttentionTrace, Support

NO_ATTENTION = (
    "No attention over tokens was seen in this model: it has none (Mamba, RWKV), or one of another kind that gives no "
    "softmax weights (YOSO, MRA). Choose another model."
)

NOT_BETWEEN = "The vectors after each layer of this model are not known: {}."


@dataclass
class Run:
    """What one run of a model left."""

    collector: Collector
    vectors: StackVectors
    output: Any
    how: str
    difference: float | None

    @property
    def sequences(self) -> Sequences:
        """What the model read."""
        return self.collector.sequences


def trace_model(
    hf_model: nn.Module,
    inputs: Mapping[str, Any] | Tensor,
    *,
    tokenizer: Any = None,
    item: int = 0,
    layers: Collection[int] | None = None,
    budget: int = BUDGET,
) -> AttentionTrace:
    """Run a transformers model once and return the trace of one item of the batch.

    The model is left as it was (mode, implementation, configuration, hooks), and computes what it computes untraced.
    Several threads may trace one model at once.

    Args:
        hf_model: any model of transformers, in memory, with `sdpa` or `eager` attention (the default is one of these).
        inputs: what the model takes, `model(**inputs)`, or its main input alone. Padding is left out where the
            inputs say so by an `attention_mask` [batch, token].
        tokenizer: for the labels of the tokens; without one, and for sequences that are not text, they are numbered.
        item: the row of the batch.
        layers: numbers of the layers to keep; None for all.
        budget: bytes that may be kept of a model that shows nothing but its weights.

    Returns:
        The trace. `trace.support.max_difference` is the largest difference between what the trace gives for a sample
        of rows of each layer and what the model computed there.

    Raises:
        SupportError: the model has no attention, or none that can be shown exactly, or gave NaN.
        OptionError: no such item or layer.
        TextError: no token to trace.
        LoadError: ids that the model has no vector for: the tokenizer belongs to another model.
    """
    named = _named_inputs(hf_model, inputs)
    _check_inputs(hf_model, named, item)
    run = run_once(hf_model, named, item=item, layers=layers, budget=budget)
    check_layers(run.collector, layers)
    return assemble(run, hf_model, named, tokenizer)


def run_once(
    model: nn.Module, inputs: Mapping[str, Any], *, item: int, layers: Collection[int] | None, budget: int
) -> Run:
    """Run a model and keep its attention: through the interface, else through the fallback.

    Raises:
        SupportError: neither gives all of it.
    """
    failures: list[AttnvizError] = []
    if not is_known(model):
        run = run_through_interface(model, inputs, item=item, layers=layers)
        failures = list(run.collector.failures.values())
        run.collector.drop_failed()
        if run.collector.recorded or (run.collector.seen and not failures):
            return run
    found = record_weights(model, inputs, item=item, layers=layers, budget=budget)
    if found is None:
        raise next(iter(failures), SupportError(NO_ATTENTION))
    return Run(found.collector, found.vectors, found.output, "fallback", found.difference)


def run_through_interface(
    model: nn.Module, inputs: Mapping[str, Any], *, item: int, layers: Collection[int] | None
) -> Run:
    """Run a model and keep the attention that goes through transformers' attention interface."""
    collector = Collector(model, Sequences.of(inputs, model.config, item), layers=layers)
    vectors, output = run_listening(model, inputs, collector, Listener(collector))
    differences = [one.difference for one in collector.recorded if one.difference is not None]
    return Run(collector, vectors, output, "interface", max(differences, default=None))


def assemble(
    run: Run,
    model: nn.Module,
    inputs: Mapping[str, Any],
    tokenizer: Any,
    *,
    known: Mapping[str, TokenSequence] | None = None,
) -> AttentionTrace:
    """Return the trace of a run; `known` are the tokens of "main" and "decoder" where these are known already."""
    chosen, left_out = choose_stacks(run.collector.recorded)
    queries = {role: _tokens(run, group[0], 0, tokenizer, known or {}) for role, group in chosen.items()}
    keys = {role: _tokens(run, group[0], 1, tokenizer, known or {}) for role, group in chosen.items()}
    main = next(role for role in ("decoder", "encoder", "cross") if role in chosen)
    hidden, unkept = hidden_states(run, chosen)
    entering = run.vectors.entering.get(chosen[main][0].place.stack)
    return AttentionTrace(
        [one.layer for group in chosen.values() for one in group],
        query_tokens=queries,
        key_tokens=keys,
        inputs=hidden[main][0] if main in hidden else _vectors(run, entering, chosen[main][0], 0),
        outputs=_outputs(run, chosen[main][0]),
        key_inputs=_key_inputs(run, chosen, inputs),
        support=Support(run.how, run.difference, "; ".join(str(error) for error in run.collector.failures.values())),
        name=getattr(model, "name_or_path", "") or type(model).__name__,
        hidden_states=hidden,
        notices=(*(_left_out(role, stack, group) for (role, stack), group in left_out.items()), *unkept),
    )


def hidden_states(
    run: Run, chosen: Mapping[str, list[Recorded]]
) -> tuple[dict[str, tuple[Tensor, ...]], tuple[str, ...]]:
    """Return what enters the first layer of each role's stack and what leaves each layer, float32 on the CPU.

    Args:
        run: what the model left.
        chosen: the layers of each role.

    Returns:
        Per role [token, d_model] each; a role of which they are not kept is left out, and a sentence says why.
    """
    stacks: dict[str, tuple[Tensor, ...]] = {}  # kept once for the roles of one stack
    found, reasons = {}, {}
    for role, group in chosen.items():
        stack = group[0].place.stack
        try:
            stacks[stack] = stacks[stack] if stack in stacks else _stack_states(run, group)
            found[role] = stacks[stack]
        except SupportError as error:
            reasons[stack] = str(error)
    return found, tuple(reasons.values())


def _stack_states(run: Run, group: list[Recorded]) -> tuple[Tensor, ...]:
    """Return the vectors before and after each layer of one stack; SupportError where they are not known."""
    one, vectors = group[0], run.vectors
    stacks = sorted({other.place.stack for other in group})
    if len(stacks) > 1:
        raise SupportError(NOT_BETWEEN.format(f"the layers stand in several stacks ({', '.join(stacks)})"))
    stack = stacks[0]
    if vectors.needed[stack] and not vectors.between[stack]:
        raise SupportError(
            f"The vectors after each layer are not kept: they take more than {HIDDEN_BUDGET >> 20} MiB for this text. "
            "Shorten it to see them."
        )
    if one.place.path.removeprefix(f"{stack}.").isdigit() or not vectors.layers(stack):
        raise SupportError(NOT_BETWEEN.format("the model has no list of whole layers"))
    states = [_vectors(run, hidden, one, 0) for hidden in (vectors.entering.get(stack), *vectors.between[stack])]
    kept = tuple(state.float().cpu() for state in states if state is not None)
    if len(kept) < len(states):
        raise SupportError(NOT_BETWEEN.format("they are not [token, d_model], one for each token"))
    highest = max(other.layer.layer for other in group)
    if highest + 1 >= len(kept):
        raise SupportError(NOT_BETWEEN.format(f"{len(kept) - 1} layers ran, but one has the number {highest}"))
    return kept


def _left_out(role: str, stack: str, group: list[Recorded]) -> str:
    return (
        f"Not in this trace: {len(group)} more {role} layers in {stack}, which do not attend over this text alone. "
        f"Trace that part of the model by itself to see them."
    )


def _tokens(run: Run, one: Recorded, side: int, tokenizer: Any, known: Mapping[str, TokenSequence]) -> TokenSequence:
    for name, tokens in known.items():
        if one.axes[side] is getattr(run.sequences, name) and len(tokens) == one.shape[side]:
            return tokens
    return one.axes[side].tokens(one.shape[side], one.layer.shape[1 + side], tokenizer)


def _vectors(run: Run, hidden: Tensor | None, one: Recorded, side: int) -> Tensor | None:
    keep = one.crop.rows if side == 0 else one.crop.columns
    return rows_of(hidden, batch=run.sequences.batch, item=run.sequences.item, length=one.shape[side], keep=keep)


def _outputs(run: Run, one: Recorded) -> Tensor | None:
    """Return the vectors the main stack gives, the model's own last word on them if it says it."""
    last = getattr(run.output, "last_hidden_state", None)
    own = _vectors(run, last, one, 0)
    return own if own is not None else _vectors(run, run.vectors.leaving.get(one.place.stack), one, 0)


def _key_inputs(run: Run, chosen: dict[str, list[Recorded]], inputs: Mapping[str, Any]) -> Tensor | None:
    """Return the vectors that cross-attention attends to."""
    if "cross" not in chosen:
        return None
    hidden = getattr(run.output, "encoder_last_hidden_state", None)
    hidden = inputs.get("encoder_hidden_states") if hidden is None else hidden
    return _vectors(run, hidden, chosen["cross"][0], 1)


def _named_inputs(model: Any, inputs: Mapping[str, Any] | Tensor) -> dict[str, Any]:
    if isinstance(inputs, Tensor):
        return {getattr(model, "main_input_name", "input_ids"): inputs}
    if not isinstance(inputs, Mapping):
        raise OptionError(
            f"Expected a mapping of the model's inputs, such as tokenizer(text, return_tensors='pt'), or a tensor, "
            f"got {type(inputs).__name__}."
        )
    return dict(inputs)


def _check_inputs(model: Any, inputs: dict[str, Any], item: int) -> None:
    if inputs.get("past_key_values") is not None:
        raise OptionError("Expected the whole text at once, got past_key_values. Leave them out.")
    for value in inputs.values():
        if isinstance(value, Tensor) and value.dim() and not 0 <= item < value.shape[0]:
            raise OptionError(f"Expected an item of 0 to {value.shape[0] - 1}, the rows of the batch, got {item}.")
        break
    ids = inputs.get("input_ids")
    if not is_index(ids):
        return
    if ids.numel() == 0:
        raise TextError("Expected at least one token, got none. Give a text.")
    check_vocabulary(model, int(ids.max()))


def check_vocabulary(model: Any, largest: int) -> None:
    """Raise LoadError when the model has no vector for an id."""
    table = input_table(model)
    rows = getattr(table, "num_embeddings", None)
    if isinstance(rows, int) and largest >= rows:
        raise LoadError(
            f"The tokenizer gives the id {largest}, but the model has vectors for ids 0 to {rows - 1} only: they do "
            "not belong together. Take both from the same place."
        )


def check_layers(collector: Collector, layers: Collection[int] | None) -> None:
    """Raise OptionError when a layer that was asked for does not attend."""
    missing = sorted(set(layers or ()) - collector.seen)
    if missing:
        raise OptionError(f"Expected layers of {sorted(collector.seen)}, got {missing}. Choose some of these.")


def input_table(model: Any) -> nn.Module | None:
    """Return the table of the model's input vectors, None for a model that has no single one (CANINE)."""
    try:
        return model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
