"""Small real apt repositories with NVIDIA's names, built and signed by the tests themselves.

``make_repository(dir, "two-branches")`` gives a directory that apt takes over ``file:`` or from
any plain HTTP server. Debs are made by dpkg-deb, the index by dpkg-scanpackages, signatures by a
throw-away gpg key.
"""

from __future__ import annotations

import atexit
import gzip
import hashlib
import lzma
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from tests.fixtures_debs_names import SCENARIOS, Package

SUITE = "rackpin-test"
DEADLINE_S = 60
STANDARD, FLAT = "dists", "flat"


def run(*command: str, cwd: Path | None = None, stdin: str | None = None) -> str:
    """Output of a command that must succeed within the deadline."""
    done = subprocess.run(
        command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S,
        check=False, env={**os.environ, "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Key:
    """A throw-away signing key: its gpg home and its fingerprint (40 hex, capitals)."""

    home: Path
    fingerprint: str

    def gpg(self, *arguments: str, stdin: str | None = None) -> str:
        return run("gpg", "--homedir", str(self.home), "--batch", "--yes", *arguments, stdin=stdin)

    def export(self, file: Path) -> Path:
        """Write the public key, armored, as apt's Signed-By takes it (name it ``*.asc``)."""
        file.write_text(self.gpg("--armor", "--export", self.fingerprint), encoding="ascii")
        return file


def new_key(name: str = "site", expires: str = "never") -> Key:
    """A new key; ``expires`` as gpg writes it (``seconds=1``). Removed when the tests end."""
    # A short path of its own: the agent's socket name may have 107 bytes only.
    home = Path(tempfile.mkdtemp(prefix="rpk-", dir="/tmp"))
    atexit.register(_forget, home)
    user = f"rackpin test {name} <{name}@example.invalid>"
    key = Key(home, "")
    key.gpg(
        "--passphrase", "", "--pinentry-mode", "loopback", "--quick-gen-key",
        user, "ed25519", "sign", expires,
    )  # fmt: skip
    listing = key.gpg("--with-colons", "--list-keys").splitlines()
    return Key(home, next(line.split(":")[9] for line in listing if line.startswith("fpr:")))


def _forget(home: Path) -> None:
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], timeout=30, check=False)
    shutil.rmtree(home, ignore_errors=True)


@cache
def shared_key() -> Key:
    """The one key that repositories of this test run are signed with unless told otherwise."""
    return new_key()


def build_deb(package: Package, directory: Path) -> Path:
    """One deb that puts a single file under /usr/share/rackpin-test; returns its path."""
    target = directory / package.filename
    with tempfile.TemporaryDirectory(prefix="rpd-") as temp:
        tree = Path(temp)
        tree.chmod(0o755)
        share = tree / "usr/share/rackpin-test"
        share.mkdir(parents=True)
        (share / package.name).write_text(f"{package.version}\n", encoding="ascii")
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN/control").write_text(package.control, encoding="utf-8")
        for name, script in package.scripts.items():
            (tree / "DEBIAN" / name).write_text(script, encoding="utf-8")
            (tree / "DEBIAN" / name).chmod(0o755)
        run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", str(tree), str(target))
    return target


@dataclass
class Repository:
    """A repository on disk. Paths of debs are ``path / pool / package.filename``."""

    path: Path
    key_file: Path  # armored public key, outside of what is served
    fingerprint: str
    suite: str  # "/" for a flat one, which then has no components
    packages: list[Package]
    key: Key
    layout: str = STANDARD
    fields: dict[str, str] = field(default_factory=dict)  # further or other fields of Release

    @property
    def release_dir(self) -> Path:
        return self.path if self.layout == FLAT else self.path / "dists" / self.suite

    @property
    def index_dir(self) -> Path:
        return self.path if self.layout == FLAT else self.release_dir / "main/binary-amd64"

    @property
    def source_line(self) -> str:
        """A line for sources.list that takes it by ``file:`` with its key."""
        rest = "/" if self.layout == FLAT else f"{self.suite} main"
        return f"deb [signed-by={self.key_file}] file:{self.path} {rest}"

    def deb(self, name: str, version: str = "") -> Path:
        """The file of a package (of that version when it has several)."""
        for package in self.packages:
            if package.name == name and version in ("", package.version):
                return self.path / "pool" / package.filename
        raise KeyError(f"{name} {version}")

    def add(self, *packages: Package) -> None:
        """Put further packages in and renew index and signature."""
        for package in packages:
            build_deb(package, self.path / "pool")
        self.packages.extend(packages)
        self.index()

    def remove(self, name: str, version: str = "") -> None:
        """Take a package out, as vendors do, and renew index and signature."""
        self.deb(name, version).unlink()
        self.packages = [
            p for p in self.packages if p.name != name or version not in ("", p.version)
        ]
        self.index()

    def index(self) -> None:
        """Write Packages anew from the debs, then Release and its signatures."""
        text = run("dpkg-scanpackages", "-m", "pool", cwd=self.path).encode()
        self.index_dir.mkdir(parents=True, exist_ok=True)
        files = {
            "Packages": text,
            "Packages.gz": gzip.compress(text, mtime=0),
            "Packages.xz": lzma.compress(text),
        }
        for name, content in files.items():
            (self.index_dir / name).write_bytes(content)
            hashed = self.index_dir / "by-hash/SHA256"
            hashed.mkdir(parents=True, exist_ok=True)
            (hashed / hashlib.sha256(content).hexdigest()).write_bytes(content)
        self.sign()

    def sign(self, key: Key | None = None, **fields: str) -> None:
        """Write and sign Release anew. ``fields`` (``Valid_Until="…"``) stay for later calls;
        an empty value removes the field."""
        self.fields.update({name.replace("_", "-"): value for name, value in fields.items()})
        head = {
            "Origin": "rackpin test",
            "Label": "rackpin test",
            "Suite": self.suite,
            "Codename": self.suite,
            "Date": release_date(),
            "Acquire-By-Hash": "yes",
            "Architectures": "amd64",
            "Components": "main",
            **self.fields,
        }
        lines = [f"{name}: {value}\n" for name, value in head.items() if value]
        for title, algorithm in (("MD5Sum", "md5"), ("SHA256", "sha256")):
            lines.append(f"{title}:\n")
            for file in sorted(self.index_dir.glob("Packages*")):
                digest = hashlib.new(algorithm, file.read_bytes()).hexdigest()
                name = file.relative_to(self.release_dir)
                lines.append(f" {digest} {file.stat().st_size} {name}\n")
        self.sign_text("".join(lines), key)

    def sign_text(self, text: str, key: Key | None = None) -> None:
        """Sign this Release text, right or wrong, with the repository's key or another."""
        key = key or self.key
        release = self.release_dir / "Release"
        release.write_text(text, encoding="utf-8")
        user = ("--local-user", key.fingerprint)
        inline, detached = self.release_dir / "InRelease", self.release_dir / "Release.gpg"
        key.gpg(*user, "--output", str(inline), "--clearsign", str(release))
        key.gpg(*user, "--armor", "--output", str(detached), "--detach-sign", str(release))


def release_date(shift: timedelta = timedelta()) -> str:
    """Now (or another time) as Release files write dates."""
    return (datetime.now(UTC) + shift).strftime("%a, %d %b %Y %H:%M:%S UTC")


def make_repository(
    directory: Path,
    scenario: str = "two-branches",
    *,
    key: Key | None = None,
    layout: str = STANDARD,
    packages: Iterable[Package] | None = None,
) -> Repository:
    """Build a signed repository in ``directory`` (made if absent); some 3 s for the largest.

    ``scenario`` is one of ``fixtures_debs_names.SCENARIOS``; ``packages`` replaces its list.
    ``layout`` is ``dists`` (suite ``rackpin-test``, component main) or ``flat`` as NVIDIA's.
    The key file lies beside the directory as ``NAME.asc``.
    """
    key = key or shared_key()
    chosen = list(SCENARIOS[scenario] if packages is None else packages)
    (directory / "pool").mkdir(parents=True)
    for package in chosen:
        build_deb(package, directory / "pool")
    repository = Repository(
        path=directory,
        key_file=key.export(directory.parent / f"{directory.name}.asc"),
        fingerprint=key.fingerprint,
        suite="/" if layout == FLAT else SUITE,
        packages=chosen,
        key=key,
        layout=layout,
    )
    repository.index()
    return repository


def flip(file: Path, offset: int = -1) -> None:
    """Change one bit of a file, keeping size and time, as a bad disk does."""
    stat = file.stat()
    content = bytearray(file.read_bytes())
    content[offset if offset >= 0 else len(content) // 2] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
