"""Every head of many architectures equals stock eager attention, and tracing changes nothing the model computes."""

import pytest
import torch
import zoo

import attnviz

INTERFACE = {
    "encoders": "bert roberta distilbert albert electra xlm-roberta modernbert ernie esm layoutlm data2vec-text "
    "mobilebert roberta-prelayernorm eurobert",
    "decoders": "gpt2 llama qwen2 qwen3 gemma gpt_neox gptj phi phi3 stablelm olmo2 opt cohere glm4 nemotron persimmon "
    "smollm3 helium biogpt ctrl",
    "multi-query": "gpt_bigcode",
    "windows": "mistral starcoder2 gemma3_text gemma4_text",
    "soft-cap": "gemma2",
    "sinks": "gpt_oss granite_swa inkling2_text",
    "latent attention": "deepseek_v2 deepseek_v3",
    "experts": "mixtral qwen3_moe",
    "hybrids": "jamba bamba qwen3_next zamba2 minimax qwen3_5_text",
    "shared or repeated": "hrm_text diffllama doge",
    "encoder-decoders": "t5 mt5 umt5 bart mbart pegasus marian m2m_100 blenderbot plbart t5gemma t5gemma2 "
    "switch_transformers",
}  # fmt: skip
OFF_INTERFACE = (
    "deberta deberta-v2 mpnet xlnet gpt_neo bloom falcon xlm squeezebert flaubert rembert mpt fsmt prophetnet"
)
ON = " ".join(INTERFACE.values()).split()
OFF = OFF_INTERFACE.split()
ATTENDING = {  # the numbers of the layers that attend, where there are gaps
    "jamba": (1,), "bamba": (1,), "qwen3_next": (1,), "zamba2": (1,), "qwen3_5_text": (1,), "minimax": (0, 2),
}  # fmt: skip
TOLERANCE = 5e-5


@pytest.fixture(scope="module", params=ON + OFF)
def case(request):
    model = zoo.tiny_model(zoo.tiny_config(request.param, **zoo.WINDOWS.get(request.param, {})))
    return request.param, model


@pytest.mark.parametrize("padding", [None, "right", "left"])
def test_every_head_equals_stock_eager(case, padding):
    model_type, model = case
    inputs = zoo.inputs_of(model.config, padding=padding)
    stock = zoo.reference(model, inputs)
    before = zoo.plain_output(model, inputs)
    paired = bool(model.config.is_encoder_decoder)
    for item in (0, 1) if padding else (1,):
        trace = attnviz.trace_model(model, inputs, item=item)
        found = zoo.differences(trace, stock, zoo.kept_of(inputs, item, paired=paired), item)
        assert max(found.values()) <= TOLERANCE, found
        assert trace.support.how == ("interface" if model_type in ON else "fallback")
        assert_rows_sum(trace)
        if not paired:
            assert trace.layers() == ATTENDING.get(model_type, trace.layers())
    after = zoo.plain_output(model, inputs)
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def assert_rows_sum(trace):
    """Rows sum to 1 with what the sink takes; every query of a real token may attend to something."""
    for role in trace.roles:
        for number in trace.layers(role):
            layer = trace.layer(number, role)
            sums = layer.weights(slice(None)).sum(-1)
            sinks = [layer.sink_weights(head) for head in range(layer.shape[0])]
            whole = sums if sinks[0] is None else sums + torch.stack(sinks)
            assert float((whole - 1).abs().max()) < TOLERANCE
            assert bool(layer.allowed().any(-1).all())


def test_the_suite_holds_enough_architectures():
    assert len(set(ON + OFF)) >= 60
    assert len(OFF) >= 10


@pytest.mark.parametrize("model_type", ["gpt2", "t5", "gemma2", "gpt_oss"])
def test_the_traced_run_gives_the_same_bits(model_type, monkeypatch):
    """Not only the run after: what the model returns while it is traced."""
    model = zoo.tiny_model(zoo.tiny_config(model_type))
    inputs = zoo.inputs_of(model.config, padding="left")
    expected, seen = zoo.plain_output(model, inputs), []
    handle = model.register_forward_hook(lambda _, __, output: seen.extend(zoo.tensors_of(output)))
    attnviz.trace_model(model, inputs)
    handle.remove()
    assert all(torch.equal(one, two) for one, two in zip(expected, seen, strict=True))


@pytest.mark.parametrize(("model_type", "window"), [("mistral", 5), ("gemma3_text", 5), ("modernbert", None)])
def test_a_window_is_found_as_a_rule(model_type, window):
    model = zoo.tiny_model(zoo.tiny_config(model_type, **zoo.WINDOWS[model_type]))
    trace = attnviz.trace_model(model, zoo.inputs_of(model.config))
    rules = [trace.layer(number).rule for number in trace.layers()]
    assert all(rule.mask is None for rule in rules)
    assert any(rule.window is not None for rule in rules)
    assert window is None or window in {rule.window for rule in rules}


def test_key_heads_are_not_repeated():
    model = zoo.tiny_model(zoo.tiny_config("llama"))
    layer = attnviz.trace_model(model, zoo.inputs_of(model.config)).layer(0)
    assert layer.shape[0] == zoo.HEADS
    assert layer.key.shape[0] == zoo.KEY_HEADS


@pytest.mark.parametrize(
    "model_type", ["bert", "gpt2", "llama", "t5", "gemma2", "gpt_oss", "mistral", "albert", "bloom"]
)
def test_statistics_and_thumbnails_equal_naive_ones(model_type):
    model = zoo.tiny_model(zoo.tiny_config(model_type, **zoo.WINDOWS.get(model_type, {})))
    trace = attnviz.trace_model(model, zoo.inputs_of(model.config, padding="left"), item=1)
    for role in trace.roles:
        table = trace.statistics(role)
        pictures = trace.thumbnails(role, size=4)
        for at, number in enumerate(trace.layers(role)):
            weights = trace.layer(number, role).weights(slice(None)).double()
            rows = table[table.layer == number]
            entropy = torch.special.entr(weights).sum(-1).mean(-1)
            torch.testing.assert_close(torch.tensor(rows.entropy.to_numpy()).double(), entropy, atol=1e-4, rtol=1e-4)
            peak = weights.amax(-1).mean(-1)
            torch.testing.assert_close(torch.tensor(rows.peak_weight.to_numpy()).double(), peak, atol=1e-5, rtol=1e-4)
            if role != "cross":
                place = torch.arange(weights.shape[-1], dtype=torch.float64)
                steps = (place[:, None] - place).abs()
                distance = (weights * steps).sum(-1).mean(-1)
                found = torch.tensor(rows.distance.to_numpy()).double()
                torch.testing.assert_close(found, distance, atol=1e-4, rtol=1e-4)
            pooled = torch.nn.functional.adaptive_max_pool2d(weights.float(), 4)
            naive = (pooled * 255).round().to(torch.uint8)
            assert int((pictures[at].int() - naive.int()).abs().max()) <= 1


def test_a_decoder_that_attends_to_an_encoder_given_by_hand():
    config = zoo.tiny_config("bert", is_decoder=True, add_cross_attention=True)
    model = zoo.tiny_model(config)
    inputs = {
        **zoo.inputs_of(config, padding="right"),
        "encoder_hidden_states": torch.randn(2, 11, zoo.WIDTH, generator=torch.Generator().manual_seed(3)),
        "encoder_attention_mask": torch.tensor([[1] * 11, [1] * 8 + [0] * 3]),
    }
    trace = attnviz.trace_model(model, inputs, item=1)
    assert trace.roles == ("decoder", "cross")
    assert (len(trace.query_tokens("cross")), len(trace.key_tokens("cross"))) == (12, 8)
    stock = zoo.reference(model, inputs)
    kept = {"decoder": (slice(0, 12), slice(0, 12)), "cross": (slice(0, 12), slice(0, 8))}
    assert max(zoo.differences(trace, stock, kept, 1).values()) <= TOLERANCE


@pytest.mark.parametrize("model_type", ["vit", "clip_vision_model", "siglip_vision_model", "dinov2", "deit", "beit"])
def test_vision_towers_are_traced_by_their_patches(model_type):
    config = zoo.tiny_config(model_type)
    model = zoo.tiny_model(config)
    inputs = {"pixel_values": torch.randn(2, 3, config.image_size, config.image_size)}
    trace = attnviz.trace_model(model, inputs, item=1)
    assert trace.roles == ("encoder",)
    assert trace.query_tokens().labels[:2] == ("0", "1")
    stock = zoo.reference(model, inputs)
    assert max(zoo.differences(trace, stock, {}, 1).values()) <= TOLERANCE
