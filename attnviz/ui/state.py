"""The one home of view state: every key with its default and range. The URL's query string holds the values.

Each key is a Streamlit widget bound to a query parameter. Three rules make that hold through page changes,
Back and reload:

- every widget is drawn on every run and on every page: Streamlit drops the parameter of a widget that is not
  drawn. `field(key, show=False)` draws it where CSS hides it; `draw_the_rest`, at the end of a run, so draws all those
  that neither the sidebar nor the page has drawn.
- a widget takes its default from the table, never from `st.session_state`; code changes a key only in a
  callback (`set_values`), which adds one entry to the browser's history, so that Back undoes it.
- what is read is checked again (`get`), since anything may stand in a URL; and after Back it is read from there.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attnviz.analysis.shown import ShownOptions
from attnviz.devices import available_devices
from attnviz.experiment import ARTICLE_EXAMPLE, Experiment
from attnviz.locations import MINILM
from attnviz.models.catalogue import list_models
from attnviz.plots.theme import Ink
from attnviz.statistics import STATISTICS
from attnviz.trace import ROLES
from attnviz.ui.numbers import NUMBERS

Kind = Literal["select", "choice", "segments", "text", "number", "toggle"]
Reader = Callable[[str], Any]
"""Returns the value of a key: `get`, or what another side of a comparison has."""


@dataclass(frozen=True)
class Field:
    """A key of the state and the widget that shows it.

    Attributes:
        kind: which widget.
        label: what a person reads.
        default: the value when the URL says nothing.
        options: what a "select" or "segments" offers, and what a "choice" suggests beside what a person types.
        low: least value of a "number".
        high: greatest value of a "number".
        most: most characters of a "text".
        live: commit a "text" while typing.
        help: a sentence behind the question mark.
        in_address: False for what no link may decide for a person.
    """

    kind: Kind
    label: str
    default: Any
    options: tuple[str, ...] = ()
    low: int = 0
    high: int = 0
    most: int = 20_000
    live: bool = False
    help: str | None = None
    in_address: bool = True


MODULES = {
    "Self-attention": "self",
    "Cross-attention": "cross",
    "Multi-head self-attention": "multi-head self",
    "Multi-head cross-attention": "multi-head cross",
}
EMBEDDINGS = {
    "Random vectors": "random",
    "One-hot vectors": "one-hot",
    "The article's vectors": "article",
    "Pretrained: input embeddings": "pretrained input",
    "Pretrained: last hidden state": "pretrained contextual",
}
MODULE_TITLES = {value: name for name, value in MODULES.items()}
EMBEDDING_TITLES = {value: name for name, value in EMBEDDINGS.items()}

FIRST_TEXT = "Karina is going to the store"
FIRST_CONTEXT = "She buys bread and milk there"

INKS: dict[str, Ink] = {"√": "sqrt", "linear": "linear", "per row": "row"}
VIEWS = ("Heatmap", "Lines", "Numbers")
THIS_HEAD, MARKED, THIS_LAYER, EVERY_HEAD = OVER = ("this head", "marked heads", "this layer", "every head")
MOST_MARKED = 8
PAIRS = ("all", "AA", "AB", "BA", "BB")
PLANE, SPACE, NEIGHBOURS = "a plane (PCA)", "space (PCA)", "a plane (t-SNE)"
LESSONS = ("One head", "Why √d", "Why several heads")
TELLINGS = ("all at once", "one at a time")
TOPICS = ("Table", "Likeness", "Averages", "Rollout", "Norms")
COUNTED = ("alike", "by peak weight", "by what it writes")
ALIGNMENTS = ("what fits", "words", "position", "none")

SENTENCE = "The animal didn't cross the street because it was too tired."
DTYPES = ("auto", "float32", "bfloat16", "float16")

FIELDS: dict[str, Field] = {
    "source": Field(
        "segments", "Source", "Modules", options=("Modules", "Model"), help="Toy modules, or a real model."
    ),
    "checkpoint": Field(
        "choice",
        "Model",
        MINILM,
        options=tuple(list_models()["name"]),
        most=300,
        help="One of these, or type any name on the Hugging Face hub, a folder or a .gguf file.",
    ),
    "sentence": Field("text", "Text for the model", SENTENCE, help="Press Enter to run the model."),
    "pair": Field("text", "Second text", "", help="For models that read sentence pairs; may stay empty."),
    "target": Field("text", "Decoder's text", "", help="Left empty, the model writes it."),
    "role": Field(
        "segments",
        "Attention of",
        "encoder",
        options=ROLES,
        help="The encoder, the decoder, or the decoder's cross-attention to the encoder. [Guide](guide#words)",
    ),
    "layer": Field("number", "Layer", 3, low=0, high=999),
    "model_head": Field("number", "Head", 1, low=0, high=4095),
    "dtype": Field("select", "Number format", "auto", options=DTYPES, help="auto: as the model was saved."),
    "revision": Field("text", "Revision", "", most=100, help="Branch, tag or commit on the hub; empty for the newest."),
    "remote_code": Field(
        "toggle",
        "Run the model's own code",
        False,
        help="Some models bring Python code that would run on this machine. Only for authors you trust.",
        in_address=False,
    ),
    "text": Field("text", "Text", FIRST_TEXT, live=True, help="What attends: a row of every map per token."),
    "context": Field(
        "text",
        "Text attended to",
        FIRST_CONTEXT,
        live=True,
        help="The encoder's text: a column of every map per token.",
    ),
    "module": Field("select", "Module", "Multi-head self-attention", options=tuple(MODULES)),
    "heads": Field("number", "Heads", 4, low=1, high=64, help="The number of heads divides the dimension."),
    "embedding": Field("select", "Vectors", "Random vectors", options=tuple(EMBEDDINGS)),
    "model": Field(
        "text", "Model of the vectors", MINILM, most=300, help="A name on the Hugging Face hub, or a local folder."
    ),
    "dimension": Field("number", "Dimension", 16, low=1, high=1024, help="Numbers in a token's vector, d_model."),
    "positions": Field("segments", "Positions", "none", options=("none", "sinusoidal")),
    "mask": Field(
        "segments", "Mask", "none", options=("none", "causal"), help="Causal: no token attends to later ones."
    ),
    "scale": Field("toggle", "Divide scores by √d_head", True, help="Switch off to see why the scaling is there."),
    "weights": Field(
        "segments",
        "Module weights",
        "random",
        options=("random", "identity"),
        help="Identity: W = I, as in the article.",
    ),
    "seed": Field("number", "Seed", 0, low=0, high=9999, help="Of random vectors and random weights."),
    "device": Field("select", "Device", "auto", options=available_devices()),
    "ink": Field(
        "segments",
        "Ink",
        "√",
        options=tuple(INKS),
        help="√ makes small weights visible; per row shows the share of the row's largest. The numbers stay the same.",
    ),
    "head": Field("number", "Open head", 0, low=0, high=4095),
    "view": Field("segments", "Show", "Heatmap", options=VIEWS),
    "marked": Field(
        "text",
        "Marked heads",
        "",
        most=200,
        help="Layer.head, such as 3.1 4.7. Shift-click a head in the grid to mark it. Up to 8.",
    ),
    "over": Field("select", "Heads behind the words and in the lines", THIS_HEAD, options=OVER),
    "token": Field("number", "Chosen token", -1, low=-1, high=1_000_000),
    "side": Field("select", "Side of the chosen token", "query", options=("query", "key")),
    "order": Field("select", "Order of the heads", "layer", options=("layer", *STATISTICS)),
    "tint": Field("select", "Tint of the heads", "none", options=("none", *STATISTICS)),
    "top": Field("number", "Heads that stand out", 0, low=0, high=20),
    "threshold": Field(
        "number",
        "Least weight of a line, in thousandths",
        -1,
        low=-1,
        high=1000,
        help="-1 for 50, or less where that leaves most words without a line.",
    ),
    "strongest": Field("number", "Lines of a token", 0, low=0, high=4095, help="The strongest; 0 for as many as fit."),
    "pairs": Field("select", "Sentences joined by lines", "all", options=PAIRS),
    "horizontal": Field("toggle", "Lines from top to bottom", False),
    "words": Field(
        "toggle",
        "Words instead of pieces",
        False,
        help="A word gets the sum over its pieces, and gives the mean over them.",
    ),
    "hide_special": Field("toggle", "Hide special tokens", False, help="Such as [CLS]; rows then sum to less than 1."),
    "hide_punctuation": Field("toggle", "Hide punctuation", False, help="Rows then sum to less than 1."),
    "hide_first": Field(
        "toggle", "Hide the first token", False, help="Many heads rest on it: the weight that they have no use for."
    ),
    "normalise": Field("toggle", "Divide each row by its sum", False, help="So that what is left sums to 1 again."),
    "cut": Field("number", "Hide weights below, in thousandths", 0, low=0, high=1000),
    "average": Field("select", "What is compared", THIS_HEAD, options=OVER, help="One head, or the mean of several."),
    "b": Field("text", "Side B", "", most=45_000),
    "align": Field(
        "select", "How B is laid over A", "what fits", options=ALIGNMENTS, help="Where the tokens of A and B differ."
    ),
    "topic": Field("segments", "About the heads", "Table", options=TOPICS),
    "across": Field("select", "To the right", "distance", options=tuple(NUMBERS)),
    "upward": Field("select", "Upward", "entropy", options=tuple(NUMBERS)),
    "averaged": Field("select", "Mean of", THIS_LAYER, options=OVER[1:]),
    "counted": Field(
        "select",
        "Each head counts",
        "alike",
        options=COUNTED,
        help="Or by a number of its own, so that some count more.",
    ),
    "lesson": Field("segments", "What to follow", LESSONS[0], options=LESSONS),
    "telling": Field("segments", "Steps", TELLINGS[0], options=TELLINGS),
    "step": Field("number", "Step", 0, low=0, high=99),
    "row": Field("number", "Query", 0, low=0, high=1_000_000),
    "column": Field("number", "Key", 0, low=0, high=1_000_000),
    "depth": Field("number", "Vectors to the right", 9999, low=1, high=9999),
    "projection": Field("select", "Shown in", PLANE, options=(PLANE, SPACE, NEIGHBOURS)),
    "through": Field("toggle", "Through all layers", False),
    "screen": Field("number", "Screen of the guide", 1, low=1, high=10),
    "edits": Field("text", "Edited numbers", "", most=8_000),
    "upto": Field("number", "Up to layer", 999, low=0, high=999),
}

SHOWN = ("words", "hide_special", "hide_punctuation", "hide_first", "normalise", "cut")
"""What is shown of a trace, on every page."""

_DRAWN = "drawn-in-this-run"


def checked(key: str, value: Any) -> Any:
    """Return a value that is allowed for a key: the value itself, cut or clamped to its range, or the default."""
    field_ = FIELDS[key]
    if field_.kind in ("select", "segments"):
        return value if value in field_.options else field_.default
    if field_.kind in ("text", "choice"):
        return value[: field_.most] if isinstance(value, str) else field_.default
    if field_.kind == "toggle":
        return value if isinstance(value, bool) else field_.default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return field_.default
    return int(min(max(value, field_.low), field_.high))


def clean_address() -> None:
    """At the start of a run no field is drawn; of a session, take out of the URL what no widget can read.

    Streamlit would take it out by itself, but with one history entry per parameter.
    """
    st.session_state[_DRAWN] = set()
    if st.session_state.setdefault("address-cleaned", False):
        return
    st.session_state["address-cleaned"] = True
    found = st.query_params.to_dict()
    good = {key: raw for key, raw in found.items() if key not in FIELDS or readable(key, raw)}
    if good != found:
        st.query_params.from_dict(good)
        time.sleep(0.05)  # a rerun drops messages that have not been sent
        st.rerun()


def readable(key: str, raw: str) -> bool:
    """Return whether a query parameter stands for a value of its key that the widget takes as it is."""
    field_ = FIELDS[key]
    match field_.kind:
        case "select" | "segments":
            return raw in field_.options
        case "text" | "choice":
            return len(raw) <= field_.most
        case "toggle":
            return raw in ("true", "false")
        case "number":
            return raw.removesuffix(".0").removeprefix("-").isdecimal() and field_.low <= float(raw) <= field_.high


def get(key: str) -> Any:
    """Return the value of a key, allowed whatever the URL says; the URL's where the widget has yet to take it over."""
    behind = FIELDS[key].in_address and _by_history() and key not in st.session_state[_DRAWN]
    known = key in st.session_state and not behind
    return checked(key, st.session_state[key] if known else _from_address(key))


def _by_history() -> bool:
    """Return whether Back or Forward caused this run: each widget then takes the URL's value, but only when drawn."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def _from_address(key: str) -> Any:
    """Return what the URL says of a key, or the default, as its widget will in the first run."""
    field_, raw = FIELDS[key], st.query_params.get(key)
    if raw is None or not field_.in_address or not readable(key, raw):
        return field_.default
    return read_raw(key, raw)


def read_raw(key: str, raw: str) -> Any:
    """Return the value that a readable text stands for."""
    match FIELDS[key].kind:
        case "toggle":
            return raw == "true"
        case "number":
            return float(raw)
    return raw


def raw_of(value: Any) -> str:
    """Return the text that stands for a value in an address."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def set_values(**values: Any) -> None:
    """Write keys from code. Only for a widget's callback: `on_click=set_values, kwargs={...}`."""
    for key, value in values.items():
        allowed = checked(key, value)
        st.session_state[key] = float(allowed) if FIELDS[key].kind == "number" else allowed


def field(key: str, *, show: bool = True, on_change: Callable[[], None] | None = None) -> Any:
    """Draw the widget of a key, hidden unless `show`, and return its value."""
    field_ = FIELDS[key]
    st.session_state[_DRAWN].add(key)
    common: dict[str, Any] = {"key": key, "help": field_.help, "on_change": on_change}
    common |= {"bind": "query-params"} if field_.in_address else {"persist_state": "session"}
    with st.container(key=f"field-{key}" if show else f"hidden-{key}", width="content" if key == "view" else "stretch"):
        draw(field_, field_.label, **common)
    return get(key)


def draw(field_: Field, label: str, **common: Any) -> None:
    """Draw the widget of a field, with options that all widgets have: its key, its help, what is called on a change."""
    match field_.kind:
        case "select":
            st.selectbox(label, field_.options, index=field_.options.index(field_.default), **common)
        case "choice":
            index = field_.options.index(field_.default)
            st.selectbox(label, field_.options, index=index, accept_new_options=True, **common)
        case "segments":
            st.segmented_control(label, field_.options, default=field_.default, required=True, **common)
        case "text":
            live = "250ms" if field_.live else False
            st.text_input(label, field_.default, max_chars=field_.most, live=live, **common)
        case "number":
            # Floats: a number_input of integers raises OverflowError on "inf" in the URL.
            low, high, default = (float(number) for number in (field_.low, field_.high, field_.default))
            st.number_input(label, low, high, default, 1.0, format="%.0f", **common)
        case "toggle":
            st.toggle(label, field_.default, **common)


def draw_the_rest() -> None:
    """Draw hidden what was not drawn in this run, so that it stays in the address."""
    for key in FIELDS:
        if key not in st.session_state[_DRAWN]:
            field(key, show=False)


@dataclass(frozen=True)
class Checkpoint:
    """Which pretrained model, and how it is to be loaded."""

    name: str
    device: str
    dtype: str
    revision: str | None
    remote_code: bool


def checkpoint(read: Reader = get) -> Checkpoint:
    """Return the pretrained model that the state names."""
    revision = read("revision").strip() or None
    return Checkpoint(read("checkpoint").strip(), read("device"), read("dtype"), revision, read("remote_code"))


def experiment(read: Reader = get) -> Experiment:
    """Return the toy experiment that the state describes."""
    return Experiment(
        text=read("text"),
        context=read("context"),
        module=MODULES[read("module")],  # type: ignore[arg-type]
        embedding=EMBEDDINGS[read("embedding")],  # type: ignore[arg-type]
        heads=read("heads"),
        dimension=read("dimension"),
        positions=read("positions") == "sinusoidal",
        causal=read("mask") == "causal",
        scale=read("scale"),
        weights=read("weights"),
        seed=read("seed"),
        device=read("device"),
        edits=read("edits"),
    )


def shown_options() -> ShownOptions:
    """Return what is to be shown of a trace."""
    chosen = {key: get(key) for key in SHOWN if key != "cut"}
    return ShownOptions(**chosen, threshold=get("cut") / 1000)


def marked_heads(raw: str) -> list[tuple[int, int]]:
    """Return the (layer, head) pairs named in a text such as "3.1 4.7", each once, and nothing for what is no pair."""
    pairs = re.findall(r"(?<![\d.])(\d{1,4})\.(\d{1,4})(?![\d.])", raw)
    return list(dict.fromkeys((int(layer), int(head)) for layer, head in pairs))[:MOST_MARKED]


def _values_of(example: Experiment) -> dict[str, Any]:
    """Return the state that describes an experiment."""
    values = asdict(example) | {
        "module": MODULE_TITLES[example.module],
        "embedding": EMBEDDING_TITLES[example.embedding],
        "positions": "sinusoidal" if example.positions else "none",
        "mask": "causal" if example.causal else "none",
        "head": 0,
    }
    return {key: value for key, value in values.items() if key in FIELDS and key != "device"}


EXAMPLES: Mapping[str, dict[str, Any]] = {
    "The article's numbers": _values_of(ARTICLE_EXAMPLE) | {"context": FIRST_CONTEXT},
    "A repeated word": _values_of(Experiment(text="the cat saw the dog because the dog was loud")),
    "Cross-attention": _values_of(
        Experiment(text="le chat noir", context="the black cat sleeps", module="multi-head cross")
    ),
}
"""Each is one click: the state it sets, the rest as it is."""
