"""From a lock to the list of everything that a bundle of it must hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rackpin.bundle.model import AptPart, BundleError, Contents, Item
from rackpin.debs.model import DebError, Repository
from rackpin.debs.sources import origins, repositories
from rackpin.stack.items import Deb, Image, ModelFile, Source, Unresolved, Wheel
from rackpin.stack.lock import Stack

WHEELS = "wheelhouse"
DEBS = "debs"
FILES = "files"
IMAGES = "images"
MODELS = "models"


def contents(
    stack: Stack,
    mirrors: Mapping[str, str] | None = None,
    models: Mapping[str, Path] | None = None,
) -> Contents:
    """Everything that the lock of a stack names. Raises :class:`BundleError`.

    ``mirrors`` are addresses by repository name, for debs; wheels know pip's own settings.
    ``models`` are directories of this machine by the model's name.
    """
    lock = stack.lock
    items = [wheel_item(wheel) for wheel in lock.files]
    apt: list[AptPart] = []
    unresolved: dict[str, str] = {}
    for os_key, closure in sorted(lock.debs_closure.items()):
        if isinstance(closure, Unresolved):
            unresolved[f"debs_closure.{os_key}"] = closure.unresolved.reason
            continue
        found, parts = deb_items(os_key, closure.debs, mirrors or {})
        items += found
        apt += parts
    for name, source in sorted(lock.sources.items()):
        if isinstance(source, Unresolved):
            unresolved[f"sources.{name}"] = source.unresolved.reason
            continue
        items.append(
            Item(source_path(name, source), source.sha256, source.size, (source.url,), "file")
        )
    for name, image in sorted(lock.images.items()):
        if isinstance(image, Unresolved):
            unresolved[f"images.{name}"] = image.unresolved.reason
        elif not image.parts:
            unresolved[f"images.{name}"] = (
                f"only its digest is known, not its layers; run rackpin lock {lock.stack} where "
                "its registry can be reached"
            )
        items += image_items(name, image)
    for name, files in sorted(lock.models.items()):
        found = model_items(name, files, (models or {}).get(name))
        items += found
        if any(not item.urls for item in found):
            unresolved[f"models.{name}"] = (
                f"no public place has its files; give --model {name}=DIRECTORY"
            )
    by_path = {item.path: item for item in items}
    for item in items:
        if by_path[item.path].sha256 != item.sha256:
            raise BundleError(f"{item.path}: the lock gives this one path two contents")
    return Contents(
        stack=lock.stack,
        lock_digest=lock.digest,
        lock=lock,
        items=tuple(sorted(by_path.values(), key=lambda item: item.path)),
        apt=tuple(apt),
        unresolved=unresolved,
    )


def source_path(name: str, source: Source) -> str:
    """Where a bundle has the archive of a source."""
    return f"{FILES}/{name}-{source.commit[:12]}{_ending(source.url)}"


def wheel_item(wheel: Wheel) -> Item:
    urls = (wheel.url,) if wheel.url else ()
    return Item(f"{WHEELS}/{wheel.filename}", wheel.sha256, wheel.size, urls, "wheel")


def model_items(name: str, files: list[ModelFile], directory: Path | None) -> list[Item]:
    """The files of a model: from a directory of this machine, else from where they are public."""
    items = []
    for file in files:
        here = ((directory / file.path).absolute().as_uri(),) if directory else ()
        urls = (*here, *((file.url,) if file.url else ()))
        items.append(Item(f"{MODELS}/{name}/{file.path}", file.sha256, file.size, urls, "model"))
    return items


def image_items(name: str, image: Image | Unresolved) -> list[Item]:
    """The parts of an image, at their places in an OCI layout."""
    from rackpin.stack.registry import part_url  # late: it brings an HTTP client

    if isinstance(image, Unresolved):
        return []
    return [
        Item(
            f"{IMAGES}/{name}/blobs/sha256/{blob.hex}",
            blob.hex,
            blob.size,
            (part_url(image.ref, blob.digest, manifest=number == 0),),
            "image",
        )
        for number, blob in enumerate(image.parts)
    ]


def deb_items(
    os_key: str, debs: list[Deb], mirrors: Mapping[str, str]
) -> tuple[list[Item], list[AptPart]]:
    """Items and apt repositories of one OS: a repository in the bundle for each vendor's."""
    known = known_repositories(os_key, mirrors)
    items, names = [], set()
    for deb in debs:
        repository = known.get(deb.repository)
        if repository is None:
            raise BundleError(
                f"lock: {os_key}: {deb.name} is from repository {deb.repository!r}, which "
                "rackpin/data/deb-repositories.yaml doesn't have; add it there, or lock again"
            )
        names.add(deb.repository)
        path = f"{DEBS}/{os_key}/{deb.repository}/{deb.filename}"
        urls = tuple(dict.fromkeys([repository.deb_url(deb.filename), _public(repository, deb)]))
        items.append(Item(path, deb.sha256, deb.size, urls, "deb"))
    parts = [AptPart(f"{DEBS}/{os_key}/{name}", os_key, name) for name in sorted(names)]
    return items, parts


def known_repositories(os_key: str, mirrors: Mapping[str, str]) -> dict[str, Repository]:
    """Repositories of an OS by name, at their mirrors."""
    try:
        every = {r.name: r for r in repositories(os_key, tuple(origins(os_key)))}
        here = {name: url for name, url in mirrors.items() if name in every}
        return {r.name: r for r in repositories(os_key, tuple(origins(os_key)), here)}
    except DebError as error:
        raise BundleError(str(error)) from None


def _public(repository: Repository, deb: Deb) -> str:
    return repository.url.rstrip("/") + "/" + deb.filename.removeprefix("./")


def _ending(url: str) -> str:
    name = url.rpartition("/")[2].partition("?")[0]
    return next(
        (e for e in (".tar.gz", ".tgz", ".tar.xz", ".tar.zst", ".zip") if name.endswith(e)), ""
    )
