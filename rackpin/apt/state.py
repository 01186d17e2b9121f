"""What the survey finds of apt on a node: files of ours and of others, and what apt makes of it."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from rackpin import layout
from rackpin.apt.pins import FILE
from rackpin.desired import OWNED_MARK
from rackpin.parse.apt_policy import Policy, parse_policy
from rackpin.parse.apt_preferences import Pin, pins
from rackpin.parse.apt_sources import Source, sources
from rackpin.parse.dpkg_status import FORMAT, Status, parse_status
from rackpin.parse.sections import SHOW, split

SOURCES = "/etc/apt/sources.list.d"
ONLY = "/etc/apt/rackpin.d"  # rackpin's source files where apt may ask nobody else
CONF = "/etc/apt/apt.conf.d/92-rackpin-sources"
KEYRINGS = "/etc/apt/keyrings"
_TITLES = ("sources", "preferences", "keyrings", "proved", "held", "status", "policy", "end")

_SCRIPT = r"""LC_ALL=C; export LC_ALL
{show}
packed() {{ for f; do [ -f "$f" ] && printf '%s|%s\n' "$f" "$(base64 -w 0 <"$f")"; done; }}
echo '## sources'; packed /etc/apt/sources.list {sources}/*.list {sources}/*.sources
packed {only}/*.sources {conf}
echo '## preferences'; packed /etc/apt/preferences /etc/apt/preferences.d/*
echo '## keyrings'; packed {keyrings}/rackpin-*
echo '## proved'; [ ! -e {proved} ] || show {proved}
echo '## held'; held=$([ ! -e {held} ] || show {held}); echo "$held"
echo '## status'{status}
echo '## policy'{policy}
echo '## end'"""


# "Could not look" must not read as "there is no such package".
_FAILED = 'echo "E: apt-cache policy ended with $?"'


class StateError(ValueError):
    """The answer is cut or was garbled."""


def state_script(names: Sequence[str]) -> str:
    """POSIX sh text that prints the state; ``names`` are the pinned packages."""
    quoted = " ".join(shlex.quote(name) for name in names)
    asked = f"{quoted} $held dpkg"  # without any name it lists all
    return _SCRIPT.format(
        show=SHOW,
        sources=SOURCES,
        only=ONLY,
        conf=CONF,
        keyrings=KEYRINGS,
        proved=layout.APT_PROVED,
        held=layout.APT_HELD,
        status=f"; dpkg-query -W -f '{FORMAT}' {asked} 2>/dev/null",
        policy=f"; apt-cache policy {quoted} 2>&1 || {_FAILED}" if names else "",
    )


@dataclass(frozen=True)
class AptState:
    """Files as text by path; what apt and dpkg say of the pinned packages, by name."""

    sources: dict[str, str] = field(default_factory=dict)
    preferences: dict[str, str] = field(default_factory=dict)
    keyrings: dict[str, str] = field(default_factory=dict)
    proved: str = ""
    held: tuple[str, ...] = ()  # what rackpin wrote down that it holds
    status: dict[str, Status] = field(default_factory=dict)
    policy: dict[str, Policy] = field(default_factory=dict)
    errors: tuple[str, ...] = ()  # apt's own, e.g. of a source file it can't read

    @property
    def files(self) -> dict[str, str]:
        return {**self.sources, **self.preferences, **self.keyrings}

    @property
    def site_pins(self) -> list[Pin]:
        """Everybody's stanzas but rackpin's, in apt's order."""
        return [pin for pin in pins(self.preferences) if not self.is_ours(pin.file)]

    @property
    def site_sources(self) -> list[Source]:
        texts = {path: text for path, text in self.sources.items() if path != CONF}
        return [source for source in sources(texts) if not self.is_ours(source.file)]

    def is_ours(self, path: str) -> bool:
        """By its name and by what stands in it: a file of that name may be somebody else's."""
        places = (f"{SOURCES}/rackpin-", f"{ONLY}/rackpin-", f"{KEYRINGS}/rackpin-")
        named = path in (FILE, CONF) or path.startswith(places)
        head = "\n".join(self.files.get(path, "").splitlines()[:2])
        return named and OWNED_MARK in head


def parse_state(lines: Sequence[str]) -> AptState:
    """The state script's answer. Raises StateError when it isn't whole."""
    parts = split(lines)
    if missing := [name for name in _TITLES if name not in parts]:
        raise StateError(f"the answer is not whole: no section {missing[0]!r}")
    return AptState(
        sources=_files(parts["sources"]),
        preferences=_files(parts["preferences"]),
        keyrings=_files(parts["keyrings"]),
        proved="".join(parts["proved"]).strip(),
        held=tuple(line.strip() for line in parts["held"] if line.strip()),
        status=parse_status(parts["status"]),
        policy=parse_policy("\n".join(parts["policy"])),
        errors=tuple(line for line in parts["policy"] if line.startswith("E: ")),
    )


def _files(lines: Sequence[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        path, separator, content = line.rpartition("|")
        try:
            text = base64.b64decode(content, validate=True).decode("utf-8", "replace")
        except ValueError as error:  # also for what is not ASCII
            raise StateError(f"the content of {path} is not base64") from error
        if separator:
            found[path] = text
    return found
