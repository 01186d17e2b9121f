"""For each check of machine and serving: the lie typical for it, then two faults at once."""

from __future__ import annotations

from tests.unit.lies import Lie, also, first, lie, two

UNIT = "Id=ray-head.service\nLoadState=loaded\nActiveState=active"
DEAD = "Id=ray-head.service\nLoadState=loaded\nActiveState=failed"
CHRONY = "Id=chrony.service\nLoadState=loaded\nActiveState=active"
PERSISTENCED = "Id=nvidia-persistenced.service\nLoadState=loaded\nActiveState="
IP = "environ:VLLM_HOST_IP="
SYNC = "## synchronized\nNTPSynchronized=yes"
DRIVE = "drive /dev/nvme0n1\nSMART overall-health self-assessment test result: PASSED"
MC0, MC1 = "mc0 ce=0 ue=0", "mc1 ce=2 ue=0"
KLOG = "## dmesg\n"


def _state(old: str, new: str, named: str) -> Lie:
    return lie("host.state", old, new, named)


LIES: dict[str, tuple[Lie, ...]] = {
    "versions": (
        lie("versions.current", "complete", "incomplete", "never finished"),
        two(lie("versions.current", "complete", "incomplete", "never finished"),
            lie("versions.installed", '"ray": "', '"ray": "0.', "at another version")),
    ),
    "models": (
        lie("models.0", "same\n", "", "another size or time"),
        lie("models.0", "mark ", "mark 0", "another first than the lock's"),
        two(lie("models.0", "same\n", "", "/srv/first"),
            lie("models.1", "mark ", "file 1 ", "/srv/second was never proved")),
    ),
    "versions.running": (
        lie("procs", "1440/maps:/opt/rackpin/env/", "1440/maps:/opt/rackpin/env/old-", "old-"),
        two(lie("procs", "1440/maps:/opt/rackpin/env/", "1440/maps:/opt/rackpin/env/old-", "vllm@"),
            lie("procs", "812/maps:/opt/rackpin/env/", "812/maps:/opt/rackpin/env/older-",
                "ray-head")),
    ),
    "units": (
        lie("units.show", UNIT, DEAD, "is failed"),
        two(lie("units.show", UNIT, DEAD, "failed"),
            lie("units.failed", "## end", "x.service loaded failed failed X\n## end", "x.service")),
    ),
    "limits": (
        lie("procs", "1440/limits:Max locked memory         unlimited",
            "1440/limits:Max locked memory         8388608", "EngineCor"),
        two(lie("procs", "901/limits:Max open files            1048576",
                "901/limits:Max open files            1024", "raylet"),
            lie("units.show", "TasksMax=infinity", "TasksMax=100", "TasksMax")),
    ),
    "sysctl.live": (
        lie("sysctl", "vm.swappiness = 1\n", "vm.swappiness = 60\n", "vm.swappiness"),
        two(lie("sysctl", "vm.swappiness = 1\n", "vm.swappiness = 60\n", "vm.swappiness"),
            lie("sysctl", "kernel.numa_balancing = 0", "kernel.numa_balancing = 1", "numa")),
    ),
    "kernel": (
        lie("swap", "Priority\n", "Priority\n/swap.img file 8388604 0 -2\n", "/swap.img"),
        two(lie("swap", "Priority\n", "Priority\n/swap.img file 8388604 0 -2\n", "/swap.img"),
            lie("thp", "always [madvise] never\ndefrag", "[always] madvise never\ndefrag",
                "always")),
    ),
    "hosts.self": (
        lie("hosts", "10.9.0.12", "10.9.0.99", "10.9.0.99"),
        two(lie("hosts", "10.9.0.12", "10.9.0.99", "worker1"),
            lie("hosts", "## self head1\n10.9.0.11", "## self head1\n127.0.1.1", "loopback")),
    ),
    "address.engine": (
        lie("procs", "901/" + IP + "10.9.0.11", "901/" + IP + "172.17.0.1", "172.17.0.1"),
        two(lie("procs", "901/" + IP + "10.9.0.11", "901/" + IP + "172.17.0.1", "172.17.0.1"),
            lie("procs", "812/" + IP + "10.9.0.11", "812/" + IP + "127.0.0.1", "127.0.0.1")),
    ),
    "clock": (
        lie("batch.clock", "1000.4 1009.7", "2000.4 2009.7", "offset"),
        # Two faults can't be told apart by one number: the sign and the size are both there.
        two(lie("batch.clock", "1000.4 1009.7", "100.4 109.7", "-899"),
            lie("clock.sync", "NTPSynchronized=yes", "NTPSynchronized=no", "NTPSynchronized=no")),
    ),
    "clock.source": (
        _state(SYNC, "## synchronized\nNTPSynchronized=n/a", "synchronized"),
        two(_state(SYNC, "## synchronized\nNTPSynchronized=no", "not synchronized"),
            _state("^,*,10", "^,?,10", "names a source")),
    ),
    "disk": (
        lie("disk", "380000000     24% /opt", "3800000     99% /opt", "/opt"),
        two(lie("disk", "380000000     24% /opt", "3800000     99% /opt", "/opt"),
            lie("disk", "16375982    3% /", "100    100% /", "inodes")),
    ),
    "disk.mounts": (
        _state("/opt xfs rw,", "/opt xfs ro,", "/opt is mounted read-only"),
        two(_state("/opt xfs rw,", "/opt xfs ro,", "/opt is"), _state("/ ext4 rw,", "/ ext4 ro,",
                                                                     "/ is")),
    ),
    "disk.state": (
        _state("nvme0|live", "nvme0|", "state not told"),
        two(_state("nvme1|live", "nvme1|dead", "nvme1"), _state("sda|running", "sda|offline",
                                                                "sda")),
    ),
    "disk.health": (
        lie("host.disks", DRIVE, "drive /dev/nvme0n1\nnothing", "/dev/nvme0n1"),
        two(lie("host.disks", DRIVE, DRIVE.replace("PASSED", "FAILED!"), "FAILED!"),
            lie("host.disks", "Media and Data Integrity Errors: 0",
                "Media and Data Integrity Errors: 7", "/dev/nvme1n1: 7 media errors")),
    ),
    "kernel.boot": (
        _state("modules 6.5.0-45-generic", "modules 6.5.0-44-generic", "/lib/modules"),
        two(_state("modules 6.5.0-45-generic\n", "", "/lib/modules"),
            _state("initrd.img-6.5.0-45-generic", "initrd.img-6.5.0-44-generic", "initrd")),
    ),
    "kernel.reboot": (
        _state("## reboot\nno", "## reboot\n", "whether"),
        two(_state("## reboot\nno", "## reboot\nrequired\nlibc6\nlinux-image-x", "libc6"),
            also("linux-image-x")),
    ),
    "cpu": (
        _state("online 0-191", "online N/A", "online"),
        two(_state("online 0-191", "online 0-95", "96 of 192"),
            _state("node1 1056940000", "node1 528470000", "node1")),
    ),
    "memory.errors": (
        _state(MC0, "mc0 ce= ue=", "memory controller"),
        two(_state(MC0, "mc0 ce=0 ue=3", "mc0: 3"), _state(MC1, "mc1 ce=2 ue=1", "mc1: 1")),
    ),
    "memory.free": (
        _state("MemAvailable:   2000000000 kB", "MemAvailable:   N/A", "available"),
        two(_state("MemAvailable:   2000000000 kB", "MemAvailable:   20000000 kB", "short"),
            also("19.1 of 2016 GiB")),
    ),
    "shm": (
        _state("0% /dev/shm", "0% /dev", "not a file system of its own"),
        two(_state("1056725000     0 1056725000", "60000     0 50000", "59 MiB"),
            also("49 free")),
    ),
    "services": (
        _state(CHRONY, CHRONY.replace("active", "failed"), "chrony"),
        two(_state(CHRONY, CHRONY.replace("active", "failed"), "chrony"),
            _state(PERSISTENCED + "active", PERSISTENCED + "inactive", "persistenced")),
    ),
    "packages": (
        _state("## dpkg\n", "## dpkg\n0001\n", "interrupted"),
        two(_state("## dpkg\n", "## dpkg\nThe following packages are only half configured:\n"
                   " nvidia-dkms-535  NVIDIA DKMS\n linux-image-x  Linux\n", "nvidia-dkms-535"),
            also("linux-image-x")),
    ),
    "log": (
        lie("host.log", "## dmesg status\n0\n", "## dmesg status\n1\n", "log"),
        two(lie("host.log", KLOG, KLOG + "[  9.1] I/O error, dev nvme0n1, sector 1\n"
                "[  9.2] EDAC MC0: 1 UE memory read error\n", "nvme0n1: I/O errors"),
            also("MC0: memory errors not corrected")),
    ),
    "net.fabric": (
        lie("net.fabric", "speed=100000", "speed=-1", "its speed"),
        two(lie("net.fabric", "duplex=full", "duplex=half", "half duplex"),
            lie("net.fabric", "speed=100000", "speed=1000", "1000 Mb/s")),
    ),
    "containers.toolkit": (
        lie("host.docker", "ii  1.19.1-1", "rc  1.19.1-1", "is not"),
        two(lie("host.docker", "ii  1.19.1-1", "ii  1.14.0-1", "1.14.0-1"),
            lie("host.docker", "status 0\n## containers", "status 1\n## containers",
                "docker doesn't answer")),
    ),
    "containers.shm": (
        lie("host.docker", '"ShmSize": 68719476736', '"ShmSize": null', "/dev/shm"),
        two(lie("host.docker", '"ShmSize": 68719476736', '"ShmSize": 67108864', "67108864"),
            lie("host.docker", '"Soft": -1', '"Soft": 65536', "memlock")),
    ),
    "guard": (
        lie("guard", "{restart} = 'l'", "{restart} = 'a'", "needrestart"),
        two(lie("guard", "{restart} = 'l'", "{restart} = 'a'", "needrestart"),
            lie("guard", "Package-Blacklist:: ", "Package-Blacklist-:: ", "not blacklisted")),
    ),
    "apt": (
        lie("apt.look", "Candidate: 535.129.03-0ubuntu1", "Candidate: 535.183.01-0ubuntu1",
            "535.183.01"),
        two(lie("apt.look", "Candidate: 535.129.03-0ubuntu1", "Candidate: 535.183.01-0ubuntu1",
                "535.183.01"),
            lie("apt.lists", "/nvidia/||", "/nothing/||", "no package list")),
    ),
    "listeners": (
        lie("listeners", "10.9.0.11:8000       0.0.0.0:*    users:((\"VLLM::APIServer\",pid=1377",
            "10.9.0.11:8000       0.0.0.0:*    users:((\"nc\",pid=4242", "8000"),
        two(lie("listeners", "127.0.0.1:8265 ", "0.0.0.0:8265 ", "dashboard"),
            lie("listeners", "[::ffff:127.0.0.1]:39001", "*:39001", "39001")),
    ),
    "secrets.ps": (
        lie("secrets", "## keys\n1", "## keys\n0", "keys"),
        two(lie("secrets", "## ps\n", "## ps\n1377 python\n", "command line of python"),
            lie("secrets", "600 root:root", "644 root:root", "644")),
    ),
    "ray.cluster": (
        lie("ray.cluster", '"alive": true', '"alive": false', "is not in the cluster"),
        two(lie("ray.cluster", '"GPU": 1.0', '"GPU": 4.0', "offers 4"),
            lie("ray.cluster", '"removed": true', '"removed": false', "not removed")),
    ),
    "collective.all_nodes": (
        lie("ray.cluster", '"busbw_gb_s": 0.36', '"busbw_gb_s": null', "all-reduce"),
        two(lie("ray.cluster", '"wrong": 0', '"wrong": 7', "7 wrong"),
            lie("ray.cluster", '"world": 3', '"world": 2', "2 ranks")),
    ),
    "smoke": (
        lie("smoke.two", '" the cables"', '""', "the text is empty"),
        two(first("smoke.two", '"tokens": 16', '"tokens": 0', "0 tokens"),
            lie("smoke.two", '"models": 401', '"models": 200', "without the right key")),
    ),
}  # fmt: skip
