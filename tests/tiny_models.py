"""Models of a few numbers with random weights, saved as folders the way a person would have them."""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BartConfig, BartModel, BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "saw", "dog", "it", "was", "tired"]


def tokenizer():
    core = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    core.pre_tokenizer = Whitespace()
    core.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", WORDS.index("[CLS]")), ("[SEP]", WORDS.index("[SEP]"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )


def bert(**changes):
    torch.manual_seed(0)
    sizes = {"hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 7}
    return BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=13, **{**sizes, **changes})).eval()


def bart():
    torch.manual_seed(0)
    sides = {f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    widths = {"encoder_ffn_dim": 7, "decoder_ffn_dim": 7, "d_model": 6, "max_position_embeddings": 13}
    return BartModel(BartConfig(vocab_size=len(WORDS), pad_token_id=0, **sides, **widths)).eval()


def save(model, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def save_pickled(model, folder: Path, state=None) -> Path:
    """The same folder with pytorch_model.bin in place of model.safetensors."""
    save(model, folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict() if state is None else state, folder / "pytorch_model.bin")
    return folder
