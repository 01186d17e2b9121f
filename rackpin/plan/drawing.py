"""The topology with the groups of a split, as SVG."""

from __future__ import annotations

from html import escape
from itertools import pairwise

from rackpin.plan.errors import PlanError
from rackpin.plan.groups import node_topology
from rackpin.plan.plan import Plan
from rackpin.plan.topology import class_of, link_classes

# Okabe and Ito's colours: told apart by colour-blind readers; each also has a mark of its own.
FILLS = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#0072B2", "#BBBBBB")
LINKS = {
    "nvlink": ("#0072B2", "5", ""),
    "pcie-switch": ("#009E73", "3.5", ""),
    "pcie-host": ("#E69F00", "2.5", "10 5"),
    "socket": ("#D55E00", "2", "3 5"),
    "network": ("#333333", "2", "12 4 2 4"),
}
MOST = 256  # GPUs; more is a wall of boxes that nobody reads
BOX_W, BOX_H, GAP, PAD, TOP = 132, 62, 22, 22, 108
COLUMN_GAP, ROW_GAP = 50, 46


def drawing(found: Plan) -> str:
    """An SVG of all nodes: boxes are GPUs coloured by TP group, lines the paths between them.

    Raises PlanError for more GPUs than can be drawn legibly.
    """
    start, split = found.start, found.chosen.split
    if start.gpus > MOST:
        raise PlanError(f"--svg: {start.gpus} GPUs are more than a drawing shows ({MOST})")
    topology, assumed = node_topology(start)
    per_node = topology.gpus
    nodes = -(-start.gpus // per_node)
    columns = min(per_node, 4)
    rows = -(-per_node // columns)
    across = min(nodes, 2)
    node_w = columns * (BOX_W + COLUMN_GAP) - COLUMN_GAP + 2 * PAD
    node_h = rows * (BOX_H + ROW_GAP) - ROW_GAP + 2 * PAD + 24
    verdict = "starts" if found.chosen.starts else "does not start"
    title = f"{found.data['model']['name']}: {split} on {start.gpus} × {start.gpu.id}, {verdict}"
    width = max(len(title) * 13 + 2 * GAP, across * (node_w + GAP) + GAP, 820)
    height = TOP + -(-nodes // across) * (node_h + GAP) + 112
    order = topology.order()
    places: dict[int, tuple[float, float]] = {}
    x: float
    y: float
    parts: list[str] = []
    for node in range(nodes):
        x0 = GAP + node % across * (node_w + GAP)
        y0 = TOP + node // across * (node_h + GAP)
        parts.append(
            f'<rect x="{x0}" y="{y0}" width="{node_w}" height="{node_h}" rx="10" '
            'fill="#FAFAFA" stroke="#999999"/>'
        )
        parts.append(_text(x0 + PAD, y0 + 26, f"node {node}", 16, bold=True))
        for place, gpu in enumerate(order):
            x = x0 + PAD + place % columns * (BOX_W + COLUMN_GAP)
            y = y0 + PAD + 24 + place // columns * (BOX_H + ROW_GAP)
            places[node * per_node + gpu] = (x, y)
        parts += _paths(found, node, places)
    roles = _roles(found)
    for gpu, (x, y) in places.items():
        if gpu < start.gpus or gpu in roles:
            parts.append(_gpu(gpu % per_node, x, y, roles.get(gpu)))
    head = [
        _text(GAP, 38, title, 20, bold=True),
        _text(GAP, 64, _summary(found), 14),
        _text(GAP, 88, assumed or "Paths as nvidia-smi topo -m shows them.", 14),
    ]
    legend = _legend(found, height - 84, width)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="DejaVu Sans, Arial, sans-serif">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{width}" height="{height}" fill="#FFFFFF"/>\n'
        + "\n".join([*head, *parts, *legend])
        + "\n</svg>\n"
    )


def _roles(found: Plan) -> dict[int, tuple[int, str]]:
    """GPU → number of its TP group, and what it does."""
    start, split = found.start, found.chosen.split
    topology, _ = node_topology(start)
    nodes = -(-start.gpus // topology.gpus)
    ranks = [node * topology.gpus + gpu for node in range(nodes) for gpu in topology.order()]
    made = {}
    for i, gpu in enumerate(ranks[: split.gpus(start.engine)]):
        group, rank = divmod(i, split.tp)
        replica, stage = divmod(group, split.pp)
        said = [f"TP {rank}"] if split.tp > 1 else []
        said += [f"PP {stage}"] if split.pp > 1 else []
        said += [f"DP {replica}"] if split.dp > 1 and start.engine != "sglang" else []
        made[gpu] = (group, " · ".join(said) or "whole model")
    return made


def _gpu(number: int, x: float, y: float, role: tuple[int, str] | None) -> str:
    fill = FILLS[role[0] % len(FILLS)] if role else "#FFFFFF"
    said = role[1] if role else "idle"
    mark = f"group {role[0]}" if role else ""
    ink = "#FFFFFF" if fill == "#0072B2" else "#000000"
    dash = "" if role else ' stroke-dasharray="4 4"'
    return (
        f'<g><rect x="{x}" y="{y}" width="{BOX_W}" height="{BOX_H}" rx="6" fill="{fill}" '
        f'stroke="#222222" stroke-width="1.5"{dash}/>'
        + _text(x + 8, y + 19, f"GPU {number}", 14, bold=True, ink=ink)
        + _text(x + 8, y + 36, said, 12, ink=ink)
        + _text(x + 8, y + 53, mark, 12, ink=ink)
        + "</g>"
    )


def _paths(found: Plan, node: int, places: dict[int, tuple[float, float]]) -> list[str]:
    """Lines between neighbours in the drawing, labelled with their path; a full mesh is named."""
    topology, _ = node_topology(found.start)
    base, parts = node * topology.gpus, list[str]()
    order = topology.order()
    for a, b in pairwise(order):
        link = topology.link(a, b)
        colour, stroke, dash = LINKS[class_of(link).id]
        (xa, ya), (xb, yb) = places[base + a], places[base + b]
        style = f'stroke="{colour}" stroke-width="{stroke}" fill="none"'
        style += f' stroke-dasharray="{dash}"' if dash else ""
        middle = ya + BOX_H / 2
        if ya == yb:
            parts.append(f'<path d="M{xa + BOX_W} {middle} H{xb}" {style}/>')
            parts.append(_text((xa + BOX_W + xb) / 2, middle - 8, link, 12, middle=True))
            continue
        foot = ya + BOX_H + ROW_GAP / 2
        start, end = xa + BOX_W / 2, xb + BOX_W / 2
        parts.append(f'<path d="M{start} {ya + BOX_H} V{foot} H{end} V{yb}" {style}/>')
        parts.append(_text((start + end) / 2, foot - 6, link, 12, middle=True))
    return parts


def _summary(found: Plan) -> str:
    data = found.data
    if data["kv_cache_tokens"] is None:
        return "; ".join(one["why"] for one in data["refusals"])[:110]
    return (
        f"{data['weights_gib_per_gpu']:.1f} GiB weights a GPU; a replica holds "
        f"{data['kv_cache_tokens']:,} KV tokens, {data['max_concurrency_at_max_len']:.1f} requests "
        f"of {data['max_model_len']:,}"
    )


def _legend(found: Plan, y: float, width: float) -> list[str]:
    topology, _ = node_topology(found.start)
    used = {class_of(topology.link(i, j)).id for i in range(topology.gpus) for j in range(i)}
    groups = {group.link.id for group in found.chosen.groups if group.link}
    names = {one.id: one.label for one in link_classes() if one.id in used | groups}
    parts, x = [_text(GAP, y, "Paths:", 13, bold=True)], GAP + 60.0
    for name, label in names.items():
        colour, stroke, dash = LINKS[name]
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(
            f'<line x1="{x}" y1="{y - 4}" x2="{x + 44}" y2="{y - 4}" stroke="{colour}" '
            f'stroke-width="{stroke}"{dashed}/>'
        )
        parts.append(_text(x + 52, y, label, 13))
        x += 52 + 8.0 * len(label) + 26
        if x > width - 180:
            x, y = GAP + 60.0, y + 22
    said = " · ".join(
        f"{group.name}: {len(group.members)} × {len(group.members[0])}, {group.link.label}"
        for group in found.chosen.groups
        if group.link
    )
    parts.append(_text(GAP, y + 26, f"Groups: {said}" if said else "Groups: none", 13))
    parts.append(
        _text(
            GAP,
            y + 48,
            "A colour and number is one tensor-parallel group; lines join "
            "neighbours in rank order.",
            13,
        )
    )
    return parts


def _text(
    x: float,
    y: float,
    words: str,
    size: int,
    bold: bool = False,
    middle: bool = False,
    ink: str = "#000000",
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    anchor = ' text-anchor="middle"' if middle else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{ink}"{weight}{anchor}>'
        f"{escape(words)}</text>"
    )
