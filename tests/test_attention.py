"""The equations and the modules, against PyTorch's own attention and the article's own classes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import attnviz
from attnviz.attention import attention_output, attention_scores, attention_weights, causal_mask
from attnviz.errors import MaskError, OptionError, ShapeError

BATCH, QUERIES, KEYS, HEADS, WIDTH = 2, 7, 11, 3, 39
CLOSE = {"atol": 1e-6, "rtol": 1e-6}


class ArticleSelfAttention(nn.Module):
    def __init__(self, embed_dim):
        super().__init__()
        self.embed_dim = embed_dim
        self.q_linear = nn.Linear(embed_dim, embed_dim)
        self.k_linear = nn.Linear(embed_dim, embed_dim)
        self.v_linear = nn.Linear(embed_dim, embed_dim)
        self.scale = embed_dim**0.5

    def forward(self, x):
        Q = self.q_linear(x)
        K = self.k_linear(x)
        V = self.v_linear(x)
        scores = torch.bmm(Q, K.transpose(1, 2)) / self.scale
        attn = torch.softmax(scores, dim=-1)
        return torch.bmm(attn, V)


class ArticleCrossAttention(ArticleSelfAttention):
    def forward(self, x_dec, x_enc):
        Q = self.q_linear(x_dec)
        K = self.k_linear(x_enc)
        V = self.v_linear(x_enc)
        scores = torch.bmm(Q, K.transpose(1, 2)) / self.scale
        attn = torch.softmax(scores, dim=-1)
        return torch.bmm(attn, V)


class ArticleMultiHeadSelfAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        assert embed_dim % num_heads == 0
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.q = nn.Linear(embed_dim, embed_dim)
        self.k = nn.Linear(embed_dim, embed_dim)
        self.v = nn.Linear(embed_dim, embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        B, T, D = x.shape
        Q = self.q(x).view(B, T, self.num_heads, self.head_dim).transpose(1, 2)
        K = self.k(x).view(B, T, self.num_heads, self.head_dim).transpose(1, 2)
        V = self.v(x).view(B, T, self.num_heads, self.head_dim).transpose(1, 2)
        scores = torch.matmul(Q, K.transpose(-2, -1)) / (self.head_dim**0.5)
        attn = torch.softmax(scores, dim=-1)
        out = torch.matmul(attn, V).transpose(1, 2).contiguous().view(B, T, D)
        return self.out(out)


def inputs(count, *, seed=0, batch=BATCH):
    """Vectors [batch, token, d_model] that want gradients: one tensor for self-, two for cross-attention."""
    generator = torch.Generator().manual_seed(seed)
    lengths = (QUERIES, KEYS)[:count]
    return [torch.randn(batch, length, WIDTH, generator=generator).requires_grad_() for length in lengths]


def masks(queries, keys):
    holes = torch.rand(queries, keys, generator=torch.Generator().manual_seed(5)) > 0.4
    holes[:, 0] = True
    empty_rows = holes.clone()
    empty_rows[[1, 4]] = False
    return {"none": None, "holes": holes, "causal": causal_mask(queries, keys), "empty rows": empty_rows}


def gradients(output, tensors):
    weight = torch.randn(output.shape, generator=torch.Generator().manual_seed(9))
    return torch.autograd.grad((output * weight).sum(), tensors)


def assert_all_close(got, expected):
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


MODULES = {
    "SelfAttention": ((WIDTH,), 1),
    "CrossAttention": ((WIDTH,), 2),
    "MultiHeadSelfAttention": ((WIDTH, HEADS), 1),
    "MultiHeadCrossAttention": ((WIDTH, HEADS), 2),
}
MASKS = ["none", "holes", "causal", "empty rows"]


def make(name, **options):
    torch.manual_seed(1)
    arguments, count = MODULES[name]
    return getattr(attnviz, name)(*arguments, **options), count


@pytest.mark.parametrize("mask", MASKS)
def test_equations_equal_sdpa_with_gradients(mask):
    generator = torch.Generator().manual_seed(0)
    sizes = [(QUERIES, 13), (KEYS, 13), (KEYS, 5)]
    tensors = [torch.randn(BATCH, HEADS, *size, generator=generator).requires_grad_() for size in sizes]
    query, key, value = tensors
    allowed = masks(QUERIES, KEYS)[mask]
    weights = attention_weights(attention_scores(query, key, 13**-0.5), allowed)
    output = attention_output(weights, value)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
    torch.testing.assert_close(output, expected, **CLOSE)
    assert_all_close(gradients(output, tensors), gradients(expected, tensors))
    assert weights.sum(-1).allclose(torch.tensor(1.0) if mask != "empty rows" else allowed.any(-1).float())


@pytest.mark.parametrize(
    ("name", "article"),
    [
        ("SelfAttention", ArticleSelfAttention),
        ("CrossAttention", ArticleCrossAttention),
        ("MultiHeadSelfAttention", ArticleMultiHeadSelfAttention),
    ],
)
def test_the_articles_own_class_gives_the_same(name, article):
    ours, count = make(name)
    theirs = article(*MODULES[name][0])
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    vectors = inputs(count)
    output, expected = ours(*vectors), theirs(*vectors)
    torch.testing.assert_close(output, expected, **CLOSE)
    assert_all_close(
        gradients(output, [*vectors, *ours.parameters()]), gradients(expected, [*vectors, *theirs.parameters()])
    )


@pytest.mark.parametrize("mask", MASKS[:3])
@pytest.mark.parametrize("name", ["MultiHeadSelfAttention", "MultiHeadCrossAttention"])
def test_multi_head_modules_equal_pytorchs(name, mask):
    ours, count = make(name)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.q.weight, ours.k.weight, ours.v.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.q.bias, ours.k.bias, ours.v.bias]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    vectors = inputs(count)
    allowed = masks(QUERIES, vectors[-1].shape[1])[mask]
    forbidden = None if allowed is None else ~allowed
    expected, weights = theirs(
        vectors[0], vectors[-1], vectors[-1], attn_mask=forbidden, need_weights=True, average_attn_weights=False
    )
    output = ours(*vectors, mask=allowed)
    torch.testing.assert_close(output, expected, **CLOSE)
    assert_all_close(gradients(output, vectors), gradients(expected, vectors))
    trace = ours.trace(*(one[1].detach() for one in vectors), mask=allowed)
    traced = torch.stack([trace.weights(0, head) for head in range(HEADS)])
    torch.testing.assert_close(traced, weights[1].detach(), **CLOSE)


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", MODULES)
def test_trace_names_every_step_of_forward(name, mask, scale):
    module, count = make(name, scale=scale)
    vectors = [one[0] for one in inputs(count, batch=1)]
    queries, keys = len(vectors[0]), len(vectors[-1])
    allowed = masks(queries, keys)[mask]
    trace = module.trace(*vectors, mask=allowed)
    heads, width = module.num_heads, WIDTH // module.num_heads
    role = "cross" if count == 2 else "decoder" if mask == "causal" else "encoder"
    assert (trace.roles, trace.layers(), trace.heads(0)) == ((role,), (0,), heads)
    assert trace.support.how == "module"
    assert trace.support.exact
    torch.testing.assert_close(trace.inputs, vectors[0].detach())
    if count == 2:
        torch.testing.assert_close(trace.key_inputs, vectors[1].detach())
    else:
        assert trace.key_inputs is None

    names = ("q_linear", "k_linear", "v_linear") if heads == 1 else ("q", "k", "v")
    sources = (vectors[0], vectors[-1], vectors[-1])
    whole = [F.linear(x, *getattr(module, at).parameters()).detach() for at, x in zip(names, sources, strict=True)]
    cells = torch.ones(queries, keys, dtype=torch.bool) if allowed is None else allowed
    outputs = []
    for head in range(heads):
        q, k, v = (part[:, head * width : (head + 1) * width] for part in whole)
        products = q @ k.T
        scores = products / width**0.5 if scale else products
        weights = torch.softmax(scores.masked_fill(~cells, -torch.inf), -1).nan_to_num(0.0)
        outputs.append(weights @ v)
        found = [
            *(trace.queries(0, head), trace.keys(0, head), trace.values(0, head)),
            *(trace.scores(0, head, scaled=False), trace.scores(0, head)),
            *(trace.weights(0, head), trace.head_output(0, head)),
        ]
        for got, expected in zip(found, (q, k, v, products, scores, weights, outputs[-1]), strict=True):
            torch.testing.assert_close(got, expected, atol=2e-6, rtol=2e-6)
    torch.testing.assert_close(trace.concatenated(0), torch.cat(outputs, -1), atol=2e-6, rtol=2e-6)
    forward = module(*(one[None] for one in vectors), mask=allowed)[0].detach()
    torch.testing.assert_close(trace.outputs, forward, **CLOSE)
    torch.testing.assert_close(trace.projected(0), forward, atol=2e-6, rtol=2e-6)
    assert torch.equal(trace.allowed(0), cells)


def test_the_articles_example_is_right():
    module = attnviz.SelfAttention(2)
    with torch.no_grad():
        for linear in module.children():
            linear.weight.copy_(torch.eye(2))
            linear.bias.zero_()
    x = torch.tensor([[1, 0], [0, 1], [1, 1], [1, 1], [0.5, 1]])
    trace = module.trace(x, tokens=["karina", "is", "to", "the", "store"])
    expected = [
        [0.2384, 0.1175, 0.2384, 0.2384, 0.1674],
        [0.1097, 0.2226, 0.2226, 0.2226, 0.2226],
        [0.1337, 0.1337, 0.2711, 0.2711, 0.1904],
        [0.1337, 0.1337, 0.2711, 0.2711, 0.1904],
        [0.1223, 0.1741, 0.2479, 0.2479, 0.2078],
    ]
    output = [[0.7988, 0.7616], [0.6662, 0.8903], [0.7711, 0.8663], [0.7711, 0.8663], [0.7220, 0.8777]]
    torch.testing.assert_close(trace.weights(0, 0), torch.tensor(expected), atol=5.1e-5, rtol=0)
    torch.testing.assert_close(trace.outputs, torch.tensor(output), atol=5.1e-5, rtol=0)
    assert trace.scores(0, 0, scaled=False)[4].tolist() == [0.5, 1, 1.5, 1.5, 1.25]
    assert trace.query_tokens().labels == trace.key_tokens().labels == ("karina", "is", "to", "the", "store")


@pytest.mark.parametrize("size", [1, 3, 9])
def test_without_scaling_large_scores_stay_exact(size):
    module = attnviz.SelfAttention(WIDTH, scale=False)
    x = size * torch.randn(43, WIDTH, generator=torch.Generator().manual_seed(2))
    trace = module.trace(x)
    query, key = trace.queries(0, 0).double(), trace.keys(0, 0).double()
    whole = trace.weights(0, 0)
    torch.testing.assert_close(whole, torch.softmax(query @ key.T, -1).float(), atol=1e-6, rtol=1e-6)
    for rows, columns in ((slice(5, 6), slice(None)), ([3, 7], slice(2, 9)), (slice(None), [0])):
        torch.testing.assert_close(trace.weights(0, 0, rows=rows, columns=columns), whole[rows][:, columns])


def test_batched_masks_belong_to_their_sequence():
    module, _ = make("MultiHeadCrossAttention")
    vectors = inputs(2)
    both = torch.stack([masks(QUERIES, KEYS)["holes"], masks(QUERIES, KEYS)["empty rows"]])
    output = module(*vectors, mask=both)
    for at in range(BATCH):
        alone = module(*(one[at : at + 1] for one in vectors), mask=both[at : at + 1])
        torch.testing.assert_close(output[at : at + 1], alone, **CLOSE)
        trace = module.trace(*(one[at] for one in vectors), mask=both[at])
        torch.testing.assert_close(trace.outputs, alone[0].detach(), **CLOSE)


def test_later_changes_do_not_reach_a_trace():
    module, _ = make("MultiHeadSelfAttention")
    x, mask = torch.randn(QUERIES, WIDTH), masks(QUERIES, QUERIES)["holes"]
    trace = module.trace(x, mask=mask)
    before = trace.inputs.clone(), trace.weights(0, 1), trace.projected(0), trace.allowed(0)
    with torch.no_grad():
        for tensor in (x, *module.parameters()):
            tensor.add_(1)
    mask.logical_not_()
    trace.weights(0, 1).zero_()
    trace.queries(0, 1).zero_()
    trace.keys(0, 1).zero_()
    trace.allowed(0).zero_()
    after = trace.inputs, trace.weights(0, 1), trace.projected(0), trace.allowed(0)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_a_trace_keeps_no_graph_and_leaves_the_mode_alone():
    module, _ = make("MultiHeadCrossAttention")
    module.train()
    (x_dec, x_enc) = (one[0] for one in inputs(2))
    trace = module.trace(x_dec, x_enc)
    layer = trace.layer(0)
    kept = [*layer.tensors, *layer.projection, trace.inputs, trace.outputs, trace.key_inputs, trace.projected(0)]
    assert not any(tensor.requires_grad for tensor in kept)
    assert module.training
    assert module(x_dec[None], x_enc[None]).requires_grad


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-6), (torch.float32, 1e-6), (torch.bfloat16, 0.03), (torch.float16, 4e-3)],
)
def test_every_precision_gives_rows_that_sum_to_one(dtype, tolerance):
    module, _ = make("MultiHeadSelfAttention")
    module.to(dtype)
    x = 2 * torch.randn(QUERIES, WIDTH, generator=torch.Generator().manual_seed(3)).to(dtype)
    trace = module.trace(x, mask=causal_mask(QUERIES))
    weights = torch.stack([trace.weights(0, head) for head in range(HEADS)])
    assert weights.dtype == trace.scores(0, 0).dtype == trace.inputs.dtype == trace.outputs.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(HEADS, QUERIES), atol=1e-6, rtol=0)
    torch.testing.assert_close(trace.projected(0), trace.outputs, atol=tolerance, rtol=tolerance)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", MODULES)
def test_on_a_gpu_the_trace_is_read_on_the_cpu(name):
    module, count = make(name)
    vectors = [one[0].detach() for one in inputs(count)]
    mask = masks(len(vectors[0]), len(vectors[-1]))["empty rows"]
    expected = module.trace(*vectors, mask=mask)
    trace = module.cuda().trace(*(one.cuda() for one in vectors), mask=mask)
    for step in ("weights", "scores", "head_output"):
        torch.testing.assert_close(getattr(trace, step)(0, 0), getattr(expected, step)(0, 0), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(trace.outputs, expected.outputs, atol=1e-4, rtol=1e-4)
    assert torch.equal(trace.allowed(0), expected.allowed(0))
    assert trace.statistics().round(2).equals(expected.statistics().round(2))


X, Y = torch.randn(QUERIES, WIDTH), torch.randn(KEYS, WIDTH)


@pytest.mark.parametrize(
    ("action", "error", "words"),
    [
        (lambda: attnviz.MultiHeadSelfAttention(13, 3), OptionError, ["13", "num_heads = 3", "[1, 13]"]),
        (lambda: attnviz.MultiHeadCrossAttention(12, 0), OptionError, ["12", "0"]),
        (lambda: attnviz.SelfAttention(0), OptionError, ["at least 1", "0"]),
        (lambda: attnviz.SelfAttention(19)(X[None]), ShapeError, ["d_model = 19", "[1, 7, 39]"]),
        (lambda: attnviz.SelfAttention(WIDTH)(X), ShapeError, ["[batch, token, d_model]", "[7, 39]"]),
        (lambda: attnviz.SelfAttention(WIDTH).trace(X[None]), ShapeError, ["[token, d_model]", "[1, 7, 39]"]),
        (lambda: attnviz.SelfAttention(WIDTH).trace(X[:0]), ShapeError, ["at least one token", "[0, 39]"]),
        (lambda: attnviz.SelfAttention(WIDTH).trace(X.long()), ShapeError, ["floating-point", "int64"]),
        (lambda: attnviz.CrossAttention(WIDTH).trace(X, Y[:, :5]), ShapeError, ["39", "[11, 5]"]),
        (lambda: attnviz.CrossAttention(WIDTH)(X[None], Y.expand(2, -1, -1)), ShapeError, ["1", "2"]),
        (lambda: attnviz.SelfAttention(WIDTH).trace(X, tokens=["a", "b"]), ShapeError, ["(7)", "2 tokens"]),
        (
            lambda: attnviz.CrossAttention(WIDTH).trace(X, Y, key_tokens=["a"] * 7),
            ShapeError,
            ["(11)", "7 tokens"],
        ),
        (
            lambda: attnviz.SelfAttention(WIDTH).trace(X, mask=causal_mask(5)),
            MaskError,
            ["[7, 7]", "[5, 5]"],
        ),
        (
            lambda: attnviz.MultiHeadCrossAttention(WIDTH, 3).trace(X, Y, mask=causal_mask(11, 7)),
            MaskError,
            ["[7, 11]", "[11, 7]"],
        ),
        (
            lambda: attnviz.MultiHeadSelfAttention(WIDTH, 3).trace(X, mask=causal_mask(7).expand(3, 7, 7)),
            MaskError,
            ["[7, 7]", "[3, 7, 7]"],
        ),
        (
            lambda: attnviz.SelfAttention(WIDTH)(X[None], mask=causal_mask(7).expand(2, 7, 7)),
            MaskError,
            ["[1, 7, 7]", "[2, 7, 7]"],
        ),
        (
            lambda: attnviz.SelfAttention(WIDTH)(X[None], mask=causal_mask(7).float()),
            MaskError,
            ["boolean", "float32"],
        ),
    ],
)
def test_what_does_not_fit_is_said_with_both_numbers(action, error, words):
    with pytest.raises(error) as raised:
        action()
    assert isinstance(raised.value, attnviz.AttnvizError)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_causal_mask_is_the_lower_triangle():
    assert causal_mask(2, 3).tolist() == [[True, False, False], [True, True, False]]
    assert attnviz.causal_mask(1).tolist() == [[True]]
