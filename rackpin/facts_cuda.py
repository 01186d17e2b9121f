"""The pyinfra fact about the CUDA toolkits of a node and where its programs find libcuda."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra.api import FactBase
from pyinfra.api.exceptions import FactProcessError

from rackpin.parse.sections import CutAnswer
from rackpin.parse.sections import sections as read_sections

# A line that names a directory of cuda-compat: /usr/local/cuda/compat, /usr/local/cuda-12.2/compat.
COMPAT = r"^[^#]*/cuda[^/[:space:]]*/compat"

_SCRIPT = rf"""echo "@@ link"; readlink -f /usr/local/cuda
echo "@@ choice"; update-alternatives --query cuda 2>/dev/null | sed -n 's/^Value: //p'
echo "@@ toolkits"
for d in /usr/local/cuda-[0-9]*; do [ -x "$d/bin/nvcc" ] && echo "$d"; done
echo "@@ compat"; grep -sHE '{COMPAT}' /etc/ld.so.conf /etc/ld.so.conf.d/*.conf
echo "@@ environment"
grep -sE 'LD_LIBRARY_PATH.*/compat' /etc/environment /etc/profile.d/*.sh
echo "@@ libcuda"; ldconfig -p 2>/dev/null | sed -n 's/.*libcuda\.so\.1 .*x86-64.* => //p'
echo "@@ end"
"""


@dataclass(frozen=True)
class Cuda:
    """Toolkits of a node. ``compat``: file and line of each entry for the dynamic linker."""

    link: str = ""  # where /usr/local/cuda leads
    choice: str = ""  # of update-alternatives; empty where it has no such group
    toolkits: tuple[str, ...] = ()  # those with a compiler
    compat: tuple[tuple[str, str], ...] = ()
    environment: tuple[str, ...] = ()  # files and lines that put compat into LD_LIBRARY_PATH
    libcuda: tuple[str, ...] = ()  # in the linker's order


class CudaFact(FactBase[Cuda | None]):
    """What a program that wants CUDA finds on this node."""

    @staticmethod
    def default() -> None:
        return None

    def command(self) -> str:
        return _SCRIPT

    def process(self, output: list[str]) -> Cuda:
        return parse_cuda(output)


def parse_cuda(lines: list[str]) -> Cuda:
    """The script's sections; cut text raises FactProcessError."""
    try:
        sections = read_sections(lines)
    except CutAnswer as error:
        raise FactProcessError(f"cuda: the {error}") from error
    compat = [line.partition(":") for line in sections["compat"]]
    return Cuda(
        link="".join(sections["link"][:1]),
        choice="".join(sections["choice"][:1]),
        toolkits=tuple(sections["toolkits"]),
        compat=tuple((file, entry) for file, _, entry in compat),
        environment=tuple(sections["environment"]),
        libcuda=tuple(sections["libcuda"]),
    )
