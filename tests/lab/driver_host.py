"""Simulated at a lab host's edge: what a kernel with GPUs would say, for the driver stage.

Lab hosts share the control machine's kernel, which has no modules and no cards. Programs in
/usr/local/sbin answer in its place; which kernel "booted", and what it loaded, is decided at
each boot by what is then on the host's disk.
"""

from __future__ import annotations

GPU = (
    "0000:17:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] "
    "[10de:2330] (rev a1)\n"
)
NVSWITCH = (
    "0000:07:00.0 Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3] (rev a1)\n"
)

_PROGRAMS = {
    "lspci": "#!/bin/sh\ncat /etc/sim/pci\n",
    "lsmod": "#!/bin/sh\necho 'Module                  Size  Used by'\n"
    "while read -r m; do printf '%-20s 16384  0\\n' \"$m\"; done </run/sim/modules\n",
    "uname": '#!/bin/sh\n[ "$*" = -r ] && exec cat /run/sim/kernel\nexec /bin/uname "$@"\n',
    "mokutil": "#!/bin/sh\n"
    'case $1 in --sb-state) cat /etc/sim/secureboot;; *) echo "$2 is not enrolled";; esac\n',
    # Files of fixture packages are no modules; those of a real build are asked of the real one.
    "modinfo": """#!/bin/sh
for f; do :; done
if [ "$(head -c 11 "$f" 2>/dev/null)" = sim-module: ]; then cut -d : -f 2 "$f"
else exec /sbin/modinfo "$@"; fi
""",
    "modprobe": """#!/bin/sh
case $1 in nvidia|nvidia-uvm) ;; *) exec /sbin/modprobe "$@";; esac
k=$(cat /run/sim/kernel)
for f in /lib/modules/$k/updates/dkms/nvidia.ko /lib/modules/$k/updates/dkms/nvidia-current.ko; do
  [ -e $f ] || continue
  v=$(modinfo -F version $f)
  grep -q " /proc/driver " /proc/self/mounts || mount -t tmpfs sim /proc/driver
  mkdir -p /proc/driver/nvidia
  echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  $v  Thu Oct 19 18:56:32 UTC 2023" \\
    >/proc/driver/nvidia/version
  m=$(echo $1 | tr - _)
  grep -qx $m /run/sim/modules || echo $m >>/run/sim/modules
  exit 0
done
echo "modprobe: FATAL: Module $1 not found in directory /lib/modules/$k" >&2; exit 1
""",
    "sim-boot": """#!/bin/sh
PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
mkdir -p /run/sim; : >/run/sim/modules
k=$(ls /boot 2>/dev/null | sed -n 's/^vmlinuz-//p' | sort -V | tail -n 1)
[ -n "$k" ] || k=$(cat /etc/sim/kernel)
echo "$k" >/run/sim/kernel
grep -qs '^blacklist nouveau' /etc/modprobe.d/* || echo nouveau >/run/sim/modules
for m in $(cat /etc/modules-load.d/*nvidia* 2>/dev/null | grep -v '^#'); do modprobe $m; done
exit 0
""",
}
_UNIT = """[Unit]
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/sim-boot
[Install]
WantedBy=sysinit.target
"""
# The daemons need a card; what they are told to be stays as the stage and the packages say.
_DAEMON = "[Service]\nType=exec\nExecStartPre=\nExecStart=\nExecStart=/bin/sleep infinity\n"


def install_script(kernel: str, pci: str = GPU) -> str:
    """What makes a fresh host one with GPUs that booted ``kernel``; to be run as root."""
    lines = ["set -e", "mkdir -p /etc/sim /run/sim /usr/local/sbin"]

    def put(path: str, text: str, mode: str = "644") -> None:
        lines.append(f"mkdir -p $(dirname {path}); cat >{path} <<'END_OF_FILE'")
        lines.append(text.rstrip("\n"))
        lines.append(f"END_OF_FILE\nchmod {mode} {path}")

    for name, text in _PROGRAMS.items():
        put(f"/usr/local/sbin/{name}", text, "755")
    put("/etc/sim/pci", pci)
    put("/etc/sim/kernel", kernel)
    put("/etc/sim/secureboot", "SecureBoot disabled")
    put("/etc/systemd/system/sim-boot.service", _UNIT)
    for daemon in ("nvidia-persistenced", "nvidia-fabricmanager"):
        put(f"/etc/systemd/system/{daemon}.service.d/lab.conf", _DAEMON)
    lines += ["systemctl daemon-reload", "systemctl -q enable sim-boot", "sim-boot"]
    return "\n".join([*lines, ""])
