"""Packages files: each stanza is kept as signed, and read only when it is asked for.

Debian's main index has 64 000 stanzas and 50 MB; reading every field of it would take longer
than resolving.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from debian.deb822 import PkgRelation
from debian.debian_support import Version

from rackpin.debs.model import NAME, Deb, Refused

_NAME = re.compile(r"^Package: *(\S+)", re.MULTILINE)
_VERSION = re.compile(r"^Version: *(\S+)", re.MULTILINE)
_FIELD = re.compile(r"^([A-Za-z0-9-]+):[ \t]*(.*(?:\n[ \t].*)*)", re.MULTILINE)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, eq=False)
class Stanza:
    """One package of one repository. Fields are empty text when absent."""

    text: str
    repository: str

    @cached_property
    def name(self) -> str:
        found = _NAME.search(self.text)
        return found.group(1) if found else ""

    @cached_property
    def version(self) -> str:
        found = _VERSION.search(self.text)
        return found.group(1) if found else ""

    @cached_property
    def sort_key(self) -> Version:
        return Version(self.version)

    @cached_property
    def fields(self) -> dict[str, str]:
        return {key: value.strip() for key, value in _FIELD.findall(self.text)}

    @cached_property
    def provides(self) -> dict[str, str | None]:
        """Virtual packages it stands for, with the version it states for them."""
        found: dict[str, str | None] = {}
        for group in relations(self.fields.get("Provides", "")):
            for item in group:
                found[item.name] = item.version if item.operator == "=" else None
        return found

    @cached_property
    def depends(self) -> list[list[Relation]]:
        """Pre-Depends and Depends: every group must hold."""
        both = [self.fields.get(name, "") for name in ("Pre-Depends", "Depends")]
        return [group for value in both for group in relations(value)]

    @cached_property
    def excludes(self) -> list[Relation]:
        """Conflicts and Breaks: none of these may be installed beside it."""
        both = [self.fields.get(name, "") for name in ("Conflicts", "Breaks")]
        return [item for value in both for group in relations(value) for item in group]

    def matched_by(self, relation: Relation) -> bool:
        """By name and version, or by what it provides; foreign architectures never."""
        qualifier = relation.qualifier
        if qualifier not in ("", "any", "native", self.fields.get("Architecture", "")):
            return False
        if qualifier == "any" and self.fields.get("Multi-Arch") not in ("allowed", "foreign"):
            return False
        if self.name == relation.name and relation.takes(self.version):
            return True
        return relation.name in self.provides and relation.takes(self.provides[relation.name])

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.repository})"

    def deb(self) -> Deb:
        """As the lock has it; :class:`Refused` when the index doesn't say it safely."""
        fields = self.fields
        filename = fields.get("Filename", "").removeprefix("./")
        sha256 = fields.get("SHA256", "").lower()
        size = fields.get("Size", "")
        parts = filename.split("/")
        wrong = []
        if not NAME.fullmatch(self.name):
            wrong.append(f"Package {self.name!r}")
        if not parts[-1].endswith(".deb") or {"", ".", ".."} & set(parts) or ":" in parts[0]:
            wrong.append(f"Filename {filename!r}")
        if not _SHA256.fullmatch(sha256):
            wrong.append("SHA256 missing" if not sha256 else f"SHA256 {sha256!r}")
        if not size.isdecimal():
            wrong.append(f"Size {size!r}")
        if wrong:
            raise Refused(f"index of {self.repository}: {self}: refused: {'; '.join(wrong)}")
        return Deb(
            name=self.name,
            version=self.version,
            architecture=fields.get("Architecture", ""),
            filename=filename,
            sha256=sha256,
            size=int(size),
            repository=self.repository,
        )


@dataclass(frozen=True)
class Relation:
    """One alternative of a dependency: ``name:qualifier (operator version)``."""

    name: str
    operator: str = ""
    version: str = ""
    qualifier: str = ""

    def __str__(self) -> str:
        quality = f":{self.qualifier}" if self.qualifier else ""
        return self.name + quality + (f" ({self.operator} {self.version})" if self.version else "")

    def takes(self, version: str | None) -> bool:
        """Whether this version does; None is an unversioned Provides."""
        if not self.version:
            return True
        if version is None:
            return False
        have, want = Version(version), Version(self.version)
        return {
            "=": have == want, ">=": have >= want, "<=": have <= want,
            ">>": have > want, "<<": have < want,
        }[self.operator]  # fmt: skip


def relations(value: str, architecture: str = "amd64") -> list[list[Relation]]:
    """A Depends-like field: every group must hold, by any one of its alternatives."""
    groups = []
    for group in PkgRelation.parse_relations(value) if value.strip() else []:
        kept = []
        for item in group:
            named = {entry.arch: entry.enabled for entry in item.get("arch") or []}
            if named and not named.get(architecture, not any(named.values())):
                continue
            operator, version = item.get("version") or ("", "")
            operator = {"<": "<=", ">": ">="}.get(operator, operator)  # as Debian reads the old
            kept.append(Relation(item["name"], operator, version, item.get("archqual") or ""))
        if kept:
            groups.append(kept)
    return groups


class Universe:
    """All stanzas that may be chosen from, by name and by what they provide.

    ``demoted`` are repositories whose Release says NotAutomatic, as backports do: apt takes
    from there only what no other has.
    """

    def __init__(self, stanzas: Iterable[Stanza] = (), demoted: frozenset[str] = frozenset()):
        self.demoted = demoted
        self.by_name: dict[str, list[Stanza]] = {}
        self.by_virtual: dict[str, list[Stanza]] = {}
        for stanza in stanzas:
            self.by_name.setdefault(stanza.name, []).append(stanza)
            if "\nProvides:" in stanza.text:
                for name in stanza.provides:
                    self.by_virtual.setdefault(name, []).append(stanza)

    def copy(self) -> Universe:
        """Another choice over the same stanzas, to be limited by itself."""
        other = Universe(demoted=self.demoted)
        other.by_name, other.by_virtual = dict(self.by_name), self.by_virtual
        return other

    def limit(self, name: str, kept: list[Stanza]) -> None:
        """Leave only these of a name."""
        self.by_name[name] = kept

    def ordered(self, stanzas: Iterable[Stanza]) -> list[Stanza]:
        """As apt prefers them; of one version, the first repository's first."""
        return sorted(
            stanzas, key=lambda s: (s.repository not in self.demoted, s.sort_key), reverse=True
        )

    def best(self, name: str) -> Stanza | None:
        """What apt would take of a real package."""
        return next(iter(self.ordered(self.by_name.get(name, []))), None)

    def matching(self, relation: Relation) -> list[Stanza]:
        """What fulfils a relation, by name or by Provides, best first."""
        real = [s for s in self.by_name.get(relation.name, []) if s.matched_by(relation)]
        virtual = [
            s
            for s in self.by_virtual.get(relation.name, [])
            if s.matched_by(relation) and s in self.by_name.get(s.name, [])
        ]
        return [*self.ordered(real), *self.ordered(virtual)]


def parse_packages(text: str, repository: str) -> list[Stanza]:
    """The stanzas of one Packages file, in its order."""
    return [Stanza(part, repository) for part in text.strip("\n").split("\n\n") if part.strip()]
