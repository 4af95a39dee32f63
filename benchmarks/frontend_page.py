"""What a browser makes of one picture: time to last paint, bytes, memory, elements, and the answer to the mouse.

Last paint is read off the screen, the same way for every tool: Chromium hands over a picture of each frame that it
shows, and the last one that differs from the one before it, away from the browser's own marks, is the last paint. The
watch ends when the picture is there by the tool's own sign, the page answers, nothing changed for `QUIET` seconds,
and a patch flipped then has been shown: what was still being drawn would have been shown with it.
"""

from __future__ import annotations

import asyncio
import base64
import io
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.async_api import Browser, CDPSession, Page, async_playwright
from playwright.async_api import Error as BrowserError

SCRIPT = Path(__file__).with_suffix(".js")
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTH, HEIGHT = 1280, 864
SMALLER = 2
"""By how much frames are made smaller before they are handed over: a page waits for that, 80 ms at full size."""
HEADER, PATCH = 64 // SMALLER, 32 // SMALLER
"""Pixels of a frame at the top, where Streamlit shows that it is running, and the patch's side at the bottom right."""
QUIET = 0.5
"""Seconds without a change after which the picture counts as whole."""
BLOCK = 16
"""Side of the blocks of a JPEG in pixels: so far the patch colours its neighbours."""
NOISE, FLIPPED = 12, 100
"""Of 255: the largest difference that is none, and the least that is a flip of the patch."""
MOVES = 20


@dataclass(frozen=True)
class Picture:
    """How to ask for one picture.

    Attributes:
        address: the page to open first; its opening is not timed.
        waiting: JavaScript that is true when the page may be asked.
        button: CSS selector of what is clicked to ask.
        ready: JavaScript that is true when the picture's elements are there.
        hover: CSS selector of what the mouse is moved over afterwards; empty for no such measurement.
        made: JavaScript that gives the milliseconds in which Python made the picture, read before it is asked for.
    """

    address: str
    waiting: str
    button: str
    ready: str
    hover: str = ""
    made: str = "NaN"


@dataclass(frozen=True)
class Measured:
    """What one picture took, above the page that asked for it; `failure` says why there is none.

    Attributes:
        made: milliseconds in which Python made it, before it was asked for.
        paint: milliseconds from the click to the last paint.
        again: the same where another picture is on the page already; NaN where not asked for.
        sent: bytes that reached the page, libraries of the picture included, as they are without compression.
        heap: bytes of the JavaScript heap after a collection.
        memory: bytes of memory of the page's process, which also holds elements and canvases.
        elements: elements of the page, frames and shadow roots included.
        hover: median milliseconds from a movement of the mouse to the next paint; NaN where not asked for.
        failure: why there is no picture, or empty.
    """

    made: float = float("nan")
    paint: float = float("nan")
    again: float = float("nan")
    sent: float = float("nan")
    heap: float = float("nan")
    memory: float = float("nan")
    elements: float = float("nan")
    hover: float = float("nan")
    failure: str = ""


@dataclass
class Screen:
    """The frames that a page has shown.

    Attributes:
        session: the connection to the page.
        changes: the times, in seconds since 1970, at which the picture changed.
        patch: the colour of the patch in the last frame that was looked at.
    """

    session: CDPSession
    changes: list[float] = field(default_factory=list)
    patch: np.ndarray | None = None
    _unread: list[tuple[float, str]] = field(default_factory=list)
    _before: np.ndarray | None = None

    async def start(self) -> None:
        """Begin to keep frames."""
        self.session.on("Page.screencastFrame", self._keep)
        size = {"maxWidth": WIDTH // SMALLER, "maxHeight": HEIGHT // SMALLER}
        await self.session.send("Page.startScreencast", {"format": "jpeg", "quality": 60, **size})

    async def stop(self) -> None:
        """Keep no more."""
        await self.session.send("Page.stopScreencast")

    async def _keep(self, frame: dict[str, Any]) -> None:
        self._unread.append((frame["metadata"]["timestamp"], frame["data"]))
        with suppress(BrowserError):  # the page may have closed meanwhile
            await self.session.send("Page.screencastFrameAck", {"sessionId": frame["sessionId"]})

    def read(self) -> None:
        """Look at the frames that came since, and note which of them changed the picture."""
        unread, self._unread = self._unread, []
        for at, data in unread:
            pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"), dtype=np.int16)
            self.patch = pixels[-PATCH // 2, -PATCH // 2]
            pixels = pixels[HEADER:].copy()
            pixels[-PATCH - BLOCK :, -PATCH - BLOCK :] = 0
            if self._before is None or np.abs(self._before - pixels).max() > NOISE:
                self.changes.append(at)
            self._before = pixels


def measure(path: str, picture: Picture, *, limit: float) -> Measured:
    """Open the page in a browser of its own, ask for the picture, and return what it took.

    Args:
        path: where Chromium is.
        picture: how to ask.
        limit: seconds after which the picture is given up.
    """
    return asyncio.run(_measure(path, picture, limit))


def chromium_version(path: str) -> str:
    """Return the version of the browser."""

    async def ask() -> str:
        async with _chromium(path) as browser:
            return browser.version

    return asyncio.run(ask())


@asynccontextmanager
async def _chromium(path: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=OPTIONS)
        try:
            yield browser
        finally:
            await browser.close()


async def _measure(path: str, picture: Picture, limit: float) -> Measured:
    errors: list[str] = []
    async with _chromium(path) as browser:
        page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.on("pageerror", lambda error: errors.append(" ".join(str(error).split())[:120]))
        try:
            return await _measured(browser, page, picture, limit)
        except TimeoutError:
            said = f"; the page said: {errors[0]}" if errors else ""
            return Measured(failure=f"more than {limit:.0f} s{said}")
        except BrowserError as error:
            return Measured(failure=_said(error))


def _said(error: BrowserError) -> str:
    text = " ".join(str(error).split())
    return "the page crashed" if "crash" in text.lower() else f"failed: {text[:160]}"


async def _measured(browser: Browser, page: Page, picture: Picture, limit: float) -> Measured:
    await page.add_init_script(path=SCRIPT)
    await page.goto(picture.address)
    await page.wait_for_function(picture.waiting, timeout=120_000)
    await page.wait_for_timeout(1000)  # what the page does after it can be asked is not the picture's
    session = await page.context.new_cdp_session(page)
    made = await page.evaluate(picture.made)
    before = await _sizes(browser, page, session)
    paint = await _paint(page, session, picture, limit)
    after = await _sizes(browser, page, session)
    sizes = {name: after[name] - before[name] for name in after}
    hover = await _hover(page, picture.hover) if picture.hover else float("nan")
    return Measured(made=made, paint=paint, hover=hover, **sizes)


async def _paint(page: Page, session: CDPSession, picture: Picture, limit: float) -> float:
    """Return milliseconds from the click to the last paint.

    A page that answered once within the limit has as long again to come to rest: CircuitsVis's computes on for a minute
    when all is painted.
    """
    screen = Screen(session)
    await screen.start()
    async with asyncio.timeout(limit) as patience:  # Playwright's own time-outs wait for a page that does not answer
        asked = await page.evaluate("button => bench.ask(button)", picture.button)
        await _until(page, picture.ready)
        await _until(page, "bench.idle()")
        patience.reschedule((patience.when() or 0) + limit)
        count = -1
        while len(screen.changes) != count:
            count = len(screen.changes)
            await _until(page, "bench.idle()")
            await page.wait_for_timeout(QUIET * 1000)
            await _flip(page, screen)
    await screen.stop()
    paint = screen.changes[-1] * 1000 - asked
    if paint > limit * 1000:
        raise TimeoutError
    return paint


async def _until(page: Page, condition: str) -> None:
    await page.wait_for_function(condition, timeout=0, polling=50)


async def _flip(page: Page, screen: Screen) -> None:
    """Flip the patch and wait until it is seen."""
    screen.read()
    before = screen.patch
    await page.evaluate("bench.flip()")
    while before is None or screen.patch is None or np.abs(before - screen.patch).max() < FLIPPED:
        await page.wait_for_timeout(20)
        screen.read()
        before = screen.patch if before is None else before


async def _sizes(browser: Browser, page: Page, session: CDPSession) -> dict[str, float]:
    """Return what the page holds now."""
    sent, elements = await page.evaluate("[bench.bytes(), bench.elements()]")
    await session.send("Performance.enable")
    await session.send("HeapProfiler.collectGarbage")
    metrics = {one["name"]: one["value"] for one in (await session.send("Performance.getMetrics"))["metrics"]}
    return {"sent": sent, "elements": elements, "heap": metrics["JSHeapUsedSize"], "memory": await _memory(browser)}


async def _memory(browser: Browser) -> float:
    """Return the bytes that Chromium's page processes hold of their own; NaN on a system without /proc."""
    if not Path("/proc").is_dir():
        return float("nan")
    session = await browser.new_browser_cdp_session()
    found = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    pages = [Path(f"/proc/{one['id']}/status") for one in found if one["type"] == "renderer"]
    lines = [line for path in pages if path.exists() for line in path.read_text().splitlines()]
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


async def _hover(page: Page, selector: str) -> float:
    """Return the median time from a movement of the mouse over an element to the next paint."""
    handle = await page.evaluate_handle("selector => bench.find(selector)[0]", selector)
    box = await handle.as_element().bounding_box()
    await page.evaluate("bench.watchHover()")
    height = min(box["height"], HEIGHT - box["y"])
    for at in range(MOVES):
        across, down = (at + 0.5) / MOVES, (at * 7 % MOVES + 0.5) / MOVES
        await page.mouse.move(box["x"] + box["width"] * across, box["y"] + height * down)
        await page.wait_for_timeout(60)
    return statistics.median(await page.evaluate("bench.hovers"))
