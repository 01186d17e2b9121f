"""The driver stage's operations.

Each looks first: at what the survey found, and again after something was changed. A look that
fails stops its node.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from paramiko import SSHException
from pyinfra import host
from pyinfra.api import FunctionCommand, StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.util import clear_askpass_cache

from rackpin import deadlines
from rackpin.driver import decide, scripts
from rackpin.driver.state import DriverState, DriverStateError, parse_state, state_script
from rackpin.driver.table import table
from rackpin.driver.want import Want
from rackpin.facts import Units
from rackpin.facts_driver import Gpu
from rackpin.isolated import operation
from rackpin.operations import feed
from rackpin.operations_apt import stop
from rackpin.runlog import RunLog
from rackpin.stages.driver import FABRIC, UNITS


def look(fresh: bool = False) -> DriverState | str:
    """The node's driver as it is, or why it can't be told. ``fresh``: whatever was asked before."""
    if not fresh:
        return host.get_fact(Gpu) or "GPUs and kernels could not be looked at"
    try:
        text = feed(state_script(), deadlines.FACT_S, "driver")
        return parse_state(text.splitlines())
    except DriverStateError as error:
        return str(error)


@operation()
def modules(run: RunLog, want: Want) -> Iterator[Any]:
    """
    Build the modules for the running and the next kernel, and prove that they are there.

    + run: the log of this run
    + want: the driver that the node should have
    """
    state = look()
    if isinstance(state, str):
        yield stop(run, "driver", [state])
        return
    if not decide.proof_faults(want, state):
        host.noop(f"{want.version} is built for {', '.join(decide.required_kernels(want, state))}")
        return
    kernels = decide.to_build(want, state)
    yield StringCommand(
        "sh",
        "-s",
        _stdin=scripts.build_script(want, kernels),
        _timeout=deadlines.DKMS_S * max(1, len(kernels)),
    )
    state = look(fresh=True)
    faults = [state] if isinstance(state, str) else decide.proof_faults(want, state)
    if faults:
        yield stop(run, "the driver is not proven for the running and the next kernel", faults)


@operation()
def load(run: RunLog, want: Want) -> Iterator[Any]:
    """
    Load the module where nothing stands in its way; else the reboot will.

    + run: the log of this run
    + want: the driver that the node should have
    """
    state = look()
    if isinstance(state, str):
        yield stop(run, "driver", [state])
        return
    missing = [m for m in table()["load"] if m.replace("-", "_") not in state.modules]
    if decide.reboot_reasons(want, state):
        host.noop("a reboot loads it")
    elif not missing:
        host.noop(f"{want.version} is loaded")
    else:
        script = scripts.load_script(missing)
        yield StringCommand("sh", "-s", _stdin=script, _timeout=deadlines.LOAD_S)


@operation()
def reboot(run: RunLog, want: Want) -> Iterator[Any]:
    """
    Reboot where it must be; never into a kernel without its modules, never from under an engine.

    + run: the log of this run
    + want: the driver that the node should have

    Boot id, kernel and loaded module are compared afterwards.
    """
    state = look()
    if isinstance(state, str):
        yield stop(run, "driver", [state])
        return
    reasons = decide.reboot_reasons(want, state)
    if not reasons:
        host.noop("nothing asks for a reboot")
        return
    if not host.state.is_executing:
        yield StringCommand(scripts.REBOOT)  # what stands before it is still to be done
        return
    because = "; ".join(reasons)
    if faults := decide.reboot_faults(want, state):
        yield stop(run, f"a reboot is needed ({because}) and was not done", faults)
        return
    run.notes.append(f"{host.name}: rebooted, because {because}")
    host.log(f"reboots, because {because}")
    if state.engines:
        yield StringCommand(scripts.stop_script(state.engines), _timeout=deadlines.OPERATION_S)
    yield StringCommand(scripts.REBOOT)
    yield FunctionCommand(wait_for_boot, (run, state.boot_id), {})
    after = look(fresh=True)
    if isinstance(after, str):
        yield stop(run, "after the reboot", [after])
    elif faults := boot_faults(want, state, after):
        yield stop(run, "after the reboot", faults)


def boot_faults(want: Want, before: DriverState, after: DriverState) -> list[str]:
    """Why this was not the boot that was asked for."""
    same = [f"the boot id is still {after.boot_id}"] if after.boot_id == before.boot_id else []
    return [*same, *decide.loaded_faults(want, after)]


def wait_for_boot(state: Any, host: Any, run: RunLog, before: str) -> bool:
    """Until the node answers from another boot and has started its units; False: too late."""
    # Not through host.connect: a try that fails is no failure of the node here.
    clear_askpass_cache(host)
    host.connector.disconnect()
    end = time.monotonic() + deadlines.BOOT_S
    while time.monotonic() < end:
        time.sleep(deadlines.BOOT_ASK_S)
        try:
            host.connector.connect()
            boot = host.connector.feed(scripts.BOOT_ID, _timeout=deadlines.CONNECT_S).strip()
            if boot and boot != before:
                host.connector.feed(scripts.SETTLE, _timeout=deadlines.SETTLE_S)
                return True
        except (ConnectError, OSError, SSHException, EOFError) as error:
            host.log(f"not there yet: {type(error).__name__}")
        host.connector.disconnect()
    why = f"no answer from a new boot within {deadlines.BOOT_S} s: see the node's console"
    run.nodes[host.name].error = why
    host.log(why)  # a run without verify has no other place for it
    return False


@operation()
def no_fabric_manager(want: Want) -> Iterator[Any]:
    """
    Switch fabric manager off where there is no NVSwitch: it can only fail there.

    + want: the driver that the node should have
    """
    unit = host.get_fact(Units, names=UNITS).get(FABRIC, {})
    if want.nvswitch or unit.get("UnitFileState") != "enabled":
        host.noop(f"{FABRIC} is as it should be")
        return
    yield f"systemctl disable --now --quiet {FABRIC}"


@operation()
def proof(run: RunLog, want: Want) -> Iterator[Any]:
    """
    What runs now is what was asked for, and the next boot will be too.

    + run: the log of this run
    + want: the driver that the node should have
    """
    state = look()
    if isinstance(state, str):
        yield stop(run, "driver", [state])
        return
    faults = decide.proof_faults(want, state) + decide.loaded_faults(want, state)
    if not faults:
        host.noop(f"{want.version} is loaded and built for the next boot")
    elif host.state.is_executing:
        yield stop(run, "the driver is not as it should be", faults)
