"""Loading a model, tracing texts with it, and one sentence for each thing that goes wrong."""

import shutil

import pytest
import tiny_models
import torch
import zoo
from transformers import AutoModelForSeq2SeqLM, BartForConditionalGeneration, PreTrainedTokenizerFast

import attnviz
from attnviz import pretrained
from attnviz.errors import LoadError, OptionError, SupportError, TextError


@pytest.fixture
def bert(tmp_path):
    return attnviz.load_model(tiny_models.save(tiny_models.bert(), tmp_path / "bert"), device="cpu")


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    base = tiny_models.bart()
    model = BartForConditionalGeneration(base.config)
    model.model.load_state_dict(base.state_dict())
    model.generation_config.update(bos_token_id=2, eos_token_id=3, decoder_start_token_id=2, pad_token_id=0)
    folder = tmp_path_factory.mktemp("bart")
    return attnviz.load_model(tiny_models.save(model, folder), device="cpu")


def test_a_pair_keeps_its_segments(bert):
    tokens = bert.trace("the cat", pair="saw it").query_tokens()
    assert [side for side, special in zip(tokens.segments, tokens.is_special, strict=True) if not special] == [
        0,
        0,
        1,
        1,
    ]


def test_tokens_know_their_text(bert):
    tokens = bert.trace("the cat saw").query_tokens()
    assert tokens.labels == ("[CLS]", "the", "cat", "saw", "[SEP]")
    assert tokens.text[slice(*tokens.offsets[2])] == "cat"
    assert tokens.is_special == (True, False, False, False, True)


@pytest.mark.parametrize("text", ["", "  ", "\n\t"])
def test_an_empty_text_is_a_sentence(bert, text):
    with pytest.raises(TextError, match="Type a sentence"):
        bert.trace(text)


def test_a_target_needs_a_decoder(bert):
    with pytest.raises(OptionError, match="no decoder"):
        bert.trace("the cat", "the dog")


def test_an_encoder_decoder_has_three_roles(bart):
    trace = bart.trace("the cat saw the dog", "it was tired")
    assert trace.roles == bart.roles == ("encoder", "decoder", "cross")
    assert trace.key_tokens("cross").labels == ("[CLS]", "the", "cat", "saw", "the", "dog", "[SEP]")
    assert trace.query_tokens("decoder").labels[1:] == ("[CLS]", "it", "was", "tired")
    assert trace.query_tokens("decoder").is_special[0]
    assert (trace.outputs.shape, trace.key_inputs.shape) == ((5, 6), (7, 6))
    ids = bart.tokenizer("the cat saw the dog", return_tensors="pt")
    eager = AutoModelForSeq2SeqLM.from_config(bart.hf_model.config, attn_implementation="eager").eval()
    eager.load_state_dict(bart.hf_model.state_dict())
    decoder_ids = torch.tensor([trace.query_tokens("decoder").ids])
    with torch.no_grad():
        stock = eager(**ids, decoder_input_ids=decoder_ids, output_attentions=True).cross_attentions
    for number in trace.layers("cross"):
        torch.testing.assert_close(trace.layer(number, "cross").weights(slice(None)), stock[number][0])


def test_a_target_left_out_is_written_by_the_model(bart):
    said = []
    trace = bart.trace("the cat saw the dog", progress=lambda fraction, sentence: said.append((fraction, sentence)))
    ids = list(trace.query_tokens("decoder").ids)
    with torch.no_grad():
        logits = bart.hf_model(
            **bart.tokenizer("the cat saw the dog", return_tensors="pt"), decoder_input_ids=torch.tensor([ids])
        ).logits[0]
    assert logits.argmax(-1)[:-2].tolist() == ids[1:-1]  # the last may be an end that was forced
    assert any("writes its target" in sentence for _, sentence in said)


def test_shapes_are_known_before_any_text(tmp_path):
    config = zoo.tiny_config("mistral", vocab_size=len(tiny_models.WORDS), sliding_window=5)
    folder = tiny_models.save(zoo.tiny_model(config, auto_class="AutoModelForCausalLM"), tmp_path / "mistral")
    model = attnviz.load_model(folder, device="cpu")
    assert type(model.hf_model).__name__ == "MistralForCausalLM"
    shape = model.shape(1)
    assert (shape.heads, shape.key_heads, shape.d_head, shape.window, shape.has_sink) == (6, 2, 8, 5, False)
    assert model.support.how == "interface"


def test_some_layers(bert):
    assert bert.trace("the cat", layers=[1]).layers() == (1,)
    with pytest.raises(OptionError, match="layers of"):
        bert.trace("the cat", layers=[5])


def test_a_model_off_the_interface_is_checked_too(tmp_path):
    config = zoo.tiny_config("bloom", vocab_size=len(tiny_models.WORDS))
    model = attnviz.load_model(tiny_models.save(zoo.tiny_model(config), tmp_path / "bloom"), device="cpu")
    assert (model.support.how, model.support.max_difference) == ("fallback", 0.0)
    assert "fallback" in str(model.trace("the cat").support)


def test_a_model_without_attention_says_so(tmp_path):
    config = zoo.tiny_config("mamba", vocab_size=len(tiny_models.WORDS))
    model = attnviz.load_model(tiny_models.save(zoo.tiny_model(config), tmp_path / "mamba"), device="cpu")
    assert model.support.how == "none"
    assert "No attention" in str(model.support)
    assert model.roles == ()
    with pytest.raises(SupportError, match="No attention"):
        model.trace("the cat")


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    folder = tiny_models.save(tiny_models.bert(), tmp_path / "mixed")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens([f"word{number}" for number in range(20)])
    core = tokenizer.backend_tokenizer
    vocabulary = {word: number for number, word in enumerate([*tiny_models.WORDS, "animal", "street"])}
    core.model = type(core.model)(vocabulary, unk_token="[UNK]")
    PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    with pytest.raises(LoadError, match="not belong together"):
        attnviz.load_model(folder, device="cpu")


def test_nan_in_half_precision_is_a_sentence(tmp_path):
    model = tiny_models.bert()
    with torch.no_grad():
        model.encoder.layer[0].attention.self.query.weight.mul_(1e9)
    loaded = attnviz.load_model(tiny_models.save(model, tmp_path / "large"), device="cpu", dtype="float16")
    assert loaded.support.how == "none"
    with pytest.raises(SupportError, match="float32"):
        loaded.trace("the cat")


def test_a_wrong_name_is_a_sentence(tmp_path):
    with pytest.raises(LoadError, match="check the path"):
        attnviz.load_model(tmp_path / "nothing", device="cpu")


def test_a_folder_without_a_model_is_a_sentence(tmp_path):
    with pytest.raises(LoadError, match=r"config\.json"):
        attnviz.load_model(tmp_path, device="cpu")


def test_a_folder_without_weights_is_a_sentence(tmp_path):
    folder = tiny_models.save(tiny_models.bert(), tmp_path / "bert")
    (folder / "model.safetensors").unlink()
    with pytest.raises(LoadError, match="weights"):
        attnviz.load_model(folder, device="cpu")


def test_half_precision_says_what_limits_the_check(tmp_path):
    folder = tiny_models.save(tiny_models.bert(), tmp_path / "bert")
    model = attnviz.load_model(folder, device="cpu", dtype="bfloat16")
    assert model.dtype == torch.bfloat16
    assert model.support.max_difference < 3e-2
    assert "bfloat16" in str(model.support)


def test_the_self_check_leaves_the_model_with_sdpa(bert):
    assert bert.hf_model.config._attn_implementation == "sdpa"
    assert not bert.hf_model.training


def test_moving_the_folder_away_changes_nothing(tmp_path):
    folder = tiny_models.save(tiny_models.bert(), tmp_path / "bert")
    model = attnviz.load_model(folder, device="cpu")
    shutil.rmtree(folder)
    assert model.trace("the cat").layers() == (0, 1)


def test_a_model_larger_than_its_device_is_spread(tmp_path, monkeypatch):
    folder = tiny_models.save(tiny_models.bert(), tmp_path / "bert")
    assert pretrained._spread(folder, torch.device("cpu")) == {}
    monkeypatch.setattr(pretrained, "free_bytes", lambda device: 0)
    assert pretrained._spread(folder, torch.device("cpu"))["device_map"] == "auto"


def test_a_model_partly_on_the_disk_is_traced_the_same(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    folder = tiny_models.save(tiny_models.bert(), tmp_path / "bert")
    expected = attnviz.load_model(folder, device="cpu").trace("the cat").weights(1, 2)
    places = {"embeddings": "cpu", "encoder": "disk", "pooler": "cpu"}
    spread = {"device_map": places, "offload_folder": str(tmp_path / "offload")}
    monkeypatch.setattr(pretrained, "_spread", lambda *_: spread)
    model = attnviz.load_model(folder, device="cpu")
    assert next(model.hf_model.encoder.parameters()).device.type == "meta"
    assert torch.equal(model.trace("the cat").weights(1, 2), expected)
