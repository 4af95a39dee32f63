"""attnviz's views beside BertViz's and CircuitsVis's, in one run, on one machine, with the same weights.

    python benchmarks/frontend.py [--peers FOLDER] [--only TEXT ...] [--repeats 3] [--limit 90] [--write]

Needs Chromium (Debian's, or the path in ATTNVIZ_CHROMIUM), playwright and the project's requirements. The other tools
are no requirement of the project; without --peers they are left out. To make the folder (any name):

    pip install --target FOLDER/python ipython importlib_metadata
    pip install --target FOLDER/python --no-deps bertviz==1.4.1 circuitsvis==1.43.3
    npm install --prefix FOLDER --no-save --ignore-scripts d3@5.7.0 jquery@2.1.0 requirejs@2.3.6

BertViz's pages fetch d3, jQuery and require.js from a CDN; here they get them from this machine (jQuery 2.1.0 in the
place of 2.0.0, which npm never had). CircuitsVis brings its script in its package.

A page with a button is opened; what is timed starts with a click on the button and ends with the last paint (see
frontend_page.py). For the other tools the click opens their ready-made HTML in a frame of the page, and the time they
took to make that HTML in Python is listed apart. For attnviz it includes Streamlit's run in Python and back.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distributions, version
from pathlib import Path
from typing import ClassVar

from frontend_page import Measured, Picture, chromium_version, measure

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "docs" / "performance.md"
SLOW = 5_000
"""Milliseconds above which a picture is measured once only."""


@dataclass(frozen=True)
class Case:
    """What is shown: a view of so many heads of so many tokens."""

    view: str
    layers: int
    heads: int
    tokens: int

    @property
    def name(self) -> str:
        """What it is called on the command line: grid-12x12-64."""
        return f"{self.view}-{self.layers}x{self.heads}-{self.tokens}"

    @property
    def cells(self) -> int:
        """How many weights there are."""
        return self.layers * self.heads * self.tokens**2


@dataclass(frozen=True)
class Peer:
    """A picture of another tool.

    Attributes:
        name: as frontend_peers.py knows it.
        ready: JavaScript that is true when the elements of a case are there; {} stands for the number of heads.
        hover: CSS selector of what the mouse is moved over; empty for no such measurement.
    """

    name: str
    ready: str
    hover: str = ""


CASES = (
    *(Case("grid", 12, 12, tokens) for tokens in (16, 64, 128, 256)),
    Case("grid", 32, 32, 128),
    *(Case("lines", 1, 12, tokens) for tokens in (16, 64, 128, 256)),
    *(Case("map", 1, 1, tokens) for tokens in (512, 4096)),
)
HEAD_VIEW = Peer("bertviz head_view", "bench.find('#attention line').length > 0", "#left")
PEERS = {
    "grid": (
        Peer("bertviz model_view", "bench.find('.attn_background').length === {}"),
        Peer("circuitsvis attention_heads", "bench.find('canvas').length === {} + 1"),
    ),
    "lines": (HEAD_VIEW,),
    "map": (Peer("circuitsvis attention_pattern", "bench.find('canvas').length === 1"), replace(HEAD_VIEW, hover="")),
}
TITLES = {
    "grid": "Every head of every layer",
    "lines": "Lines of 12 heads between tokens",
    "map": "One head",
}
FLOOR = "an empty square (the floor of what can be measured)"


class Pages(ThreadingHTTPServer):
    """A page with a button; the button opens the HTML at `shown` in a frame."""

    BUTTON = """<!doctype html><title>benchmark</title><link rel="icon" href="data:,">
        <button onclick="document.querySelector('iframe').src = '/picture'">Show</button>
        <iframe style="width: 100%; height: 790px; border: 0"></iframe>"""
    EMPTY = '<!doctype html><p class="empty" style="width: 9rem; height: 9rem; background: #888"></p>'
    SCRIPTS: ClassVar = {
        "/libs/require.js/2.3.6/require.min.js": "requirejs/require.js",
        "/libs/d3/5.7.0/d3.min.js": "d3/dist/d3.min.js",
        "/libs/jquery/2.0.0/jquery.min.js": "jquery/dist/jquery.min.js",
    }

    def __init__(self, peers: Path | None, shown: Path) -> None:
        """Serve on a free port of this machine.

        Args:
            peers: the folder with node_modules; None where there is none.
            shown: the file that the frame shows.
        """
        super().__init__(("localhost", 0), _Answers)
        self.peers, self.shown = peers, shown
        shown.write_text(self.EMPTY)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def content(self, path: str) -> bytes | None:
        """Return what lies at a path, None where nothing does."""
        if path == "/":
            return self.BUTTON.encode()
        if path == "/picture":
            return self.shown.read_bytes()
        if self.peers and path in self.SCRIPTS:
            return (self.peers / "node_modules" / self.SCRIPTS[path]).read_bytes()
        return None


class _Answers(BaseHTTPRequestHandler):
    server: Pages

    def do_GET(self) -> None:
        """Answer with the content of a path."""
        content = self.server.content(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Type", "text/javascript" if self.path.endswith(".js") else "text/html")
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        """Say nothing: the table is what is printed."""


class Bench:
    """All that a measurement needs: a browser, attnviz's server, the other tools' pages."""

    def __init__(self, options: argparse.Namespace, folder: Path, app: str) -> None:
        """Keep it, and serve the other tools' pages."""
        self.options, self.app = options, app
        self.shown = folder / "shown.html"
        self.pages = Pages(options.peers, self.shown)
        self.failed: dict[str, int] = {}

    def attnviz(self, case: Case) -> Measured:
        """Measure attnviz's own view: on a page without one, and where it takes the place of a small one."""
        first = self.attnviz_on(case, "")
        return first if first.failure else replace(first, again=self.attnviz_on(case, "&before=yes").paint)

    def attnviz_on(self, case: Case, more: str) -> Measured:
        """Measure it on the page of an address that ends so."""
        from frontend_views import VIEWS

        if case.view not in VIEWS:
            return Measured(failure="not built yet")
        view = VIEWS[case.view]
        address = f"{self.app}/?view={case.view}&layers={case.layers}&heads={case.heads}&tokens={case.tokens}{more}"
        idle = "document.querySelector('[data-testid=stApp][data-test-script-state=notRunning]')"
        error = "bench.find('.stException').map(one => { throw new Error(one.innerText) })"
        picture = Picture(
            address,
            waiting=f"{error} && {idle} && bench.find('#made').length",
            button=".st-key-ask button",
            ready=f"{error} && {idle} && bench.find('#shown').length && bench.find('{view.sign}').length",
            hover=view.hover,
            made="1000 * bench.find('#made')[0].textContent",
        )
        return self.repeated(picture)

    def peer(self, peer: Peer, case: Case) -> Measured:
        """Measure a picture of another tool, unless fewer weights were too many for it."""
        fewer = self.failed.get(peer.name, case.cells)
        if fewer < case.cells:
            return Measured(failure="not tried: it failed with fewer weights")
        made = self.made(peer, case)
        found = made if made.failure else self.repeated(self.framed(peer.ready, case.layers * case.heads, peer.hover))
        if found.failure:
            self.failed[peer.name] = min(fewer, case.cells)
        return replace(found, made=made.made)

    def made(self, peer: Peer, case: Case) -> Measured:
        """Let the other tool make its HTML; what comes back holds only how long that took, or why it did not."""
        shape = [str(case.layers), str(case.heads), str(case.tokens)]
        command = [sys.executable, str(Path(__file__).with_name("frontend_peers.py")), peer.name, *shape]
        command += ["--peers", str(self.options.peers), "--output", str(self.shown)]
        try:
            run = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=self.options.limit + 60
            )  # a minute to import and to make the weights
        except subprocess.TimeoutExpired:
            return Measured(failure=f"more than {self.options.limit:.0f} s in Python")
        except subprocess.CalledProcessError as error:
            return Measured(failure=f"failed in Python: {(error.stderr.splitlines() or ['killed'])[-1][:120]}")
        return Measured(made=1000 * json.loads(run.stdout.splitlines()[-1])["seconds"])

    def floor(self) -> Measured:
        """Measure a picture of next to nothing."""
        self.shown.write_text(Pages.EMPTY)
        return self.repeated(self.framed("bench.find('.empty').length", 0, ""))

    def framed(self, ready: str, heads: int, hover: str) -> Picture:
        """Return how to ask for the HTML made last."""
        address = f"http://localhost:{self.pages.server_port}/"
        return Picture(address, "document.readyState === 'complete'", "button", ready.replace("{}", str(heads)), hover)

    def repeated(self, picture: Picture) -> Measured:
        """Measure so many times as was asked, once where it is slow, and return the medians."""
        found: list[Measured] = []
        for _ in range(self.options.repeats):
            found.append(measure(self.options.chromium, picture, limit=self.options.limit))
            if found[-1].failure:
                return found[-1]
            if found[-1].paint > SLOW:
                break
        numbers = [field.name for field in fields(Measured) if field.name != "failure"]
        return Measured(**{name: statistics.median(getattr(one, name) for one in found) for name in numbers})


@contextmanager
def app_server() -> Iterator[str]:
    """Run attnviz's page in a server of its own, and give its address."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "benchmarks/frontend_app.py", "--server.port", str(port)]
    command += ["--server.headless", "true", "--server.fileWatcherType", "none"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_healthy(f"http://localhost:{port}", process)
        yield f"http://localhost:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def _wait_until_healthy(address: str, process: subprocess.Popen) -> None:
    pause = threading.Event()
    for _ in range(300):
        try:
            if urllib.request.urlopen(f"{address}/_stcore/health", timeout=2).status == 200:
                return
        except OSError:
            pause.wait(0.2)
        if process.poll() is not None:
            break
    raise SystemExit("The server of frontend_app.py did not start; run it by hand to see why.")


Row = tuple[Case, str, Measured]


def rows(bench: Bench, cases: Sequence[Case]) -> Iterator[Row]:
    """Measure every tool in every case."""
    for case in cases:
        yield case, "attnviz", bench.attnviz(case)
        for peer in PEERS[case.view] if bench.options.peers else ():
            yield case, peer.name, bench.peer(peer, case)


def number(value: float, digits: int = 0) -> str:
    """Return a number as the table shows it; nothing for NaN."""
    return "" if value != value else f"{value:,.{digits}f}"  # noqa: PLR0124 (NaN is not itself)


def line(case: Case, tool: str, found: Measured) -> str:
    """Return one line of the Markdown table."""
    shape = f"{case.layers}×{case.heads}, T={case.tokens}"
    if found.failure:
        return f"| {shape} | {tool} | {number(found.made)} | **{found.failure}** | | | | | | |"
    numbers = [number(found.made), number(found.paint), number(found.again), number(found.sent / 1e3)]
    numbers += [number(found.memory / 1e6), number(found.heap / 1e6, 1), number(found.elements)]
    return f"| {shape} | {tool} | {' | '.join(numbers)} | {number(found.hover)} |"


def page(found: Sequence[Row], floor: Measured, machine: str) -> str:
    """Return docs/performance.md."""
    parts = [
        "# Performance",
        "",
        f"Measured by `benchmarks/frontend.py --write` on {datetime.date.today():%d %B %Y}: {machine}.",
        "Every tool in one run, with the same weights: softmax of random scores, every cell of every head allowed.",
        "How to repeat it, and how to get the other tools, stands at the top of that file.",
        "",
        "- **made**: milliseconds in Python to make what is sent. For the other tools their HTML. For attnviz the",
        "  statistics and thumbnails of all heads, which it makes with the trace; all else it makes when asked, in the",
        "  next column.",
        "- **first**: milliseconds from the click to the last paint, on an open page without a picture. For attnviz with",
        f"  Streamlit's run in Python. {FLOOR.capitalize()} takes {number(floor.paint)} ms.",
        "- **again**: the same where the page shows a small trace already, as attnviz's always does, and the click puts",
        "  another in its place: another sentence, another model. The other tools' pages cannot.",
        "- **sent**: kB that reached the page after the click, not compressed, the other tools' own scripts included.",
        "- **memory**: MB that the page's process holds more than before the click; **heap**: JavaScript's part of it,",
        "  without elements and canvases. **elements**: how many more the page has.",
        "- **hover**: milliseconds from a movement of the mouse over the picture to the next paint, median of 20.",
        "- attnviz draws one head by Plotly up to 512 tokens, whose script then comes after the click too, and on a",
        "  canvas of its own above.",
        "- Medians of the runs that end within 5 s; slower ones were run once, with a limit that the table names.",
    ]
    for view, title in TITLES.items():
        lines = [line(*one) for one in found if one[0].view == view]
        if lines:
            parts += ["", f"## {title}", ""]
            parts += [
                "| layers × heads, tokens | tool | made | first | again | sent | memory | heap | elements | hover |"
            ]
            parts += ["|---|---|--:|--:|--:|--:|--:|--:|--:|--:|", *lines]
    return "\n".join(parts) + "\n"


def machine(bench: Bench) -> str:
    """Say what was measured on: nothing that names one machine, only its kind."""
    said = f"Chromium {chromium_version(bench.options.chromium)} (headless, software drawing)"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    tools = f"Python {platform.python_version()}, Streamlit {version('streamlit')}"
    folder = bench.options.peers
    others = distributions(path=[str(folder / "python")]) if folder else ()
    named = sorted(f"{one.name} {one.version}" for one in others if one.name in {"bertviz", "circuitsvis"})
    load = f"load {os.getloadavg()[0]:.1f} before the run"
    hardware = f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB of memory"
    return ", ".join([hardware, load, said, tools, *named])


def options_of_command() -> argparse.Namespace:
    """Return what was asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="the folder of the other tools; without it they are left out")
    parser.add_argument("--only", nargs="*", default=[""], help="parts of names of cases, such as grid or 12x12-64")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=90, help="seconds after which a picture is given up")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    options = parser.parse_args()
    options.chromium = (
        os.environ.get("ATTNVIZ_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    )
    if not options.chromium:
        parser.error("no Chromium found: install Debian's chromium, or set ATTNVIZ_CHROMIUM to its path")
    if options.write and options.only != [""]:
        parser.error("docs/performance.md holds every case: leave out --only to write it")
    options.peers = options.peers and options.peers.resolve()
    return options


def main() -> None:
    """Measure, print each line as it comes, and write the page where asked."""
    options = options_of_command()
    cases = [case for case in CASES if any(text in case.name for text in options.only)]
    found: list[Row] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        app = stack.enter_context(app_server())
        bench = Bench(options, folder, app)
        floor, kind = bench.floor(), machine(bench)
        print(f"{kind}; {FLOOR}: {number(floor.paint)} ms")
        for row in rows(bench, cases):
            found.append(row)
            print(line(*row), f"load {os.getloadavg()[0]:.1f}", flush=True)
    if options.write:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(found, floor, kind), encoding="utf-8")


if __name__ == "__main__":
    main()
