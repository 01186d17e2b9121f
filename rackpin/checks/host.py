"""What the checks of the machine itself share: one script's answer, read by sections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rackpin.checks.base import (
    NO_ANSWER,
    NOTHING,
    Command,
    Context,
    Needs,
    Output,
    Outputs,
    Question,
    sections,
    unseen,
)
from rackpin.checks.gpuinfo import Told, conclude
from rackpin.findings import Finding, Level

# In a container the kernel, its log and its clock are the host's; systemd knows where it is.
PLACE = """\
c=$(systemd-detect-virt -c 2>/dev/null); v=$(systemd-detect-virt -v 2>/dev/null)
echo '## place'; echo "container=${c:-unknown}"; echo "vm=${v:-unknown}"
"""
_SERVICES = (
    "nvidia-persistenced chrony chronyd systemd-timesyncd ntp ntpsec systemd-modules-load "
    "systemd-sysctl docker containerd openibd"
)
STATE = Command(
    "host.state",
    PLACE
    + rf"""one() {{ v=; read -r v 2>/dev/null <"$1"; printf '%s' "$v"; }}
S=/sys/devices/system
echo '## cmdline'; cat /proc/cmdline
echo '## kernels'; echo "running $(uname -r)"
ls /boot 2>/dev/null | grep -E '^(vmlinuz|initrd\.img)-'
for d in /lib/modules/*; do [ -e "$d/modules.dep" ] && echo "modules ${{d##*/}}"
  f=$(find "$d/updates" "$d/extra" -name 'mlx5_core.ko*' -print -quit 2>/dev/null)
  [ -z "$f" ] || echo "mlx5 ${{d##*/}}"; done
echo '## grub'; base64 -w 0 /boot/grub/grub.cfg 2>/dev/null; echo
echo '## grubenv'; base64 -w 0 /boot/grub/grubenv 2>/dev/null; echo
echo '## reboot'; if [ -e /run/reboot-required ]; then echo required
  sort -u /run/reboot-required.pkgs 2>/dev/null | head -n 20; else echo no; fi
echo '## cpu'; echo "present $(one $S/cpu/present)"; echo "online $(one $S/cpu/online)"
grep -E '^(model name|microcode)' /proc/cpuinfo | tr -s '\t ' ' ' | sort | uniq -c
echo '## governor'; cat $S/cpu/cpu[0-9]*/cpufreq/scaling_governor 2>/dev/null | sort | uniq -c
echo '## numa'; for n in $S/node/node[0-9]*; do
  echo "${{n##*/}} $(sed -n 's/.*MemTotal: *\([0-9]*\) kB/\1/p' "$n/meminfo" 2>/dev/null)"; done
echo '## memory'; cat /proc/meminfo
echo '## edac'; for m in $S/edac/mc/mc[0-9]*; do [ -e "$m/ue_count" ] &&
  echo "${{m##*/}} ce=$(one "$m/ce_count") ue=$(one "$m/ue_count")"; done
echo '## mounts'; awk '$2 !~ "/(docker|containerd|containers|kubelet)/" && $3 ~ \
  /^(ext[234]|xfs|btrfs|zfs|f2fs|overlay)$/ {{print $2, $3, $4}}' /proc/mounts
echo '## shm'; df -Pk /dev/shm | tail -n 1
echo '## bios'; for f in sys_vendor product_name board_name board_version bios_version; do
  echo "$f=$(one /sys/class/dmi/id/$f)"; done
echo '## nvme'; for d in /sys/class/nvme/nvme*; do [ -e "$d/state" ] &&
  echo "${{d##*/}}|$(one "$d/state")|$(one "$d/model")|$(one "$d/firmware_rev")"; done
echo '## scsi'; for d in /sys/block/sd*; do [ -e "$d/device/state" ] &&
  echo "${{d##*/}}|$(one "$d/device/state")|$(one "$d/device/model")|$(one "$d/device/rev")"; done
echo '## services'
p=Id,LoadState,ActiveState,SubState,Result,ConditionResult,UnitFileState
systemctl show --no-pager -p $p -- {_SERVICES} 2>&1
echo '## synchronized'; timedatectl show -p NTPSynchronized 2>&1
echo '## chrony'; 
timeout 5 chronyc -N -c sources 2>/dev/null || timeout 5 chronyc -n -c sources 2>/dev/null
echo '## timesyncd'; systemctl is-active -q systemd-timesyncd && # asked in vain, it takes 5 s
timeout 5 timedatectl show-timesync -p ServerName -p ServerAddress 2>/dev/null
echo '## dpkg'; ls /var/lib/dpkg/updates; dpkg --audit | head -n 20
echo '## plugins'; ldconfig -p 2>/dev/null | grep -oE 'libnccl-(net|tuner|profiler)[^ ]*' | sort -u
echo '## end'
""",
    deadline_s=20.0,
)
CONTAINERS = {"none": False, "": None, "unknown": None}


@dataclass(frozen=True)
class Place:
    """Where a node's system runs. None: it doesn't say."""

    container: bool | None
    bare_metal: bool | None


def place(found: Mapping[str, str]) -> Place:
    """From the section that :data:`PLACE` prints."""
    said = dict(line.split("=", 1) for line in found.get("place", "").splitlines() if "=" in line)
    container = CONTAINERS.get(said.get("container", ""), True)
    machine = CONTAINERS.get(said.get("vm", ""), True)
    if container is None or machine is None:
        return Place(container, None)
    return Place(container, not container and not machine)


def read(asked: Command, output: Output, parts: Sequence[str] = ()) -> dict[str, str] | str:
    """The answer's sections, or why they can't be had: late, cut, refused, another tool's."""
    if why := unseen(asked, output):
        return why
    found = sections(output.stdout)
    if not output.ok:
        return f"the script ended with status {output.rc}"
    missing = [part for part in ("place", *parts, "end") if part not in found]
    if missing:
        return f"its answer is not whole: no section {', '.join(missing)}"
    if place(found).container is None:
        return "systemd-detect-virt doesn't say where the node runs"
    return found


def properties(text: str) -> dict[str, str]:
    """``KEY=value`` lines."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def everybody(ctx: Context) -> bool:
    return True


@dataclass(frozen=True)
class Answer:
    """Sections of one answer, and what a check makes of them."""

    parts: dict[str, str]
    told: Told = field(default_factory=Told)
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        return place(self.parts)

    def lines(self, part: str) -> list[str]:
        return [line for line in self.parts.get(part, "").splitlines() if line.strip()]


@dataclass(frozen=True)
class HostCheck:
    """A check of some sections of one script's answer.

    ``look`` fills the answer's :class:`Told` and returns what to say when all is well, or None
    where the question doesn't concern the node as it is (a container has no clock of its own).
    """

    id: str
    title: str
    expected: str
    source: str
    remedy: str
    parts: tuple[str, ...]  # must be there; shown as evidence
    look: Callable[[Context, Answer], str | None]
    command: Command = STATE
    level: Level = "quick"
    needs: Needs = NOTHING
    asks: Callable[[Context], bool] = everybody
    may_miss: bool = False  # a node may serve though it can't tell this (not: didn't answer)

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [self.command] if self.asks(ctx) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not self.asks(ctx):
            return []
        output = outputs.get(self.command.name, NO_ANSWER)
        question = Question(ctx, self.id, self.command, output, self.expected, self.source)
        found = read(self.command, output, self.parts)
        if isinstance(found, str):
            return [question.not_run(found)]
        answer = Answer(found)
        good = self.look(ctx, answer)
        if good is None and not (answer.told.faults or answer.told.worries or answer.told.untold):
            return []
        shown = "\n".join(f"{part}: {found[part].strip()}" for part in self.parts)
        if answer.told.untold and not answer.told.faults and self.may_miss:
            why = "; ".join([*answer.told.untold[:6], *answer.told.worries[:6]])
            return [question.not_run(why, remedy=self.remedy, required=False)]
        return [
            conclude(
                question,
                good or "",
                answer.told,
                shown=shown,
                remedy=self.remedy,
                metrics=answer.metrics,
            )
        ]
