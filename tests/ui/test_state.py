"""The state: what may stand in an address, and what the first run reads of it."""

import math

import pytest

from attnviz.errors import LoadError
from attnviz.experiment import Experiment, run_experiment
from attnviz.ui.state import EMBEDDINGS, EXAMPLES, FIELDS, MODULES, checked, readable


@pytest.mark.parametrize("key", FIELDS)
def test_a_default_is_allowed_for_its_own_key(key):
    default = FIELDS[key].default
    assert checked(key, default) == default
    raw = str(default).lower() if isinstance(default, bool) else str(default)
    assert readable(key, raw)


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("module", "zzz", "Multi-head self-attention"),
        ("module", None, "Multi-head self-attention"),
        ("positions", "sinusoidal", "sinusoidal"),
        ("text", "x" * 30_000, "x" * 20_000),
        ("text", 5, "Karina is going to the store"),
        ("checkpoint", "gpt2", "gpt2"),
        ("scale", "true", True),
        ("scale", False, False),
        ("heads", 5.0, 5),
        ("heads", -3, 1),
        ("heads", 1e9, 64),
        ("heads", True, 4),
        ("heads", "8", 4),
        ("seed", math.inf, 0),
        ("seed", math.nan, 0),
        ("remote_code", 1, False),
    ],
)
def test_a_value_is_kept_clamped_or_replaced(key, value, kept):
    assert checked(key, value) == kept
    assert type(checked(key, value)) is type(kept)


@pytest.mark.parametrize(
    ("key", "raw", "is_readable"),
    [
        ("heads", "4", True),
        ("heads", "4.0", True),
        ("heads", "0", False),
        ("heads", "65", False),
        ("heads", "1e1", False),
        ("heads", "", False),
        ("heads", "٤", True),  # float() reads it as well
        ("heads", "²", False),
        ("seed", "inf", False),
        ("token", "-1", True),
        ("token", "-2", False),
        ("token", "--1", False),
        ("scale", "true", True),
        ("scale", "1", False),
        ("module", "", False),
        ("text", "", True),
        ("text", "x" * 20_001, False),
    ],
)
def test_what_an_address_may_say(key, raw, is_readable):
    assert readable(key, raw) is is_readable


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_sets_allowed_values_only(name):
    for key, value in EXAMPLES[name].items():
        assert checked(key, value) == value


def test_every_choice_of_the_pages_is_one_of_the_experiment():
    for module in MODULES.values():
        for embedding in EMBEDDINGS.values():
            Experiment(text="a", module=module, embedding=embedding)


BAD = {
    "mode": "zzz",
    "seed": "inf",
    "heads": "-3",
    "text": "x" * 30_000,
    "device": "cuda:7",
    "module": "",
    "scale": "yes",
    "source": "Elsewhere",
    "dimension": "nan",
}


@pytest.mark.parametrize("path", ["", "vectors"])
def test_bad_values_of_an_address_fall_back_to_the_defaults(open_page, path):
    page = open_page(path, **BAD)
    assert page.warnings == []
    for key in BAD.keys() - {"mode"}:
        assert page.app.get_by_key(key).value == FIELDS[key].default, key
    assert dict(page.app.query_params) == {"mode": "zzz"}  # what is not ours is left alone
    same = open_page(path)
    key = "outputs" if path else "open-head"
    assert (page.numbers(key) == same.numbers(key)).all()


def test_good_values_beside_a_bad_one_are_kept(open_page):
    page = open_page(seed="inf", text="le chat", heads="2")
    assert page.labels("open-head", "y") == ["le", "chat"]
    assert len(page.figures()["all-heads"]["data"]) == 2


VIEW = {
    "text": "one two one",
    "context": "uno dos tres cuatro",
    "module": "Multi-head cross-attention",
    "heads": "3",
    "dimension": "12",
    "positions": "sinusoidal",
    "scale": "false",
    "seed": "11",
    "head": "2",
    "ink": "linear",
}


@pytest.mark.parametrize("path", ["", "vectors"])
def test_an_address_restores_the_view(open_page, path):
    page = open_page(path, **VIEW)
    experiment = Experiment(
        text=VIEW["text"],
        context=VIEW["context"],
        module="multi-head cross",
        heads=3,
        dimension=12,
        positions=True,
        scale=False,
        seed=11,
    )
    trace = run_experiment(experiment).trace
    if path:
        assert page.numbers("outputs") == pytest.approx(trace.outputs.numpy(), abs=1e-6)
    else:
        assert page.opened == "Multi-head cross-attention · head 2"
        assert page.numbers("open-head") == pytest.approx(trace.weights(0, 2).numpy(), abs=1e-6)


def test_the_first_run_already_shows_the_controls_that_an_address_asks_for(open_page):
    page = open_page(module="Multi-head cross-attention", embedding="Pretrained: input embeddings")
    shown, hidden = page.fields()
    assert {"context", "model", "heads"} <= shown
    assert {"mask", "dimension"} <= hidden
    before = page.fields()
    page.run()
    assert page.fields() == before


def test_no_address_switches_on_a_model_s_own_code(open_page):
    page = open_page(source="Model", remote_code="true")
    assert page.app.toggle(key="remote_code").value is False
    assert "remote_code" in page.fields()[0]
    page.change(remote_code=True)
    assert page.app.toggle(key="remote_code").value is True


def test_an_address_does_not_switch_it_on_even_before_the_control_is_drawn(open_page, monkeypatch):
    trusted = []

    def load(name, *, trust_remote_code, **options):
        trusted.append(trust_remote_code)
        raise LoadError("Not here.")

    monkeypatch.setattr("attnviz.ui.cache.load_model", load)
    page = open_page(source="Model", checkpoint="/no/such/folder", remote_code="true")
    assert page.warnings == ["Not here."]
    assert trusted == [False]


def test_the_view_stays_from_page_to_page(open_page):
    page = open_page()
    page.change(text="one two three", seed=5.0, module="Self-attention")
    before = page.numbers("open-head")
    page.go("vectors")
    assert page.labels("outputs", "y") == ["one", "two", "three"]
    page.go("")
    assert (page.numbers("open-head") == before).all()
    assert page.app.number_input(key="seed").value == 5
