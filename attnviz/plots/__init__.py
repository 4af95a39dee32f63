"""Figures: arrays in, `plotly.graph_objects.Figure` out. Each is a value, to show, change or save."""

from plotly.graph_objects import Figure

from attnviz.plots.compare import plot_comparison, plot_head_distances, plot_head_scatter
from attnviz.plots.heads import plot_head, plot_heads
from attnviz.plots.steps import plot_products, plot_spread, plot_step
from attnviz.plots.vectors import plot_lens, plot_movement, plot_norms, plot_similarity, plot_vectors

__all__ = [
    "Figure",
    "plot_comparison",
    "plot_head",
    "plot_head_distances",
    "plot_head_scatter",
    "plot_heads",
    "plot_lens",
    "plot_movement",
    "plot_norms",
    "plot_products",
    "plot_similarity",
    "plot_spread",
    "plot_step",
    "plot_vectors",
]
