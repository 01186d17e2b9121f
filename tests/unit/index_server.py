"""A package index of tiny wheels on this machine, so that locking needs no network."""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class Index:
    """Wheels in a folder, served as PEP 691 JSON with sizes, hashes and upload times."""

    root: Path
    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    url: str = ""
    asked: list[str] = field(default_factory=list)

    def add(
        self, name: str, version: str, *requires: str, uploaded: str = "2024-01-01", tag: str = ""
    ) -> None:
        """One wheel; ``requires`` are its Requires-Dist lines."""
        tag = tag or "py3-none-any"
        file = self.root / f"{name.replace('-', '_')}-{version}-{tag}.whl"
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        with zipfile.ZipFile(file, "w") as archive:
            for path, text in {
                f"{info}/METADATA": metadata,
                f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
                f"{info}/RECORD": "",
            }.items():
                archive.writestr(zipfile.ZipInfo(path), text)  # no time in it: same bytes
        data = file.read_bytes()
        entry = {
            "filename": file.name,
            "url": f"{self.url}files/{file.name}",
            "hashes": {"sha256": hashlib.sha256(data).hexdigest()},
            "size": len(data),
            "upload-time": f"{uploaded}T12:00:00Z",
        }
        self.files.setdefault(name, []).append(entry)


def serve(root: Path) -> tuple[Index, ThreadingHTTPServer]:
    """Start the index; whoever called ends it with ``shutdown`` and ``server_close``."""
    index = Index(root)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            index.asked.append(self.path)

        def do_GET(self) -> None:
            kind, _, name = self.path.strip("/").partition("/")
            if kind == "files" and (root / name).is_file():
                self._answer((root / name).read_bytes(), "application/octet-stream")
            elif kind == "simple" and name in index.files:
                page = {
                    "meta": {"api-version": "1.1"},
                    "name": name,
                    "files": index.files[name],
                    "versions": sorted({f["filename"].split("-")[1] for f in index.files[name]}),
                }
                self._answer(json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json")
            else:
                self.send_error(404)

        do_HEAD = do_GET

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_address[1]}/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return index, server
