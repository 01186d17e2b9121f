"""What a host has before anything of a stack comes: the closure leaves that out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rackpin.debs.index import Stanza, Universe, parse_packages
from rackpin.debs.model import DebError

BASE = "base"  # the repository name of what is installed already


@dataclass(frozen=True)
class Base:
    """Either the smallest installation there is, with some more names, or a real one.

    The smallest is what the archive marks Essential and ``names`` with their dependencies, so
    a closure made with it is enough on every host of that OS. ``status`` is the text of a
    dpkg status file, of a site's own image for example.
    """

    names: tuple[str, ...] = ("apt",)
    status: str | None = None

    @classmethod
    def from_status(cls, file: Path) -> Base:
        """From ``/var/lib/dpkg/status`` of an installation."""
        try:
            return cls(status=file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise DebError(f"{file}: no dpkg status file ({error}); copy it from a host") from None

    def wanted(self, universe: Universe) -> list[str]:
        """Names whose closure is the base, when no status file is given."""
        essential = {
            name
            for name, stanzas in universe.by_name.items()
            if any("\nEssential: yes" in stanza.text for stanza in stanzas)
        }
        return sorted(essential | {name for name in self.names if name in universe.by_name})

    def installed(self) -> list[Stanza]:
        """What the status file says is installed."""
        found = [
            stanza
            for stanza in parse_packages(self.status or "", BASE)
            if stanza.fields.get("Status", "").endswith(" ok installed")
        ]
        if self.status is not None and not found:
            raise DebError("base: the dpkg status file lists nothing as installed; give another")
        return found


def as_installed(stanza: Stanza) -> Stanza:
    """A stanza of an index as dpkg's status file would have it."""
    return Stanza(f"{stanza.text}\nStatus: install ok installed", BASE)


def status_text(stanzas: list[Stanza]) -> str:
    return "".join(f"{stanza.text}\n\n" for stanza in stanzas)
