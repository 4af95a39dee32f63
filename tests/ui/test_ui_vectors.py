"""The Vectors page: what goes in, what comes out, how alike tokens are before and after."""

import numpy as np
import pytest

from attnviz.experiment import Experiment, run_experiment
from attnviz.ui import cache
from attnviz.ui.state import EMBEDDINGS, Checkpoint

KARINA = "Karina is going to the store"
KEYS = ["inputs", "outputs", "movement", "cosine-before", "cosine-after"]


def cosine(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def expect(page, trace):
    """The page draws the vectors of a trace and their cosines."""
    inputs, outputs = trace.inputs.numpy(), trace.outputs.numpy()
    assert list(page.figures()) == KEYS
    assert page.numbers("inputs") == pytest.approx(inputs, abs=1e-6)
    assert page.numbers("outputs") == pytest.approx(outputs, abs=1e-6)
    assert page.numbers("cosine-before") == pytest.approx(cosine(inputs), abs=1e-5)
    assert page.numbers("cosine-after") == pytest.approx(cosine(outputs), abs=1e-5)


def test_the_vectors_of_the_first_view(open_page):
    page = open_page("vectors")
    expect(page, run_experiment(Experiment(text=KARINA)).trace)
    assert page.labels("inputs", "y") == KARINA.split()
    scales = {(spec["data"][0]["zmin"], spec["data"][0]["zmax"]) for spec in map(page.figures().get, KEYS[:2])}
    assert len(scales) == 1  # both maps on one scale


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_every_kind_of_vector(open_page, embedding):
    page = open_page("vectors", embedding=embedding, text="karina is to", heads="2")
    assert list(page.figures()) == KEYS
    assert page.numbers("inputs").shape == page.numbers("outputs").shape


def test_two_dimensions_are_the_axes_themselves(open_page):
    page = open_page("vectors", dimension="2", heads="1")
    layout = page.figures()["movement"]["layout"]
    assert (layout["xaxis"]["title"]["text"], layout["yaxis"]["title"]["text"]) == ("dimension 0", "dimension 1")
    assert any("the axes are the dimensions themselves" in caption for caption in page.captions)


@pytest.mark.parametrize("text", ["alone", "same same"])
def test_vectors_that_do_not_vary(open_page, text):
    page = open_page("vectors", text=text)
    assert list(page.figures()) == KEYS
    assert page.numbers("cosine-before") == pytest.approx(1, abs=1e-5)


def test_the_vectors_of_a_model(open_page):
    page = open_page("vectors", source="Model", sentence="the cat sat")
    loaded = cache.model(Checkpoint("sentence-transformers/all-MiniLM-L6-v2", "auto", "auto", None, False))
    expect(page, loaded.trace("the cat sat"))
    assert page.numbers("outputs").shape == (5, 384)


@pytest.mark.parametrize(("role", "target"), [("encoder", "it was"), ("encoder", "it was tired"), ("cross", "it was")])
def test_an_encoder_decoder_s_vectors_carry_the_decoder_s_tokens(open_page, translator, role, target):
    page = open_page("vectors", source="Model", checkpoint=translator, sentence="the cat saw", target=target, role=role)
    for key in KEYS[:2]:
        assert page.labels(key, "y")[2:] == target.split()
        assert len(page.numbers(key)) == 2 + len(target.split())
    assert any("vectors of the decoder" in caption for caption in page.captions)
