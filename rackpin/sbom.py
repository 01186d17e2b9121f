"""CycloneDX documents of a lock and of an image; the library writes what the schema wants.

The same lock, or the same image, gives the same bytes: the serial number is made of its digest,
and there is no time of writing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from rackpin.checks import probe
from rackpin.image.engine import ImageError, docker
from rackpin.stack.items import DebClosure
from rackpin.stack.lock import Lock, Wheel

NAMESPACE = uuid.UUID("6c1f2b0e-5d0b-5a3c-9f6e-2f1b7a1d9c44")  # ours; makes serial numbers
LOOK_S = 120.0


@dataclass(frozen=True)
class Found:
    """What a probe found in an image."""

    os: str  # debian
    release: str  # 12
    debs: list[tuple[str, str, str]]  # name, version, architecture
    dists: dict[str, str]


def wheel(item: Wheel) -> Component:
    links = []
    if item.url:
        links.append(
            ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(item.url))
        )
    return Component(
        type=ComponentType.LIBRARY,
        name=item.name,
        version=item.version,
        bom_ref=f"wheel/{item.name}",
        purl=PackageURL("pypi", None, item.name, item.version, {"file_name": item.filename}),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=item.sha256)],
        external_references=links,
    )


def deb(
    os: str, release: str, name: str, version: str | None, architecture: str | None = None
) -> Component:
    """``version`` None: the lock names the package, and the OS decides its version."""
    qualifiers = {"distro": f"{os}-{release}"}
    if architecture:
        qualifiers["arch"] = architecture
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        bom_ref=f"deb/{os}-{release}/{name}" + (f":{architecture}" if architecture else ""),
        purl=PackageURL("deb", os, name, version, qualifiers),
    )


def of_lock(lock: Lock) -> str:
    """The document of a lock: every wheel with its hash, and the packages by OS."""
    top = _top(ComponentType.APPLICATION, lock.stack, lock.short, {"rackpin:lock": lock.digest})
    parts = [wheel(item) for item in lock.files]
    for os in lock.os:
        closure = lock.debs_closure.get(os.key)
        if isinstance(closure, DebClosure):
            exact = closure.debs
            parts += [deb(os.id, os.version, d.name, d.version, d.architecture) for d in exact]
        else:
            parts += [deb(os.id, os.version, name, None) for name in lock.debs.get(os.key, ())]
    return document(top, parts, lock.digest)


def of_image(reference: str) -> str:
    """The document of a local image, from what is really in it. Raises :class:`ImageError`."""
    image = json.loads(docker("image", "inspect", reference))[0]
    found = look(reference)
    labels = image["Config"].get("Labels") or {}
    digest = str(image["Id"])
    notes = {f"image:{key}": str(value) for key, value in labels.items()} | {"image:id": digest}
    top = _top(ComponentType.CONTAINER, reference, digest, notes)
    parts = [deb(found.os, found.release, n, v, a) for n, v, a in found.debs]
    parts += [
        Component(
            type=ComponentType.LIBRARY,
            name=name,
            version=version,
            bom_ref=f"wheel/{name}",
            purl=PackageURL("pypi", None, name, version),
        )
        for name, version in found.dists.items()
    ]
    return document(top, parts, digest)


def look(reference: str) -> Found:
    """Ask the image itself, without a network and without writing anything."""
    answer = docker(
        "run", "--rm", "-i", "--pull", "never", "--network", "none", "--read-only",
        "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--no-healthcheck",
        "--entrypoint", "/opt/rackpin/current/bin/python", reference, "-I", "-",
        deadline_s=LOOK_S, stdin=f"{probe.source('versions')}\n\n{probe.source('debs')}",
    )  # fmt: skip
    try:
        wheels, system = (json.loads(line) for line in answer.splitlines())
        debs = [(name, version, arch) for name, version, arch in system["debs"]]
        return Found(system["os"], system["release"], debs, wheels["dists"])
    except (ValueError, KeyError) as error:
        raise ImageError(f"{reference}: its answer can't be read: {error!r}") from None


def _top(kind: ComponentType, name: str, version: str, notes: dict[str, str]) -> Component:
    properties = [Property(name=key, value=value) for key, value in sorted(notes.items())]
    return Component(type=kind, name=name, version=version, bom_ref="top", properties=properties)


def document(top: Component, parts: Iterable[Component], digest: str) -> str:
    bom = Bom(components=parts, serial_number=uuid.uuid5(NAMESPACE, digest))
    bom.metadata.component = top
    bom.register_dependency(top, bom.components)
    data = json.loads(JsonV1Dot6(bom).output_as_string())
    data["metadata"].pop("timestamp", None)  # optional there, and would make each run differ
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
