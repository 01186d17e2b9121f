"""The pyinfra facts that rackpin's own operations need. Each is one cheap command.

The commands need a POSIX shell, coreutils, dpkg and systemd: what a bare Debian has.
"""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from pyinfra.api import FactBase
from pyinfra.api.exceptions import FactProcessError

from rackpin.parse.sections import SHOW, CutAnswer
from rackpin.parse.sections import sections as read_sections


@dataclass(frozen=True)
class PathState:
    """A path as it is: ``kind`` is ``file``, ``directory``, ``link``, ``other`` or ``absent``."""

    kind: str
    mode: str = ""  # octal, without leading zero
    owner: str = ""
    group: str = ""
    sha256: str = ""  # of a file's content
    target: str = ""  # of a link
    first_lines: str = ""  # where an owner's mark would be


ABSENT = PathState("absent")
OTHER = PathState("other")  # a device, a socket

# One program for all paths each, as most of a run's paths are asked in one go.
_PATHS = r"""set -- {paths}
for p; do shift
  if [ -e "$p" ] || [ -L "$p" ]; then set -- "$@" "$p"
  else printf 'absent|%s\n' "$p"; fi
done
[ $# -eq 0 ] || QUOTING_STYLE=literal stat -c 'is|%n|%F|%a|%U|%G|%N' -- "$@"
for p; do shift; [ -L "$p" ] || [ ! -f "$p" ] || set -- "$@" "$p"; done
[ $# -eq 0 ] || {{ sha256sum -- "$@" | while read -r sum p; do echo "sum|$p|$sum"; done
  awk 'FNR <= 2 {{ text = substr($0, 1, 150); gsub(/[^ -~\t]/, "?", text)
      print "line|" FILENAME "|" text }}
    FNR >= 2 {{ nextfile }}' "$@"; }}"""
KINDS = {"directory": "directory", "regular file": "file", "regular empty file": "file"}


def union(asked: Iterable[Mapping[str, Any]], key: str) -> tuple[str, ...]:
    """What several facts are asked for under a key, each once."""
    return tuple(dict.fromkeys(name for given in asked for name in given[key]))


class Paths(FactBase[dict[str, PathState]]):
    """State of the given paths, by path. Readable only as root where a file is."""

    default = dict

    def command(self, paths: tuple[str, ...]) -> str:
        quoted = " ".join(shlex.quote(path) for path in paths)
        return _PATHS.format(paths=quoted)

    @classmethod
    def together(cls, asked: Iterable[Mapping[str, Any]]) -> str:
        """One command for several of these facts; :meth:`apart` takes its answer apart."""
        return cls().command(union(asked, "paths"))

    @staticmethod
    def apart(lines: Sequence[str], given: Mapping[str, Any]) -> list[str] | None:
        """The lines of one of them; None when one of its paths has none."""
        own: dict[str, list[str]] = {path: [] for path in given["paths"]}
        for line in lines:
            own.get(line.partition("|")[2].partition("|")[0], []).append(line)
        return list(chain(*own.values())) if all(own.values()) else None

    def process(self, output: list[str]) -> dict[str, PathState]:
        states: dict[str, PathState] = {}
        for line in output:
            what, path, rest = (*line.split("|", 2), "")[:3]
            if what == "absent":
                states[path] = ABSENT
            elif what == "is":
                kind, mode, owner, group, name = rest.split("|", 4)
                if kind == "symbolic link":
                    states[path] = PathState("link", target=name.removeprefix(f"{path} -> "))
                else:
                    known = KINDS.get(kind)
                    states[path] = PathState(known, mode, owner, group) if known else OTHER
            elif what == "sum":
                states[path] = replace(states[path], sha256=rest)
            elif what == "line":
                before = states[path].first_lines
                states[path] = replace(states[path], first_lines=f"{before}{rest}\n")
        return states


class Packages(FactBase[dict[str, str]]):
    """Installed version of each given package; one that is half installed or absent is left out."""

    default = dict

    def command(self, names: tuple[str, ...]) -> str:
        quoted = " ".join(shlex.quote(name) for name in names)
        # dpkg-query says 1 when some are unknown, 2 when it could not look
        return (
            "dpkg-query -W -f '${Package}|${db:Status-Abbrev}|${Version}\\n' "
            f"{quoted} 2>/dev/null; [ $? -le 1 ]"
        )

    def process(self, output: list[str]) -> dict[str, str]:
        rows = (line.split("|") for line in output if line.count("|") == 2)
        # the first letter is what is wished: a held package is "hi"
        return {name: version for name, status, version in rows if status[1:2] == "i"}


UNIT_PROPERTIES = ("LoadState", "ActiveState", "SubState", "UnitFileState", "NeedDaemonReload")


class Units(FactBase[dict[str, dict[str, str]]]):
    """``systemctl show`` of the given units, by unit name."""

    default = dict

    def command(self, names: tuple[str, ...]) -> str:
        properties = ",".join(("Id", *UNIT_PROPERTIES))
        return f"systemctl show -p {properties} -- {' '.join(shlex.quote(n) for n in names)}"

    @classmethod
    def together(cls, asked: Iterable[Mapping[str, Any]]) -> str:
        return cls().command(union(asked, "names"))

    @staticmethod
    def apart(lines: Sequence[str], given: Mapping[str, Any]) -> list[str] | None:
        """The blocks of its units; None when one has none, or another name (an alias)."""
        blocks: list[list[str]] = [[]]
        for line in lines:
            if line:
                blocks[-1].append(line)
            else:
                blocks.append([])
        by_name: dict[str, list[str]] = {f"Id={name}": [] for name in given["names"]}
        for block in blocks:
            for line in block:
                if line in by_name:
                    by_name[line] = [*block, ""]
        return list(chain(*by_name.values())) if all(by_name.values()) else None

    def process(self, output: list[str]) -> dict[str, dict[str, str]]:
        units: dict[str, dict[str, str]] = {}
        block: dict[str, str] = {}
        for line in [*output, ""]:
            key, found, value = line.partition("=")
            if found:
                block[key] = value
            elif block:
                units[block.get("Id", "")] = block
                block = {}
        return units


class Text(FactBase[str]):
    """Content of a small text file; empty when it is absent."""

    default = str

    def command(self, path: str) -> str:
        quoted = shlex.quote(path)
        return f"! [ -e {quoted} ] || base64 -w 0 {quoted}"

    def process(self, output: list[str]) -> str:
        try:
            return base64.b64decode("".join(output)).decode("utf-8", "replace")
        except binascii.Error as error:
            raise FactProcessError(f"not base64: {error}") from error


class Users(FactBase[dict[str, str]]):
    """``getent passwd`` lines of the given users, by name."""

    default = dict

    def command(self, names: tuple[str, ...]) -> str:
        # getent says 2 when a name is unknown
        return f"getent passwd {' '.join(shlex.quote(n) for n in names)}; [ $? -eq 0 -o $? -eq 2 ]"

    def process(self, output: list[str]) -> dict[str, str]:
        return {line.split(":")[0]: line for line in output if ":" in line}


_SURVEY = r"""section() { echo "@@ $1"; }
{show}
section os; show /etc/os-release
set -- $(uname -nm) # in this order, whatever the order of its options
section hostname; echo "$1"
section arch; echo "$2"
section epoch; date +%s.%N
section addresses; ip -o -4 addr show
section route; {route}
section swaps; show /proc/swaps
section dpkg; for f in /var/lib/dpkg/updates/*; do [ ! -e "$f" ] || echo "$f"; done; dpkg --audit
section space; set -- /; for d in /opt /var/lib; do [ ! -d $d ] || set -- "$@" $d; done
df -B1 --output=avail "$@" | { read -r _; for d; do read -r v && echo "$d $v"; done; }
section listeners; open=$(ss -H -ltn) || exit 1
# whose they are is looked up in every process, so only where a port of ours is taken
echo "$open" | { while read -r _ _ _ a _; do
  case '{ports}' in *" ${a##*:} "*) exit 1 ;; esac; done; } ||
ss -H -ltnp | while read -r line; do
  pid=${line#*pid=} group=
  if [ "$pid" != "$line" ]; then
    while read -r g; do group="$group$g "; done 2>/dev/null <"/proc/${pid%%[!0-9]*}/cgroup"
  fi
  echo "$line | $group"; done
section end
"""


@dataclass(frozen=True)
class NodeSurvey:
    """One node as found. ``epoch`` is its own clock in seconds, ``space`` free bytes by path."""

    os: dict[str, str]
    arch: str
    epoch: float
    hostname: str
    addresses: dict[str, str]  # address -> interface
    route_source: str  # own address on the way to the head; empty when there is no way
    swaps: tuple[str, ...]
    dpkg_broken: bool
    space: dict[str, int]
    # address, port, program, cgroup; none where no port is taken that was asked about
    listeners: tuple[tuple[str, int, str, str], ...]


class Survey(FactBase[NodeSurvey | None]):
    """Everything that is asked of a node before it may be changed."""

    of_the_plan = True  # no operation asks it: it isn't asked again after a change

    @staticmethod
    def default() -> None:
        return None

    def command(self, head_address: str, ports: tuple[int, ...]) -> str:
        asked = "".join(f" {port}" for port in ports)
        route = f"ip -o -4 route get {shlex.quote(head_address)}"
        return (
            _SURVEY.replace("{show}", SHOW)
            .replace("{route}", route)
            .replace("{ports}", f"{asked} ")
        )

    def process(self, output: list[str]) -> NodeSurvey:
        return parse_survey(output)


def parse_survey(lines: list[str]) -> NodeSurvey:
    """The survey script's sections as a :class:`NodeSurvey`; cut text raises FactProcessError."""
    try:
        sections = read_sections(lines)
    except CutAnswer as error:
        raise FactProcessError(f"the survey's {error}") from error

    def one(key: str) -> str:
        return sections[key][0] if sections.get(key) else ""

    try:
        os_release = dict(line.split("=", 1) for line in sections["os"] if "=" in line)
        route = one("route").split()
        return NodeSurvey(
            os={key: value.strip('"') for key, value in os_release.items()},
            arch=one("arch"),
            epoch=float(one("epoch")),
            hostname=one("hostname"),
            addresses={
                fields[3].split("/")[0]: fields[1]
                for fields in (line.split() for line in sections["addresses"])
            },
            route_source=route[route.index("src") + 1] if "src" in route else "",
            swaps=tuple(line.split()[0] for line in sections["swaps"][1:]),
            dpkg_broken=bool(sections["dpkg"]),
            space={line.split()[0]: int(line.split()[-1]) for line in sections["space"]},
            listeners=tuple(_listener(line) for line in sections["listeners"]),
        )
    except (KeyError, IndexError, ValueError) as error:
        raise FactProcessError(f"the survey's answer can't be read: {error!r}") from error


def _listener(line: str) -> tuple[str, int, str, str]:
    """A line of ``ss -H -ltnp``, " | ", and the lines of its process's ``/proc/PID/cgroup``.

    The cgroup is the systemd hierarchy's, on v1, hybrid and v2 alike.
    """
    text, _, cgroup = line.partition(" | ")
    fields = text.split()
    address, _, port = fields[3].rpartition(":")
    program = fields[5].split('"')[1] if len(fields) > 5 and '"' in fields[5] else ""
    lines = [entry.split(":", 2) for entry in cgroup.split() if entry.count(":") >= 2]
    owned = [path for _, controllers, path in lines if controllers in ("", "name=systemd")]
    return address.strip("[]"), int(port), program, max(owned, key=len, default="")
