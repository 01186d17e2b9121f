"""The address that engines announce: with several NICs, vLLM's own guess may be another (F104)."""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.checks import procinfo, unitinfo
from rackpin.checks.base import NO_ANSWER, SERVING, Command, Context, Outputs, Question
from rackpin.findings import Finding, Level


class Address:
    id = "address.engine"
    title = "VLLM_HOST_IP of the running processes"
    level: Level = "quick"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [procinfo.COMMAND] if unitinfo.expected_units(ctx) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not unitinfo.expected_units(ctx):
            return []
        expected = f"VLLM_HOST_IP={ctx.node.address} in every process that shows one"
        asked = procinfo.COMMAND
        output = outputs.get(asked.name, NO_ANSWER)
        question = Question(ctx, self.id, asked, output, expected, "inventory: address")
        procs, why = procinfo.read(outputs)
        if procs is None:
            return [question.not_run(why)]
        # Engines write their titles over their environment: raylet and the first process show it.
        shown = [proc for proc in procs.values() if proc.host_ip is not None]
        if not shown:
            why = "no process of Ray or an engine shows VLLM_HOST_IP: none runs, or it is not set"
            return [
                question.not_run(why, remedy="see the units; run the deploy, restart in a wave")
            ]
        return [
            question.verdict(
                f"{ctx.node.address} in {len(shown)} processes",
                [f"{p} has {p.host_ip}" for p in shown if p.host_ip != ctx.node.address],
                shown="\n".join(f"{proc.unit} {proc}: {proc.host_ip}" for proc in shown),
                remedy="find what sets it (systemctl cat UNIT, /etc/rackpin/node.env), run the "
                "deploy, restart in a wave",
            )
        ]


CHECK = Address()
