"""The app without a browser: a page opened by its address, and what stands on it."""

import base64
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

sys.path.append(str(Path(__file__).parents[1]))  # for tiny_models, when this folder's tests are run alone

APP = Path(__file__).parents[2] / "app.py"
ACTIVE = set("<>$*_`[]:~")
"""Characters that Streamlit's Markdown acts on; none of the app's own sentences has one."""


COMPONENTS = {"history", "theme", "selection", "answers", "frame", "map-tiles", "pointer", "going"}
"""Those that show nothing."""


class OpenPage:
    """An open page: its controls (`app`), what it says, and what it draws."""

    def __init__(self, path: str, address: dict[str, str]) -> None:
        self.app = AppTest.from_file(str(APP), default_timeout=60)
        self.app.query_params.update(address)
        self.go(path)

    def go(self, path: str) -> None:
        """Open a page of the same session: "" is the first one. Pages are functions, which AppTest cannot switch to."""
        self.app._page_hash = calc_hash(path)
        self.run()

    def run(self) -> None:
        """Run again, as any change does; no exception may reach the page."""
        for box in self.app.selectbox:  # AppTest looks for what was typed among the options
            if box.value not in box.options:
                box.options.append(box.value)
        self.app.run()
        assert [one.message for one in self.app.exception] == []

    def change(self, **values: object) -> None:
        """Change controls by their keys, then run."""
        for key, value in values.items():
            self.app.get_by_key(key).set_value(value)
        self.run()

    def click(self, label: str) -> None:
        next(button for button in self.app.button if button.label == label).click()
        self.run()

    @property
    def warnings(self) -> list[str]:
        return [_literal(one.value) for one in self.app.warning]

    @property
    def hints(self) -> list[str]:
        return [_literal(one.value) for one in self.app.info]

    @property
    def captions(self) -> list[str]:
        return [_literal(one.value) for one in self.app.caption]

    @property
    def headings(self) -> list[str]:
        return [_literal(one.value) for one in self.app.subheader]

    def fields(self) -> tuple[set[str], set[str]]:
        """The keys of the controls that a person sees, and of those that are drawn hidden."""
        keys = {_key(block.proto.id) for block in _blocks(self.app._tree)}
        kinds = ({key.removeprefix(kind) for key in keys if key.startswith(kind)} for kind in ("field-", "hidden-"))
        return tuple(names - COMPONENTS for names in kinds)

    def figures(self) -> dict[str, dict]:
        """Plotly specs by key."""
        return {_key(one.proto.id): json.loads(one.proto.spec) for one in self.app.get("plotly_chart")}

    def numbers(self, key: str) -> np.ndarray:
        """The z of a figure's heatmap."""
        return _array(self.figures()[key]["data"][0]["z"])

    def all_numbers(self, key: str) -> list[np.ndarray]:
        """The z of each heatmap of a figure."""
        return [_array(cells["z"]) for cells in self.figures()[key]["data"]]

    def all_points(self, key: str) -> dict[tuple[int, int], tuple[float, float]]:
        """Where each head stands in a figure of points."""
        found = {}
        for points in self.figures()[key]["data"]:
            for place, x, y in zip(points["customdata"], _array(points["x"]), _array(points["y"]), strict=True):
                found[int(place[0]), int(place[1])] = (float(x), float(y))
        return found

    def labels(self, key: str, axis: str) -> list[str]:
        """What stands along an axis of a figure."""
        found = self.figures()[key]["layout"][f"{axis}axis"]
        return list(found["ticktext"] if "ticktext" in found else found["labelalias"].values())

    @property
    def opened(self) -> str:
        """The heading of the open head."""
        return next(heading for heading in self.headings if " · head " in heading)

    def sent(self, key: str) -> tuple[dict, list[np.ndarray]]:
        """The header and the arrays that a component gets."""
        data = next(one for one in self.app.get("bidi_component") if one.key == key).proto.bytes
        start = 4 + int.from_bytes(data[:4], "little")
        header = json.loads(data[4:start])
        return header, [_sent_array(data[start:], **place) for place in header["arrays"]]


def _blocks(node):
    """Every node of the tree whose protobuf carries a key."""
    if getattr(getattr(node, "proto", None), "id", ""):
        yield node
    for child in getattr(node, "children", {}).values():
        yield from _blocks(child)


def _key(identity: str) -> str:
    """The key in Streamlit's "$$ID-hash-key"."""
    return identity.split("-", 2)[-1]


def _array(values) -> np.ndarray:
    if isinstance(values, list):
        return np.array(values)
    flat = np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"])
    return flat.reshape([int(size) for size in str(values["shape"]).split(",")]) if "shape" in values else flat


def _sent_array(block: bytes, type: str, shape: list[int], offset: int) -> np.ndarray:
    return np.frombuffer(block, type, int(np.prod(shape)), offset).reshape(shape)


def _literal(markdown: str) -> str:
    """What a person reads of a sentence; every character that could act must be escaped."""
    text, characters = "", iter(markdown)
    for character in characters:
        if character == "\\":
            text += next(characters)
        else:
            assert character not in ACTIVE, f"{character!r} acts in {markdown!r}"
            text += character
    return text.replace("\u2060", "")


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path_factory):
    """The hub out of reach, and an empty cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path_factory.getbasetemp() / "no-cache"))


@pytest.fixture(autouse=True)
def no_packaged_components(monkeypatch):
    """Each new session of AppTest reads the metadata of every installed package, for 0.25 s; none has a component."""
    monkeypatch.setattr("streamlit.components.v2.manifest_scanner.scan_component_manifests", lambda *_: [])


@pytest.fixture
def open_page():
    """Open a page: `open_page()` is the first one, `open_page("vectors", text="…")` another with an address."""

    def open_(path: str = "", **address: str) -> OpenPage:
        return OpenPage(path, address)

    return open_


@pytest.fixture(scope="session")
def translator(tmp_path_factory):
    """The folder of a tiny T5: 3 layers of encoder, 2 of decoder, 5 heads."""
    import tiny_models
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    layers = {"num_layers": 3, "num_decoder_layers": 2, "num_heads": 5, "d_model": 6, "d_kv": 4, "d_ff": 7}
    ids = {"vocab_size": len(tiny_models.WORDS), "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 3}
    model = T5ForConditionalGeneration(T5Config(**layers, **ids))
    return str(tiny_models.save(model, tmp_path_factory.mktemp("models") / "t5"))


@pytest.fixture(scope="session")
def writer(tmp_path_factory):
    """The folder of a tiny Llama: 3 layers of 4 heads, 2 of keys, with a head for the next token."""
    import tiny_models
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 11, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, vocab_size=len(tiny_models.WORDS)))
    return str(tiny_models.save(model, tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture(scope="session")
def without_attention(tmp_path_factory):
    """The folder of a tiny Mamba."""
    import tiny_models
    from transformers import MambaConfig, MambaModel

    config = MambaConfig(vocab_size=len(tiny_models.WORDS), hidden_size=8, num_hidden_layers=2, state_size=4)
    return str(tiny_models.save(MambaModel(config), tmp_path_factory.mktemp("models") / "mamba"))
