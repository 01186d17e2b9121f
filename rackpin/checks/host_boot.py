"""The kernel that runs, the one of the next boot, reboots due (F005-F007, F062)."""

from __future__ import annotations

import base64

from rackpin.audit.node.boot import grub_choice, grub_kernel, version_key
from rackpin.checks import gpuinfo
from rackpin.checks.base import Context
from rackpin.checks.host import Answer, HostCheck


def _text(answer: Answer, part: str) -> str | None:
    try:
        return base64.b64decode(answer.parts[part].strip(), validate=True).decode("utf-8")
    except ValueError:
        return None


def next_kernel(answer: Answer) -> tuple[str, str]:
    """The kernel of the next boot, or "" and why it can't be told; ("", "") where none is here."""
    images = [x.removeprefix("vmlinuz-") for x in answer.lines("kernels") if x.startswith("vml")]
    config, env = _text(answer, "grub"), _text(answer, "grubenv")
    if config is None or env is None:
        return "", "grub.cfg came garbled"
    if config.strip():
        if kernel := grub_kernel(config, env):
            return kernel, ""
        return "", f"GRUB's default {grub_choice(config, env)!r} isn't in grub.cfg"
    return (max(images, key=version_key) if images else ""), ""


def _boot(ctx: Context, answer: Answer) -> str | None:
    told, lines = answer.told, answer.lines("kernels")
    running = next((x.split()[1] for x in lines if x.startswith("running ") and " " in x), "")
    pin = ctx.lock.host.kernel
    if not running:
        told.untold.append("the release of the running kernel")
        return None
    if answer.place.container:
        return None  # its kernel is the host's
    after, why = next_kernel(answer)
    if pin and running != pin.release:
        told.faults.append(f"kernel {running} runs, {pin.release} is pinned")
    if why:
        told.untold.append(f"the kernel of the next boot: {why}")
    elif not after:
        told.worries.append("there is no kernel in /boot: something outside of the node boots it")
    else:
        if pin and after != pin.release:
            told.faults.append(f"the next boot takes {after}, {pin.release} is pinned")
        elif after != running:
            told.worries.append(f"{running} runs, the next boot takes {after}")
        if f"modules {after}" not in lines:
            told.faults.append(f"/lib/modules has nothing for {after}, which the next boot takes")
        rdma = ctx.lock.host.rdma
        foreign = rdma is not None and rdma.stack != "inbox" and gpuinfo.has_cards(ctx)
        if rdma and foreign and f"mlx5 {after}" not in lines:
            told.faults.append(
                f"{rdma.stack} has no mlx5_core for {after}, which the next boot takes"
            )
        if f"vmlinuz-{after}" in lines and f"initrd.img-{after}" not in lines:
            told.faults.append(f"/boot has no initrd.img-{after}")
    return f"{running} runs, and is what the next boot takes"


def _reboot(ctx: Context, answer: Answer) -> str:
    lines = answer.lines("reboot")
    if lines[:1] == ["required"]:
        who = ", ".join(lines[1:6]) or "a package"
        answer.told.worries.append(f"{who} asks for a reboot")
    elif lines != ["no"]:
        answer.told.untold.append("whether packages wait for a reboot")
    return "no package asks for a reboot"


BOOT = HostCheck(
    id="kernel.boot",
    title="The kernel of the next boot is the one that runs, and is whole",
    expected="the lock's kernel runs and is booted next, with its modules and initrd",
    source="lock: host.kernel; failures F005-F007, F062",
    remedy="run the deploy, which sets GRUB's default and builds modules; don't reboot before: "
    "the node may come back without driver or network",
    parts=("kernels", "grub", "grubenv"),
    look=_boot,
)
REBOOT = HostCheck(
    id="kernel.reboot",
    title="No package waits for a reboot",
    expected="no /run/reboot-required",
    source="Debian and Ubuntu: /run/reboot-required",
    remedy="see kernel.boot, then drain the node and reboot it in a wave",
    parts=("reboot",),
    look=_reboot,
)
