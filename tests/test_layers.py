"""Who imports whom: a file may import from those above it, never below; heavy libraries have one home each."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

ORDER = (
    *("errors", "load_errors", "hub", "locations", "workers"),
    *("rules", "tokens", "layers", "statistics", "trace"),
    *("devices", "attention", "pretrained", "embeddings", "models"),
    *("analysis", "edits", "experiment", "diversity", "plots", "export", "ui", "app"),
)
"""From the top to the bottom; a folder is one part."""

HOMES = {"streamlit": {"ui", "app"}, "plotly": {"plots"}, "transformers": {"models", "pretrained", "embeddings"}}
ONLY_WHEN_CALLED = {("transformers", "pretrained"), ("transformers", "embeddings")}


def part_of(module: str) -> str:
    """The part a module of the package belongs to: "models" of attnviz.models.capture, "" of attnviz itself."""
    return module.split(".")[1] if "." in module else "" if module == "attnviz" else module


def imported(node: ast.AST, module: str, when: str = "at once", *, is_package: bool) -> Iterator[tuple[str, str]]:
    """Each module imported, by its whole name, and when: "at once", "called" (in a function) or "never" (for types)."""
    for child in ast.iter_child_nodes(node):
        yield from ((name, when) for name in _names(child, module, is_package=is_package))
        inside = when
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inside = "called"
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            inside = "never"
        yield from imported(child, module, inside, is_package=is_package)


def _names(node: ast.AST, module: str, *, is_package: bool) -> list[str]:
    """The whole names of the modules that a node imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = module.split(".")[: (1 if is_package else 0) - node.level or None] if node.level else []
    source = ".".join([*above, *filter(None, [node.module])])
    return [f"{source}.{alias.name}" for alias in node.names] if source == "attnviz" else [source]


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What a file of the module's name imports that it should not."""
    here, found = part_of(module), []
    for name, when in imported(ast.parse(source), module, is_package=is_package):
        library = name.split(".")[0]
        if library in HOMES and here not in HOMES[library] and when != "never":
            found.append(f"{module} imports {library}, whose home is {sorted(HOMES[library])}")
        elif (library, here) in ONLY_WHEN_CALLED and when == "at once":
            found.append(f"{module} imports {library} outside a function")
        elif library == "attnviz" and here != "":
            there = part_of(name)
            if there in {"__version__", here} or (here == "app" and there == ""):
                continue
            if there not in ORDER:
                found.append(f"{module} imports {name}, which has no place in ORDER")
            elif ORDER.index(there) > ORDER.index(here):
                found.append(f"{module} imports {name}, which is below it")
        elif library == "attnviz" and when == "at once":
            found.append(f"attnviz imports {name} at once, so that it is no longer quick to import")
    return found


FILES = [*sorted((ROOT / "attnviz").rglob("*.py")), *ROOT.glob("app.py")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_upwards(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    assert part_of(module) in ("", *ORDER), f"give {module} its place in ORDER"
    assert violations(path.read_text(), module, is_package=parts[-1] == "__init__") == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("attnviz.rules", "from attnviz.trace import AttentionTrace"),
        ("attnviz.rules", "import attnviz.trace"),
        ("attnviz.rules", "def f():\n    from attnviz.trace import AttentionTrace"),
        ("attnviz.rules", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from attnviz import trace"),
        ("attnviz.rules", "from .trace import AttentionTrace"),
        ("attnviz.rules", "from . import trace"),
        ("attnviz.rules", "from attnviz import SelfAttention"),
        ("attnviz.rules", "import attnviz"),
        ("attnviz.analysis.words", "from ..plots.theme import THEMES"),
        ("attnviz.trace", "from attnviz.unheard_of import anything"),
        ("attnviz.plots.heads", "import streamlit as st"),
        ("attnviz.plots.heads", "def f():\n    from streamlit.runtime import get_instance"),
        ("attnviz.ui.pages.heads", "import plotly.graph_objects as go"),
        ("attnviz.export", "import plotly"),
        ("attnviz.trace", "def f():\n    import transformers"),
        ("attnviz.embeddings", "from transformers import AutoModel"),
        ("attnviz.pretrained", "try:\n    import transformers\nexcept ImportError:\n    pass"),
        ("attnviz.pretrained", "class A:\n    import transformers"),
        ("attnviz", "from attnviz.trace import AttentionTrace"),
        ("attnviz", "import streamlit"),
        ("app", "import transformers"),
    ],
)
def test_a_planted_violation_is_found(module, source):
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("attnviz.trace", "from attnviz.rules import ScoreRule\nimport torch, math\nfrom attnviz import __version__"),
        ("attnviz.plots.heads", "import plotly.graph_objects as go\nfrom attnviz.plots.theme import THEMES"),
        ("attnviz.plots.heads", "from .theme import THEMES\nfrom . import theme\nfrom ..tokens import for_plotly"),
        ("attnviz.embeddings", "def f():\n    from transformers import AutoModel"),
        (
            "attnviz.ui.look",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import plotly.graph_objects as go",
        ),
        ("attnviz.models.capture", "import transformers\nfrom attnviz.trace import Support"),
        ("attnviz.ui.pages.heads", "import streamlit as st\nfrom attnviz import plots"),
        ("attnviz", "def f():\n    from attnviz.trace import AttentionTrace"),
        ("app", "import streamlit as st\nimport attnviz\nfrom attnviz.ui import state"),
    ],
)
def test_what_points_upwards_is_allowed(module, source):
    assert violations(source, module) == []


def test_relative_imports_of_a_folder_start_inside_it():
    assert violations("from .theme import THEMES\nfrom . import heads", "attnviz.plots", is_package=True) == []
    assert len(violations("from ..ui import state", "attnviz.plots", is_package=True)) == 1
