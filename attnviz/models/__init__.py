"""Models of Hugging Face transformers, traced exactly."""

from attnviz.models.load import PretrainedModel as PretrainedModel
from attnviz.models.load import load_model as load_model
from attnviz.models.tracing import trace_model as trace_model
