"""The driver after the next boot: the kernel it takes, its modules there, what waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.checks import gpuinfo
from rackpin.checks.base import (
    NO_ANSWER,
    NOTHING,
    Command,
    Context,
    Outputs,
    Question,
    sections,
    unseen,
)
from rackpin.checks.gpuinfo import Told
from rackpin.checks.host import PLACE, place
from rackpin.desired import Target
from rackpin.driver.decide import proof_faults, reboot_reasons
from rackpin.driver.state import DriverStateError, parse_state, state_script
from rackpin.driver.want import Want, want
from rackpin.findings import Finding, Level

DEADLINE_S = 45.0  # dkms status with its 20 s, lspci with 15, the search of /proc with 10
REMEDY = "don't reboot before: run deploys/site.py for this node, it builds the modules"


def command() -> Command:
    """The driver stage's own look, so that both mean the same."""
    return Command("gpu.look", PLACE + state_script(), DEADLINE_S, slow=True)


def wish(ctx: Context) -> Want | None:
    if not gpuinfo.has_cards(ctx):
        return None
    return want(Target(ctx.fleet, ctx.node, ctx.lock))


class NextBoot:
    id = "gpu.next_boot"
    title = "The next boot finds the lock's driver"
    level: Level = "node"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [command()] if wish(ctx) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        wished = wish(ctx)
        if wished is None:
            return []
        asked = command()
        output = outputs.get(asked.name, NO_ANSWER)
        expected = f"DKMS has {wished.version} for the running kernel and the next boot's"
        source = f"lock {ctx.lock.stack}: host.driver, host.kernel; failures F003, F005, F006"
        question = Question(ctx, self.id, asked, output, expected, source)
        if why := unseen(asked, output):
            return [question.not_run(why)]
        where = place(sections(output.stdout))
        if where.container is None:
            return [question.not_run("systemd-detect-virt doesn't say where the node runs")]
        try:
            state = parse_state(output.stdout.splitlines())
        except (DriverStateError, ValueError) as error:
            return [question.not_run(f"the answer can't be read: {error}")]
        if where.container:
            return []  # kernel and modules are its host's
        told = Told(faults=proof_faults(wished, state))
        told.worries = [f"reboot due: {reason}" for reason in reboot_reasons(wished, state)]
        shown = "\n".join(
            [
                f"running {state.running}, next {state.next or state.next_fault or 'none here'}",
                *(f"{m.module}/{m.version} {m.kernel}: {m.state}" for m in state.dkms),
            ]
        )
        good = f"{wished.version} is built for {state.next or state.running}"
        return [gpuinfo.conclude(question, good, told, shown=shown, remedy=REMEDY)]


CHECK = NextBoot()
