"""The driver stage on a real host: apt, dpkg, systemd and the reboot are real, the cards are not.

Ubuntu 22.04 with NVIDIA's packages comes from a test repository; Debian 12's driver 535 is built
by the real DKMS for a real kernel (slow).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from rackpin.lab import description, lifecycle
from rackpin.stack import wheelhouse
from rackpin.stack.lock import load_stack
from tests.fixtures_debs import Repository, make_repository
from tests.fixtures_debs_names import DRIVER, family
from tests.lab import driver_stack as stack
from tests.lab.fleet import FleetLab, Run
from tests.lab.mirror import Mirror

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

NAME = "test-driver"
HOST = "drv-1"
LAB = """\
base: {suite: bookworm, components: [main, contrib, non-free, non-free-firmware]}
hosts:
  - {name: drv-1, groups: [head], hardware: h100-sxm-8, faults: [FAULTS]}
"""
# Everything that the stage could change, as one number.
SNAPSHOT = (
    "find /etc/modprobe.d /etc/modules-load.d /etc/dkms /etc/apt /etc/systemd/system /boot "
    "-type f 2>/dev/null | sort | xargs sha256sum | sha256sum; "
    "dpkg-query -W -f '${Package} ${Version} ${Status}\\n' | sha256sum; "
    "cat /proc/sys/kernel/random/boot_id"
)
BARE = ("not-installed", f"kernel={stack.OLD_KERNEL}")  # before a driver, as such a host came
OS_RELEASE = 'ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04 (a lab host in its place)"\n'
ENGINE = "[Service]\nExecStart=/bin/sleep infinity\n"


class Site:
    """The host, and the stack that a run takes."""

    def __init__(self, fleet: FleetLab, name: str, options: list[str]) -> None:
        self.fleet, self.stack, self.options = fleet, name, options

    def run(self, *deploys: str, deadline_s: float = 600, **data: object) -> Run:
        given = [f"{key}={value}" for key, value in {"stack": self.stack, **data}.items()]
        more = [word for text in given for word in ("--data", text)]
        return self.fleet.run(
            "apt", "deploys/driver.py", *deploys, *self.options, *more, deadline_s=deadline_s
        )

    def ask(self, command: str, check: bool = True, deadline_s: float = 120) -> str:
        return self.fleet.ask(HOST, command, deadline_s, check=check)

    def put(self, path: str, text: str) -> None:
        self.fleet.feed(HOST, f"mkdir -p $(dirname {path}); printf %s {shlex.quote(text)} >{path}")

    def faults(self, *names: str) -> None:
        """Just these faults beside those of a bare host; before the first, none."""
        self.fleet.faults(HOST, *BARE, *names)

    def boot_id(self) -> str:
        return self.ask("cat /proc/sys/kernel/random/boot_id")

    def refused(self, *words: str, **data: object) -> None:
        """The run ends before any change, and says why and what to do."""
        before = self.ask(SNAPSHOT)
        run = self.run(**data)
        said = " ".join(run.text.split())
        assert run.code == 1, run.tail
        for word in words:
            assert word in said, run.tail
        assert self.ask(SNAPSHOT) == before


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLab]:
    directory = Path(tmp_path_factory.mktemp("driver"))
    described = description.parse(LAB.replace("FAULTS", ", ".join(BARE)), "test_driver.py", NAME)
    wheelhouse.build(load_stack("cpu-lab"), say=print)
    lifecycle.down(NAME, purge=True)
    try:
        yield FleetLab(lifecycle.up(described, NAME, say=print), directory)
    finally:
        lifecycle.down(NAME, purge=True)


def nvidia_source(repository: Repository, mirror: Mirror) -> str:
    return json.dumps(
        [
            {
                "name": stack.VENDOR,
                "uri": mirror.url,
                "suite": repository.suite,
                "components": ["main"],
                "key_file": str(repository.key_file),
                "fingerprint": repository.fingerprint,
            }
        ]
    )


@pytest.fixture(scope="module")
def ubuntu(bare: FleetLab) -> Iterator[Site]:
    """A bare host that says it is Ubuntu 22.04, with NVSwitches, nouveau and an older kernel."""
    repository = make_repository(bare.directory / "nvidia", packages=stack.packages())
    root = stack.make_stack(bare.directory / "stacks", repository)
    bare.environment["RACKPIN_STACKS"] = str(root)
    mirror = Mirror(repository.path, bare.lab.control_address)
    mirror.start()
    source = nvidia_source(repository, mirror)
    site = Site(bare, stack.NAME, ["--data", f"apt_repositories={source}", "--data", "gpus=8"])
    stack.as_ubuntu(bare, HOST, OS_RELEASE)
    try:
        yield site
    finally:
        mirror.stop()
        del bare.environment["RACKPIN_STACKS"]


@pytest.fixture(scope="module")
def driven(ubuntu: Site) -> Site:
    """The host after the stage; it must have rebooted on the way."""
    before = ubuntu.boot_id()
    ubuntu.ask("rm -f /etc/sim/dkms-fails")
    run = ubuntu.run(nvswitch="true")
    assert run.code == 0, run.tail
    assert ubuntu.boot_id() != before
    said = " ".join(run.text.split())
    assert f"kernel {stack.OLD_KERNEL} runs, {stack.KERNEL} is pinned" in said, run.tail
    assert "nouveau is loaded" in said, run.tail
    return ubuntu


def test_what_a_person_must_decide_is_refused_before_any_change(ubuntu: Site) -> None:
    try:
        ubuntu.faults("secure-boot")
        ubuntu.put("/usr/bin/nvidia-uninstall", "")
        ubuntu.refused(
            "secure boot", "mokutil --import", ".run file: /usr/bin/nvidia-uninstall",
            "NVSwitches are on the bus", "never",
            nvswitch="false", reboot="never",
        )  # fmt: skip
    finally:
        ubuntu.faults()
        ubuntu.ask("rm /usr/bin/nvidia-uninstall")


def test_modules_that_do_not_build_stop_the_node_without_a_reboot(ubuntu: Site) -> None:
    before = ubuntu.boot_id()
    ubuntu.put("/etc/sim/dkms-fails", "")
    run = ubuntu.run(nvswitch="true")
    assert run.code == 1, run.tail
    assert "DRM_UNLOCKED undeclared" in run.text, run.tail
    assert ubuntu.boot_id() == before
    assert ubuntu.ask("uname -r") == stack.OLD_KERNEL


def test_the_stage_brings_driver_kernel_and_daemons(driven: Site) -> None:
    assert driven.ask("uname -r") == stack.KERNEL
    assert f"  {DRIVER}  " in driven.ask("cat /proc/driver/nvidia/version")
    assert "nouveau" not in driven.ask("lsmod")
    rows = driven.ask("dpkg-query -W -f '${Package} ${Version}\\n'").splitlines()
    versions = dict(row.split() for row in rows)
    wanted = {one.name: one.version for one in family(DRIVER)}
    assert {name: versions.get(name) for name in wanted} == wanted
    held = set(driven.ask("apt-mark showhold").split())
    assert {*wanted, f"linux-image-{stack.KERNEL}", f"linux-headers-{stack.KERNEL}"} <= held
    for unit in ("nvidia-persistenced", "nvidia-fabricmanager"):
        assert driven.ask(f"systemctl is-active {unit}; systemctl is-enabled {unit}") == (
            "active\nenabled"
        )


def test_a_second_run_changes_nothing(driven: Site) -> None:
    before = driven.ask(SNAPSHOT)
    run = driven.run("deploys/verify.py", nvswitch="true")
    assert run.report is not None, run.tail
    assert run.node(HOST).changes == []
    assert driven.ask(SNAPSHOT) == before
    # the survey, the checks, what an idle node's cards are asked, and the word that stops a node
    # that isn't ready: nothing else is on it
    assert run.asked == {"executions": {HOST: 4}, "misses": 0}


def test_a_changed_driver_under_an_engine_waits_for_a_wave(driven: Site) -> None:
    driven.put("/etc/systemd/system/vllm@.service", ENGINE)
    driven.ask("systemctl daemon-reload; systemctl start vllm@big")
    driven.ask(f"sed -i s/{DRIVER}/535.104.05/ /proc/driver/nvidia/version")
    driven.refused(
        "would change under vllm@big.service", "the loaded module is 535.104.05",
        "systemctl stop vllm@big.service", "reboot=allowed", nvswitch="true",
    )  # fmt: skip
    assert driven.ask("systemctl is-active vllm@big") == "active"

    before = driven.boot_id()
    run = driven.run(nvswitch="true", reboot="allowed")
    assert run.code == 0, run.tail
    assert driven.boot_id() != before
    assert "the loaded module is 535.104.05" in " ".join(run.text.split())
    assert f"  {DRIVER}  " in driven.ask("cat /proc/driver/nvidia/version")


def test_no_reboot_while_the_next_kernel_lacks_its_modules(driven: Site) -> None:
    before = driven.boot_id()
    driven.ask("rm -r /lib/modules/*/updates /var/lib/dkms/nvidia; touch /etc/sim/dkms-fails")
    driven.ask(f"sed -i s/{DRIVER}/535.104.05/ /proc/driver/nvidia/version")
    try:
        run = driven.run(nvswitch="true")
        said = " ".join(run.text.split())
        assert run.code == 1, run.tail
        assert "not proven for the running and the next kernel" in said, run.tail
        assert f"nvidia/{DRIVER} for {stack.KERNEL} is not built" in said, run.tail
        assert driven.boot_id() == before
    finally:
        driven.ask("rm /etc/sim/dkms-fails")
    run = driven.run(nvswitch="true")
    assert run.code == 0, run.tail
    assert driven.boot_id() != before, "the loaded module was another"


SHORT_BOOT_S = 40  # a lab host boots in two seconds; the real bound is a server's
SHORT = f"""\
from rackpin import deadlines

deadlines.BOOT_S = {SHORT_BOOT_S}
"""
LATE_KERNEL = "7.0.0-99-generic"
# What comes on its way down is what nobody could see before.
ON_THE_WAY_DOWN = f"""\
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/bin/touch /boot/vmlinuz-{LATE_KERNEL} /boot/initrd.img-{LATE_KERNEL}
"""


@pytest.mark.slow
def test_a_reboot_that_does_not_happen_is_told_within_its_deadline(
    driven: Site, tmp_path: Path
) -> None:
    short = tmp_path / "short.py"
    short.write_text(SHORT)
    driven.ask(f"sed -i s/{DRIVER}/535.104.05/ /proc/driver/nvidia/version")
    driven.ask("systemctl mask --runtime reboot.target")
    before = driven.boot_id()
    try:
        run = driven.fleet.run(
            "apt", str(short), "deploys/driver.py", *driven.options, "--data", "nvswitch=true",
            "--data", f"stack={driven.stack}",
        )  # fmt: skip
    finally:
        driven.ask("systemctl unmask --runtime reboot.target")
    assert run.code == 1, run.tail
    assert f"no answer from a new boot within {SHORT_BOOT_S} s" in " ".join(run.text.split())
    assert run.seconds < SHORT_BOOT_S + 60
    assert driven.boot_id() == before
    assert driven.run(nvswitch="true").code == 0, "the next run does what was left"
    assert driven.boot_id() != before


@pytest.mark.slow
def test_a_host_that_comes_back_with_another_kernel_stops(driven: Site) -> None:
    driven.ask(f"sed -i s/{DRIVER}/535.104.05/ /proc/driver/nvidia/version")
    driven.put("/etc/systemd/system/late.service", ON_THE_WAY_DOWN)
    driven.ask("systemctl daemon-reload; systemctl start late")
    try:
        run = driven.run(nvswitch="true")
        said = " ".join(run.text.split())
        assert run.code == 1, run.tail
        assert "after the reboot" in said and f"kernel {LATE_KERNEL} runs" in said, run.tail
        driven.refused(f"would take {LATE_KERNEL}, not the pinned", nvswitch="true")
    finally:
        driven.ask("systemctl stop late; rm /etc/systemd/system/late.service; "
                   "systemctl daemon-reload; rm -f /boot/*7.0.0*")  # fmt: skip
    assert driven.run(nvswitch="true").code == 0
    assert driven.ask("uname -r") == stack.KERNEL


def test_fabric_manager_goes_where_the_nvswitches_go(driven: Site) -> None:
    driven.faults("nvswitch-missing")
    try:
        run = driven.run(nvswitch="false")
        assert run.code == 0, run.tail
        assert driven.ask("systemctl is-enabled nvidia-fabricmanager", check=False) == "disabled"
    finally:
        driven.faults()


def test_a_host_without_a_gpu_is_left_alone(driven: Site) -> None:
    driven.faults("no-cards")
    before = driven.ask(SNAPSHOT)
    try:
        run = driven.run("deploys/verify.py", nvswitch="true")
        assert run.report is not None and run.node(HOST).changes == []
        assert any("no NVIDIA GPU is on its PCI bus" in note for note in run.report.notes)
        assert driven.ask(SNAPSHOT) == before
    finally:
        driven.faults()


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_debians_own_driver_is_built_by_the_real_dkms(bare: FleetLab) -> None:
    """A fresh disk: 6.1.0-50 runs, the stack's kernel is installed, built for and booted."""
    lock = load_stack("debian12-r535")
    wheelhouse.build(lock, say=print)
    lifecycle.reset(bare.lab, [bare.lab.host(HOST)], say=print)
    old = ["not-installed", "kernel=6.1.0-50-amd64", "nvswitch-missing"]  # Debian has none for them
    bare.faults(HOST, *old)
    kernel = lock.lock.host.kernel
    assert kernel is not None and lock.pins.driver is not None
    version = lock.pins.driver.version
    site = Site(bare, "debian12-r535", ["--data", "gpus=8"])
    before = site.boot_id()
    run = site.run(deadline_s=2000)
    assert run.code == 0, run.tail
    assert site.boot_id() != before and site.ask("uname -r") == kernel.release
    assert f"nvidia-current/{version}, {kernel.release}, x86_64: installed" in site.ask(
        "dkms status"
    )
    modules = f"/lib/modules/{kernel.release}/updates/dkms"
    assert site.ask(f"modinfo -F version {modules}/nvidia-current.ko") == version
    magic = site.ask(f"modinfo -F vermagic {modules}/nvidia-current-uvm.ko")
    assert magic.split()[0] == kernel.release
    verified = site.run("deploys/verify.py")
    assert verified.report is not None and verified.node(HOST).changes == []
    again = site.run()
    assert again.code == 0 and again.counts["executions"] == {HOST: 1}, "the survey, no more"
