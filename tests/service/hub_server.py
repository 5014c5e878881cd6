"""A hub on 127.0.0.1 with one data set or model, as far as the library asks."""

import contextlib
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator, Mapping

__all__ = ["COMMIT", "REPO_ID", "hub"]

REPO_ID = "acme/sums"
COMMIT = "89abcdef0123456789abcdef0123456789abcdef"


@contextlib.contextmanager
def hub(
    files: Mapping[str, bytes], *, status: int = 200, kind: str = "datasets", asked: list[str] | None = None
) -> Iterator[str]:
    """Its address; every request is answered with `status`, if that is another than 200.

    Args:
        files: what the repository has.
        status: of every answer.
        kind: "datasets" or "models".
        asked: gets the path of each request.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            if asked is not None:
                asked.append(self.path)
            if status != 200:
                self._send(status, b"", {})
                return
            path = self.path.partition("?")[0]
            api = f"/api/{kind}/{REPO_ID}"
            resolve = f"/datasets/{REPO_ID}/resolve/" if kind == "datasets" else f"/{REPO_ID}/resolve/"
            revision = path.removeprefix(f"{api}/revision/") if path.startswith(f"{api}/revision/") else COMMIT
            if path.startswith(resolve):
                self._file(path.removeprefix(resolve).partition("/")[2])
            elif path.startswith(f"{api}/tree/"):
                folder = path.removeprefix(f"{api}/tree/").partition("/")[2]
                self._json([_entry(name, files) for name in files if name.startswith(folder)])
            elif not path.startswith(api):
                self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
            elif revision not in (COMMIT, "main"):
                self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            else:
                self._json({"id": REPO_ID, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]})

        do_HEAD = do_GET

        def _file(self, name: str) -> None:
            if name in files:
                etag = f'"{hashlib.sha256(files[name]).hexdigest()}"'
                self._send(200, files[name], {"X-Repo-Commit": COMMIT, "ETag": etag})
            else:
                self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})

        def _json(self, value: object) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(self, code: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _entry(name: str, files: Mapping[str, bytes]) -> dict[str, object]:
    return {"type": "file", "path": name, "size": len(files[name]), "oid": "0" * 40}
