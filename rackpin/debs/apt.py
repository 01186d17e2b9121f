"""apt itself as the solver, in a root of its own: nothing of this machine's apt is read or changed.

Resolving as the hosts will do it beats any solver of ours. apt never fetches here: it sees
indices that were proved before, and only says which packages belong together.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rackpin.debs.index import Stanza, Universe
from rackpin.debs.model import DebError
from rackpin.debs.repository import Index

DEADLINE_S = 300
_URI = re.compile(r"^'([^']+)' (\S+)_\S+_\S+\.deb \d+", re.MULTILINE)
# internal: the same answer from the apt of every control machine.
_CONFIG = """\
Dir "{root}/";
Dir::Etc "{root}/etc/";
Dir::State "{root}/";
Dir::State::lists "{root}/lists/";
Dir::State::status "{root}/status";
Dir::Cache "{root}/cache/";
Dir::Log "{root}/log/";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Solver "internal";
Acquire::Languages "none";
"""
_RELEASE_FIELDS = ("Origin", "Label", "Suite", "Codename", "NotAutomatic", "ButAutomaticUpgrades")


class AptFailed(Exception):
    """apt found no answer; the text is what it said."""


class Apt:
    """One isolated apt over some indices; each of its runs may see other stanzas of them."""

    def __init__(self, root: Path, indices: Sequence[Index]) -> None:
        found = shutil.which("apt-get")
        if found is None:
            raise DebError(
                "apt-get: not on this machine, but apt is what resolves debs; run rackpin lock on "
                "a Debian or Ubuntu machine (or in a container of one)"
            )
        self.command, self.root, self.indices = found, root, indices
        for name in ("lists/partial", "cache/archives/partial", "log", "etc/preferences.d",
                     "etc/apt.conf.d", "etc/sources.list.d"):  # fmt: skip
            (root / name).mkdir(parents=True)
        architecture = indices[0].repository.architecture if indices else "amd64"
        config = _CONFIG.format(root=root, architecture=architecture)
        (root / "apt.conf").write_text(config, encoding="utf-8")
        lines = [f"deb [trusted=yes] http://r{i}.invalid/ ./\n" for i in range(len(indices))]
        (root / "etc/sources.list").write_text("".join(lines), encoding="utf-8")

    def offer(self, universe: Universe) -> None:
        """What apt may choose from, from now on."""
        texts: dict[str, list[str]] = {index.repository.name: [] for index in self.indices}
        for stanzas in universe.by_name.values():
            for stanza in stanzas:
                texts[stanza.repository].append(stanza.text)
        for number, index in enumerate(self.indices):
            lists = self.root / "lists" / f"r{number}.invalid_._"
            text = "".join(f"{part}\n\n" for part in texts[index.repository.name])
            Path(f"{lists}Packages").write_text(text, encoding="utf-8")
            fields = {"Label": index.repository.name, **index.release.fields}  # never empty
            kept = [f"{name}: {fields[name]}\n" for name in _RELEASE_FIELDS if name in fields]
            Path(f"{lists}Release").write_text("".join(kept), encoding="utf-8")

    def solve(self, wanted: Iterable[str], status: str, universe: Universe) -> list[Stanza]:
        """Everything apt would fetch to install ``wanted`` on a host with that dpkg status.

        Sorted by name. Raises :class:`AptFailed`, also when something would be removed.
        """
        (self.root / "status").write_text(status, encoding="utf-8")
        command = [self.command, "install", "--assume-yes", "--print-uris", "--no-remove",
                   "--reinstall", "--", *wanted]  # fmt: skip
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "APT_CONFIG": f"{self.root}/apt.conf"}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S,
                check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise DebError(f"apt-get: no answer within {DEADLINE_S} s; run again") from None
        if done.returncode != 0:
            raise AptFailed(said(done.stdout + done.stderr))
        chosen = [self._stanza(m[1], m[2], universe) for m in _URI.finditer(done.stdout)]
        return sorted(chosen, key=lambda stanza: stanza.name)

    def _stanza(self, uri: str, name: str, universe: Universe) -> Stanza:
        parts = urlsplit(uri)
        number = int((parts.hostname or "").removeprefix("r").removesuffix(".invalid"))
        repository = self.indices[number].repository.name
        path = _plain(unquote(parts.path))
        for stanza in universe.by_name.get(name, []):
            if (
                stanza.repository == repository
                and _plain(stanza.fields.get("Filename", "")) == path
            ):
                return stanza
        raise DebError(f"apt-get named {uri}, which no index has; report this")


def _plain(path: str) -> str:
    return path.lstrip("/").removeprefix("./")


def said(output: str) -> str:
    """The part of apt's complaint that says something."""
    start = output.find("The following packages have unmet dependencies")
    text = output[start:] if start >= 0 else output
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    noise = ("Reading package lists", "Building dependency tree", "Reading state information")
    return "\n".join(line for line in lines if not line.startswith(noise))[-3000:]
