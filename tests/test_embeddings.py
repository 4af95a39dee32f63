"""Vectors of words against hand arithmetic, the weights file itself, and the model run without attnviz."""

import math
import os
import random
import subprocess
import sys

import pytest
import tiny_models
import torch
from safetensors import safe_open
from transformers import AlbertConfig, AlbertModel, AutoModel, AutoTokenizer, RobertaConfig, RobertaModel

from attnviz.embeddings import (
    ARTICLE_VECTORS,
    PretrainedEmbedding,
    article_vectors,
    load_embedding,
    one_hot_vectors,
    random_vectors,
    sinusoidal_positions,
)
from attnviz.errors import LoadError, OptionError, TextError
from attnviz.locations import locate

STREET = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="module")
def minilm():
    return load_embedding("minilm", device="cpu")


def test_the_article_gives_its_five_vectors():
    expected = torch.tensor([[1, 0], [0, 1], [1, 1], [1, 1], [0.5, 1]])
    assert torch.equal(article_vectors(["karina", "is", "to", "the", "store"]), expected)
    assert torch.equal(article_vectors(["Karina", "STORE", "karina"]), expected[[0, 4, 0]])


def test_a_word_outside_the_article_is_named_with_the_five():
    with pytest.raises(TextError, match=r"karina, is, to, the, store only, got 'Going'; .*random or pretrained"):
        article_vectors(["karina", "Going"])
    assert len(ARTICLE_VECTORS) == 5


def test_a_word_has_its_random_vector_in_every_sentence():
    first = random_vectors(["the", "cat", "saw", "the"], 7)
    assert first.shape == (4, 7)
    assert first.dtype == torch.float32
    assert torch.equal(first[0], first[3])
    assert torch.equal(random_vectors(["dog", "cat"], 7)[1], first[1])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(random_vectors(["the"], 7), random_vectors(["The"], 7))
    assert not torch.equal(random_vectors(["the"], 7), random_vectors(["the"], 7, seed=1))


def test_a_word_has_its_random_vector_in_every_process():
    code = """if True:
        import sys
        from attnviz.embeddings import random_vectors
        print(random_vectors(['猫', 'dog'], 5, seed=3).tolist(), "transformers" in sys.modules)
    """
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{random_vectors(['猫', 'dog'], 5, seed=3).tolist()} False"


def test_random_vectors_of_one_release_are_those_of_the_next():
    expected = torch.tensor([[0.212090, 0.306086, -0.046960]])
    torch.testing.assert_close(random_vectors(["cat"], 3), expected, atol=1e-5, rtol=0)


def test_random_vectors_are_standard_normal_and_leave_the_global_state():
    torch.manual_seed(11)
    random.seed(11)
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    many = random_vectors([f"word{number}" for number in range(200)], 50)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert random.getstate() == python_state
    assert abs(many.mean().item()) < 0.05
    assert abs(many.std().item() - 1) < 0.05
    assert (many[:-1] * many[1:]).mean().abs() < 0.05  # neighbours are not alike


def test_one_hot_vectors_follow_the_order_of_appearance():
    expected = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]], dtype=torch.float32)
    assert torch.equal(one_hot_vectors(["the", "cat", "saw", "the"], 4), expected)


def test_one_hot_vectors_follow_a_vocabulary():
    expected = torch.tensor([[0, 0, 1], [1, 0, 0]], dtype=torch.float32)
    assert torch.equal(one_hot_vectors(["cat", "a"], 3, vocabulary=["a", "b", "cat"]), expected)
    with pytest.raises(TextError, match="got 'dog'; add it"):
        one_hot_vectors(["a", "dog"], 3, vocabulary=["a", "b", "cat"])


def test_too_many_words_for_one_hot_vectors_gives_both_numbers():
    with pytest.raises(OptionError, match=r"at most 2 different words.*got 3; choose 3 dimensions"):
        one_hot_vectors(["a", "b", "a", "c"], 2)


def test_sinusoids_by_hand():
    slow = 1 / 10_000 ** (2 / 4)
    expected = [[0, 1, 0, 1], *[[math.sin(p), math.cos(p), math.sin(p * slow), math.cos(p * slow)] for p in (1, 2)]]
    torch.testing.assert_close(sinusoidal_positions(3, 4), torch.tensor(expected))
    assert sinusoidal_positions(2, 4)[1, 2].item() == pytest.approx(0.0099998333)  # sin 0.01


def test_sinusoids_of_odd_dimension_end_with_a_sine():
    angles = [1, 10_000 ** (-2 / 5), 10_000 ** (-4 / 5)]
    expected = [math.sin(angles[0]), math.cos(angles[0]), math.sin(angles[1]), math.cos(angles[1]), math.sin(angles[2])]
    torch.testing.assert_close(sinusoidal_positions(2, 5)[1], torch.tensor(expected))
    assert sinusoidal_positions(19, 1).shape == (19, 1)


def test_sinusoids_far_out_keep_float32_precision():
    position = 123_456
    row = sinusoidal_positions(position + 1, 2)[position]
    torch.testing.assert_close(row, torch.tensor([math.sin(position), math.cos(position)]), atol=1e-7, rtol=0)


@pytest.mark.parametrize("make", [random_vectors, one_hot_vectors])
def test_no_words_and_no_dimensions_are_said(make):
    with pytest.raises(TextError, match="no word"):
        make([], 4)
    with pytest.raises(OptionError, match="dimension of 1 or more, got 0"):
        make(["a"], 0)
    with pytest.raises(OptionError, match="length of 1 or more, got 0"):
        sinusoidal_positions(0, 4)


def test_input_vectors_are_the_rows_of_the_weights_file(minilm):
    embedded = minilm.input_vectors(STREET)
    ids = AutoTokenizer.from_pretrained(locate("minilm").path)(STREET)["input_ids"]
    with safe_open(locate("minilm").path / "model.safetensors", "pt") as weights:
        rows = weights.get_tensor("embeddings.word_embeddings.weight")[ids]
    assert torch.equal(embedded.vectors, rows.float())
    assert embedded.tokens.labels[:3] == ("[CLS]", "the", "animal")
    assert embedded.tokens.is_special[0]
    assert not embedded.tokens.is_special[1]
    assert (minilm.name, minilm.dimension, minilm.max_length) == ("sentence-transformers/all-MiniLM-L6-v2", 384, 512)
    assert embedded.dropped == 0


def test_contextual_vectors_are_the_models_own(minilm):
    model = AutoModel.from_pretrained(locate("minilm").path).eval()
    inputs = AutoTokenizer.from_pretrained(locate("minilm").path)(STREET, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state[0]
    embedded = minilm.contextual_vectors(STREET)
    torch.testing.assert_close(embedded.vectors, expected, atol=1e-6, rtol=0)
    assert not embedded.vectors.is_inference()
    assert not embedded.vectors.requires_grad


def test_context_changes_a_vector_and_the_matrix_does_not(minilm):
    bank = [minilm.input_vectors(text).vectors[-2] for text in ("the river bank", "the savings bank")]
    assert torch.equal(*bank)
    bank = [minilm.contextual_vectors(text).vectors[-2] for text in ("the river bank", "the savings bank")]
    assert (bank[0] - bank[1]).abs().max() > 0.1


def test_a_long_text_is_shortened_and_says_by_how_much(minilm):
    embedded = minilm.contextual_vectors("dog " * 700)
    assert len(embedded.tokens) == len(embedded.vectors) == 512
    assert embedded.dropped == 702 - 512
    assert embedded.tokens.labels[-1] == "[SEP]"
    assert minilm.input_vectors("dog " * 510).dropped == 0


@pytest.mark.parametrize("text", ["", "  ", "\n\t "])
def test_no_text_is_a_friendly_prompt(minilm, text):
    for vectors in (minilm.input_vectors, minilm.contextual_vectors):
        with pytest.raises(TextError, match="no text to read yet; write a word"):
            vectors(text)


def test_half_a_character_is_said(minilm):
    with pytest.raises(TextError, match="surrogate"):
        minilm.input_vectors("a \ud83d b")


def test_an_encoder_decoder_gives_its_encoders_last_state(tmp_path):
    model = tiny_models.bart()
    embedding = load_embedding(tiny_models.save(model, tmp_path / "bart"), device="cpu")
    ids = tiny_models.tokenizer()("the cat saw it", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        expected = model.encoder(input_ids=ids).last_hidden_state[0]
    torch.testing.assert_close(embedding.contextual_vectors("the cat saw it").vectors, expected)
    assert embedding.max_length == 13
    assert embedding.contextual_vectors("cat " * 20).dropped == 22 - 13


def test_a_factorised_matrix_gives_its_short_rows():
    torch.manual_seed(0)
    sizes = {"embedding_size": 5, "hidden_size": 6, "num_attention_heads": 2, "intermediate_size": 7}
    model = AlbertModel(AlbertConfig(vocab_size=11, num_hidden_layers=1, **sizes)).eval()
    embedding = PretrainedEmbedding("tiny", model, tiny_models.tokenizer())
    assert embedding.dimension == 5
    assert torch.equal(embedding.input_vectors("cat").vectors[1], model.embeddings.word_embeddings.weight[5])
    assert embedding.contextual_vectors("cat").vectors.shape == (3, 6)


def test_positions_counted_from_the_padding_row_are_not_all_usable():
    sizes = {"hidden_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 7}
    model = RobertaModel(RobertaConfig(vocab_size=11, max_position_embeddings=13, pad_token_id=1, **sizes)).eval()
    embedding = PretrainedEmbedding("tiny", model, tiny_models.tokenizer())
    assert embedding.max_length == 11
    assert embedding.contextual_vectors("cat " * 30).vectors.shape == (11, 6)


def test_half_precision_comes_back_as_float32(tmp_path):
    folder = tiny_models.save(tiny_models.bert().to(torch.bfloat16), tmp_path / "half")
    embedding = load_embedding(folder, device="cpu")
    assert embedding.contextual_vectors("the cat").vectors.dtype == torch.float32
    assert embedding.input_vectors("the cat").vectors.dtype == torch.float32


def test_a_tokenizer_of_another_model_is_said():
    embedding = PretrainedEmbedding("tiny", tiny_models.bert(), tiny_models.tokenizer())
    embedding._table = embedding._table[:5]
    with pytest.raises(LoadError, match=r"below 5.*got 7 .*from the same place"):
        embedding.input_vectors("the dog")
