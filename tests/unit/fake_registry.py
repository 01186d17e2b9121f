"""A small registry on this machine: HEAD of tags, GET of manifests and blobs, a login."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DIGEST = "sha256:" + "1" * 64
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass
class Registry:
    """What it answers, and what it was asked."""

    address: str = ""
    login: bool = True
    status: int = 200
    digest: str = DIGEST
    realm: str = ""
    contents: dict[str, bytes] = field(default_factory=dict)  # by digest

    def add(self, content: bytes) -> str:
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        self.contents[digest] = content
        return digest

    def image(self, layers: list[bytes], platform: str = "amd64") -> str:
        """An index with one image of these layers; its digest becomes the tag's."""

        def part(content: bytes, kind: str) -> dict[str, object]:
            return {"digest": self.add(content), "size": len(content), "mediaType": kind}

        manifest = {
            "mediaType": MANIFEST,
            "config": part(b"{}", "config"),
            "layers": [part(layer, "layer") for layer in layers],
        }
        entry = part(json.dumps(manifest).encode(), MANIFEST)
        entry["platform"] = {"os": "linux", "architecture": platform}
        self.digest = self.add(json.dumps({"manifests": [entry]}).encode())
        return self.digest

    asked: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def registry() -> Iterator[Registry]:
    state = Registry()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            state.asked.append((self.command, self.path))

        def do_GET(self) -> None:
            known = self.headers.get("Authorization") == "Bearer t0ken"
            if state.login and not known and "/v2/" in self.path:
                self.do_HEAD()
                return
            digest = self.path.rpartition("/")[2]
            body = b"archive"
            if self.path.startswith("/token"):
                body = b'{"token": "t0ken"}'
            elif "/v2/" in self.path and (
                digest not in state.contents
                # as docker-registry 2.8 does
                or ("/manifests/" in self.path and MANIFEST not in self.headers["Accept"])
            ):
                self.send_response(404)
                self.end_headers()
                return
            body = state.contents.get(digest, body)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self) -> None:
            known = self.headers.get("Authorization") == "Bearer t0ken"
            self.send_response(401 if state.login and not known else state.status)
            realm = state.realm or f"http://{state.address}/token"
            self.send_header("WWW-Authenticate", f'Bearer realm="{realm}",scope="pull"')
            if state.digest:
                self.send_header("Docker-Content-Digest", state.digest)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.address = f"127.0.0.1:{server.server_address[1]}"
    yield state
    server.shutdown()
    server.server_close()
