"""A server that speaks as much of WebHDFS as a file system needs, with its files in memory.

As in Hadoop, a name node sends whoever writes or reads on to a data node, here itself; and nothing
is renamed to a name that is taken: the answer is no, and not an error.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PREFIX = "/webhdfs/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: dict[str, bytes]
    lock: threading.Lock

    def log_message(self, *given: Any) -> None:
        """Say nothing."""

    def _answer(self, code: int, body: Any = b"", **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(raw))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def _do(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = unquote(url.path).removeprefix(PREFIX).rstrip("/")
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.lock:
            getattr(self, f"_{asked['op'].lower()}")(path, asked, data)

    do_GET = do_PUT = do_POST = do_DELETE = _do

    def _missing(self, path: str) -> None:
        about = {"exception": "FileNotFoundException", "message": f"File does not exist: {path}"}
        self._answer(404, {"RemoteException": about})

    def _status(self, path: str, name: str) -> dict[str, Any]:
        kind = "FILE" if path in self.files else "DIRECTORY"
        return {"pathSuffix": name, "type": kind, "length": len(self.files.get(path, b""))}

    def _is_folder(self, path: str) -> bool:
        return any(name.startswith(path + "/") for name in self.files)

    def _getfilestatus(self, path: str, asked: Any, data: bytes) -> None:
        if path not in self.files and not self._is_folder(path):
            self._missing(path)
        else:
            self._answer(200, {"FileStatus": self._status(path, "")})

    def _liststatus(self, path: str, asked: Any, data: bytes) -> None:
        if path in self.files:
            found = [self._status(path, "")]
        elif self._is_folder(path):
            below = {
                n[len(path) + 1 :].split("/")[0] for n in self.files if n.startswith(path + "/")
            }
            found = [self._status(f"{path}/{name}", name) for name in sorted(below)]
        else:
            self._missing(path)
            return
        self._answer(200, {"FileStatuses": {"FileStatus": found}})

    def _mkdirs(self, path: str, asked: Any, data: bytes) -> None:
        self._answer(200, {"boolean": True})

    def _elsewhere(self) -> bool:
        """Whether whoever asks is sent on to the data node."""
        if "here=yes" in self.path:
            return False
        host, port = self.server.server_address[:2]
        self._answer(307, Location=f"http://{host}:{port}{self.path}&here=yes")
        return True

    def _create(self, path: str, asked: Any, data: bytes) -> None:
        if not self._elsewhere():
            self.files[path] = data
            self._answer(201)

    def _append(self, path: str, asked: Any, data: bytes) -> None:
        if not self._elsewhere():
            self.files[path] += data
            self._answer(200)

    def _open(self, path: str, asked: Any, data: bytes) -> None:
        if path not in self.files:
            self._missing(path)
        elif not self._elsewhere():
            start = int(asked.get("offset", 0))
            self._answer(200, self.files[path][start:][: int(asked.get("length", 1 << 60))])

    def _rename(self, path: str, asked: Any, data: bytes) -> None:
        free = path in self.files and asked["destination"] not in self.files
        if free:
            self.files[asked["destination"]] = self.files.pop(path)
        self._answer(200, {"boolean": free})

    def _delete(self, path: str, asked: Any, data: bytes) -> None:
        gone = [name for name in self.files if name == path or name.startswith(path + "/")]
        for name in gone:
            del self.files[name]
        self._answer(200, {"boolean": bool(gone)})


@contextmanager
def serving() -> Iterator[int]:
    """Serve an empty file system on this machine, at the port that is given."""
    handler = type("Handler", (_Handler,), {"files": {}, "lock": threading.Lock()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
