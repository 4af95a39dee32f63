"""The sidebar: what is looked at."""

from __future__ import annotations

from functools import partial

import streamlit as st

from attnviz.analysis.shown import ShownOptions
from attnviz.models.load import PretrainedModel
from attnviz.plots.theme import THEMES
from attnviz.tokens import for_markdown
from attnviz.ui import cache, look, state
from attnviz.ui.components.history import keep_history
from attnviz.ui.components.theme import follow_theme
from attnviz.ui.state import field


def render_sidebar() -> None:
    """Draw the controls of what is looked at, in the order of the computation."""
    state.clean_address()
    with st.sidebar:
        keep_history()
        follow_theme(THEMES[look.theme()].page)
        st.markdown("## attnviz")
        modules = field("source") == "Modules"
        _render_model(show=not modules)
        _render_modules(show=modules)
        field("device")
        _render_shown()


def _render_shown() -> None:
    """Draw what is shown of a trace, and in which ink. What a position means changes with it: no token stays chosen."""
    field("ink")
    with st.expander("Words, and what is hidden", expanded=state.shown_options() != ShownOptions()):
        for key in state.SHOWN:
            field(key, on_change=partial(state.set_values, token=-1))


def _render_model(*, show: bool) -> None:
    """Draw what chooses a pretrained model and its text."""
    field("checkpoint", show=show)
    loaded = _load() if show else None
    writes = loaded is not None and loaded.writes_target
    field("sentence", show=show)
    field("pair", show=loaded is not None and loaded.roles == ("encoder",))
    field("target", show=writes)
    field("role", show=loaded is not None and len(loaded.roles) > 1)
    field("layer", show=False)
    field("model_head", show=False)
    with st.expander("How it is loaded") if show else st.container():
        for key in ("dtype", "revision", "remote_code"):
            field(key, show=show)


def _load() -> PretrainedModel | None:
    """Load the model and say what it is; None after saying why there is none yet."""
    checkpoint = state.checkpoint()
    question = cache.ask_before_loading(checkpoint)
    if question:
        st.caption(for_markdown(question))
        st.button("Load it", on_click=cache.allow_loading, args=(checkpoint,))
        return None
    loaded = cache.model(checkpoint)
    if isinstance(loaded, cache.Failure):
        look.render_failure(loaded.sentence)
        return None
    st.caption(for_markdown(model_words(loaded)))
    return loaded


def model_words(model: PretrainedModel) -> str:
    """Return what a model is and how exactly it is traced, in two sentences."""
    shapes = [
        f"{role}: {len(layers)} layers × {'–'.join(map(str, sorted({layer.heads for layer in layers})))} heads"
        for role, layers in model.shapes.items()
    ]
    limit = "" if model.max_length is None else f", up to {model.max_length} tokens"
    number = str(model.dtype).removeprefix("torch.")
    size = f"{model.parameters / 1e6:,.1f} M parameters, {number} on {model.device}{limit}"
    support = str(model.support).removesuffix(".")
    return f"{support[0].upper()}{support[1:]}. {'; '.join([*shapes, size])}."


def _render_modules(*, show: bool) -> None:
    """Draw what makes up a toy experiment."""
    if show:
        _render_examples()
    module, embedding = state.get("module"), state.get("embedding")
    crosses = state.MODULES[module].endswith("cross")
    pretrained = state.EMBEDDINGS[embedding].startswith("pretrained")
    field("text", show=show)
    field("context", show=show and crosses)
    field("module", show=show)
    field("embedding", show=show)
    field("model", show=show and pretrained)
    left, right = st.columns(2, gap="small")
    with left:
        field("heads", show=show and state.MODULES[module].startswith("multi-head"))
    with right:
        field("dimension", show=show and state.EMBEDDINGS[embedding] in ("random", "one-hot"))
    field("positions", show=show)
    field("mask", show=show and not crosses)
    field("weights", show=show)
    field("scale", show=show)
    field("seed", show=show)
    field("head", show=False)


def _render_examples() -> None:
    """Draw a button for each example."""
    st.caption("Examples")
    with st.container(horizontal=True, gap="small", key="examples"):
        for name, values in state.EXAMPLES.items():
            st.button(name, on_click=state.set_values, kwargs=values, type="tertiary")
