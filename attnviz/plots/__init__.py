"""Figures: arrays in, `plotly.graph_objects.Figure` out. Each is a value, to show, change or save."""

from attnviz.plots.heads import plot_head, plot_head_small, plot_heads
from attnviz.plots.vectors import plot_movement, plot_similarity, plot_vectors

__all__ = ["plot_head", "plot_head_small", "plot_heads", "plot_movement", "plot_similarity", "plot_vectors"]
