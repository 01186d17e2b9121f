"""Containers with cards: the toolkit that gives them in, and their shared memory (F093, F099)."""

from __future__ import annotations

import json
from typing import Any

from rackpin.checks import gpuinfo
from rackpin.checks.base import Command, Context, one_line
from rackpin.checks.host import PLACE, Answer, HostCheck
from rackpin.checks.host_memory import SHM_FAIL_KIB, SHM_WARN_KIB
from rackpin.skus import Sku

DOCKER = Command(
    "host.docker",
    PLACE
    + """echo '## docker'; command -v docker || echo none
echo '## info'
command -v docker >/dev/null && { timeout 8 docker info --format '{{json .Runtimes}}' 2>&1
echo "status $?"; }
echo '## containers'
if command -v docker >/dev/null; then i=$(timeout 8 docker ps -q --no-trunc 2>&1); r=$?
  [ "$r" -ne 0 ] || [ -z "$i" ] ||
    timeout 8 docker inspect --format '{{.Name}}|{{json .HostConfig}}' $i
  echo "status $r"; fi
echo '## toolkit'
dpkg-query -W -f '${db:Status-Abbrev} ${Version}\\n' nvidia-container-toolkit 2>/dev/null
echo '## end'
""",
    deadline_s=30.0,
    slow=True,
)
RUNTIME = "nvidia"


def _docker(answer: Answer) -> bool:
    return answer.lines("docker") not in ([], ["none"])


def _toolkit(ctx: Context, answer: Answer) -> str | None:
    told, pin = answer.told, ctx.lock.host.container_toolkit
    rows = [line.split() for line in answer.lines("toolkit")]
    version = next((row[1] for row in rows if len(row) == 2 and row[0] == "ii"), "")
    if not _docker(answer) and not version:
        return None
    if pin and not version:
        told.faults.append(f"docker is here and nvidia-container-toolkit {pin.version} is not")
    elif pin and version != pin.version:
        told.faults.append(f"nvidia-container-toolkit is {version}, {pin.version} is pinned")
    if _docker(answer):
        if answer.lines("docker")[0].startswith("/snap/"):
            told.worries.append("docker is a snap, which the toolkit doesn't reach (F094)")
        *said, status = answer.lines("info") or [""]
        try:
            runtimes = json.loads("".join(said)) if status == "status 0" else None
        except ValueError:
            runtimes = None
        if not isinstance(runtimes, dict):
            told.worries.append(f"docker doesn't answer: {one_line(' '.join(said), 120)}")
        elif RUNTIME not in runtimes and version:
            told.worries.append("docker knows no runtime nvidia: --gpus may still work by CDI")
    return f"nvidia-container-toolkit {version or 'not there, and not pinned'}"


def _containers(ctx: Context, answer: Answer) -> str | None:
    told = answer.told
    if not _docker(answer):
        return None
    *rows, status = answer.lines("containers") or [""]
    if status != "status 0":
        told.untold.append("docker doesn't list its containers")
        return None
    seen = 0
    for row in rows:
        name, _, text = row.partition("|")
        try:
            host = json.loads(text)
        except ValueError:
            host = None
        if not isinstance(host, dict):
            told.untold.append(f"container {name[:60]}: its settings")
        elif host.get("DeviceRequests") or host.get("Runtime") == RUNTIME:
            seen += 1
            _one(ctx, name.lstrip("/"), host, answer)
    return f"{seen} containers with cards, their shared memory is large enough" if seen else None


def _one(ctx: Context, name: str, host: dict[str, Any], answer: Answer) -> None:
    told, size, sku = answer.told, host.get("ShmSize"), gpuinfo.sku_of(ctx)
    if host.get("IpcMode") != "host":
        text = f"{name} has /dev/shm of {size} bytes"
        if not isinstance(size, int):
            told.untold.append(f"{name}: the size of its /dev/shm")
        elif size <= SHM_FAIL_KIB * 1024:
            told.faults.append(text)
        elif size < SHM_WARN_KIB * 1024:
            told.worries.append(text)
    limits = host.get("Ulimits") or []
    free = any(one.get("Name") == "memlock" and one.get("Soft") == -1 for one in limits)
    if isinstance(sku, Sku) and sku.hcas and not free and not host.get("Privileged"):
        told.worries.append(f"{name} has no unlimited memlock: RDMA can't register its memory")


TOOLKIT = HostCheck(
    id="containers.toolkit",
    title="The container toolkit is the lock's",
    expected="nvidia-container-toolkit at the lock's version where docker is; a runtime nvidia",
    source="lock: host.container_toolkit; failures F093",
    remedy="install the lock's version, then nvidia-ctk runtime configure --runtime=docker; "
    "reload docker in a wave",
    parts=("docker", "info", "toolkit"),
    look=_toolkit,
    command=DOCKER,
    level="node",
    asks=gpuinfo.has_cards,
)
SHM = HostCheck(
    id="containers.shm",
    title="Containers with cards have shared memory enough for NCCL",
    expected=f"the host's IPC, or --shm-size of {SHM_WARN_KIB // 1024} MiB and more",
    source="failures F099, F149",
    remedy="start the container with --shm-size 64g --ulimit memlock=-1, as docs/image.md says",
    parts=("docker", "containers"),
    look=_containers,
    command=DOCKER,
    level="node",
    asks=gpuinfo.has_cards,
    may_miss=True,  # docker may be stopped where engines are units
)
