"""What must hold of an inventory's apt repositories and pins; keys are read and compared here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from rackpin.apt import keys
from rackpin.inventory_files import resolve
from rackpin.inventory_parts import AptRepository
from rackpin.inventory_problems import FLEET, Problem, close_to, shown
from rackpin.inventory_rules import Draft, Rule
from rackpin.parse.apt_sources import same_suite, same_uri


def key_of(repository: AptRepository, field: str) -> str:
    return f"apt_repositories[{repository.name}].{field}"


def _repositories(draft: Draft) -> list[AptRepository]:
    return [] if "apt_repositories" in draft.broken else draft.config.apt_repositories


def _bundle(draft: Draft) -> list[tuple[str, AptRepository]]:
    """The bundle, seen as the repositories that it holds."""
    bundle = draft.config.bundle
    if bundle is None or "bundle" in draft.broken:
        return []
    values = bundle.model_dump(exclude={"url"})
    return [("bundle", AptRepository(name="bundle", uri=bundle.url, suite="/", **values))]


def _signed(draft: Draft) -> list[tuple[str, AptRepository]]:
    """Everything that packages come from, with the key of the inventory that it stands at."""
    every = [(f"apt_repositories[{r.name}]", r) for r in _repositories(draft)]
    return [*every, *_bundle(draft)]


def unique(draft: Draft) -> Iterator[Problem]:
    for name, times in Counter(r.name for r in _repositories(draft)).items():
        if times > 1:
            what = f"{times} repositories have this name; it names the files on the nodes"
            yield Problem(FLEET, f"apt_repositories[{name}].name", what, "give each its own")
    seen: dict[tuple[str, str], str] = {}
    for repository in _repositories(draft):
        place = (same_uri(repository.uri), same_suite(repository.suite))
        first = seen.setdefault(place, repository.name)
        if first != repository.name:
            what = f"{repository.uri} {repository.suite} is {first} already; apt takes it once"
            remedy = f"remove one, and give {first} the components of both"
            yield Problem(FLEET, key_of(repository, "uri"), what, remedy)


def addresses(draft: Draft) -> Iterator[Problem]:
    given: list[tuple[str, str, tuple[str, ...]]] = [
        (key_of(r, "uri"), r.uri, ("http", "https", "file")) for r in _repositories(draft)
    ]
    if draft.config.apt_proxy is not None and "apt_proxy" not in draft.broken:
        given.append(("apt_proxy", draft.config.apt_proxy, ("http", "https")))
    given += [("bundle.url", r.uri, ("http", "https")) for _, r in _bundle(draft)]
    for key, uri, schemes in given:
        remedy = f"write {' or '.join(f'{s}://…' for s in schemes)}, e.g. http://10.20.0.2:8901/nv"
        try:
            parts = urlsplit(uri)
            host, _ = parts.hostname, parts.port  # a port out of range raises here
        except ValueError as error:
            yield Problem(FLEET, key, f"{shown(uri)} is not an address: {error}", remedy)
            continue
        if parts.username or parts.password:
            what = "it holds a user or password, and every user of a node can read the file"
            remedy = "keep it out of here: apt reads /etc/apt/auth.conf.d/, mode 0600, on the node"
            yield Problem(FLEET, key, what, remedy)
        elif parts.scheme not in schemes or any(c.isspace() or c in '"[]' for c in uri):
            yield Problem(FLEET, key, f"{shown(uri)} is not one that apt can use", remedy)
        elif parts.scheme == "file" and (host or not parts.path.startswith("/")):
            what = f"{shown(uri)} names no absolute directory"
            yield Problem(FLEET, key, what, "write file:///path/on/every/node")
        elif parts.scheme != "file" and not host:
            yield Problem(FLEET, key, f"{shown(uri)} names no machine", remedy)


def layouts(draft: Draft) -> Iterator[Problem]:
    for repository in _repositories(draft):
        key = key_of(repository, "components")
        if repository.flat and repository.components:
            what = f"a flat repository (suite {repository.suite!r}) has no components"
            yield Problem(FLEET, key, what, "remove them, or the / at the suite's end")
        elif not repository.flat and not repository.components:
            what = "missing, and without them apt takes nothing"
            yield Problem(FLEET, key, what, 'e.g. ["main"]; a flat repository\'s suite ends with /')


def signing(draft: Draft) -> Iterator[Problem]:
    """A key and its fingerprint, or the word that there is none; never something between."""
    for place, repository in _signed(draft):
        named = [f for f in ("key_file", "fingerprint") if getattr(repository, f)]
        if repository.trusted and named:
            what = f"it is trusted without a key and has a {named[0]}: one of them is wrong"
            yield Problem(FLEET, f"{place}.trusted", what, "remove one of the two")
        elif not repository.trusted and not repository.key_file:
            yield Problem(
                FLEET,
                f"{place}.key_file",
                "missing: nothing would say whose packages these are",
                "give key_file and fingerprint; or, for a plain repository of your own that nobody "
                'signs, "trusted": True',
            )
        elif not repository.trusted:
            yield from _key(place, repository, resolve(str(repository.key_file), draft.base))


def _key(place: str, repository: AptRepository, path: Path) -> Iterator[Problem]:
    try:
        held = keys.read_keys(path)
    except FileNotFoundError:
        what = f"{path} does not exist on this machine"
        remedy = "fetch it from the vendor, or from the keyring of a host that you trust"
        yield Problem(FLEET, f"{place}.key_file", what, remedy)
        return
    except (OSError, keys.KeyFileError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        what, remedy = f"{path}: {why}", "gpg --export --armor FINGERPRINT writes one"
        yield Problem(FLEET, f"{place}.key_file", what, remedy)
        return
    key = f"{place}.fingerprint"
    holds = ", ".join(keys.spaced(one.fingerprint) for one in held)
    if repository.fingerprint is None:
        remedy = "compare what the file holds with the vendor's page, then write it down here"
        yield Problem(FLEET, key, f"missing; {path} holds {holds}", remedy)
        return
    try:
        wanted = keys.normal(repository.fingerprint)
    except ValueError as error:
        yield Problem(FLEET, key, str(error), f"{path} holds {holds}; compare and write it whole")
        return
    if not any(keys.is_of(one, wanted) for one in held):
        what = f"{path} holds {holds}, not the pinned {keys.spaced(wanted)}"
        remedy = "find out whether the vendor changed the key before you change the fingerprint"
        yield Problem(FLEET, key, what, remedy)


def pins(draft: Draft) -> Iterator[Problem]:
    if "apt_pins" in draft.broken:
        return
    for name, times in Counter(pin.name for pin in draft.config.apt_pins).items():
        if times > 1:
            what = f"{times} pins for this package; a node can have only one version"
            yield Problem(FLEET, f"apt_pins[{name}]", what, "keep one")
    known = [r.name for r in draft.config.apt_repositories]
    for pin in draft.config.apt_pins:
        if pin.origin is None or pin.origin in known or "apt_repositories" in draft.broken:
            continue
        near = close_to(pin.origin, known)
        hint = f"did you mean {near!r}? " if near else ""
        yield Problem(
            FLEET,
            f"apt_pins[{pin.name}].origin",
            f"there is no repository {pin.origin!r} in apt_repositories",
            f"{hint}Known: {', '.join(known) or 'none'}",
        )


RULES: tuple[Rule, ...] = (unique, addresses, layouts, signing, pins)
