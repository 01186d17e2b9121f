"""The answer in the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rackpin.plan.plan import Plan


def show(found: Plan, console: Console | None = None) -> None:
    """Print verdict, memory, KV capacity, groups, reasons, assumptions and alternatives."""
    out, data = console or Console(highlight=False), found.data
    out.print(_verdict(found))
    for refusal in data["refusals"]:
        out.print(Text(f"  ✗ {refusal['why']}", style="red"))
        out.print(Text(f"    → {refusal['remedy']}"))
    if data["memory"]:
        out.print(_memory(data))
        out.print(Text(_capacity(data)))
    if data["groups"]:
        out.print(_groups(data))
    if data["gpus"] > 1:
        out.print(_expected(data["speedup"]))
    _list(out, "Reasons", data["reasons"])
    _list(out, "Options that hold more", [_knob(one) for one in data["knobs"]])
    _list(out, "Assumed", [f"constants: {data['constants']['label']}", *data["assumptions"]])
    if data["alternatives"]:
        out.print(_alternatives(data))


def _verdict(found: Plan) -> Text:
    data, start = found.data, found.start
    word, style = ("starts", "bold green") if data["ok"] else ("does not start", "bold red")
    line = Text(f"{data['model']['name']} on {start.gpus} × {start.gpu.id}, {start.engine}: ")
    return line.append(f"{found.chosen.split} {word}", style=style)


def _memory(data: dict[str, Any]) -> Table:
    total = data["card"]["total_gib"]
    table = Table(title=f"Memory of the fullest GPU, of {total:g} GiB", title_justify="left")
    table.add_column("part")
    table.add_column("stored as")
    table.add_column("GiB", justify="right")
    table.add_column("of card", justify="right")
    split = False
    for row in data["memory"]:
        if not row["in_budget"] and not split:
            split = True
            table.add_section()
        share = f"{row['gib'] / total:.1%}"
        table.add_row(Text(row["part"]), Text(row["stored"]), f"{row['gib']:.3f}", share)
    return table


def _capacity(data: dict[str, Any]) -> str:
    return (
        f"KV cache: {data['kv_cache_tokens']:,} tokens a replica at "
        f"{data['kv_bytes_per_token_per_gpu']:,} B a token and GPU; "
        f"{data['max_concurrency_at_max_len']:.2f} requests of {data['max_model_len']:,} tokens "
        "at once"
        + (
            f", {data['max_concurrency_at_max_len'] * data['dp']:.2f} over {data['dp']} replicas"
            if data["dp"] > 1
            else ""
        )
    )


def _groups(data: dict[str, Any]) -> Table:
    table = Table(title="Groups", title_justify="left")
    for name in ("kind", "GPUs", "worst path"):
        table.add_column(name)
    for group in data["groups"]:
        shown = ["-".join(str(gpu) for gpu in members) for members in group["members"][:8]]
        more = f" … {len(group['members'])} groups" if len(group["members"]) > 8 else ""
        table.add_row(group["kind"], Text(" ".join(shown) + more), group["link"] or "")
    return table


def _expected(speed: dict[str, Any]) -> Text:
    return Text(
        f"Expected: one request {speed['one_request']:g} times, all requests "
        f"{speed['throughput']:g} times the speed of {speed['against']}"
    )


def _knob(one: dict[str, Any]) -> str:
    return (
        f"{one['option']} {one['value']}: {one['kv_cache_tokens']:,} tokens, "
        f"{one['max_concurrency_at_max_len']:.2f} requests"
    )


def _list(out: Console, title: str, lines: list[str]) -> None:
    if lines:
        out.print(Text(title, style="bold"))
        for line in lines:
            out.print(Text(f"  · {line}"))


def _alternatives(data: dict[str, Any]) -> Table:
    table = Table(title="Looked at and not taken", title_justify="left")
    for name in ("TP", "PP", "EP", "CP", "DP"):
        table.add_column(name, justify="right")
    table.add_column("starts")
    table.add_column("why not", overflow="fold")
    for one in data["alternatives"]:
        degrees = [str(one[key]) for key in ("tp", "pp", "ep", "cp", "dp")]
        table.add_row(*degrees, "yes" if one["ok"] else "no", Text(one["why_not"]))
    return table
