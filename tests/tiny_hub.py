"""A hub of one's own on this machine, for tests of downloading without a network."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "5" * 40
REFUSALS = {"owner/nowhere": (404, "RepoNotFound"), "owner/gated": (403, "GatedRepo")}


class _Hub(BaseHTTPRequestHandler):
    """Answers the three questions that a download asks: which commit, which files, and each file."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.split("?")[0]
        name = "/".join(path.removeprefix("/api/models/").strip("/").split("/")[:2])
        self.server.asked.append(path)
        if name in REFUSALS:
            status, code = REFUSALS[name]
            self._answer(b"{}", status, {"X-Error-Code": code})
        elif path.endswith("/revision/main"):
            self._answer(json.dumps({"id": name, "sha": COMMIT, "siblings": []}).encode())
        elif "/revision/" in path:
            self._answer(b"{}", 404, {"X-Error-Code": "RevisionNotFound"})
        elif "/tree/" in path:
            self._answer(json.dumps([self._entry(*item) for item in self.server.models[name].items()]).encode())
        else:
            self._answer(self.server.models[name][path.split(f"/resolve/{COMMIT}/")[1]])

    def _entry(self, path, content):
        return {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}

    def _answer(self, content, status=200, headers=None):
        self.send_response(status)
        etag = hashlib.sha1(content).hexdigest()
        standard = {"Content-Length": str(len(content)), "ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}
        for key, value in {"Content-Type": "application/json", **standard, **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *arguments):
        """Says nothing on the terminal."""


@contextmanager
def serving(models):
    """Serves {name: {file: bytes}}; gives the server, with its `address` and the paths `asked` of it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    server.models, server.asked = models, []
    server.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
