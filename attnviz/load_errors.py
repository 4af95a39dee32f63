"""What went wrong while a model was fetched or opened, said in one sentence."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from attnviz.errors import AttnvizError, LoadError

LONGEST_REASON = 200  # characters of another library's message that a person is asked to read

# What is searched: the names of the exception's classes, a colon, its message. The first match speaks.
# Seen with transformers 5.24, huggingface_hub 2.4 and safetensors 0.6 by making each of them fail.
CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"^.*\bGatedRepoError\b",
        "The authors of {name} want its terms accepted first; accept them on its page on the Hugging Face hub, put "
        "an access token in the variable HF_TOKEN, and try again.",
    ),
    (
        r"^.*\bRepositoryNotFoundError\b|\b401 Client Error\b",
        "Looked for {name} on the Hugging Face hub and found no public model of that name; check the spelling "
        "(owner/name), or, for a private one, put an access token in the variable HF_TOKEN.",
    ),
    (
        r"^.*\bRevisionNotFoundError\b",
        "{name} is on the Hugging Face hub, but not the revision that was asked for; choose a branch, tag or commit "
        "that it has, or leave the revision out.",
    ),
    (
        r"^.*\b(OutOfMemoryError|MemoryError)\b|out of memory|can't allocate memory|not enough memory",
        "{name} does not fit in the memory of {device}; choose a smaller model, another device, or dtype='bfloat16'.",
    ),
    (
        r"^.*\b(LocalEntryNotFoundError|IncompleteSnapshotError|OfflineModeIsEnabled|ConnectError|ConnectTimeout"
        r"|ConnectionError|ReadTimeout|ProxyError|NetworkError|TimeoutException)\b|couldn't connect to",
        "Looked for {name} on the Hugging Face hub, which cannot be reached (no network, or offline mode), and found "
        "no complete copy in this machine's cache; check the name and the network, or give the path of a folder "
        "that holds the model.",
    ),
    (
        r"contains custom code|trust_remote_code",
        "{name} brings Python code of its own, which is run only if you trust it; read the code in {where}, then "
        "pass trust_remote_code=True, or choose another model.",
    ),
    (
        r"no file named .*(safetensors|pytorch_model|\.bin)",
        "Looked for the weights of {name} (model.safetensors or pytorch_model.bin) beside its config.json in "
        "{where} and found none; save or download the model again, weights included.",
    ),
    (r"not a valid JSON", "The config.json of {name} in {where} is not valid JSON; save or download it again."),
    (
        r"does not recognize this architecture|Unrecognized (model|configuration class)",
        "The config.json of {name} in {where} names an architecture that the installed transformers cannot build; "
        "run pip install --upgrade transformers, or choose another model.",
    ),
    (
        r"Weights only load failed",
        "The weights of {name} in {where} are a pickle that holds more than tensors, which could run code, so it was "
        "not opened; ask for the same weights as model.safetensors.",
    ),
    (
        r"^.*\b(SafetensorError|BadZipFile|EOFError)\b|^error |PytorchStreamReader|unpack_from",
        "The weights of {name} in {where} are damaged or incomplete ({reason}); download them again (a Git LFS "
        "pointer needs git lfs pull).",
    ),
    (
        r"ignore_mismatched_sizes",
        "The weights of {name} in {where} have other sizes than its config.json says; take both from the same place.",
    ),
    (
        r"^.*\bImportError\b",
        "{name} needs a package that is not installed ({reason}); install it and try again.",
    ),
    (
        r"backend tokenizer|vocab_file|Can't load tokenizer",
        "Looked for the tokenizer of {name} (tokenizer.json, or the vocabulary its kind uses) in {where} and could "
        "not read one; save the tokenizer beside the model.",
    ),
)
UNKNOWN = "{name} in {where} could not be opened ({reason}); save or download it again, or choose another model."


@contextmanager
def explained(name: str, *, where: str, device: str = "this machine") -> Iterator[None]:
    """Turns any failure inside the block into a `LoadError` of one sentence.

    Args:
        name: What a person calls the model.
        where: The folder, file or service that was being read.
        device: Where the weights were going, for the message about memory.

    Raises:
        LoadError: With the original exception as its cause. Errors that attnviz raised itself pass unchanged.
    """
    try:
        yield
    except AttnvizError:
        raise
    except Exception as error:
        sentence = explain(error)
        reason = first_line(error)
        raise LoadError(sentence.format(name=repr(name), where=where, device=device, reason=reason)) from error


def explain(error: BaseException) -> str:
    """The sentence for an exception, with the places `{name}`, `{where}`, `{device}`, `{reason}` still open."""
    text = " ".join(kind.__name__ for kind in type(error).__mro__) + f": {error}"
    return next((sentence for pattern, sentence in CAUSES if re.search(pattern, text)), UNKNOWN)


def first_line(error: BaseException) -> str:
    """The kind of an exception and the first line of its message, on one line and not long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 1] + "…"
