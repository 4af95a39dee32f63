"""A text through vectors and a module: the worked example, every combination, every wrong choice."""

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import nn

from attnviz.analysis.comparison import js_divergence
from attnviz.attention import CrossAttention, MultiHeadSelfAttention, causal_mask, set_weights
from attnviz.diversity import heads_diversity, with_heads
from attnviz.edits import MOST_EDITS, Cell, Edits
from attnviz.embeddings import load_embedding
from attnviz.errors import OptionError, TextError
from attnviz.experiment import ARTICLE_EXAMPLE, EmbeddingName, Experiment, ModuleName, run_experiment

DOGS = "the cat saw the dog because the dog was loud"
STREET = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="module")
def minilm():
    return load_embedding("minilm", device="cpu")


def run(text=DOGS, model=None, **choices):
    return run_experiment(Experiment(text=text, device="cpu", **choices), model)


def all_weights(trace):
    return torch.stack([trace.weights(0, head) for head in range(trace.heads(0))])


def test_the_worked_example_has_the_right_numbers():
    trace = run_experiment(replace(ARTICLE_EXAMPLE, device="cpu")).trace
    weights = [
        [0.2384, 0.1175, 0.2384, 0.2384, 0.1674],
        [0.1097, 0.2226, 0.2226, 0.2226, 0.2226],
        [0.1337, 0.1337, 0.2711, 0.2711, 0.1904],
        [0.1337, 0.1337, 0.2711, 0.2711, 0.1904],
        [0.1223, 0.1741, 0.2479, 0.2479, 0.2078],
    ]
    output = [[0.7988, 0.7616], [0.6662, 0.8903], [0.7711, 0.8663], [0.7711, 0.8663], [0.7220, 0.8777]]
    torch.testing.assert_close(trace.weights(0, 0), torch.tensor(weights), atol=5.1e-5, rtol=0)
    torch.testing.assert_close(trace.outputs, torch.tensor(output), atol=5.1e-5, rtol=0)
    assert trace.query_tokens().labels == ("karina", "is", "to", "the", "store")


@pytest.mark.parametrize("module", get_args(ModuleName))
@pytest.mark.parametrize("embedding", get_args(EmbeddingName))
def test_every_module_takes_every_kind_of_vector(module, embedding, minilm):
    text, context = ("karina is to the store", "the store is") if embedding == "article" else (DOGS, "a loud dog")
    trace = run(text, minilm, context=context, module=module, embedding=embedding, heads=2, dimension=16).trace
    special = 2 if embedding.startswith("pretrained") else 0
    queries = len(text.split()) + special
    keys = len(context.split()) + special if "cross" in module else queries
    assert len(trace.query_tokens()) == queries
    assert len(trace.key_tokens()) == keys
    assert trace.heads(0) == (2 if "multi-head" in module else 1)
    assert trace.roles == ("cross" if "cross" in module else "encoder",)
    weights = all_weights(trace)
    assert weights.shape == (trace.heads(0), queries, keys)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
    assert trace.outputs.shape == trace.inputs.shape
    assert trace.inputs.shape[1] == {"article": 2, "random": 16, "one-hot": 16}.get(embedding, 384)


def test_a_repeated_word_has_a_row_of_its_own_and_the_same_numbers_until_positions_are_added():
    plain = run()
    assert plain.trace.query_tokens().labels == tuple(DOGS.split())
    weights = all_weights(plain.trace)
    assert weights.shape == (4, 10, 10)
    for first, second in ((4, 7), (0, 3), (0, 6)):
        torch.testing.assert_close(weights[:, first], weights[:, second])
        torch.testing.assert_close(weights[:, :, first], weights[:, :, second])
    (notice,) = plain.notices
    assert "“the” stands at positions 0 and 3 with the same vector" in notice
    assert "no head can tell the two apart" in notice

    placed = run(positions=True)
    weights = all_weights(placed.trace)
    assert (weights[:, 4] - weights[:, 7]).abs().max() > 0.01
    assert placed.notices == ()


def test_a_causal_mask_tells_repeated_words_apart_and_the_notice_says_so():
    outcome = run(causal=True)
    trace = outcome.trace
    assert trace.roles == ("decoder",)
    assert torch.equal(trace.allowed(0), torch.ones(10, 10).tril().bool())
    assert not all_weights(trace).triu(1).any()
    assert not torch.allclose(trace.weights(0, 0)[4], trace.weights(0, 0)[7])
    assert "only the mask tells the two apart" in outcome.notices[0]
    assert run(context="a dog", module="cross", causal=True).trace.allowed(0).all()  # no order between two texts


def test_cross_attention_is_not_square():
    trace = run("two words", context="attended to by both", module="multi-head cross").trace
    assert all_weights(trace).shape == (4, 2, 4)
    assert trace.key_tokens().labels == ("attended", "to", "by", "both")


def test_one_word_in_both_texts_has_one_vector():
    for embedding in ("random", "one-hot"):
        trace = run("dog", context="a loud dog", module="cross", embedding=embedding).trace
        assert torch.equal(trace.inputs[0], trace.key_inputs[2])


def test_vectors_without_positions_are_the_inputs_and_positions_add_sinusoids():
    added = run(positions=True).trace.inputs - run().trace.inputs
    torch.testing.assert_close(added[0], torch.tensor([0.0, 1.0] * 8))
    assert added[3, 0].item() == pytest.approx(math.sin(3), abs=1e-5)


@pytest.mark.parametrize(("module", "width"), [("self", 16), ("multi-head self", 4)])
def test_scale_divides_scores_by_the_root_of_the_heads_width(module, width):
    scaled, raw = (run(module=module, scale=scale).trace.scores(0, 0) for scale in (True, False))
    torch.testing.assert_close(raw, scaled * math.sqrt(width))


def test_identity_weights_pass_the_vectors_through():
    trace = run(weights="identity", module="multi-head self").trace
    for part in (trace.queries, trace.keys, trace.values):
        assert torch.equal(part(0, 1), trace.inputs[:, 4:8])


@pytest.mark.parametrize("embedding", ["random", "one-hot"])
def test_a_seed_is_the_whole_of_chance(embedding):
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = run(embedding=embedding, seed=3).trace
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(8)
    second, other = run(embedding=embedding, seed=3).trace, run(embedding=embedding, seed=4).trace
    assert torch.equal(all_weights(first), all_weights(second))
    assert torch.equal(first.outputs, second.outputs)
    assert not torch.allclose(all_weights(first), all_weights(other))


@pytest.mark.parametrize(
    ("choices", "error", "sentence"),
    [
        ({"heads": 3}, OptionError, r"embed_dim = 16, got num_heads = 3. Choose one of \[1, 2, 4, 8, 16\]"),
        ({"heads": 0}, OptionError, "at least 1, got 16 and 0"),
        ({"dimension": 0}, OptionError, "1 or more, got 0"),
        ({"text": ""}, TextError, "at least one word in the text, got nothing"),
        ({"text": " \n\t"}, TextError, "at least one word in the text, got nothing"),
        ({"module": "cross"}, TextError, "at least one word in the text attended to, got nothing"),
        ({"embedding": "article"}, TextError, "karina, is, to, the, store only, got 'cat'"),
        ({"embedding": "one-hot", "dimension": 4}, OptionError, "at most 4 different words.*got 7"),
        ({"embedding": "pretrained input"}, OptionError, "a loaded model.*got none"),
        ({"device": "cuda:99"}, OptionError, "cpu.*got 'cuda:99'"),
        ({"module": "transformer"}, OptionError, "multi-head cross, got 'transformer'"),
        ({"embedding": "glove"}, OptionError, "one-hot.*got 'glove'"),
        ({"weights": "zeros"}, OptionError, "identity, random, got 'zeros'"),
    ],
)
def test_a_wrong_choice_is_said_with_what_was_expected(choices, error, sentence):
    with pytest.raises(error, match=sentence):
        run_experiment(Experiment(**{"text": DOGS, "device": "cpu"} | choices))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<s>", 3),
        ("</s> <b>bold</b>", 4 + 8),
        ('<a href="http://x"> a<b<c " </script>', None),
        ("It costs $5, or $6 *_ :smile: #000032", None),
        ("line\nbreak\ttab  two spaces", 5),
        ("👍 猫 هذا 👨\u200d👩\u200d👧", 4),
        ("שלום עולם", 2),
        ("\u202ereversed\x00nul", None),
        ("half \ud83d of a pair", 5),
        ("one", 1),
        ("x" * 300, 1),
    ],
)
def test_awkward_texts_have_a_row_per_word(text, words):
    for causal in (False, True):
        trace = run(text, dimension=8, heads=2, causal=causal).trace
        rows = len(trace.query_tokens())
        assert words is None or rows == words
        assert all(label.isprintable() or "\u200d" in label for label in trace.query_tokens().labels)
        assert all_weights(trace).shape == (2, rows, rows)
        assert all_weights(trace).isfinite().all()
        trace.statistics()


@pytest.mark.parametrize("kind", ["pretrained input", "pretrained contextual"])
def test_a_real_model_gives_word_pieces_and_their_vectors(kind, minilm):
    outcome = run(STREET, minilm, embedding=kind, heads=12)
    read = minilm.input_vectors if kind == "pretrained input" else minilm.contextual_vectors
    assert torch.equal(outcome.trace.inputs, read(STREET).vectors)
    assert outcome.trace.query_tokens().labels[:6] == ("[CLS]", "the", "animal", "didn", "'", "t")
    assert all_weights(outcome.trace).shape == (12, 16, 16)
    repeated = [notice for notice in outcome.notices if "“the” stands at positions 1 and 7" in notice]
    assert len(repeated) == (kind == "pretrained input")  # context tells the two apart


def test_a_text_longer_than_the_model_takes_is_shortened_and_says_so(minilm):
    outcome = run("dog " * 600, minilm, embedding="pretrained input", heads=1)
    assert len(outcome.trace.query_tokens()) == 512
    assert outcome.notices[0] == "Shortened to the 512 tokens the model takes; the last 90 tokens went."


def test_random_weights_keep_vectors_about_as_long_as_they_were():
    module = MultiHeadSelfAttention(256, 4)
    set_weights(module, "random", seed=5)
    for linear in (module.q, module.k, module.v, module.out):
        assert linear.weight.std().item() == pytest.approx(1 / math.sqrt(256), rel=0.02)
        assert abs(linear.weight.mean().item()) < 0.001
        assert not linear.bias.any()
    assert not torch.equal(module.q.weight, module.k.weight)
    vectors = torch.randn(50, 256, generator=torch.Generator().manual_seed(0))
    assert (module.q(vectors).norm() / vectors.norm()).item() == pytest.approx(1, rel=0.05)


def test_set_weights_is_repeated_by_its_seed_and_leaves_the_global_state():
    modules = [CrossAttention(8) for _ in range(3)]
    state = torch.get_rng_state()
    for module, seed in zip(modules, (1, 1, 2), strict=True):
        set_weights(module, "random", seed=seed)
    assert torch.equal(torch.get_rng_state(), state)
    first, second, other = (nn.utils.parameters_to_vector(module.parameters()) for module in modules)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    set_weights(modules[0], "identity")
    assert all(torch.equal(part.weight, torch.eye(8)) for part in modules[0].children())
    assert all(part.weight.requires_grad for part in modules[0].children())


EDITED = "x:2.3=-1;context:1.0=0.25;q:0.1=0.5;bq:0.11=2;k:3.3=-7;v:11.0=1e-05;o:4.10=0.125;bo:0.0=3;mask:0.2=0"
CROSS = {"context": "a loud dog", "module": "multi-head cross", "heads": 3, "dimension": 12}


def test_edits_are_read_back_as_they_are_written():
    edits = Edits.parse(EDITED)
    assert str(edits) == EDITED
    assert edits[Cell("k", 3, 3)] == -7
    assert len(edits) == 9
    assert Edits.parse(str(edits)) == edits
    assert (
        str(Edits.parse(" o:4.10=.125 ;; x:2.3=5;x:2.3=-1.0;")) == "x:2.3=-1;o:4.10=0.125"
    )  # the last of a cell counts
    assert str(Edits.parse("")) == ""
    third = Edits.parse(f"x:0.0={1 / 3}")
    assert Edits.parse(str(third)) == third
    assert third[Cell("x", 0, 0)] == float(torch.tensor(1 / 3))
    assert str(edits.without("q").without("mask")) == EDITED.replace("q:0.1=0.5;", "", 1).replace(";mask:0.2=0", "")


@pytest.mark.parametrize("positions", [False, True])
def test_edits_stand_in_the_matrices_and_nowhere_else(positions):
    outcome, plain = run(**CROSS, positions=positions, edits=EDITED), run(**CROSS, positions=positions)
    for name, matrix in outcome.unedited.items():
        assert torch.equal(matrix, plain.matrices[name])
        changed = {Cell(name, *at): float(outcome.matrices[name][tuple(at)])
                   for at in (outcome.matrices[name] != matrix).nonzero().tolist()}  # fmt: skip
        assert changed == {cell: number for cell, number in Edits.parse(EDITED).items() if cell.matrix == name}
    assert set(outcome.matrices) == set(outcome.unedited)
    assert ("positions" in outcome.matrices) == positions


@pytest.mark.parametrize("positions", [False, True])
def test_an_edited_experiment_is_the_equations_on_the_edited_matrices(positions):
    outcome = run(**CROSS, positions=positions, edits=EDITED)
    given, trace = outcome.matrices, outcome.trace
    x, context = (given[name].double() for name in ("x", "context"))
    if positions:  # added to what a person has edited
        assert given["x"][2, 3] == -1
        x, context = (part + given["positions"][: len(part)].double() for part in (x, context))
    torch.testing.assert_close(trace.inputs, x.float())
    parts = [
        (vectors @ given[name].double() + given[f"b{name}"].double()).unflatten(1, (3, 4)).transpose(0, 1)
        for name, vectors in (("q", x), ("k", context), ("v", context))
    ]
    heads = nn.functional.scaled_dot_product_attention(*parts, attn_mask=given["mask"])
    expected = heads.transpose(0, 1).flatten(1) @ given["o"].double() + given["bo"].double()
    torch.testing.assert_close(trace.outputs, expected.float(), atol=1e-5, rtol=1e-5)
    assert trace.allowed(0).sum() == 10 * 3 - 1
    assert not trace.allowed(0)[0, 2]


def test_edits_do_not_reach_the_experiment_without_them():
    before = run().trace.outputs
    edited = run(edits="x:0.0=9;q:0.0=9;bo:0.0=9").trace.outputs
    assert torch.equal(run().trace.outputs, before)
    assert not torch.allclose(edited, before)
    assert run(edits=";").trace.outputs.equal(before)
    assert hash(Experiment(text="a", edits=EDITED)) != hash(Experiment(text="a"))


@pytest.mark.parametrize("module", get_args(ModuleName))
def test_the_matrices_of_a_module_are_those_of_the_equations(module):
    outcome = run(module=module, context="a loud dog", edits="bq:0.5=1;q:2.5=3")
    given, trace = outcome.matrices, outcome.trace
    queries = torch.cat([trace.queries(0, head) for head in range(trace.heads(0))], dim=1)
    torch.testing.assert_close(queries, given["x"] @ given["q"] + given["bq"], atol=1e-5, rtol=1e-5)
    assert ("o" in given) == ("multi-head" in module)
    assert ("context" in given) == ("cross" in module)
    assert given["mask"].shape == (10, 3 if "cross" in module else 10)
    assert trace.support.how == "module"


def test_mask_edits_open_and_close_cells():
    causal = run(causal=True, edits="mask:2.5=1;mask:4.0=0")
    expected = causal_mask(10)
    expected[2, 5], expected[4, 0] = True, False
    assert torch.equal(causal.trace.allowed(0), expected)
    assert torch.equal(causal.unedited["mask"], causal_mask(10))
    assert causal.trace.weights(0, 0)[2, 5] > 0
    closed = run(edits="mask:3.1=0")
    assert closed.trace.weights(0, 2)[3, 1] == 0
    assert "only the mask" in closed.notices[0]
    row = ";".join(f"mask:6.{column}=0" for column in range(10))
    assert not run(edits=row).trace.weights(0, 1)[6].any()


def test_a_notice_is_of_the_edited_vectors():
    assert "at positions 0 and 3" in run().notices[0]
    assert "at positions 3 and 6" in run(edits="x:0.0=5").notices[0]


def test_a_table_becomes_edits_and_back():
    plain = run(heads=2, dimension=6).unedited["q"]
    table = plain[:, 3:].clone()
    table[1, 0], table[5, 2] = 0.5, -2
    kept = Edits.parse("q:0.1=7;q:4.4=8;x:0.0=1")
    edits = kept.with_table("q", plain, table, first_column=3)
    assert str(edits) == "x:0.0=1;q:0.1=7;q:1.3=0.5;q:5.5=-2"  # 4.4 was set back
    edited = edits.applied({"q": plain, "x": torch.zeros(1, 1)})["q"]
    assert torch.equal(edited[:, 3:], table)
    assert not Edits().with_table("q", plain, plain)
    mask = torch.tensor([[True, False], [True, True]])
    assert str(Edits().with_table("mask", mask, mask.T)) == "mask:0.1=1;mask:1.0=0"


@pytest.mark.parametrize(
    ("edits", "sentence"),
    [
        ("q:0.1", r"such as q:0.1=0.5 .*got 'q:0.1'"),
        ("q:0.1=", "got 'q:0.1='"),
        ("q:-1.0=2", "got 'q:-1.0=2'"),
        ("q:0.1=one", "got 'q:0.1=one'"),
        ("<b>" + "x" * 90, r"got '<b>x{37}'"),
        ("w:0.1=1", "x, context, q.*got one of 'w'"),
        ("q:0.1=nan", r"row 0, column 1 of W\^Q, got nan"),
        ("bv:0.1=inf", r"−1,000,000 to 1,000,000 in row 0, column 1 of b\^V, got inf"),
        ("x:0.1=-1000001", "got -1e"),
        ("mask:0.1=0.5", "1 .may attend. or 0 in row 0, column 1 of the mask, got 0.5"),
        ("q:16.0=1", r"within W\^Q \[16, 16\], got row 16, column 0"),
        ("bk:1.0=1", r"within b\^K \[1, 16\], got row 1, column 0"),
        ("x:0.16=1", r"within X \[10, 16\], got row 0, column 16"),
        ("mask:0.10=1", r"within the mask \[10, 10\], got row 0, column 10"),
        ("context:0.0=1", r"Expected an edit of x \(X\), q .*, got one of context"),
        (";".join(f"q:0.{at}=1" for at in range(MOST_EDITS + 1)), "at most 256 edited cells, got 257"),
    ],
)
def test_an_edit_that_cannot_be_is_refused_with_a_sentence(edits, sentence):
    with pytest.raises(OptionError, match=sentence):
        run(edits=edits)


def test_one_head_has_no_output_projection_to_edit():
    with pytest.raises(OptionError, match="got one of o"):
        run(module="self", edits="o:0.0=1")
    assert run(module="self", edits="bv:0.0=1").matrices["bv"][0, 0] == 1


def test_the_largest_numbers_are_still_numbers():
    edits = ";".join(f"{name}:0.{at}=1000000" for name in "xqkvo" for at in range(8))
    outcome = run(dimension=8, heads=1, edits=edits)
    assert outcome.trace.outputs.isfinite().all()
    assert all_weights(outcome.trace).isfinite().all()


def test_diversity_is_the_mean_over_pairs_of_heads():
    experiment = Experiment(text=DOGS, device="cpu", seed=5)
    table = heads_diversity(experiment)
    assert table["heads"].tolist() == [1, 2, 4, 8]
    assert table["d_head"].tolist() == [16, 8, 4, 2]
    assert math.isnan(table["divergence"][0])
    for at, heads in enumerate((2, 4, 8), start=1):
        weights = all_weights(run(heads=heads, seed=5).trace)
        pairs = [js_divergence(weights[i], weights[j]).mean() for i in range(heads) for j in range(i)]
        assert table["divergence"][at] == pytest.approx(float(sum(pairs) / len(pairs)), abs=1e-6)
    assert heads_diversity(experiment, counts=(3, 4, 5))["heads"].tolist() == [4]  # 3 and 5 do not divide 16


def test_more_heads_of_the_same_experiment_read_the_same_projections():
    alone = Experiment(text=DOGS, context="a loud dog", module="cross", edits="q:0.0=1", device="cpu")
    several = with_heads(alone, 4)
    assert (several.module, several.heads, several.edits) == ("multi-head cross", 4, "q:0.0=1")
    one, four = run_experiment(with_heads(alone, 1)), run_experiment(several)
    assert all(torch.equal(one.matrices[name], four.matrices[name]) for name in one.matrices)
    assert with_heads(replace(alone, module="self"), 2).module == "multi-head self"


def test_heads_that_are_all_alike_have_no_diversity():
    table = heads_diversity(Experiment(text="one", device="cpu"), counts=(2, 4))
    assert table["divergence"].tolist() == [0, 0]
