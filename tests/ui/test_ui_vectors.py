"""The Vectors page: what goes in, what comes out, how alike tokens are before and after."""

import numpy as np
import pytest
import torch

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
    assert list(page.figures())[:5] == KEYS
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
    assert any("axes are the vectors' own dimensions" in caption for caption in page.captions)


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


@pytest.mark.parametrize(
    ("role", "labels"),
    [("encoder", ["the", "cat", "saw"]), ("decoder", ["it", "was"]), ("cross", ["it", "was"])],
)
def test_an_encoder_decoder_shows_the_vectors_of_the_role_in_view(open_page, translator, role, labels):
    page = open_page(
        "vectors", source="Model", checkpoint=translator, sentence="the cat saw", target="it was", role=role
    )
    for key in KEYS[:2]:
        found = page.labels(key, "y")
        assert [label for label in found if label.isalpha()] == labels
        assert len(page.numbers(key)) == len(found)
    assert any(
        f"vectors of the {'encoder' if role == 'encoder' else 'decoder'}" in caption for caption in page.captions
    )


def test_the_slider_shows_what_leaves_each_layer(open_page):
    page = open_page("vectors", source="Model", sentence="the cat sat", depth="2")
    loaded = cache.model(Checkpoint("sentence-transformers/all-MiniLM-L6-v2", "auto", "auto", None, False))
    trace = loaded.trace("the cat sat")
    states = trace.hidden_states()
    assert page.numbers("inputs") == pytest.approx(states[0].numpy(), abs=1e-6)
    assert page.numbers("outputs") == pytest.approx(states[2].numpy(), abs=1e-6)
    assert "Vectors after layer 1" in page.headings
    assert page.numbers("norms") == pytest.approx(
        np.stack([np.linalg.norm(state, axis=1) for state in states]), rel=1e-5
    )
    cosines = cosine(states[2].numpy())[1]
    nearest = int(np.argsort(-np.where(np.arange(5) == 1, -2, cosines))[0])
    page.change(**{"nearest-to": 1})
    said = page.app.dataframe[0].value.iloc[1, 1]
    assert said.startswith(f"{nearest} {trace.query_tokens().labels[nearest]} {cosines[nearest]:.3f}")


@pytest.mark.parametrize("way", ["space (PCA)", "a plane (t-SNE)"])
def test_the_movement_can_be_seen_otherwise(open_page, way):
    page = open_page("vectors", projection=way, source="Model", sentence="the cat sat on the mat", through="true")
    points = page.figures()["movement"]["data"][-1]
    assert ("z" in points) == (way == "space (PCA)")
    assert page.warnings == []


def test_what_attention_adds_is_the_projection_of_the_heads(open_page):
    page = open_page("vectors", source="Model", sentence="the cat sat", layer="4")
    page.app.session_state["attention-open"] = True
    page.run()
    loaded = cache.model(Checkpoint("sentence-transformers/all-MiniLM-L6-v2", "auto", "auto", None, False))
    assert page.numbers("attention") == pytest.approx(loaded.trace("the cat sat").projected(4).numpy(), abs=1e-5)


def test_a_decoder_has_a_logit_lens_whose_last_row_is_what_it_says(open_page, writer):
    page = open_page("vectors", source="Model", checkpoint=writer, sentence="the cat saw the dog")
    page.app.session_state["lens-open"] = True
    page.run()
    loaded = cache.model(Checkpoint(writer, "auto", "auto", None, False))
    ids = torch.tensor([loaded.trace("the cat saw the dog").query_tokens().ids])
    with torch.no_grad():
        likeliest = loaded.hf_model(input_ids=ids).logits[0].softmax(-1).max(-1)
    table = page.app.dataframe[-1].value
    last = table[(table["state"] == table["state"].max()) & (table["rank"] == 1)]
    assert last["token_id"].tolist() == likeliest.indices.tolist()
    assert page.numbers("lens")[-1] == pytest.approx(likeliest.values.numpy(), abs=1e-5)


def test_a_long_text_is_refused_in_a_sentence(open_page):
    page = open_page("vectors", text="word " * 600)
    assert page.warnings == ["Expected at most 512 tokens to draw their vectors, got 600."]
