"""Room on the file systems that fill up: logs, environments, Ray's session (F115)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rackpin import layout
from rackpin.checks.base import NO_ANSWER, NOTHING, Command, Context, Outputs, Question, unseen
from rackpin.findings import Finding, Level

WARN_PERCENT, FAIL_PERCENT = 10.0, 5.0
EXPECTED = f"at least {WARN_PERCENT:g} % free, in bytes and in inodes"


@dataclass(frozen=True)
class Space:
    mount: str
    total: int  # KiB or inodes, without what is reserved for root
    free: int

    @property
    def percent(self) -> float:
        return 100.0 * self.free / self.total if self.total else 100.0


def paths(ctx: Context) -> list[str]:
    return list(dict.fromkeys(["/", "/opt", layout.STATE, ctx.fleet.config.ray.temp_dir]))


def command(ctx: Context) -> Command:
    where = " ".join(paths(ctx))
    # A path that isn't there yet lies on the file system of its parent.
    shell = (
        f'set --; for p in {where}; do [ -e "$p" ] && set -- "$@" "$p"; done; '
        'echo "## blocks"; df -Pk "$@" && echo "## inodes" && df -Pi "$@" && echo "## end"'
    )
    return Command("disk", shell)


class Disk:
    id = "disk"
    title = "Free space"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [command(ctx)]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        asked, output = command(ctx), outputs.get("disk", NO_ANSWER)
        question = Question(ctx, self.id, asked, output, EXPECTED, "failures F115")
        why = unseen(asked, output)
        blocks, inodes = parse(output.stdout)
        if why is None and ("## end" not in output.stdout or not blocks):
            why = "df gave no whole answer"
        if why is not None:
            return [question.not_run(why)]
        faults: list[str] = []
        worries: list[str] = []
        where: list[str] = []
        for kind, spaces in (("space", blocks), ("inodes", inodes)):
            for space in spaces:
                if space.percent < WARN_PERCENT:
                    text = f"{space.mount} has {space.percent:.1f} % {kind} free"
                    (faults if space.percent < FAIL_PERCENT else worries).append(text)
                    where.append(space.mount)
        least = min(space.percent for space in blocks)
        good = f"at least {least:.0f} % free on {', '.join(space.mount for space in blocks)}"
        remedy = ""
        if where:
            remedy = (
                f"du -xh --max-depth=2 {where[0]} | sort -h | tail; old environments are in "
                f"{layout.ENV_DIR}, Ray's logs in {ctx.fleet.config.ray.temp_dir}"
            )
        metrics = {"least_free_percent": round(least, 1)}
        return [question.verdict(good, faults, worries, remedy=remedy, metrics=metrics)]


def parse(text: str) -> tuple[list[Space], list[Space]]:
    """Space by mount point from ``df -Pk`` and ``df -Pi``, each mount once."""
    found: dict[str, dict[str, Space]] = {"blocks": {}, "inodes": {}}
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:].strip()
            continue
        match = re.match(r".+?\s+(\d+)\s+(\d+)\s+(\d+)\s+(?:\d+%|-)\s+(/.*)$", line)
        if match and section in found:
            used, free = int(match[2]), int(match[3])
            found[section].setdefault(match[4], Space(match[4], used + free, free))
    return list(found["blocks"].values()), list(found["inodes"].values())


CHECK = Disk()
