"""How several nodes start one program together: an sshd, keys and files that end by themselves.

Each node runs, as a transient unit, an sshd of its own with throw-away keys in a 0700 directory
below /run. Private keys are made where they are used and never leave; public ones go by the way
that verify has to the nodes, so every host key is pinned. systemd ends the unit, all that was
started through it, and the directory, also when nobody is left to ask for that. The root user's
own ``~/.ssh`` is neither read nor written.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from rackpin import layout
from rackpin.checks.base import Command, Output, one_line, unseen

SSHD = "/usr/sbin/sshd"
PREPARE_S, TRUST_S, CLEAR_S, CLEAN_S = 30.0, 15.0, 15.0, 30.0
LISTEN_TRIES = 100  # of 0.1 s: sshd with two fresh keys listens in a fraction of that
LOG_S = 15  # to fetch one node's part of NCCL's log
PROGRAMS = ("mpirun", "orted", "ssh", "ssh-keygen", "systemd-run", "ss", "timeout")
PACKAGES = {
    "mpirun": "openmpi-bin",
    "orted": "openmpi-bin",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    SSHD: "openssh-server",
    "ss": "iproute2",
}
KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/=]{40,120}")
# RDMA registers pinned memory, and a unit has systemd's limits: that file's have no say.
LIMITS = ("LimitMEMLOCK=infinity", "LimitNOFILE=1048576", "TasksMax=infinity")


@dataclass(frozen=True)
class Session:
    """One campaign's way between its nodes: ``addresses`` by node, ``life_s`` until all ends."""

    addresses: Mapping[str, str]
    life_s: int
    port: int
    token: str = field(default_factory=lambda: secrets.token_hex(6))

    @property
    def name(self) -> str:
        return f"rackpin-nccl-{self.token}"

    @property
    def unit(self) -> str:
        return f"{self.name}.service"

    @property
    def directory(self) -> str:
        return f"/run/{self.name}"

    @property
    def agent(self) -> str:
        """What mpirun and the launcher call to reach a node."""
        return f"ssh -F {self.directory}/ssh_config"


@dataclass(frozen=True)
class Prepared:
    """A node's public keys, or why it can't take part (and what to do)."""

    host: str = ""
    client: str = ""
    problem: str = ""
    remedy: str = ""


def properties(name: str, life_s: int) -> str:
    """Of a transient unit that leaves nothing: options of systemd-run."""
    wanted = (
        f"RuntimeDirectory={name}",
        "RuntimeDirectoryMode=0700",
        f"RuntimeMaxSec={life_s}",
        "KillMode=control-group",
        "TimeoutStopSec=5",
        *LIMITS,
    )
    return " ".join(["--quiet", "--collect", *(f"-p {one}" for one in wanted)])


def prepare(session: Session, node: str, program: str) -> Command:
    """Start the node's sshd; ``program`` must be there too. Read by :func:`read_prepared`."""
    shell = f"""\
lacks=
for p in {" ".join(PROGRAMS)}; do
  command -v "$p" >/dev/null || {{ echo "lacks $p"; lacks=1; }}
done
for p in {SSHD} {program}; do [ -x "$p" ] || {{ echo "lacks $p"; lacks=1; }}; done
[ -z "$lacks" ] || exit 0
taken=$(ss -Hltn "sport = :{session.port}") || exit 70
[ -z "$taken" ] || {{ echo "taken $taken"; exit 0; }}
server=$(cat)
systemd-run {properties(session.name, session.life_s)} --unit={session.unit} \\
  -p InaccessiblePaths=-/etc/shadow sh -c "$server" || exit 71
n=0
while [ $n -lt {LISTEN_TRIES} ]; do
  [ -z "$(ss -Hltn "sport = :{session.port}")" ] || break
  systemctl is-active --quiet {session.unit} || break
  sleep 0.1; n=$((n + 1))
done
if [ -n "$(ss -Hltn "sport = :{session.port}")" ]; then
  for k in host client; do printf '%s ' $k; cat {session.directory}/$k.pub; done
else
  printf 'failed '; journalctl -q --no-pager -o cat -n 5 -u {session.unit} | tr '\\n' ' '; echo
  systemctl stop {session.unit} 2>/dev/null
fi
exit 0"""
    server = _server(session, session.addresses[node])
    return Command("nccl.prepare", shell, PREPARE_S, stdin=server, writes=True)


def _server(session: Session, address: str) -> str:
    """The unit's script. No dollar sign: systemd would put its own variables there.

    The passwords' file is hidden from this sshd, so a locked root account keeps no key out.
    """
    at = session.directory
    return f"""\
umask 077
cd {at} || exit 70
ssh-keygen -q -t ed25519 -N "" -C {session.name} -f client || exit 71
ssh-keygen -q -t ed25519 -N "" -C {session.name} -f host || exit 71
: >authorized
cat >sshd_config <<X
Port {session.port}
ListenAddress {address}
HostKey {at}/host
AuthorizedKeysFile {at}/authorized
AllowUsers root
PermitRootLogin prohibit-password
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PidFile none
AllowTcpForwarding no
AllowAgentForwarding no
X11Forwarding no
PermitTunnel no
PermitUserEnvironment no
PrintMotd no
PrintLastLog no
LoginGraceTime 20
MaxStartups 200
ClientAliveInterval 5
ClientAliveCountMax 6
LogLevel ERROR
X
exec {SSHD} -D -e -f {at}/sshd_config
"""


def read_prepared(session: Session, node: str, asked: Command, output: Output) -> Prepared:
    """A node's keys, or the reason in words with its remedy. Never raises."""
    if why := unseen(asked, output):
        return Prepared(problem=why, remedy="see whether the node answers at all")
    said = output.stdout.splitlines()
    lacks = [line.removeprefix("lacks ") for line in said if line.startswith("lacks ")]
    if lacks:
        packages = sorted({PACKAGES[one] for one in lacks if one in PACKAGES})
        remedy = f"install {', '.join(packages)} (pins: debs of the stack)" if packages else ""
        if any(one.startswith(layout.ROOT) for one in lacks):
            remedy = "; ".join(filter(None, [remedy, "pyinfra INVENTORY deploys/nccl.py -y"]))
        return Prepared(problem=f"it lacks {', '.join(lacks)}", remedy=remedy or "install it")
    for line in said:
        word, _, rest = line.partition(" ")
        if word == "taken":
            why = f"port {session.port} of the node is in use: {one_line(rest, 120)}"
            return Prepared(problem=why, remedy="give nccl_port of the inventory a free port")
        if word == "failed":
            why = f"its sshd did not start: {one_line(rest, 200) or 'it said nothing'}"
            return Prepared(problem=why, remedy=f"run {SSHD} -t on the node, and correct that")
    keys = {}
    for line in said:
        word, _, rest = line.partition(" ")
        if word in ("host", "client") and (match := KEY.match(rest)):
            keys[word] = match[0]
    if output.rc != 0 or keys.keys() != {"host", "client"}:
        why = one_line(output.stderr, 200) or f"status {output.rc}, no keys"
        return Prepared(problem=f"its sshd did not start: {why}", remedy="try it on the node")
    return Prepared(keys["host"], keys["client"])


def trust(
    session: Session, node: str, keys: Mapping[str, Prepared], files: Mapping[str, str]
) -> Command:
    """Tell a node whom to let in and whose host keys are whose; ``files``: more for its directory.

    ``keys``: of all nodes that take part.
    """
    at = session.directory
    others = [name for name in keys if name != node]
    parts = {
        "ssh_config": _client(session),
        "known_hosts": "".join(
            f"[{session.addresses[one]}]:{session.port} {keys[one].host}\n" for one in others
        ),
        **files,
        # the last: from then on the others are let in
        "authorized": "".join(
            f'restrict,from="{session.addresses[one]}" {keys[one].client}\n' for one in others
        ),
    }
    text = "".join(f"%% {name}\n{body}" for name, body in parts.items())
    shell = (
        f"umask 077; cd {at} || exit 70; "
        "awk '/^%% / { if (f) close(f); f = $2; printf \"\" >f; next } { print >f }' "
        "&& echo trusted"
    )
    return Command("nccl.trust", shell, TRUST_S, stdin=text, writes=True)


def _client(session: Session) -> str:
    at = session.directory
    return f"""\
Host *
  User root
  Port {session.port}
  IdentityFile {at}/client
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {at}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  UpdateHostKeys no
  CheckHostIP no
  BatchMode yes
  ControlPath none
  ConnectTimeout 10
  ServerAliveInterval 5
  ServerAliveCountMax 3
  LogLevel ERROR
"""


def clear(session: Session) -> Command:
    """End whatever a run left behind a hung rank; the sshd stays for the rounds to come."""
    shell = f"""\
main=$(systemctl show -P MainPID {session.unit})
group=$(systemctl show -P ControlGroup {session.unit})
[ "${{main:-0}}" != 0 ] && [ -n "$group" ] || {{ echo gone; exit 0; }}
for c in /sys/fs/cgroup /sys/fs/cgroup/systemd; do
  [ -r "$c$group/cgroup.procs" ] || continue
  for p in $(cat "$c$group/cgroup.procs"); do [ "$p" = "$main" ] || kill -9 "$p" 2>/dev/null; done
done
rm -rf {session.directory}/log.* {session.directory}/ompi.*
echo cleared"""
    return Command("nccl.clear", shell, CLEAR_S)


def clean(session: Session) -> Command:
    """End it all, and look whether anything is left; read by :func:`left_behind`."""
    shell = f"""\
units() {{ systemctl list-units --all --plain --no-legend '{session.name}*' | cut -d' ' -f1; }}
for u in $(units); do systemctl stop "$u" 2>/dev/null; done
for u in $(units); do systemctl reset-failed "$u" 2>/dev/null; done
n=0
while [ $n -lt 50 ] && [ -n "$(units)" ]; do sleep 0.1; n=$((n + 1)); done
rm -rf {session.directory} {session.directory}-*
for u in $(units); do echo "left unit $u"; done
for f in {session.directory}*; do [ ! -e "$f" ] || echo "left directory $f"; done
ss -Hltn "sport = :{session.port}" | while read -r l; do echo "left listener $l"; done
echo clean"""
    return Command("nccl.clean", shell, CLEAN_S)


def left_behind(asked: Command, output: Output) -> list[str]:
    """What is left on a node, in words; empty when it was looked and nothing is."""
    if why := unseen(asked, output):
        return [f"not known: {why}"]
    left = [line for line in output.stdout.splitlines() if line.startswith("left ")]
    if not left and "clean" not in output.stdout.splitlines():
        return [f"not known: the answer is not whole (status {output.rc})"]
    return [line.removeprefix("left ") for line in left]
