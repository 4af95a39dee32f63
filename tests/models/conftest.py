"""Lets these tests use the tiny models of the tests beside this folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
