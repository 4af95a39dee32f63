"""Caches: bounded, in one file; a loading that is shared, shows its progress, and is tried again after a failure."""

import ast
import threading
from pathlib import Path

import pytest

import attnviz.ui
from attnviz.errors import LoadError
from attnviz.experiment import Experiment
from attnviz.ui import cache
from attnviz.ui.cache import Failure, Loading
from attnviz.ui.state import Checkpoint

FOLDER = Path(attnviz.ui.__file__).parent
FILES = [*sorted(FOLDER.rglob("*.py")), FOLDER.parents[1] / "app.py"]
NAMES = ("cache_data", "cache_resource")


def mentions(tree: ast.AST) -> list[ast.AST]:
    """Each place that names one of Streamlit's caches."""
    return [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in NAMES)
        or (isinstance(node, ast.Name) and node.id in NAMES)
        or (isinstance(node, ast.alias) and node.name in NAMES)
    ]


def bounded(tree: ast.AST) -> list[ast.AST]:
    """Each of them that is called with max_entries."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call.func for call in calls if any(option.arg == "max_entries" for option in call.keywords)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_only_one_file_caches_and_each_cache_is_bounded(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = mentions(tree)
    if path.name != "cache.py":
        assert found == []
        return
    assert len(found) == 5
    limited = bounded(tree)
    assert all(node in limited for node in found)


def test_an_unbounded_cache_would_be_found():
    for source in ("@st.cache_data\ndef f(): ...", "@st.cache_data(show_spinner=False)\ndef f(): ..."):
        tree = ast.parse(source)
        assert not set(mentions(tree)) <= set(bounded(tree))
    assert mentions(ast.parse("from streamlit import cache_data"))


class Loads:
    """Stands in for a slow load: counts, waits for `go`, then fails as often as told."""

    def __init__(self, failures=0):
        self.count, self.failures = 0, failures
        self.go, self.started = threading.Event(), threading.Event()
        self.result = object()

    def __call__(self, name, *, progress, **options):
        self.count += 1
        progress(0.25, f"Fetching *{name}*")
        self.started.set()
        assert self.go.wait(20)
        if self.count <= self.failures:
            raise LoadError(f"No {name}.")
        return self.result


@pytest.fixture
def loads(monkeypatch, request):
    """Loads in place of `load_embedding`; the name of the test keeps each one's cache entry apart."""
    stand_in = Loads()
    monkeypatch.setattr(cache, "load_embedding", stand_in)
    stand_in.name = request.node.name
    yield stand_in
    cache._embedding.clear(stand_in.name, "cpu")


def test_a_loading_shows_its_progress_and_clears_it_away(loads, monkeypatch):
    shown = []

    class Place:
        def progress(self, fraction, text):
            shown.append((fraction, text))
            loads.go.set()

        def empty(self):
            shown.append("empty")

    monkeypatch.setattr(cache.st, "empty", Place)
    assert cache.embedding(loads.name, "cpu") is loads.result
    assert shown[0] == (0.25, rf"Fetching \*{loads.name}\*".replace("_", r"\_"))
    assert shown[-1] == "empty"


def test_a_quick_loading_shows_nothing(loads, monkeypatch):
    monkeypatch.setattr(cache.st, "empty", lambda: pytest.fail("a flash of a progress bar"))
    loads.go.set()
    assert cache.embedding(loads.name, "cpu") is loads.result


def test_a_failure_is_forgotten_so_that_a_retry_tries_again(loads):
    loads.failures = 1
    loads.go.set()
    with pytest.raises(LoadError, match="No "):
        cache.embedding(loads.name, "cpu")
    assert cache.embedding(loads.name, "cpu") is loads.result
    assert cache.embedding(loads.name, "cpu") is loads.result
    assert loads.count == 2


def test_two_sessions_share_one_loading(loads):
    results = []
    sessions = [
        threading.Thread(target=lambda: results.append(cache.embedding(loads.name, "cpu")), daemon=True)
        for _ in range(2)
    ]
    for session in sessions:
        session.start()
    assert loads.started.wait(20)
    assert results == []
    loads.go.set()
    for session in sessions:
        session.join(20)
    assert results == [loads.result, loads.result]
    assert loads.count == 1


def test_a_page_that_is_closed_does_not_stop_its_loading():
    go = threading.Event()
    loading = Loading(lambda progress: go.wait(20))
    assert not loading.wait(0.01)
    assert not loading.failed
    go.set()
    assert loading.wait(20)
    assert loading.result() is True


def test_an_experiment_is_computed_once(monkeypatch):
    calls = []
    monkeypatch.setattr(cache, "run_experiment", lambda *given: calls.append(given) or object())
    first = Experiment(text="computed once, in this test alone")
    assert cache.outcome(first, "any") is cache.outcome(first, "another")  # no model takes part
    assert len(calls) == 1
    cache.outcome(Experiment(text="computed once, in this test alone", seed=1), "any")
    assert len(calls) == 2


@pytest.fixture
def model_loads(monkeypatch):
    """How often a model and its trace were asked for; the first of each fails."""
    counts = {"model": 0, "trace": 0}

    class Model:
        def trace(self, text, target, pair, *, progress):
            counts["trace"] += 1
            if counts["trace"] == 1:
                raise LoadError("No trace.")
            return object()

    def load(name, **options):
        counts["model"] += 1
        if counts["model"] == 1:
            raise LoadError("No model.")
        return Model()

    monkeypatch.setattr(cache, "load_model", load)
    return counts


def test_a_model_and_its_trace_are_tried_again_after_a_failure(model_loads):
    checkpoint = Checkpoint("/made/up", "cpu", "auto", None, False)
    assert cache.model(checkpoint) == Failure("No model.")
    assert cache.has_failed(checkpoint)
    model = cache.model(checkpoint)
    assert not cache.has_failed(checkpoint)
    assert cache.model(checkpoint) is model
    assert cache.model_trace(checkpoint, model, "a", None, None) == Failure("No trace.")
    trace = cache.model_trace(checkpoint, model, "a", None, None)
    assert cache.model_trace(checkpoint, model, "a", None, None) is trace
    assert cache.model_trace(checkpoint, model, "a", None, "b") is not trace
    assert model_loads == {"model": 2, "trace": 3}


def test_a_model_s_way_of_loading_is_part_of_its_key(model_loads):
    kinds = [("cpu", "auto", None, False), ("cpu", "float32", None, False), ("cpu", "auto", "v2", False)]
    kinds.append(("cpu", "auto", None, True))
    for kind in kinds:
        cache.model(Checkpoint("/made/up too", *kind))
    assert model_loads["model"] == 4
