"""The work of ``work.py`` as a playbook, and ansible-core in an environment of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.measure import BenchError
from tests.bench.nodes import Nodes, address_of, name_of
from tests.bench.work import Work

ANSIBLE = "ansible-core==2.19.14"  # the newest of the series when this was written
FORKS_MOST = 64


def install(directory: Path) -> Path:
    """ansible-playbook in a throw-away environment."""
    place = directory / "ansible"
    program = place / "bin" / "ansible-playbook"
    if not program.exists():
        uv = str(Path(sys.executable).with_name("uv"))
        python = str(place / "bin" / "python")
        for words in (
            ["venv", "--python", sys.executable, str(place)],
            ["pip", "install", "--python", python, ANSIBLE],
        ):
            done = subprocess.run([uv, *words], capture_output=True, text=True, timeout=300)
            if done.returncode:
                raise BenchError(f"{ANSIBLE} could not be installed: {done.stderr[-1500:]}")
    return program


def tasks(work: Work) -> list[dict[str, Any]]:
    def task(title: str, module: str, **arguments: Any) -> dict[str, Any]:
        return {"name": title, f"ansible.builtin.{module}": arguments}

    found = [
        task("group", "group", name=work.user, system=True),
        task("user", "user", name=work.user, home=work.home, system=True),
    ]
    found += [task(f"package {p}", "apt", name=p, state="present") for p in work.packages]
    found += [task(f"directory {p}", "file", path=p, state="directory") for p in work.parents]
    for path, mode, owner in work.directories:
        arguments = {"state": "directory", "mode": f"0{mode}", "owner": owner, "group": owner}
        found.append(task(f"directory {path}", "file", path=path, **arguments))
    for path, mode, owner in work.files:
        arguments = {"mode": f"0{mode}", "owner": owner, "group": owner}
        source = "{{ bench_dir }}/files/{{ inventory_hostname }}" + path
        found.append(task(f"file {path}", "copy", src=source, dest=path, **arguments))
    found += [task(f"unit {u}", "systemd_service", name=u, state="started") for u in work.units]
    return found


def write(nodes: Nodes, count: int, work: Work) -> tuple[Path, Path]:
    """Inventory and playbook for nodes 1 to ``count``; JSON is YAML too."""
    common = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(nodes.site.lab.ssh_key),
        "ansible_python_interpreter": "/usr/bin/python3",
        "bench_dir": str(nodes.directory),
    }
    hosts = {name_of(n): {"ansible_host": address_of(n)} for n in range(1, count + 1)}
    inventory, playbook = nodes.directory / "hosts.yaml", nodes.directory / "playbook.yaml"
    inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": common}}))
    # without gathering facts: nothing here needs them, and they would take a task's time more
    play = {"hosts": "all", "gather_facts": False, "tasks": tasks(work)}
    playbook.write_text(json.dumps([play], indent=1))
    return inventory, playbook


def environment(nodes: Nodes, count: int) -> dict[str, str]:
    control = nodes.directory / "cp"
    control.mkdir(exist_ok=True)
    nothing = nodes.directory / "ansible.cfg"
    nothing.touch()
    return {
        "ANSIBLE_FORKS": str(min(count, FORKS_MOST)),
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_SSH_ARGS": "-F /dev/null -o ControlMaster=auto -o ControlPersist=60s "
        f"-o UserKnownHostsFile={nodes.known_hosts}",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(control),
        "ANSIBLE_CONFIG": str(nothing),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "LC_ALL": "C.UTF-8",
    }


RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.M)


def recap(text: str) -> dict[str, tuple[int, int, int, int]]:
    """ok, changed, unreachable, failed by host, from PLAY RECAP."""
    found = {m[1]: (int(m[2]), int(m[3]), int(m[4]), int(m[5])) for m in RECAP.finditer(text)}
    if not found:
        raise BenchError(f"no PLAY RECAP in what Ansible said:\n{text[-3000:]}")
    return found
