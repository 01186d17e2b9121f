"""The digest of an image by its tag, asked of its registry (OCI distribution API, read only)."""

from __future__ import annotations

import re
from urllib.parse import quote

import httpx

from rackpin.stack.hostpins import DIGEST, ImagePin
from rackpin.stack.items import Image, Reason, Unresolved

DOCKER_HUB = "registry-1.docker.io"
TIMEOUT = httpx.Timeout(20.0, connect=10.0)
_INDEXES = (  # an index (all platforms) before a single manifest, as `docker pull` has it
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


def split_ref(ref: str) -> tuple[str, str, str]:
    """Registry, repository and tag of a reference, by docker's rules."""
    head, slash, rest = ref.partition("/")
    if slash and ("." in head or ":" in head or head == "localhost"):
        registry, path = head, rest
    else:
        registry, path = DOCKER_HUB, ref if slash else f"library/{ref}"
    name, colon, tag = path.rpartition(":")
    return (registry, name, tag) if colon else (registry, path, "latest")


def _base(registry: str) -> str:
    """Registries on this machine speak plain HTTP, as for docker."""
    local = registry.partition(":")[0] in ("localhost", "127.0.0.1")
    return f"{'http' if local else 'https'}://{registry}/v2"


def _token(client: httpx.Client, challenge: str, registry: str) -> str:
    """An anonymous token from the realm that the registry names; only over a safe way."""
    fields = dict(_CHALLENGE.findall(challenge))
    realm = fields.pop("realm", "")
    if not realm.startswith(("https://", _base(registry).removesuffix("/v2"))):
        raise ValueError(f"asks for a login at {realm or 'no address'}")
    asked = {key: value for key, value in fields.items() if key in ("service", "scope")}
    answer = client.get(realm, params=asked).raise_for_status().json()
    return str(answer.get("token") or answer["access_token"])


def _head(client: httpx.Client, registry: str, name: str, tag: str) -> httpx.Response:
    url = f"{_base(registry)}/{quote(name)}/manifests/{quote(tag)}"
    headers = {"Accept": ", ".join(_INDEXES)}
    answer = client.head(url, headers=headers)
    if answer.status_code == 401:
        token = _token(client, answer.headers.get("WWW-Authenticate", ""), registry)
        answer = client.head(url, headers={**headers, "Authorization": f"Bearer {token}"})
    return answer


def resolve_image(
    pin: ImagePin, old: Image | Unresolved | None, update: bool
) -> Image | Unresolved:
    """The image with its digest, or why it could not be had.

    A digest in the pins counts; else the old lock's stays while the tag is the same, unless
    ``update``; else the registry is asked. Reasons name the registry and no address of ours.
    """
    if pin.digest:
        return Image(ref=pin.ref, digest=pin.digest)
    known = old if isinstance(old, Image) and old.ref == pin.ref else None
    if known and not update:
        return known
    registry, name, tag = split_ref(pin.ref)
    try:
        with httpx.Client(timeout=TIMEOUT, follow_redirects=False) as client:
            answer = _head(client, registry, name, tag)
    except httpx.TransportError:
        return known or _lacking(pin, f"registry {registry} could not be reached")
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        return known or _lacking(pin, f"registry {registry} refused a login: {error}")
    if answer.status_code != 200:
        return _lacking(pin, f"registry {registry} answered {answer.status_code} for {name}:{tag}")
    digest = answer.headers.get("Docker-Content-Digest", "")
    if not re.match(DIGEST, digest):
        return _lacking(pin, f"registry {registry} gave no digest for {name}:{tag}")
    return Image(ref=pin.ref, digest=digest)


def _lacking(pin: ImagePin, reason: str) -> Unresolved:
    return Unresolved(wanted=pin.ref, unresolved=Reason(reason=f"{reason} when this was locked"))
