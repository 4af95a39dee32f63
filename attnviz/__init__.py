"""attnviz: see what attention does, as exact numbers.

Names are looked up when first used, so that `import attnviz` loads neither streamlit nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnviz import plots as plots
    from attnviz.attention import CrossAttention as CrossAttention
    from attnviz.attention import MultiHeadCrossAttention as MultiHeadCrossAttention
    from attnviz.attention import MultiHeadSelfAttention as MultiHeadSelfAttention
    from attnviz.attention import SelfAttention as SelfAttention
    from attnviz.attention import causal_mask as causal_mask
    from attnviz.embeddings import load_embedding as load_embedding
    from attnviz.errors import AttnvizError as AttnvizError
    from attnviz.models.catalogue import list_models as list_models
    from attnviz.models.load import load_model as load_model
    from attnviz.models.tracing import trace_model as trace_model
    from attnviz.tokens import TokenSequence as TokenSequence
    from attnviz.trace import AttentionTrace as AttentionTrace

__version__ = "0.1.0"

_HOMES = {
    "AttentionTrace": "attnviz.trace",
    "AttnvizError": "attnviz.errors",
    "CrossAttention": "attnviz.attention",
    "MultiHeadCrossAttention": "attnviz.attention",
    "MultiHeadSelfAttention": "attnviz.attention",
    "SelfAttention": "attnviz.attention",
    "TokenSequence": "attnviz.tokens",
    "causal_mask": "attnviz.attention",
    "list_models": "attnviz.models.catalogue",
    "load_embedding": "attnviz.embeddings",
    "load_model": "attnviz.models.load",
    "trace_model": "attnviz.models.tracing",
}

__all__ = [*_HOMES, "plots"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Return a public name from its home, or the plots package."""
    if name == "plots":
        return import_module("attnviz.plots")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'attnviz' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
