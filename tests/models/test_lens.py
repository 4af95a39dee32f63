"""The logit lens: after the last layer it says what the model says, before it what norm and head by hand say."""

import threading

import pytest
import test_conformance as suite
import tiny_models
import torch
import zoo
from test_hidden_states import ENCODERS, WITHOUT
from transformers import BartForConditionalGeneration, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import attnviz
from attnviz.analysis.shown import ShownOptions, show
from attnviz.errors import OptionError, SupportError
from attnviz.models import lens as lens_module
from attnviz.models.lens import find_readout, logit_lens
from attnviz.models.load import PretrainedModel

REFUSED = {
    "hrm_text": "several stacks (model.H_module.layers, model.L_module.layers)",  # two stacks that run in turns
    "inkling2_text": "3 layers ran, but one has the number 6",  # the last reading is of all blocks, not of one vector
    "prophetnet": "not [token, d_model], one for each token",  # several predicting streams after the text's own
}
DECODERS = [name for name in suite.ON + suite.OFF if name not in {*ENCODERS, *WITHOUT, *REFUSED}]
TEXT = "the cat saw the dog"


def with_head(model_type):
    config = zoo.tiny_config(model_type, **zoo.WINDOWS.get(model_type, {}))
    return zoo.tiny_model(config, auto_class=f"AutoModelFor{'Seq2SeqLM' if config.is_encoder_decoder else 'CausalLM'}")


def own(model, inputs):
    with torch.no_grad():
        return model(**inputs, use_cache=False, output_hidden_states=True)


@pytest.fixture(scope="module")
def case(request):
    """The name of an architecture, its model, what reads it, and of one text its states and its own output."""
    model = with_head(request.param)
    inputs = zoo.inputs_of(model.config)
    readout = find_readout(model, inputs)
    trace = attnviz.trace_model(model, inputs, item=1)
    states = trace.hidden_states(lens_module.decoder_role(trace.roles))
    return request.param, model, readout, states, own(model, inputs)


@pytest.mark.parametrize("case", DECODERS, indirect=True)
def test_the_last_layer_says_what_the_model_says(case):
    _, model, readout, states, output = case
    found = readout.logits(states[-1])
    assert readout.difference < 1e-4
    torch.testing.assert_close(found, output.logits[1], atol=1e-4, rtol=0)
    assert torch.equal(found.argmax(-1), output.logits[1].argmax(-1))
    assert float(found.std(dim=0).max()) > 1e-2  # not one thing everywhere
    given = output.decoder_hidden_states if model.config.is_encoder_decoder else output.hidden_states
    assert len(given) == len(states)
    for state, expected in zip(states[:-1], given, strict=False):
        torch.testing.assert_close(state, expected[1], atol=1e-5, rtol=0)


BY_HAND = {  # final norm and head as each model's own code has them
    "gpt2": lambda model, state: model.lm_head(model.transformer.ln_f(state)),
    "llama": lambda model, state: model.lm_head(model.model.norm(state)),
    "cohere": lambda model, state: model.lm_head(model.model.norm(state)) * model.config.logit_scale,
    "gemma2": lambda model, state: 30 * torch.tanh(model.lm_head(model.model.norm(state)) / 30),
    "t5": lambda model, state: model.lm_head(model.decoder.final_layer_norm(state) * zoo.WIDTH**-0.5),
    "gpt_bigcode": lambda model, state: model.lm_head(model.transformer.ln_f(state)),
    "bloom": lambda model, state: model.lm_head(model.transformer.ln_f(state)),
}


@pytest.mark.parametrize("case", BY_HAND, indirect=True)
def test_earlier_layers_go_through_the_same_norm_and_head(case):
    model_type, model, readout, states, _ = case
    assert readout.in_batch == (model_type == "gpt_bigcode")
    for state in states:
        with torch.no_grad():
            expected = BY_HAND[model_type](model, state)
        torch.testing.assert_close(readout.logits(state), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("model_type", REFUSED)
def test_what_cannot_be_read_off_one_vector_is_refused(model_type):
    model = with_head(model_type)
    with pytest.raises(SupportError) as raised:
        find_readout(model, zoo.inputs_of(model.config))
    assert REFUSED[model_type] in str(raised.value)
    assert "no logit lens" in str(raised.value)


@pytest.mark.parametrize("model_type", [*REFUSED, "gpt2", "t5"])
def test_what_a_model_says_in_the_end_is_known_of_every_decoder(model_type):
    model = with_head(model_type)
    inputs = zoo.inputs_of(model.config)
    assert torch.equal(lens_module.own_logits(model, inputs), own(model, inputs).logits[0])


def test_the_suite_is_read_but_for_three():
    assert len(DECODERS) == 58


def test_where_nothing_between_the_layers_is_known_the_end_is_read(gpt2, monkeypatch):
    trace = gpt2.trace(TEXT)
    whole = logit_lens(gpt2, trace, top=3)
    assert whole.names == ("input", "after layer 0", "after layer 1")
    monkeypatch.setattr(type(trace), "hidden_states", lambda self, role=None: ())
    last = logit_lens(gpt2, trace, top=3, positions=[2, 5])
    assert last.names == ("after the last layer",)
    assert torch.equal(last.ids, whole.ids[-1:, [2, 5]])
    torch.testing.assert_close(last.probabilities, whole.probabilities[-1:, [2, 5]])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: zoo.tiny_model(zoo.tiny_config("gpt2")), "GPT2Model was loaded without a head"),
        (lambda: with_head("bert"), "this trace has an encoder alone"),
        (lambda: with_head("mamba"), "No attention over tokens"),
    ],
)
def test_models_without_decoder_or_head_say_so(model, words):
    model = model()
    with pytest.raises(SupportError, match=words):
        find_readout(model, zoo.inputs_of(model.config))


def test_a_model_that_says_more_than_its_last_layer_is_refused():
    model = with_head("gpt2")
    model.transformer.ln_f.register_forward_hook(lambda _, __, output: output + torch.arange(output.shape[1])[:, None])
    with pytest.raises(SupportError, match=r"cannot be read off its last layer alone: .* by \d"):
        find_readout(model, zoo.inputs_of(model.config))


def test_nobody_else_is_handed_the_vectors_and_no_hook_stays():
    model = with_head("gpt2")
    inputs = zoo.inputs_of(model.config)
    expected, seen = own(model, inputs).logits, []
    hooks = [len(module._forward_hooks) for module in model.modules()]  # some are transformers' own
    readout = find_readout(model, inputs)
    with lens_module._handing_on(readout.last_layer, torch.zeros(1, 2, zoo.WIDTH)):
        other = threading.Thread(target=lambda: seen.append(own(model, inputs).logits))
        other.start()
        other.join()
    assert torch.equal(seen[0], expected)
    assert torch.equal(own(model, inputs).logits, expected)
    assert [len(module._forward_hooks) for module in model.modules()] == hooks


@pytest.fixture(scope="module")
def gpt2():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=11, n_positions=13, n_embd=6, n_layer=2, n_head=3, bos_token_id=2, eos_token_id=3)
    return PretrainedModel("tiny", GPT2LMHeadModel(config).eval(), tiny_models.tokenizer())


def test_a_lens_holds_the_likeliest_tokens_of_every_place(gpt2):
    trace = gpt2.trace(TEXT)
    lens = logit_lens(gpt2, trace, top=3)
    assert lens.positions == tuple(range(7))
    assert lens.ids.shape == lens.probabilities.shape == lens.labels.shape == (3, 7, 3)
    for at, state in enumerate(trace.hidden_states()):
        with torch.no_grad():
            expected = gpt2.hf_model.lm_head(gpt2.hf_model.transformer.ln_f(state)).softmax(-1).topk(3)
        assert torch.equal(lens.ids[at], expected.indices)
        torch.testing.assert_close(lens.probabilities[at], expected.values)
    said = gpt2.hf_model(torch.tensor([trace.query_tokens().ids])).logits[0].argmax(-1)
    assert torch.equal(lens.ids[-1, :, 0], said)
    assert lens.labels[1, 2, 0] == tiny_models.WORDS[lens.ids[1, 2, 0]]


def test_a_lens_is_a_table(gpt2):
    lens = logit_lens(gpt2, gpt2.trace(TEXT), top=2, positions=[5, 1])
    table = lens.table()
    assert list(table) == ["state", "position", "rank", "token_id", "token", "probability"]
    assert len(table) == 3 * 2 * 2
    row = table[(table.state == 2) & (table.position == 1) & (table["rank"] == 2)].iloc[0]
    assert (row.token_id, row.token) == (int(lens.ids[2, 1, 1]), lens.labels[2, 1, 1])
    assert row.probability == pytest.approx(float(lens.probabilities[2, 1, 1]))
    whole = logit_lens(gpt2, gpt2.trace(TEXT), top=2)
    assert torch.equal(lens.ids, whole.ids[:, [5, 1]])


def test_a_long_text_is_read_at_its_last_tokens_and_in_parts(gpt2, monkeypatch):
    trace = gpt2.trace(TEXT)
    whole = logit_lens(gpt2, trace)
    monkeypatch.setattr(lens_module, "MOST_VECTORS", 3 * 4)
    monkeypatch.setattr(lens_module, "MOST_LOGITS", 5 * 11)
    part = logit_lens(gpt2, trace)
    assert part.positions == (3, 4, 5, 6)
    assert torch.equal(part.ids, whole.ids[:, 3:])
    torch.testing.assert_close(part.probabilities, whole.probabilities[:, 3:])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"top": 0}, "1 to 11 tokens.*top=0"),
        ({"top": 12}, "1 to 11 tokens.*top=12"),
        ({"positions": [0, 7, -1]}, r"0 to 6, got \[7, -1\]"),
        ({"positions": []}, r"0 to 6, got \[\]"),
    ],
)
def test_what_is_out_of_range_is_said(gpt2, options, words):
    with pytest.raises(OptionError, match=words):
        logit_lens(gpt2, gpt2.trace(TEXT), **options)


def test_a_view_by_words_is_refused(gpt2):
    trace = show(gpt2.trace(TEXT), ShownOptions(words=True))
    with pytest.raises(SupportError):
        logit_lens(gpt2, trace)


def test_a_translation_model_is_read_on_its_decoders_side():
    torch.manual_seed(0)
    model = PretrainedModel(
        "tiny", BartForConditionalGeneration(tiny_models.bart().config).eval(), tiny_models.tokenizer()
    )
    trace = model.trace(TEXT, "it was tired")
    lens = logit_lens(model, trace)
    assert lens.ids.shape == (3, len(trace.query_tokens("decoder")), 5)
    sides = {"input_ids": trace.query_tokens("encoder").ids, "decoder_input_ids": trace.query_tokens("decoder").ids}
    said = own(model.hf_model, {name: torch.tensor([ids]) for name, ids in sides.items()}).logits[0]
    assert torch.equal(lens.ids[-1, :, 0], said.argmax(-1))


def test_parts_of_a_character_are_read_each_by_itself():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    core = Tokenizer(models.BPE({"<s>": 0, "çĮ": 1, "«": 2, "Ġa": 3}, []))  # 猫 is the bytes E7 8C AB
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>")
    labels = lens_module._labels(tokenizer, torch.tensor([[3, 1], [2, 7]]))
    assert labels.tolist() == [["␣a", "<0xE7><0x8C>"], ["<0xAB>", "id 7"]]
