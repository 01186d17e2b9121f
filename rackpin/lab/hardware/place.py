"""A node's hardware on the disk of a lab host: written from outside, only what changed."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from rackpin.lab.errors import LabError
from rackpin.lab.hardware import presets
from rackpin.lab.hardware.sysfs import Content
from rackpin.lab.hardware.tree import HOME, frame, tree, write
from rackpin.lab.state import HostState
from rackpin.lab.supervisor import write_atomically

NOT_INSTALLED = "not-installed"
GENERATOR = "usr/local/lib/systemd/system-generators/rackpin-lab"
DPKG_HOOK = "etc/dpkg/dpkg.cfg.d/rackpin-lab"
# On the host, after a change; packages that brought the driver meanwhile still count.
APPLY_NOW = f"{HOME}/driver auto && {HOME}/apply now"


def _file(one: HostState) -> Path:
    return one.directory / "faults"


def wished(one: HostState) -> list[str]:
    """The host's faults: those of the last ``rackpin lab fault``, else of the description."""
    try:
        found: list[str] = json.loads(_file(one).read_text())
    except FileNotFoundError:
        return list(one.faults)
    return found


def remember_faults(one: HostState, faults: list[str]) -> None:
    """From now on, and until the host's disk is wiped. LabError when one can't be had."""
    if one.hardware is None:
        raise LabError(
            f"{one.name} has no simulated hardware: give it `hardware: NAME` in lab.yaml"
        )
    presets.node(one.name, one.hardware, faults)
    write_atomically(_file(one), json.dumps(faults) + "\n")


def forget_faults(one: HostState) -> None:
    _file(one).unlink(missing_ok=True)


def put(root: Path, one: HostState) -> bool:
    """Write what the host is to show onto its disk; True when that changed something.

    A host whose driver isn't installed gets both states: ``/usr/lib/rackpin-lab/driver`` on it
    changes over, and dpkg calls that after each run.
    """
    home = root / HOME.lstrip("/")
    if home.parent.resolve() != root.resolve() / "usr/lib" or home.is_symlink():
        raise LabError(f"{one.name}: {home} leads out of the host's disk; reset the host")
    if one.hardware is None:
        return _remove(root, home)
    faults = wished(one)
    installed = [wish for wish in faults if wish != NOT_INSTALLED]
    states = {"installed": tree(presets.node(one.name, one.hardware, installed))}
    if installed != faults:
        states["bare"] = tree(presets.node(one.name, one.hardware, faults))
    files = {
        f"{state}/{name}": text for state, some in states.items() for name, text in some.items()
    }
    changed = _put_trees(home, files, "bare" if "bare" in states else "installed")
    hook = f"post-invoke={HOME}/driver auto || true\n"
    outside = {GENERATOR: frame()["generator"]} | ({DPKG_HOOK: hook} if "bare" in states else {})
    if "bare" not in states:
        (root / DPKG_HOOK).unlink(missing_ok=True)
    for name, text in outside.items():
        file = root / name
        if not file.exists() or file.read_text() != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, text, 0o755 if name == GENERATOR else 0o644)
    return changed


def _put_trees(home: Path, files: dict[str, Content], state: str) -> bool:
    """A new tree beside the old one, then the link ``current`` to it, then the old one away."""
    outer = frame()
    content = repr([sorted(files.items()), sorted(outer.items())])
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    trees, current = home / "trees", home / "current"
    if current.is_symlink() and Path(current.readlink()).parts[1:2] == (digest,):
        return False
    if trees.is_symlink():
        raise LabError(f"{trees} is a link; reset the host")
    if (trees / digest).exists():  # of a run that was ended half-way
        shutil.rmtree(trees / digest)
    for name, one in files.items():
        write(trees / digest / name, one)
        if "/bin/" in name:
            (trees / digest / name).chmod(0o755)
    for name, text in outer.items():
        write_atomically(home / name, text, 0o755)
    fresh = home / "current.new"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(Path("trees", digest, state))
    fresh.replace(current)
    for old in trees.iterdir():
        if old.name != digest:
            shutil.rmtree(old)
    return True


def _remove(root: Path, home: Path) -> bool:
    there = home.exists()
    if there:
        shutil.rmtree(home)
    for name in (GENERATOR, DPKG_HOOK):
        (root / name).unlink(missing_ok=True)
    for link in (root / "usr/local/bin").glob("*"):
        if link.is_symlink() and str(link.readlink()).startswith(f"{HOME}/"):
            link.unlink()
    return there
