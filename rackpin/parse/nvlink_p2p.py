"""``nvidia-smi topo -p2p``: whether each GPU can reach each other's memory."""

from __future__ import annotations

from rackpin.parse.kinds import NotThisKind
from rackpin.parse.matrix import GPU, SELF, Matrix
from rackpin.parse.nvlink_model import P2P, Nvlink, NvlinkGpu

STATES = {"OK", "CNS", "GNS", "TNS", "NS", "U", "DR"}  # by the legend of topo -p2p


def p2p(table: Matrix, errors: tuple[str, ...]) -> Nvlink:
    """The answer of a table; NotThisKind when its words are those of ``topo -m``."""
    names = [name for name in table.columns if GPU.fullmatch(name)]
    cells = {cell for row in table.rows.values() for cell in row} - {SELF}
    if len(names) < len(table.columns) or table.extra or not cells <= STATES:
        raise NotThisKind("this is topo -m (kind topo), not topo -p2p")
    whole = all(len(table.rows.get(name, ())) == len(names) for name in names)
    pairs: dict[str, list[list[int]]] = {}
    for one, name in enumerate(names):
        for other in range(one + 1, len(names)):
            there, back = table.cell(name, other), table.cell(names[other], one)
            if there and back and there != back:
                errors += (f"{name} to {names[other]} is {there}, and back {back}",)
            elif state := there or back:
                pairs.setdefault(state, []).append([int(name[3:]), int(names[other][3:])])
    return Nvlink(
        P2P,
        tuple(NvlinkGpu(int(name[3:]), None) for name in names),
        tuple(tuple(table.cell(n, place) for place in range(len(names))) for n in names),
        dict(sorted(pairs.items())),
        whole and table.headed and not errors,
        errors=errors,
    )
