"""apt's source files, one-line (``.list``) and deb822 (``.sources``), with places in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rackpin.parse.stanzas import stanzas

_NO = {"no", "false", "0", "off", "without", "disable"}
_LINE = re.compile(r"^\s*(deb|deb-src)\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s*(.*?)\s*(?:#.*)?$")


@dataclass(frozen=True)
class Source:
    """One active entry: a line, or a stanza with all its types, addresses and suites."""

    file: str
    first: int
    last: int
    types: tuple[str, ...]
    uris: tuple[str, ...]  # normalised, see :func:`same_uri`
    suites: tuple[str, ...]
    components: frozenset[str]
    options: Mapping[str, str] = field(default_factory=dict)  # keys in lower case

    @property
    def place(self) -> str:
        return f"{self.file}:{self.first}"

    @property
    def signed_by(self) -> str:
        return self.options.get("signed-by", "")

    @property
    def trusted(self) -> str:
        return self.options.get("trusted", "")

    def names(self, uri: str, suite: str) -> bool:
        """Whether it takes this suite of this repository, among others perhaps."""
        return same_uri(uri) in self.uris and same_suite(suite) in map(same_suite, self.suites)


def same_uri(uri: str) -> str:
    """One spelling of an address, as apt compares them: with a slash at its end."""
    uri = uri.strip()
    scheme, found, rest = uri.partition("://")
    if found:
        host, slash, path = rest.partition("/")
        uri = f"{scheme.lower()}://{host.lower()}{slash}{path}"
    elif uri.startswith("file:"):
        uri = f"file://{uri.removeprefix('file:')}"
    return uri.rstrip("/") + "/"


def same_suite(suite: str) -> str:
    """``./`` and ``/`` are the same flat repository."""
    return suite.removeprefix("./") or "/" if suite.endswith("/") else suite


def sources(files: Mapping[str, str]) -> list[Source]:
    """All active entries of these files (text by path)."""
    return [source for path in sorted(files) for source in parse_sources(path, files[path])]


def parse_sources(path: str, text: str) -> list[Source]:
    """The active entries of one file, by the format that its name says."""
    return list(_deb822(path, text) if path.endswith(".sources") else _lines(path, text))


def _lines(path: str, text: str) -> Iterator[Source]:
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _LINE.match(line):
            kind, options, uri, suite, components = match.groups()
            pairs = (word.partition("=") for word in (options or "").split())
            yield Source(
                path,
                number,
                number,
                (kind,),
                (same_uri(uri),),
                (suite,),
                frozenset(components.split()),
                {key.lower(): value for key, _, value in pairs},
            )


def _deb822(path: str, text: str) -> Iterator[Source]:
    for stanza in stanzas(text):
        uris = stanza.get("uris").split()
        if not uris or stanza.get("enabled").lower() in _NO:
            continue
        yield Source(
            path,
            stanza.first,
            stanza.last,
            tuple(stanza.get("types").split()),
            tuple(map(same_uri, uris)),
            tuple(stanza.get("suites").split()),
            frozenset(stanza.get("components").split()),
            stanza.fields,
        )


def without(text: str, source: Source, why: str) -> str:
    """The file's text with this entry switched off in place; every byte of it can be read still."""
    lines = text.splitlines(keepends=True)
    first, last = source.first - 1, source.last
    if source.file.endswith(".sources"):
        lines[first:first] = [f"# {why}\n", "Enabled: no\n"]
        # an "Enabled: yes" of the stanza would be the one that counts
        body = lines[first + 2 : last + 2]
        lines[first + 2 : last + 2] = [
            f"# {line}" if line.lower().startswith("enabled:") else line for line in body
        ]
    else:
        lines[first:last] = [f"# {why}\n", *(f"# {line}" for line in lines[first:last])]
    return "".join(lines)
