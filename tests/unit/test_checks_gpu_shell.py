"""The shell text of the commands, run for real with stubs in place of the tools."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from rackpin.checks import fabric_hcas, fabric_manager, gpu_driver, gpuinfo
from rackpin.desired import Target
from rackpin.findings import Outcome
from rackpin.lab.hardware import kernel, presets
from tests.unit import gpu_samples as samples
from tests.unit.test_checks_gpu_log import run, stub

CLOCKS = (
    "\t\t<supported_clocks>\n\t\t\t<supported_mem_clock>\n\t\t\t\t<value>2619 MHz</value>\n"
    "\t\t\t</supported_mem_clock>\n\t\t</supported_clocks>\n"
)


def smi_says(tmp_path: Path, text: str, code: int) -> dict[str, str]:
    (tmp_path / "text").write_text(text)
    where = shlex.quote(str(tmp_path / "text"))
    return stub(tmp_path, nvidia_smi=f"[ \"$*\" = '-q -x' ] && cat {where}; exit {code}")


def test_nvidia_smi_without_its_long_lists(target: Target, tmp_path: Path) -> None:
    """Lists of clocks go, an empty list in one line takes nothing with it."""
    ctx = samples.context(target, "h100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    whole = outputs["gpu.smi"].stdout
    one_line = "\t\t<supported_clocks>N/A</supported_clocks>\n"
    assert whole.count(one_line) == 8
    env = smi_says(tmp_path, whole.replace(one_line, CLOCKS * 200, 4), 0)
    outputs["gpu.smi"] = run(gpuinfo.SMI.shell, env)
    assert "supported_mem_clock" not in outputs["gpu.smi"].stdout
    assert len(outputs["gpu.smi"].stdout) <= len(whole)
    assert not samples.bad(samples.findings(ctx, outputs))


@pytest.mark.parametrize("code", [0, 9, 15])
def test_nvidia_smis_own_status_comes_through(tmp_path: Path, code: int) -> None:
    said = run(gpuinfo.SMI.shell, smi_says(tmp_path, "No devices were found\n", code))
    assert (said.rc, said.stdout) == (code, "No devices were found\n")


def test_a_missing_nvidia_smi_is_a_missing_program(tmp_path: Path) -> None:
    assert run(gpuinfo.SMI.shell, stub(tmp_path, nvidia_smi="exit 127")).rc == 127


def test_the_kernels_answer_is_read_back(target: Target, tmp_path: Path) -> None:
    """On a host without the driver: whole, and it says that there is none."""
    programs = {"modinfo": "exit 1", "ldconfig": "exit 0"}
    answer = run(gpu_driver.KERNEL.shell, stub(tmp_path, **programs))
    assert answer.rc == 0
    ctx = samples.context(target, "rtx4090-2")
    outputs = samples.answers(ctx, presets.node("head1", "rtx4090-2")) | {"gpu.kernel": answer}
    found = samples.findings(ctx, outputs)
    assert {found[name].outcome for name in ("gpu.driver", "gpu.modules")} <= {
        Outcome.FAIL,
        Outcome.NOT_RUN,  # a container without /proc/modules
    }


def test_libraries_are_found_by_the_linker(tmp_path: Path) -> None:
    real = tmp_path / "libcuda.so.535.129.03"
    real.touch()
    (tmp_path / "libcuda.so.1").symlink_to(real.name)
    line = f"\\tlibcuda.so.1 (libc6,x86-64) => {tmp_path}/libcuda.so.1"
    answer = run(gpu_driver.KERNEL.shell, stub(tmp_path, ldconfig=f"printf '{line}\\n'"))
    assert str(real) in answer.stdout


def test_hcas_from_sysfs(target: Target, tmp_path: Path) -> None:
    """The script over real files gives the text that the simulated node gives."""
    ctx = samples.context(target, "h100-sxm-8")
    node = presets.node("head1", "h100-sxm-8")
    for path, text in kernel.sys_infiniband(node).items():
        file = tmp_path / "sys/class/infiniband" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    shell = fabric_hcas.HCAS.shell.replace(fabric_hcas.SYS, f"{tmp_path}{fabric_hcas.SYS}")
    said = run(shell, stub(tmp_path))
    said = type(said)(said.rc, said.stdout.replace(str(tmp_path), ""))
    ours = samples.answers(ctx, node)["fabric.hcas"].stdout
    assert said.rc == 0 and sorted(said.stdout.split("\n")) == sorted(ours.split("\n"))


def test_no_infiniband_at_all_is_a_fault(target: Target, tmp_path: Path) -> None:
    shell = fabric_hcas.HCAS.shell.replace(fabric_hcas.SYS, f"{tmp_path}/none")
    ctx = samples.context(target, "h100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    outputs["fabric.hcas"] = run(shell, stub(tmp_path))
    found = samples.findings(ctx, outputs)["fabric.hcas"]
    assert found.outcome is Outcome.FAIL and "0 of 8 ports" in found.summary


def test_fabric_managers_unit_and_version(target: Target, tmp_path: Path) -> None:
    show = "printf 'LoadState=loaded\\nActiveState=active\\nSubState=running\\nResult=success\\n'"
    env = stub(
        tmp_path,
        systemctl=show,
        nv_fabricmanager="echo 'Fabric Manager version is : 535.129.03'",
        journalctl="exit 1",
    )
    ctx = samples.context(target, "a100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "a100-sxm-8"))
    outputs["fabric.manager"] = run(fabric_manager.MANAGER.shell, env)
    assert samples.findings(ctx, outputs)["fabric.manager"].outcome is Outcome.PASS
