"""The digest of an image by its tag, asked of its registry (OCI distribution API, read only)."""

from __future__ import annotations

import re
from urllib.parse import quote

import httpx

from rackpin.stack.hostpins import DIGEST, ImagePin
from rackpin.stack.imageparts import MANIFEST_LIMIT, PartsError, parts
from rackpin.stack.items import Image, Reason, Unresolved
from rackpin.stack.model import StackError

DOCKER_HUB = "registry-1.docker.io"
TIMEOUT = httpx.Timeout(20.0, connect=10.0)
MANIFESTS = (  # an index (all platforms) before a single manifest, as `docker pull` has it
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


def token(client: httpx.Client, challenge: str, registry: str) -> str:
    """An anonymous token from the realm that the registry names; only over a safe way."""
    fields = dict(_CHALLENGE.findall(challenge))
    realm = fields.pop("realm", "")
    if not realm.startswith(("https://", _base(registry).removesuffix("/v2"))):
        raise ValueError(f"asks for a login at {realm or 'no address'}")
    asked = {key: value for key, value in fields.items() if key in ("service", "scope")}
    answer = client.get(realm, params=asked).raise_for_status().json()
    return str(answer.get("token") or answer["access_token"])


def part_url(ref: str, digest: str, manifest: bool) -> str:
    """Where the registry has a part of an image."""
    registry, name, _ = split_ref(ref)
    return f"{_base(registry)}/{quote(name)}/{'manifests' if manifest else 'blobs'}/{digest}"


def _ask(client: httpx.Client, method: str, registry: str, name: str, tag: str) -> httpx.Response:
    url = f"{_base(registry)}/{quote(name)}/manifests/{quote(tag, safe=':')}"
    headers = {"Accept": ", ".join(MANIFESTS)}
    answer = client.request(method, url, headers=headers)
    if answer.status_code == 401:
        bearer = token(client, answer.headers.get("WWW-Authenticate", ""), registry)
        headers["Authorization"] = f"Bearer {bearer}"
        answer = client.request(method, url, headers=headers)
    return answer


def resolve_image(
    pin: ImagePin, old: Image | Unresolved | None, update: bool
) -> Image | Unresolved:
    """The image with its digest, or why it could not be had.

    A digest in the pins counts; else the old lock's stays while the tag is the same, unless
    ``update``; else the registry is asked. Reasons name the registry and no address of ours.
    """
    known = old if isinstance(old, Image) and old.ref == pin.ref else None
    if pin.digest:
        if known and known.digest == pin.digest and known.parts:
            return known
        return with_parts(Image(ref=pin.ref, digest=pin.digest))
    if known and not update:
        return known if known.parts else with_parts(known)
    registry, name, tag = split_ref(pin.ref)
    try:
        with httpx.Client(timeout=TIMEOUT, follow_redirects=False) as client:
            answer = _ask(client, "HEAD", registry, name, tag)
    except httpx.TransportError:
        return known or _lacking(pin, f"registry {registry} could not be reached")
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        return known or _lacking(pin, f"registry {registry} refused a login: {error}")
    if answer.status_code != 200:
        return _lacking(pin, f"registry {registry} answered {answer.status_code} for {name}:{tag}")
    digest = answer.headers.get("Docker-Content-Digest", "")
    if not re.match(DIGEST, digest):
        return _lacking(pin, f"registry {registry} gave no digest for {name}:{tag}")
    return with_parts(Image(ref=pin.ref, digest=digest))


def with_parts(image: Image) -> Image:
    """The image with its parts; as it is where the registry can't be asked.

    Raises :class:`StackError` when the registry gives something else under its digest.
    """
    registry, name, _ = split_ref(image.ref)

    def get(digest: str) -> bytes:
        answer = _ask(client, "GET", registry, name, digest).raise_for_status()
        if len(answer.content) > MANIFEST_LIMIT:
            raise PartsError(f"{digest}: {len(answer.content)} bytes are no manifest")
        return answer.content

    try:
        with httpx.Client(timeout=TIMEOUT, follow_redirects=False) as client:
            found = parts(image.digest, get)
    except (httpx.HTTPError, KeyError, TypeError):
        return image
    except PartsError as error:
        raise StackError(
            f"images: {image.ref}: registry {registry}: {error}; find out why before you lock"
        ) from None
    return image.model_copy(update={"parts": found})


def _lacking(pin: ImagePin, reason: str) -> Unresolved:
    return Unresolved(wanted=pin.ref, unresolved=Reason(reason=f"{reason} when this was locked"))
