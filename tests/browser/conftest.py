"""The real app in a server of its own, and a real Chromium that looks at it."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = os.environ.get("ATTNVIZ_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The address of a running app, started as the README says."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    log = (tmp_path_factory.mktemp("server") / "log").open("w")
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    process = subprocess.Popen([*command, "--server.headless", "true"], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    address = f"http://localhost:{port}"
    try:
        _wait_until_healthy(address, process)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=20)
        log.close()


def _wait_until_healthy(address, process):
    for _ in range(300):
        if process.poll() is not None:
            pytest.fail("the app's server ended before it answered")
        try:
            if urllib.request.urlopen(f"{address}/_stcore/health", timeout=2).status == 200:
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail("the app's server did not answer in a minute")


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; without one the tests skip, or fail where ATTNVIZ_REQUIRE_BROWSER is set."""
    if CHROMIUM is None:
        message = "no Chromium on this machine: install Debian's chromium, or set ATTNVIZ_CHROMIUM to its path"
        if os.environ.get("ATTNVIZ_REQUIRE_BROWSER"):
            pytest.fail(message)
        pytest.skip(message)
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def context(browser):
    """One profile for all tests, so that the browser loads the app's scripts once."""
    with browser.new_context(reduced_motion="reduce") as context:
        context.set_default_timeout(60_000)
        yield context


@pytest.fixture
def open_app(context, server):
    """Open a path of the app; an error on the page, or a request beyond this machine, fails the test."""
    pages, failures = [], []

    def open_(path="/", *, width=1280, height=860, scheme="light"):
        page = context.new_page()
        pages.append(page)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        page.on("request", lambda request: failures.append(request.url) if not _is_here(request.url) else None)
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.on("console", lambda said: failures.append(said.text) if _is_error(said) else None)
        page.goto(server + path)
        return page

    yield open_
    for page in pages:
        page.close()
    assert not failures, f"errors, or requests that leave this machine: {failures}"


def _is_error(said):
    """Whether the console says an error. Under a page's own path Streamlit first looks for its server in vain."""
    return said.type == "error" and "/_stcore/" not in said.location.get("url", "")


def _is_here(url):
    return url.startswith(("http://localhost:", "ws://localhost:", "data:", "blob:"))
