"""What a fresh host gets before its first boot: name, addresses, keys, the site's CAs."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from rackpin.lab.errors import LabError
from rackpin.lab.process import run
from rackpin.lab.supervisor import write_atomically

# the second has what systemd-resolved asks, where the first is only its stub
RESOLV_CONFS = Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
LOCAL_CAS = Path("/usr/local/share/ca-certificates")

HOSTS = """127.0.0.1\tlocalhost
127.0.1.1\t{name}

# The following lines are desirable for IPv6 capable hosts
::1     localhost ip6-localhost ip6-loopback
ff02::1 ip6-allnodes
ff02::2 ip6-allrouters
"""

NETWORK = """[Match]
Name={interface}

[Network]
Address={address}/24
IPv6AcceptRA=no
{gateway}"""


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file; a link a host put there is replaced, never followed out of its disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text, mode)


def fresh_host(root: Path, name: str, resolv_conf: str) -> None:
    """Files that belong to the host from its first boot on: later ``up``s leave them alone."""
    _write(root / "etc/hostname", f"{name}\n")
    _write(root / "etc/hosts", HOSTS.format(name=name))  # 127.0.1.1, as Debian's installer does
    _write(root / "etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444)
    _write(root / "etc/resolv.conf", resolv_conf)
    _copy_cas(root)


def resolv_conf(nameservers: Sequence[str] = ()) -> str:
    """What hosts resolve names with: those given, else what the control machine uses.

    LabError when that is only a resolver on its loopback, which a host can't reach.
    """
    if nameservers:
        return "".join(f"nameserver {server}\n" for server in nameservers)
    for file in RESOLV_CONFS:
        if file.exists():
            text = file.read_text()
            servers = re.findall(r"^nameserver\s+(\S+)", text, re.MULTILINE)
            if any(not server.startswith("127.") and server != "::1" for server in servers):
                return text
    raise LabError(
        f"no name server in {RESOLV_CONFS[0]} that hosts can reach (only loopback): "
        "name one as `nameservers: [ADDRESS]` in the lab's description"
    )


def _copy_cas(root: Path) -> None:
    if CA_BUNDLE.exists():
        shutil.copyfile(CA_BUNDLE, root / str(CA_BUNDLE).lstrip("/"))
    # the site's own CAs again as files, so that update-ca-certificates keeps them in the bundle
    for ca in LOCAL_CAS.glob("**/*.crt"):
        target = root / str(ca).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ca, target)


def addresses(root: Path, address: str, gateway: str, fabric_address: str | None) -> None:
    """The lab's own files, written at each boot: the subnet may have moved."""
    network = root / "etc/systemd/network"
    text = NETWORK.format(interface="host0", address=address, gateway=f"Gateway={gateway}\n")
    _write(network / "10-host0.network", text)
    fabric = network / "10-fab0.network"
    if fabric_address:
        _write(fabric, NETWORK.format(interface="fab0", address=fabric_address, gateway=""))
    else:
        fabric.unlink(missing_ok=True)


def access(root: Path, user_key: Path, host_key: Path) -> None:
    """The lab's key may log in as root; the host shows the key that known_hosts expects."""
    ssh = root / "root/.ssh"
    ssh.mkdir(mode=0o700, parents=True, exist_ok=True)
    allowed = ssh / "authorized_keys"
    public = user_key.with_suffix(".pub").read_text()
    before = allowed.read_text() if allowed.exists() else ""
    if public not in before:
        _write(allowed, before + public, 0o600)
    _write(root / "etc/ssh/ssh_host_ed25519_key", host_key.read_text(), 0o600)
    shown = host_key.with_suffix(".pub").read_text()
    _write(root / "etc/ssh/ssh_host_ed25519_key.pub", shown)


def key_pair(path: Path, comment: str) -> None:
    """An ed25519 pair at ``path`` and ``path``.pub, unless there is one."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])
