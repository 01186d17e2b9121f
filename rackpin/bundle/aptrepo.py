"""The apt repositories of a bundle: one flat repository for each vendor's debs.

The index is made from the debs themselves by apt-ftparchive or dpkg-scanpackages, and must agree
with the lock. Nodes take it by the site's key, or unsigned where the inventory says so.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rackpin.bundle.model import AptPart, BundleError, Item
from rackpin.bundle.store import PARTS, write
from rackpin.debs.index import parse_packages
from rackpin.debs.model import FINGERPRINT, DebError
from rackpin.debs.signature import verify_inline

DEADLINE_S = 1800  # hashing gigabytes on a slow disk
SIGN_DEADLINE_S = 120  # a key on a card waits for its owner
PACKAGES = ("Packages", "Packages.gz")
KEY_FILE = "keys/site.asc"
_SCANNERS = (
    ("apt-ftparchive", "packages", "."),
    ("dpkg-scanpackages", "--multiversion", "."),
)


def scan(directory: Path) -> str:
    """The text of Packages for all debs below a directory."""
    tools = [(tool, words) for name, *words in _SCANNERS if (tool := shutil.which(name))]
    if not tools:
        raise BundleError(
            "neither apt-ftparchive nor dpkg-scanpackages is on this machine; install apt-utils "
            "or dpkg-dev"
        )
    tool, arguments = tools[0]
    done = _run([tool, *arguments], DEADLINE_S, directory)
    if done.returncode != 0:
        raise BundleError(f"{directory}: {tool} failed: {done.stderr.strip()[-1000:]}")
    return done.stdout


def _run(command: list[str], deadline: float, cwd: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=deadline, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BundleError(f"{command[0]}: did not end within {deadline:.0f} s; run again") from None


def packages_text(directory: Path, debs: Sequence[Item], part: AptPart) -> str:
    """Packages of just the locked debs, sorted; each with the hash that the lock has."""
    wanted = {item.path.removeprefix(f"{part.path}/"): item.sha256 for item in debs}
    found = {}
    for stanza in parse_packages(scan(directory / part.path), part.repository):
        deb = stanza.deb()
        if wanted.get(deb.filename) == deb.sha256:
            text = stanza.text.replace("\nFilename: ./", "\nFilename: ")
            found[(deb.name, deb.version, deb.filename)] = text
    if missing := sorted(set(wanted) - {filename for _, _, filename in found}):
        raise BundleError(f"{directory / part.path}: not indexed as locked: {', '.join(missing)}")
    return "".join(f"{found[key]}\n\n" for key in sorted(found))


def release_text(part: AptPart, stack: str, files: dict[str, bytes], date: datetime) -> str:
    """Release of a flat repository. Its age never ends: a bundle is a state, not a mirror."""
    lines = [
        "Origin: rackpin\n",
        f"Label: {part.repository}\n",
        f"Suite: {stack}\n",
        f"Codename: {stack}\n",
        f"Date: {date:%a, %d %b %Y %H:%M:%S} UTC\n",
        "Architectures: amd64\n",
        f"Description: debs of {part.repository} that the lock of {stack} names, for {part.os}\n",
        "SHA256:\n",
    ]
    for name, content in sorted(files.items()):
        lines.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}\n")
    return "".join(lines)


def make(
    directory: Path, part: AptPart, debs: Sequence[Item], stack: str, signer: Signer | None
) -> list[str]:
    """Write the index files of one repository; returns their paths in the bundle.

    What would say the same as before is left as it is, signature included.
    """
    text = packages_text(directory, debs, part).encode()
    files = {"Packages": text, "Packages.gz": gzip.compress(text, mtime=0)}
    place = directory / part.path
    release = place / "Release"
    old = _old_release(release, part, stack, files)
    if old is None:
        written = release_text(part, stack, files, datetime.now(UTC))
        for name, content in files.items():
            write(place / name, content, directory)
        write(release, written.encode(), directory)
        old = written
    names = [*PACKAGES, "Release"]
    inline = place / "InRelease"
    if signer is None:
        inline.unlink(missing_ok=True)
    else:
        if not signer.made(inline, old):
            write(inline, signer.sign(release), directory)
        names.append("InRelease")
    return [f"{part.path}/{name}" for name in names]


def _old_release(release: Path, part: AptPart, stack: str, files: dict[str, bytes]) -> str | None:
    """The Release that is there, when it and its files are what would be written now."""
    try:
        text = release.read_text(encoding="utf-8")
        if any((release.parent / name).read_bytes() != files[name] for name in files):
            return None
        date = text.partition("\nDate: ")[2].partition("\n")[0]
        when = datetime.strptime(date, "%a, %d %b %Y %H:%M:%S %Z").replace(tzinfo=UTC)
    except (FileNotFoundError, UnicodeDecodeError, ValueError):
        return None
    return text if text == release_text(part, stack, files, when) else None


class Signer:
    """The site's key in gpg's keyring. A passphrase is gpg-agent's business, never ours."""

    def __init__(self, fingerprint: str, directory: Path) -> None:
        fingerprint = "".join(fingerprint.split()).upper()
        if not FINGERPRINT.fullmatch(fingerprint):
            raise BundleError(
                f"--sign-key {fingerprint}: write the whole fingerprint, 40 hex digits "
                "(gpg --list-secret-keys shows it)"
            )
        self.gpg = shutil.which("gpg") or ""
        if not self.gpg:
            raise BundleError("gpg: not on this machine; install gnupg, or leave out --sign-key")
        self.fingerprint = fingerprint
        self.directory = directory

    def export(self) -> bytes:
        """The public key, armored, as nodes get it."""
        done = _run([self.gpg, "--batch", "--armor", "--export-options", "export-minimal",
                     "--export", self.fingerprint], SIGN_DEADLINE_S, self.directory)  # fmt: skip
        if not done.stdout.strip():
            raise BundleError(
                f"--sign-key {self.fingerprint}: gpg has no such key; import it, or set GNUPGHOME"
            )
        return done.stdout.encode("ascii")

    def made(self, inline: Path, text: str) -> bool:
        """Whether a signature that is there is this key's, of this text."""
        try:
            return self.check(inline).decode() == text
        except (FileNotFoundError, DebError, UnicodeDecodeError):
            return False

    def check(self, inline: Path) -> bytes:
        key = self.directory / KEY_FILE
        return verify_inline(inline.read_bytes(), key, (self.fingerprint,), str(inline))

    def sign(self, release: Path) -> bytes:
        """InRelease for a Release file."""
        out = self.directory / PARTS / "InRelease"
        out.unlink(missing_ok=True)
        done = _run([self.gpg, "--batch", "--no-tty", "--yes", "--digest-algo", "SHA512",
                     "--local-user", self.fingerprint, "--output", str(out), "--clearsign",
                     str(release)], SIGN_DEADLINE_S, self.directory)  # fmt: skip
        if done.returncode != 0 or not out.is_file():
            raise BundleError(
                f"--sign-key {self.fingerprint}: gpg could not sign: "
                f"{done.stderr.strip()[-400:]}; unlock the key in gpg-agent, then run again"
            )
        return out.read_bytes()
