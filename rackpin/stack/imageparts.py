"""What a linux/amd64 host needs of an image: its manifest, its config and its layers.

Each is named by its own sha256, so the digest in the lock proves all of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from rackpin.stack.items import Blob

ARCHITECTURE = "amd64"  # of every lock, as registries name it
MANIFEST_LIMIT = 4 << 20  # bytes; the OCI distribution specification's own bound for manifests
Get = Callable[[str], bytes]


class PartsError(ValueError):
    """The registry's answer is not the image that the digest names; the message says why."""


def parts(digest: str, get: Get) -> list[Blob]:
    """Manifest first, then config and layers. ``get`` gives the manifest of a digest."""
    body = _proved(digest, get)
    document = _json(digest, body)
    if "manifests" in document:
        digest = _of_platform(digest, document["manifests"])
        body = _proved(digest, get)
        document = _json(digest, body)
    if not {"config", "layers"} <= document.keys():
        raise PartsError(f"{digest}: neither an index nor a manifest with config and layers")
    own = Blob(
        digest=digest, size=len(body), media_type=str(document.get("mediaType") or _OCI_MANIFEST)
    )
    rest = [_blob(item) for item in [document["config"], *document["layers"]]]
    return list({blob.digest: blob for blob in [own, *rest]}.values())


_OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def _proved(digest: str, get: Get) -> bytes:
    body = get(digest)
    found = "sha256:" + hashlib.sha256(body).hexdigest()
    if found != digest:
        raise PartsError(f"asked for {digest}, got {found}")
    return body


def _json(digest: str, body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError as error:
        raise PartsError(f"{digest}: no JSON ({error})") from None
    if not isinstance(document, dict):
        raise PartsError(f"{digest}: no manifest")
    return document


def _of_platform(digest: str, manifests: Any) -> str:
    for item in manifests if isinstance(manifests, list) else []:
        platform = item.get("platform") or {}
        if (platform.get("os"), platform.get("architecture")) == ("linux", ARCHITECTURE):
            return str(item["digest"])
    raise PartsError(f"{digest}: has nothing for linux/{ARCHITECTURE}")


def _blob(item: Any) -> Blob:
    try:
        return Blob(digest=item["digest"], size=item["size"], media_type=item["mediaType"])
    except (KeyError, TypeError, ValueError) as error:
        raise PartsError(f"a part of the manifest can't be read: {error}") from None
