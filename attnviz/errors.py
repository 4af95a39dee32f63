"""The errors a person can cause, each one sentence: what was expected, what came, what to do next."""


class AttnvizError(ValueError):
    """Base of every error attnviz raises on purpose; its message is fit to be shown to a person."""


class ShapeError(AttnvizError):
    """A tensor does not have the shape the equations need."""


class MaskError(AttnvizError):
    """A mask has the wrong shape or type, or leaves nothing to attend to."""


class TextError(AttnvizError):
    """A text cannot be turned into tokens or vectors: empty, too long, or unknown to the embedding."""


class OptionError(AttnvizError):
    """An option has a value outside its range, or does not fit another option."""


class LoadError(AttnvizError):
    """A model, a tokenizer or a file could not be found, trusted or read."""


class SupportError(AttnvizError):
    """A model or a quantity cannot be traced exactly, so it is not shown."""
