"""A GPT-2 whose heads are set by hand, one to a layer: previous token, induction, duplicates, first token, nothing."""

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

WORDS = ["<s>", "<unk>", *"abcdefghijklmnopq"]
PLACES = 31
PREVIOUS, INDUCTION, DUPLICATE, FIRST, UNIFORM = range(5)
STRENGTH = 40.0

# What a vector holds: which token, at which place, and, from the first layer on, which token is before.
TOKEN = slice(0, len(WORDS))
PLACE = slice(TOKEN.stop, TOKEN.stop + PLACES)
BEFORE = slice(PLACE.stop, PLACE.stop + len(WORDS))
WIDTH = BEFORE.stop
QUERY, KEY, VALUE = (slice(part * WIDTH, (part + 1) * WIDTH) for part in range(3))


def tokenizer():
    core = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", unk_token="<unk>")


def gpt2():
    """The circuit of Elhage et al. 2021: the first layer writes the token before into each place, the second reads it."""
    config = GPT2Config(
        vocab_size=len(WORDS), n_positions=PLACES, n_embd=WIDTH, n_layer=5, n_head=1, n_inner=3, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1 if ".ln_" in name and name.endswith("weight") else 0)
        model.transformer.wte.weight[:, TOKEN] = torch.eye(len(WORDS))
        model.transformer.wpe.weight[:, PLACE] = torch.eye(PLACES)
        read = [layer.attn.c_attn.weight.view(WIDTH, 3 * WIDTH) for layer in model.transformer.h]  # [in, q k v]
        _match(read[PREVIOUS], PLACE, PLACE, torch.eye(PLACES).roll(-1, 1))
        read[PREVIOUS][TOKEN, VALUE][:, BEFORE] = torch.eye(len(WORDS))
        model.transformer.h[PREVIOUS].attn.c_proj.weight.copy_(torch.eye(WIDTH))
        _match(read[INDUCTION], TOKEN, BEFORE, torch.eye(len(WORDS)))
        _match(read[DUPLICATE], TOKEN, TOKEN, torch.eye(len(WORDS)))
        _match(read[DUPLICATE], PLACE, PLACE, -2 * torch.eye(PLACES))
        _match(read[FIRST], PLACE, PLACE, torch.zeros(PLACES, PLACES))
        model.transformer.h[FIRST].attn.c_attn.bias[QUERY][PLACE.start] = STRENGTH
    return model


def _match(read, query, key, table):
    """Let a query that holds x attend to the keys that hold y, by table[x, y]; queries and keys meet at key's places."""
    read[query, QUERY][:, key] = STRENGTH * table
    read[key, KEY][:, key] = torch.eye(key.stop - key.start)
