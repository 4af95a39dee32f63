"""The Heads page: the numbers it draws are the trace's own, or it says in a sentence why there are none."""

import numpy as np
import pytest

from attnviz.experiment import ARTICLE_EXAMPLE, Experiment, run_experiment
from attnviz.locations import MINILM
from attnviz.ui import cache
from attnviz.ui.state import EMBEDDINGS, MODULES, Checkpoint

KARINA = "Karina is going to the store"
ANIMAL = "The animal didn't cross the street because it was too tired."
WEIGHTS = [
    [0.2384, 0.1175, 0.2384, 0.2384, 0.1674],
    [0.1097, 0.2226, 0.2226, 0.2226, 0.2226],
    [0.1337, 0.1337, 0.2711, 0.2711, 0.1904],
    [0.1337, 0.1337, 0.2711, 0.2711, 0.1904],
    [0.1223, 0.1741, 0.2479, 0.2479, 0.2078],
]
OUTPUTS = [[0.7988, 0.7616], [0.6662, 0.8903], [0.7711, 0.8663], [0.7711, 0.8663], [0.7220, 0.8777]]
READ, WRITTEN = ["[CLS]", "the", "cat", "saw", "[SEP]"], ["[PAD]", "[CLS]", "it", "was"]


def test_the_first_page_shows_every_head_of_a_module(open_page):
    page = open_page()
    trace = run_experiment(Experiment(text=KARINA)).trace
    assert list(page.figures()) == ["open-head", "all-heads"]
    for head, weights in enumerate(page.all_numbers("all-heads")):
        assert weights == pytest.approx(trace.weights(0, head).numpy(), abs=1e-6)
    assert page.numbers("open-head") == pytest.approx(trace.weights(0, 0).numpy(), abs=1e-6)
    assert page.labels("open-head", "x") == page.labels("open-head", "y") == KARINA.split()
    assert page.warnings == page.hints == []
    layout = page.figures()["open-head"]["layout"]
    assert layout["yaxis"]["title"]["text"] == "query: attends from"
    assert layout["xaxis"]["title"]["text"] == "key: attended to"


def test_the_boxes_open_a_head(open_page):
    page = open_page()
    page.change(**{"pick-head": 2})
    assert page.opened == "Multi-head self-attention · head 2"
    assert (page.numbers("open-head") == page.all_numbers("all-heads")[2]).all()
    page.change(heads=2.0)  # head 2 is gone: the last one there is
    assert page.opened == "Multi-head self-attention · head 1"
    assert page.app.get_by_key("pick-head").value == 1


def test_the_article_s_example_is_one_click_away(open_page):
    page = open_page()
    page.click("The article's numbers")
    assert page.numbers("open-head") == pytest.approx(np.array(WEIGHTS), abs=5.1e-5)
    assert page.figures()["open-head"]["data"][0]["texttemplate"] == "%{z:.4f}"
    assert page.labels("open-head", "y") == ARTICLE_EXAMPLE.text.split()
    assert any("its second row sums to 1.09" in caption for caption in page.captions)
    page.go("vectors")
    assert page.numbers("outputs") == pytest.approx(np.array(OUTPUTS), abs=5.1e-5)
    assert any("its second row sums to 1.09" in caption for caption in page.captions)
    page.change(seed=3.0, text="karina  is to the store ")  # neither changes the example
    assert any("its second row sums to 1.09" in caption for caption in page.captions)
    page.change(scale=False)
    assert not any("1.09" in caption for caption in page.captions)


@pytest.mark.parametrize(
    ("module", "embedding"),
    [
        *((module, "Random vectors") for module in MODULES),
        *(("Multi-head self-attention", kind) for kind in EMBEDDINGS if kind != "Random vectors"),
        ("Multi-head cross-attention", "Pretrained: input embeddings"),
    ],
)
def test_every_module_and_every_kind_of_vector(open_page, module, embedding):
    words = {"text": "karina is to the store", "context": "the store"}
    page = open_page(**words, module=module, embedding=embedding, heads="2")
    kind = EMBEDDINGS[embedding]
    loaded = cache.embedding(MINILM, "auto") if kind.startswith("pretrained") else None
    trace = run_experiment(Experiment(**words, module=MODULES[module], embedding=kind, heads=2), loaded).trace
    heads = 2 if module.startswith("Multi") else 1
    assert list(page.figures()) == ["open-head", "all-heads"][:heads]
    assert page.numbers("open-head") == pytest.approx(trace.weights(0, 0).numpy(), abs=1e-6)
    if heads == 2:
        assert page.all_numbers("all-heads")[1] == pytest.approx(trace.weights(0, 1).numpy(), abs=1e-6)


def test_cross_attention_shows_its_second_text_and_a_map_that_is_not_square(open_page):
    page = open_page()
    assert "context" in page.fields()[1]
    page.change(module="Multi-head cross-attention", text="le chat noir", context="the black cat sleeps here")
    assert "context" in page.fields()[0]
    assert page.numbers("open-head").shape == (3, 5)
    assert page.labels("open-head", "y") == ["le", "chat", "noir"]
    assert page.labels("open-head", "x") == ["the", "black", "cat", "sleeps", "here"]


def test_a_causal_mask_is_drawn_as_masked(open_page):
    page = open_page(mask="causal")
    weights = page.numbers("open-head")
    assert (np.isnan(weights) == np.triu(np.ones((6, 6), bool), 1)).all()
    assert any("Hatched cells are not allowed by the mask." in caption for caption in page.captions)
    assert page.figures()["open-head"]["layout"]["images"]


def test_one_token_has_a_map_and_no_statistics_without_meaning(open_page):
    page = open_page(text="alone")
    assert page.numbers("open-head").tolist() == [[1.0]]
    values = {metric.label: metric.value for metric in page.app.metric}
    assert values["previous"] == "n/a"


@pytest.mark.parametrize(
    ("address", "part"),
    [
        ({"text": ""}, "Type a sentence"),
        ({"text": "   "}, "Type a sentence"),
        ({"module": "Cross-attention", "context": " "}, "the text attended to, got nothing"),
        ({"heads": "5"}, "divides embed_dim = 16, got num_heads = 5"),
        ({"embedding": "The article's vectors"}, "got 'going'"),
        ({"embedding": "One-hot vectors", "dimension": "4"}, "at most 4 different words"),
        ({"embedding": "Pretrained: last hidden state", "model": "two words"}, "got 'two words'"),
        ({"embedding": "Pretrained: last hidden state", "model": "/no/folder"}, "/no/folder and found none"),
    ],
)
def test_a_wrong_input_gives_a_sentence_and_stays_as_it_was_typed(open_page, address, part):
    page = open_page(**address)
    assert len(page.warnings) == 1
    assert part in page.warnings[0]
    assert page.figures() == {}
    for key, raw in address.items():
        value = page.app.get_by_key(key).value
        assert value == (float(raw) if key in ("heads", "dimension") else raw)
    page.go("vectors")
    assert part in page.warnings[0]
    assert page.figures() == {}


def test_vectors_of_a_model_that_is_not_here_are_asked_for_first(open_page):
    page = open_page(embedding="Pretrained: input embeddings", model="no/such-model")
    assert "no/such-model is not on this machine" in page.hints[0].replace("\\", "").replace("\u2060", "")
    assert page.figures() == {}
    next(button for button in page.app.button if button.label == "Load it").click().run()
    assert "Looked for 'no/such-model'" in page.warnings[0]


AWKWARD = {
    "markup": ("<b>x</b>", "<"),
    "dollar": ("$5", "$"),
    "emoji code": (":smile:", ":"),
    "emphasis": ("*_", "*"),
    "null": ("\0", None),
    "bidi override": ("\u202ex", None),
    "Hebrew": ("שלום", "שלום"),
    "emoji": ("👍🏽", "👍🏽"),
    "long": ("y" * 300, "y" * 300),
    "newline": ("x\ny", "x"),
    "colour": ("#000032", None),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_an_awkward_token_is_shown_and_never_interpreted(open_page, name):
    word, label = AWKWARD[name]
    page = open_page(text=f"{word} then {word}")  # open_page checks that captions have nothing that acts
    labels = page.labels("open-head", "y")
    assert labels == page.labels("open-head", "x")
    assert page.numbers("open-head").shape == (len(labels), len(labels))
    for shown in labels:
        assert not set("<>$\0\u202e\n") & set(shown)
        assert len(shown.encode()) < 80
        assert "#000032" not in shown
    repeated = [caption for caption in page.captions if "stands at positions" in caption]
    assert len(repeated) == 1
    if label is not None:
        assert label in repeated[0]


@pytest.mark.parametrize("name", ["markup", "dollar", "emoji code", "bidi override", "Hebrew", "long"])
def test_a_word_the_article_does_not_know_is_quoted_literally(open_page, name):
    word, label = AWKWARD[name]
    page = open_page(text=f"karina {word}", embedding="The article's vectors")
    assert len(page.warnings) == 1
    assert label is None or label in page.warnings[0]
    assert page.app.text_input(key="text").value == f"karina {word}"


def test_the_whole_of_a_long_token_is_there_on_hover(open_page):
    page = open_page(text=f"a {'y' * 300}")
    assert "y" * 300 in str(page.figures()["open-head"]["data"][0]["hovertext"])


def test_minilm_opens_on_the_head_that_is_worth_seeing(open_page):
    page = open_page(source="Model")
    assert page.opened == "Layer 3 · head 1"
    assert page.numbers("open-head")[10, 2] == pytest.approx(0.677, abs=5e-4)
    assert page.labels("open-head", "y")[10] == "it"
    assert page.labels("open-head", "x")[2] == "animal"
    assert any("xact through the attention interface (max difference from" in caption for caption in page.captions)
    page.change(sentence=ANIMAL.replace("tired", "wide"))
    assert page.numbers("open-head")[10, 2] == pytest.approx(0.28, abs=5e-3)


def test_minilm_s_grid_has_every_head(open_page):
    page = open_page(source="Model", layer="4", model_head="7")
    header, (masks, pixels, statistics) = page.sent("grid")
    assert [(row["number"], row["heads"]) for row in header["layers"]] == [(layer, 12) for layer in range(6)]
    trace = cache.model(Checkpoint(MINILM, "auto", "auto", None, False)).trace(ANIMAL)
    tokens = len(trace.query_tokens())
    assert header["size"] == tokens == len(page.labels("open-head", "y"))  # a pixel is a weight
    assert masks.all()
    exact = np.stack([trace.weights(layer, head) for layer in range(6) for head in range(12)])
    assert pixels.reshape(72, tokens, tokens) == pytest.approx(exact * 255, abs=0.501)
    names = [statistic["name"] for statistic in header["statistics"]]
    assert (statistics == trace.statistics()[names].to_numpy(np.float32)).all()
    assert page.numbers("open-head") == pytest.approx(trace.weights(4, 7).numpy(), abs=1e-6)


@pytest.mark.parametrize(("layer", "head"), [("999", "4095"), ("6", "12")])
def test_a_layer_or_head_that_is_not_there_is_the_nearest_one(open_page, layer, head):
    page = open_page(source="Model", layer=layer, model_head=head)
    assert page.opened == "Layer 5 · head 11"
    assert page.sent("hidden-selection")[0]["open"] == {"layer": 5, "head": 11}
    assert page.app.get_by_key("pick-layer").value == 5


@pytest.mark.parametrize("path", ["", "vectors"])
@pytest.mark.parametrize("sentence", ["", "  "])
def test_no_text_for_the_model_is_asked_for(open_page, path, sentence):
    page = open_page(path, source="Model", sentence=sentence)
    assert page.warnings == ["Expected a text, got nothing but white space. Type a sentence."]


def test_a_text_longer_than_the_model_takes_is_shortened_with_a_notice(open_page):
    page = open_page(source="Model", sentence="the cat " * 400)
    assert "Shortened to 512 of 802 tokens, the model's limit." in page.captions
    assert page.numbers("open-head").shape == (512, 512)


def test_a_pair_shows_both_texts(open_page):
    page = open_page(source="Model", sentence="the cat", pair="a dog ran")
    assert page.labels("open-head", "y") == ["[CLS]", "the", "cat", "[SEP]", "a", "dog", "ran", "[SEP]"]
    page.change(pair=" ")
    assert page.labels("open-head", "y") == ["[CLS]", "the", "cat", "[SEP]"]


def test_awkward_text_for_the_model(open_page):
    page = open_page(source="Model", sentence="<b>x</b> $5 :smile: *_ \0 \u202e שלום 👍 " + "y" * 300)
    labels = page.labels("open-head", "y")
    assert labels[1:4] == ["&lt;", "b", "&gt;"]
    assert not any(set("<>$\0\u202e\n") & set(label) for label in labels)


@pytest.mark.parametrize(
    ("role", "layers", "tokens"),
    [("encoder", 3, (READ, READ)), ("decoder", 2, (WRITTEN, WRITTEN)), ("cross", 2, (WRITTEN, READ))],
)
def test_each_role_of_an_encoder_decoder_has_its_own_layers_and_tokens(open_page, translator, role, layers, tokens):
    page = open_page(source="Model", checkpoint=translator, sentence="the cat saw", target="it was", role=role)
    assert {"role", "target"} <= page.fields()[0]
    assert "pair" in page.fields()[1]
    assert page.opened == f"{role} · Layer {layers - 1} · head 1"
    header, _ = page.sent("grid")
    assert [(row["number"], row["heads"]) for row in header["layers"]] == [(layer, 5) for layer in range(layers)]
    assert (page.labels("open-head", "y"), page.labels("open-head", "x")) == tokens
    weights = page.numbers("open-head")
    assert np.nansum(weights, axis=1) == pytest.approx(1, abs=1e-5)
    assert np.isnan(weights).any() == (role == "decoder")


def test_the_model_writes_the_target_that_is_left_out(open_page, translator):
    page = open_page(source="Model", checkpoint=translator, sentence="the cat saw", role="cross")
    assert page.numbers("open-head").shape[1] == 5
    assert page.numbers("open-head").shape[0] > 1


@pytest.mark.parametrize("path", ["", "vectors"])
def test_a_model_without_attention_says_so(open_page, without_attention, path):
    page = open_page(path, source="Model", checkpoint=without_attention, sentence="the cat")
    assert len(page.warnings) == 1
    assert page.warnings[0].startswith("No attention over tokens was seen in this model")
    assert page.figures() == {}
    assert not any(".." in caption for caption in page.captions)
