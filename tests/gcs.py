"""A server that speaks as much of Google's storage as a file system needs, with objects in memory.

Its JSON interface: objects are sent in one request of two parts, or in a session that their bytes
follow to; they are listed by prefix, page by page, and read by ranges. Who names no bucket that is
there gets 404; who has no leave, 403 with Google's words.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

#: Objects of a page of a list: few, so that there are several pages.
PAGE = 2


@dataclass
class Storage:
    """What the server holds.

    Attributes:
        port: where it listens.
        buckets: objects by name, by bucket.
        refused: words for everybody who asks for anything, if nobody has leave.
        asked: the paths that were asked for.
    """

    port: int = 0
    buckets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refused: str = ""
    asked: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    storage: Storage

    def log_message(self, *given: Any) -> None:
        """Say nothing."""

    def _answer(self, code: int, body: Any = b"", **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(raw))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def _refuse(self, code: int, words: str) -> None:
        self._answer(code, {"error": {"code": code, "message": words}})

    def _do(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.storage.lock:
            self.storage.asked.append(f"{self.command} {url.path}")
            found = re.fullmatch(r"(.*)/storage/v1/b(?:/([^/]*)(?:/o(?:/(.*))?)?)?", url.path)
            if self.storage.refused:
                self._refuse(403, self.storage.refused)
            elif found is None:
                self._refuse(400, f"unknown request {url.path}")
            elif found[2] is None:
                self._make(json.loads(data)["name"])
            elif (held := self.storage.buckets.get(unquote(found[2]))) is None:
                self._refuse(404, "The specified bucket does not exist.")
            elif found[1] == "/upload":
                self._upload(found[2], held, asked, data)
            elif found[3] is None:
                self._list(found[2], held, asked)
            else:
                self._object(found[2], held, unquote(found[3]), asked)

    do_GET = do_PUT = do_POST = do_DELETE = _do

    def _make(self, bucket: str) -> None:
        self.storage.buckets[bucket] = {}
        self._answer(200, {"name": bucket})

    def _about(self, bucket: str, name: str, content: bytes) -> dict[str, Any]:
        digest = base64.b64encode(hashlib.md5(content).digest()).decode()
        return {"kind": "storage#object", "bucket": bucket, "name": name, "id": name,
                "size": str(len(content)), "md5Hash": digest, "generation": "1",
                "contentType": "application/octet-stream", "updated": "2026-01-01T00:00:00.000Z",
                "timeCreated": "2026-01-01T00:00:00.000Z"}  # fmt: skip

    def _upload(self, bucket: str, held: dict[str, bytes], asked: Any, data: bytes) -> None:
        if asked["uploadType"] == "resumable":
            if "session" not in asked:  # its bytes come to another address
                host, port = self.server.server_address[:2]
                name = json.loads(data)["name"]
                there = f"http://{host}:{port}/upload/storage/v1/b/{bucket}/o?uploadType=resumable"
                self._answer(200, Location=f"{there}&session=1&name={quote(name, safe='')}")
                return
            name, content = asked["name"], data
        else:
            _, mark = self.headers["Content-Type"].split("boundary=")
            about, content = data.split(b"--" + mark.strip('"').encode())[1:3]
            name = json.loads(about.split(b"\n\n", 1)[1])["name"]
            content = content.split(b"\n\n", 1)[1].removesuffix(b"\n")
        held[name] = content
        self._answer(200, self._about(bucket, name, content))

    def _list(self, bucket: str, held: dict[str, bytes], asked: Any) -> None:
        start = asked.get("prefix", "")
        names = sorted(name for name in held if name.startswith(start))
        begin = int(asked.get("pageToken", 0))
        items = [self._about(bucket, name, held[name]) for name in names[begin : begin + PAGE]]
        more = {"nextPageToken": str(begin + PAGE)} if begin + PAGE < len(names) else {}
        below = set()
        if "delimiter" in asked:
            below = {start + n[len(start) :].split("/")[0] + "/" for n in names
                     if "/" in n[len(start) :]}  # fmt: skip
            items = [one for one in items if "/" not in one["name"][len(start) :]]
        kind = {"kind": "storage#objects"}
        self._answer(200, {**kind, "items": items, "prefixes": sorted(below), **more})

    def _object(self, bucket: str, held: dict[str, bytes], name: str, asked: Any) -> None:
        if name not in held:
            self._refuse(404, f"No such object: {bucket}/{name}")
        elif self.command == "DELETE":
            del held[name]
            self._answer(204)
        elif asked.get("alt") != "media":
            self._answer(200, self._about(bucket, name, held[name]))
        elif span := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            last = int(span[2]) + 1 if span[2] else len(held[name])
            self._answer(206, held[name][int(span[1]) : last])
        else:
            self._answer(200, held[name])


@contextmanager
def serving() -> Iterator[Storage]:
    """Serve on this machine, with no bucket, at the port that is given."""
    storage = Storage()
    handler = type("Handler", (_Handler,), {"storage": storage})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    storage.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield storage
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
