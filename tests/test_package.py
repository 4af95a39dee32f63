"""`import attnviz` as a person meets it in a fresh Python session."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import attnviz

FIRST_SESSION = """
import sys
import attnviz
assert "torch" not in sys.modules
import torch
weights = attnviz.MultiHeadSelfAttention(12, 3).trace(torch.randn(7, 12)).weights(0, 2)
assert weights.shape == (7, 7)
heavy = {"streamlit", "transformers", "plotly", "sklearn", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_first_session_loads_neither_streamlit_nor_transformers():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FIRST_SESSION],
        cwd=Path(attnviz.__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", attnviz.__all__)
def test_public_names_resolve(name):
    assert getattr(attnviz, name) is not None
    assert name in dir(attnviz)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        attnviz.no_such_name  # noqa: B018


def test_type_checkers_see_the_public_names():
    tree = ast.parse(Path(attnviz.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(attnviz.__all__)
