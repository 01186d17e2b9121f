"""From a lock to the list of everything that a bundle of it must hold."""

from __future__ import annotations

from collections.abc import Mapping

from rackpin.bundle.model import AptPart, BundleError, Contents, Item
from rackpin.debs.model import DebError, Repository
from rackpin.debs.sources import origins, repositories
from rackpin.stack.items import Deb, Source, Unresolved, Wheel
from rackpin.stack.lock import Stack

WHEELS = "wheelhouse"
DEBS = "debs"
FILES = "files"


def contents(stack: Stack, mirrors: Mapping[str, str] | None = None) -> Contents:
    """Everything that the lock of a stack names. Raises :class:`BundleError`.

    ``mirrors`` are addresses by repository name, for debs; wheels know pip's own settings.
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
    # A layer needs a registry's protocol; images go another way for now.
    for name, image in sorted(lock.images.items()):
        what = image.wanted if isinstance(image, Unresolved) else image.pull
        unresolved[f"images.{name}"] = f"images are not bundled: docker save {what}"
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
