"""The scripts of the components: their arithmetic under Node, and how they travel to the browser."""

import base64
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from attnviz.ui import components

ROOT = Path(__file__).parents[3]
SCRIPTS = sorted(components.HERE.glob("*/*.js"))


def test_the_scripts_arithmetic_under_node():
    node = shutil.which("node")
    if node is None and not os.environ.get("ATTNVIZ_REQUIRE_BROWSER"):
        pytest.skip("no Node.js on this machine: install Debian's nodejs to test the scripts' arithmetic")
    assert node, "no Node.js on this machine"
    tests = [str(path) for path in sorted(Path(__file__).parent.glob("*.test.js"))]
    run = subprocess.run([node, "--test", *tests], capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(re.search(r"^# tests (\d+)", run.stdout, re.MULTILINE)[1]) >= 30


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_s_imports_become_addresses_that_hold_the_text(path):
    text = components._module(path)
    assert not re.search(r'from "\.', text)
    for address in re.findall(r'from "data:text/javascript;base64,([^"]+)"', text):
        assert "export" in base64.b64decode(address).decode()


def test_all_scripts_name_the_shared_one_by_the_same_address_so_that_a_page_holds_it_once():
    addresses = {
        address
        for path in SCRIPTS
        if "../shared.js" in path.read_text()
        for address in re.findall(r'from "(data:[^"]+)"', components._module(path))
        if "class Selection" in base64.b64decode(address.split(",")[1]).decode()
    }
    assert len(addresses) == 1


def test_a_payload_is_a_header_and_arrays_that_start_at_multiples_of_eight():
    arrays = [np.arange(3, dtype=np.uint8), np.array([[0.5, np.nan]], np.float32), np.arange(5, dtype=np.uint16)]
    data = components.pack({"name": "é猫"}, arrays)
    start = 4 + int.from_bytes(data[:4], "little")
    assert start % 8 == 0
    header = components.json.loads(data[4:start])
    assert header["name"] == "é猫"
    for array, place in zip(arrays, header["arrays"], strict=True):
        assert place["offset"] % 8 == 0
        found = np.frombuffer(data[start:], place["type"], array.size, place["offset"]).reshape(place["shape"])
        assert np.array_equal(found, array, equal_nan=array.dtype == np.float32)
