"""Error counters of the compute fabric's ports: absolute, and what came since the last verify."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackpin.checks import gpuinfo
from rackpin.checks.base import NO_ANSWER, NOTHING, Command, Context, Outputs, Question, unseen
from rackpin.checks.fabric_hcas import SYS
from rackpin.checks.gpuinfo import Told
from rackpin.findings import Finding, Level
from rackpin.skus import Sku

# Counter → from how many on a port is sick. Source: infiniband-diags, ibqueryerrors' default
# error_thresholds; discards are congestion's, not a cable's, so they only warn.
THRESHOLDS = {
    "symbol_error": 10,
    "link_error_recovery": 10,
    "link_downed": 10,
    "port_rcv_errors": 10,
    "port_rcv_remote_physical_errors": 100,
    "local_link_integrity_errors": 10,
    "excessive_buffer_overrun_errors": 10,
}
ONLY_WARN = {"port_xmit_discards": 100}
NEEDED = ("symbol_error", "link_downed", "port_rcv_errors")  # every HCA has these
COUNTERS = Command(
    "fabric.counters",
    f"""for p in {SYS}/*/ports/*; do [ -e "$p/state" ] || continue
  d=${{p#{SYS}/}}; echo "port ${{d%%/*}} ${{p##*/}}"
  for c in {" ".join([*THRESHOLDS, *ONLY_WARN])}; do
    v=; read -r v 2>/dev/null <"$p/counters/$c" && echo "$c $v"; done
done
echo end
""",
)
CHECK_ID = "fabric.counters"


class Counters:
    id = CHECK_ID
    title = "Ports of the compute fabric count no errors"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        sku = gpuinfo.sku_of(ctx)
        wanted = isinstance(sku, Sku) and sku.hcas and gpuinfo.has_cards(ctx)
        return [COUNTERS] if wanted else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not self.commands(ctx):
            return []
        output = outputs.get(COUNTERS.name, NO_ANSWER)
        expected = f"under {THRESHOLDS['symbol_error']} of each error, and none new"
        source = "infiniband-diags: ibqueryerrors, default thresholds"
        question = Question(ctx, self.id, COUNTERS, output, expected, source)
        if why := unseen(COUNTERS, output):
            return [question.not_run(why)]
        ports = parse(output.stdout)
        if not output.ok or output.stdout.splitlines()[-1:] != ["end"]:
            return [question.not_run("its answer is not whole")]
        if not ports:
            return [question.not_run(f"there is no port in {SYS}; see fabric.hcas")]
        if not any(ports.values()):
            why = "no port counts errors: they are virtual functions, or of another vendor"
            return [question.not_run(why, required=False)]
        told = Told()
        metrics = totals(ports)
        for name, limit in (THRESHOLDS | ONLY_WARN).items():
            _judge(ctx, name, limit, ports, metrics, told)
        told.untold += [
            f"{port}: {name}"
            for port, counts in ports.items()
            for name in NEEDED
            if name not in counts
        ]
        shown = "\n".join(
            f"{port}: {', '.join(f'{k} {v}' for k, v in counts.items() if v)}"
            for port, counts in ports.items()
            if any(counts.values())
        )
        remedy = (
            "ibdiagnet or mlxlink -d HCA -m for the cable: clean or change it, then the "
            "transceiver, then the switch port; perfquery -x -R clears what is understood"
        )
        good = f"{len(ports)} ports, no error worth a look"
        return [
            gpuinfo.conclude(
                question, good, told, shown=shown or output.stdout, remedy=remedy, metrics=metrics
            )
        ]


def parse(text: str) -> dict[str, dict[str, int]]:
    """Counters by ``DEVICE/PORT``; what isn't a number is left out."""
    ports: dict[str, dict[str, int]] = {}
    counts: dict[str, int] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"port ([\w.-]{1,64}) (\d{1,3})", line):
            counts = ports.setdefault(f"{match[1]}/{match[2]}", {})
        elif (match := re.fullmatch(r"([a-z_]{4,40}) (\d{1,20})", line)) and ports:
            counts[match[1]] = int(match[2])
    return ports


def totals(ports: dict[str, dict[str, int]]) -> dict[str, float]:
    """Each counter over all ports: what the next verify compares with."""
    names = THRESHOLDS | ONLY_WARN
    return {f"{n}_count": float(sum(c.get(n, 0) for c in ports.values())) for n in names}


def _judge(
    ctx: Context,
    name: str,
    limit: int,
    ports: dict[str, dict[str, int]],
    metrics: dict[str, float],
    told: Told,
) -> None:
    """By what came since the last verify where that is known, else by all since the counter's 0."""
    bad = {port: counts[name] for port, counts in ports.items() if counts.get(name)}
    if not bad:
        return
    where = ", ".join(f"{port} {count}" for port, count in bad.items())
    before = ctx.history.get(f"{CHECK_ID} {name}_count")
    if before:
        now = metrics[f"{name}_count"]
        # Fewer than before: a reboot or a reset set them to 0.
        new = now - before[-1] if now >= before[-1] else now
        if not new:
            if max(bad.values()) >= limit:
                told.worries.append(f"{name}: {where}; none new since the last verify")
            return
        text = f"{name}: {new:.0f} new since the last verify ({where})"
        sick = new >= limit
    else:
        text, sick = f"{name}: {where}", max(bad.values()) >= limit
    (told.faults if sick and name in THRESHOLDS else told.worries).append(text)


CHECK = Counters()
