"""Which wheels the nodes of a stack can load: platform and interpreter tags."""

from __future__ import annotations

from collections.abc import Iterator

from packaging import tags

from rackpin.stack.lock import Lock
from rackpin.stack.pins import Pins, StackError

# What the OS's C library can load; a lock takes the oldest of its stack.
GLIBC = {
    "debian-12": (2, 36),
    "debian-13": (2, 41),
    "ubuntu-22.04": (2, 35),
    "ubuntu-24.04": (2, 39),
}
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def glibc(stack: Pins | Lock) -> tuple[int, int]:
    """The oldest glibc among the stack's operating systems: one set of wheels for all."""
    unknown = [os.key for os in stack.os if os.key not in GLIBC]
    if unknown:
        raise StackError(
            f"pins.yaml: os: no glibc known for {', '.join(unknown)}; "
            "add it to GLIBC in rackpin/stack/target.py"
        )
    return min(GLIBC[os.key] for os in stack.os)


def platform_tags(stack: Pins | Lock) -> list[str]:
    """Platform tags that the stack's nodes can load, best first."""
    result = []
    for minor in range(glibc(stack)[1], 4, -1):
        result.append(f"manylinux_2_{minor}_{stack.arch}")
        if alias := _LEGACY.get(minor):
            result.append(f"{alias}_{stack.arch}")
    return [*result, f"linux_{stack.arch}"]


def supported_tags(stack: Pins | Lock, python: str | None = None) -> list[tags.Tag]:
    """Wheel tags that a Python (the stack's, if none is named) loads on its nodes, best first."""
    version = tuple(int(part) for part in (python or stack.python).split("."))
    names = platform_tags(stack)

    def both() -> Iterator[tags.Tag]:
        yield from tags.cpython_tags(version, platforms=names)
        interpreter = f"cp{version[0]}{version[1]}"
        yield from tags.compatible_tags(version, interpreter=interpreter, platforms=names)

    return list(both())
