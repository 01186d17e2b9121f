"""Reports for tests: a good fleet, one with all kinds of trouble, a large one, a hostile one."""

from __future__ import annotations

from rackpin.findings import Evidence, Finding, InstanceResult, NodeResult, Outcome, Report

LOCK = "sha256:4f2c9a1be07755d09c3e1a6a8d6ab1f6ac40f0a9a86c2f0d0a7f3a1c55aa9e10"
STAGES = {
    "survey": 1.4,
    "base": 12.5,
    "python": 41.2,
    "ray": 15.9,
    "serve": 88.1,
    "verify": 22.7,
}
CHECKS = (
    ("sysctl.live", "41 of 41 values are live"),
    ("limits.raylet", "memlock unlimited, nofile 1048576"),
    ("limits.engine", "memlock unlimited, nofile 1048576"),
    ("clock.offset", "0.4 ms from the control machine"),
    ("python.lock", "182 of 182 distributions as locked"),
    ("nccl.loaded", "2.19.3 from the environment"),
    ("ray.member", "alive, 8 GPUs"),
    ("serve.smoke", "16 tokens, repeated equal"),
)


def finding(node: str, check: str, outcome: str = "pass", summary: str = "", **more) -> Finding:
    evidence = more.pop("evidence", None) or Evidence(
        command="cat /proc/$(pgrep -o raylet)/limits",
        output="Limit                     Soft Limit           Hard Limit\n"
        "Max locked memory         unlimited            unlimited            bytes",
        seconds=0.021,
    )
    if outcome != "pass":
        more.setdefault("remedy", "Run deploys/site.py on this node, then verify again.")
    return Finding(
        node=node,
        check=check,
        outcome=Outcome(outcome),
        summary=summary or "as expected",
        evidence=evidence,
        **more,
    )


def passes(node: str) -> list[Finding]:
    return [
        finding(node, check, summary=summary, expected=summary, source="inventory, limits")
        for check, summary in CHECKS
    ]


def busbw(node: str, value: float, outcome: str = "pass") -> Finding:
    return finding(
        node,
        "collective.all_reduce",
        outcome,
        f"busbw {value} GB/s at 8G over 3 nodes",
        metrics={"busbw_gb_s": value, "busbw_min_gb_s": 320.0, "busbw_expected_gb_s": 360.0},
        expected="at least 320 GB/s",
        source="skus/h100-sxm.yaml",
    )


def ready_node(name: str, number: int, **more) -> NodeResult:
    group = "head" if number == 0 else "workers"
    return NodeResult(
        name=name,
        state="ready",
        groups=[group],
        address=f"10.20.0.{10 + number}",
        remote_executions=6,
        **more,
    )


def report(nodes: list[NodeResult], findings: list[Finding], **more) -> Report:
    values = {
        "run": "20260801-101500-4f2c9a1b",
        "started": "2026-08-01T10:15:00Z",
        "seconds": 181.8,
        "deploy": "site",
        "fleet": "paris-1",
        "stack": "cuda12.2-vllm0.4.2",
        "lock": LOCK,
        "ready": True,
        "stage_seconds": STAGES,
        **more,
    }
    return Report(nodes=nodes, findings=findings, **values)


def good() -> Report:
    names = ["gpu-001", "gpu-002", "gpu-003"]
    nodes = [ready_node(name, number) for number, name in enumerate(names)]
    findings = [one for name in names for one in passes(name)] + [busbw("fleet", 361.2)]
    instance = InstanceResult(
        name="llama-70b",
        nodes=names[:2],
        state="serving",
        tp=8,
        pp=2,
        url="http://10.20.0.10:8000",
        ttft_s=0.312,
        tokens_per_s=1480.0,
    )
    return report(nodes, findings, instances=[instance])


def troubled() -> Report:
    """Unreachable node, failed stage, failures, required and optional not_run, warn."""
    nodes = [
        ready_node("gpu-001", 0, changes=["Write /etc/sysctl.d/90-rackpin.conf", "sysctl --load"]),
        NodeResult(
            name="gpu-002",
            state="not_ready",
            groups=["workers"],
            address="10.20.0.11",
            remote_executions=9,
        ),
        NodeResult(
            name="gpu-003",
            state="failed",
            stage="python",
            reason="wheelhouse refused vllm-0.4.2: sha256 is not the lock's",
            groups=["workers"],
            address="10.20.0.12",
            remote_executions=4,
        ),
        NodeResult(
            name="gpu-004",
            state="unreachable",
            reason="ssh to 10.20.0.13: timed out after 10 s",
            groups=["workers"],
            address="10.20.0.13",
            remote_executions=1,
        ),
    ]
    findings = passes("gpu-001")
    findings.append(
        finding(
            "gpu-001",
            "clock.drift",
            "warn",
            "2.6 s from the control machine",
            expected="below 2 s",
            remedy="Look at `chronyc sources` on gpu-001.",
            source="inventory, max_offset_warn_s",
        )
    )
    findings += passes("gpu-002")[2:]
    findings += [
        finding(
            "gpu-002",
            "limits.raylet",
            "fail",
            "raylet (pid 812) has memlock 8388608",
            expected="unlimited",
            remedy="systemctl daemon-reload, then drain gpu-002 and restart ray-worker.service.",
            source="inventory, limits.memlock",
        ),
        finding(
            "gpu-002",
            "gpu.count",
            "not_run",
            "nvidia-smi gave no answer in 20 s",
            remedy="Look for XID lines in dmesg on gpu-002; a hung driver needs a reboot.",
            evidence=Evidence(command="nvidia-smi -L", output="", seconds=20.0),
            source="skus/h100-sxm.yaml",
        ),
        finding(
            "gpu-002",
            "fabric.counters",
            "not_run",
            "perfquery is not installed",
            required=False,
            remedy="Install infiniband-diags to have error counters.",
        ),
        finding("gpu-003", "sysctl.live", "pass", "41 of 41 values are live"),
        busbw("fleet", 212.4, "fail"),
    ]
    down = InstanceResult(
        name="llama-70b", nodes=["gpu-001", "gpu-002"], state="not_serving", tp=8, pp=2
    )
    small = InstanceResult(
        name="qwen-7b", nodes=["gpu-003"], state="unknown", tp=2, pp=1, url="http://10.20.0.12:8001"
    )
    return report(nodes, findings, ready=False, instances=[down, small], notes=["--limit not used"])


def large(count: int = 200, per_node: int = 20, output: str = "") -> Report:
    """``count`` nodes with ``per_node`` findings each; every ninth has the same failure."""
    nodes, findings = [], []
    for number in range(count):
        name = f"gpu-{number:03d}"
        bad = number % 9 == 4
        nodes.append(ready_node(name, number % 200))
        if bad:
            nodes[-1] = nodes[-1].model_copy(update={"state": "not_ready"})
        for place in range(per_node):
            check, summary = CHECKS[place % len(CHECKS)]
            evidence = Evidence(command=f"cat /proc/{place}/limits", output=output or "x " * 200)
            findings.append(
                finding(
                    name,
                    f"{check}.{place}",
                    "fail" if bad and place == 1 else "pass",
                    f"{name} has memlock 8388608" if bad and place == 1 else summary,
                    evidence=evidence,
                    expected="unlimited",
                    source="inventory, limits.memlock",
                )
            )
    return report(nodes, findings, ready=False)


HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;{{ 7*7 }} [red]markup[/red] "
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \x00\x08 \udcff \u202egnp.exe ]]>\r\nnext\rline"
)


def hostile() -> Report:
    bad = finding(
        HOSTILE,
        f"evil.{HOSTILE}",
        "fail",
        HOSTILE,
        remedy=HOSTILE,
        expected=HOSTILE,
        source=HOSTILE,
        evidence=Evidence(command=HOSTILE, output=HOSTILE),
        metrics={HOSTILE: 1.0, "nothing": float("nan")},
    )
    node = NodeResult(name=HOSTILE, state="not_ready", reason=HOSTILE, changes=[HOSTILE])
    instance = InstanceResult(name=HOSTILE, nodes=[HOSTILE], state="unknown", tp=1, pp=1)
    return report(
        [node],
        [bad],
        ready=False,
        fleet=HOSTILE,
        stack=HOSTILE,
        lock=HOSTILE,
        notes=[HOSTILE],
        instances=[instance],
        stage_seconds={HOSTILE: 1.0},
    )
