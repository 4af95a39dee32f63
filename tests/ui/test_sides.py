"""The two sides of a comparison, and how B travels in the address."""

import pytest

from attnviz.ui import sides, state


@pytest.fixture
def page_state(monkeypatch):
    """The state without a page: what is in it, which callbacks change."""
    values = {key: field.default for key, field in state.FIELDS.items()}
    monkeypatch.setattr(state, "get", values.__getitem__)
    monkeypatch.setattr(state, "set_values", values.update)
    return values


def test_until_a_person_chooses_b_differs_in_the_default_alone(page_state):
    both = sides.Sides({"model_head": 5})
    assert (both.read("model_head"), both.read("layer")) == (5, 3)


def test_what_differs_is_written_and_read_again_whatever_its_characters(page_state):
    text = "a & b = c; 100 % 猫 'quoted' + more"
    sides.Sides({"layer": 2}).write(sentence=text, scale=False, model_head=7, module="Self-attention")
    both = sides.Sides({})
    found = {key: both.read(key) for key in ("sentence", "scale", "model_head", "module", "layer")}
    assert found == {"sentence": text, "scale": False, "model_head": 7, "module": "Self-attention", "layer": 2}


def test_replacing_forgets_what_differed_before(page_state):
    sides.replace_b(sentence="one", layer=4)
    sides.replace_b(layer=1)
    assert sides.Sides({}).differing == {"layer": 1}


@pytest.mark.parametrize("raw", ["layer=-1&head=x", "device=cpu", "remote_code=true", "nothing", "layer", "module=zzz"])
def test_an_address_cannot_make_b_what_is_not_allowed(page_state, raw):
    page_state["b"] = raw
    assert sides.Sides({"layer": 9}).differing == {}


def test_swapping_twice_is_as_before(page_state):
    sides.replace_b(sentence="small", layer=5, model_head=2)
    page_state.update(sentence="big", layer=1, model_head=0)
    before = dict(page_state)
    sides.Sides({}).swap()
    assert {key: page_state[key] for key in ("sentence", "layer", "model_head")} == {
        "sentence": "small", "layer": 5, "model_head": 2,
    }  # fmt: skip
    assert sides.Sides({}).differing == {"sentence": "big", "layer": 1, "model_head": 0}
    sides.Sides({}).swap()
    assert page_state == before
