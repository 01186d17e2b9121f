"""The host itself: kernel settings, swap, names, clock, disk, automatic upgrades."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rackpin.checks import address, batch, clock, disk, hosts, kernel, sysctl, upgrades
from rackpin.checks.base import Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from tests.unit import checks_samples as samples
from tests.unit.checks_samples import found, good, ok, replaced
from tests.unit.shell import sh

OWNED = "/etc/sysctl.d/90-rackpin.conf"


@pytest.fixture
def ctx(target: Target) -> Context:
    return samples.context(target)


# -- sysctl ----------------------------------------------------------------------------


def settings(ctx: Context, live: str = "", files: str = "", owned: str = "") -> Finding:
    """``sysctl.live`` with further live lines (the last one counts), other files, own file."""
    text = good(ctx)["sysctl"].stdout
    text = text.replace("## owned", f"{live}\n## owned").replace("## end", f"{files}\n## end")
    if owned:
        head, _, rest = text.partition("## owned")
        text = f"{head}## owned\n{owned}\n## files{rest.partition('## files')[2]}"
    return found(ctx, sysctl.CHECK, sysctl=ok(text))["sysctl.live"]


def test_a_live_value_that_differs_fails_and_names_who_set_it(ctx: Context) -> None:
    assert settings(ctx, "vm.swappiness = 60").outcome is Outcome.FAIL
    finding = settings(ctx, "vm.swappiness = 60", "/etc/sysctl.d/99-zzz-site.conf:vm.swappiness=60")
    assert "vm.swappiness is 60, not 1 (set by /etc/sysctl.d/99-zzz-site.conf)" in finding.summary
    assert "99-zzz-site.conf" in finding.remedy


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("/etc/sysctl.d/99-site.conf:vm.swappiness = 60", Outcome.WARN),
        ("/etc/sysctl.conf:vm/swappiness=60", Outcome.WARN),
        ("/usr/lib/sysctl.d/99-x.conf:-vm.swappiness = 60", Outcome.WARN),
        ("/etc/sysctl.d/99-site.conf:vm.swappiness =   1", Outcome.PASS),
        ("/etc/sysctl.d/10-early.conf:vm.swappiness = 60", Outcome.PASS),
        ("/etc/sysctl.d/99-site.conf:kernel.sysrq = 0", Outcome.PASS),
        # The same name in /etc hides the vendor's file.
        (
            "/etc/sysctl.d/99-x.conf:kernel.sysrq = 0\n"
            "/usr/lib/sysctl.d/99-x.conf:vm.swappiness=60",
            Outcome.PASS,
        ),
    ],
)
def test_a_later_file_that_will_win_is_named(ctx: Context, line: str, outcome: Outcome) -> None:
    finding = settings(ctx, files=line)
    assert finding.outcome is outcome
    if outcome is Outcome.WARN:
        assert line.split(":")[0] in finding.summary and "next boot" in finding.summary


def test_the_owned_file_must_hold_what_is_live(ctx: Context) -> None:
    gone = "cat: /etc/sysctl.d/90-rackpin.conf: No such file or directory"
    finding = settings(ctx, owned=gone)
    assert finding.outcome is Outcome.WARN and f"{OWNED} lacks" in finding.summary


def test_spaces_and_port_ranges_compare_by_meaning(ctx: Context) -> None:
    assert settings(ctx, "net.ipv4.tcp_rmem = 4096  131072 67108864 ").outcome is Outcome.PASS
    key = "net.ipv4.ip_local_reserved_ports"
    ports = sysctl.settings(ctx)[0][key]
    assert "6379,6380,6381,6382" in ports
    live = ports.replace("6379,6380,6381,6382", "6379-6382")
    assert settings(ctx, f"{key} = {live}").outcome is Outcome.PASS
    assert settings(ctx, f"{key} = 8000").outcome is Outcome.FAIL
    assert settings(ctx, f"{key} = ").outcome is Outcome.FAIL


def test_a_key_that_this_kernel_lacks_fails(ctx: Context) -> None:
    text = good(ctx)["sysctl"].stdout.replace("kernel.numa_balancing = 0\n", "", 1)
    finding = found(ctx, sysctl.CHECK, sysctl=ok(text))["sysctl.live"]
    assert finding.outcome is Outcome.FAIL and "kernel.numa_balancing is not readable" in str(
        finding
    )


def test_skipped_keys_are_reported_and_not_required(ctx: Context) -> None:
    lab = samples.with_config(ctx, sysctl_skip=["vm.*", "kernel.pid_max"])
    text = good(ctx)["sysctl"].stdout.replace("vm.swappiness = 1", "vm.swappiness = 60")
    findings = found(lab, sysctl.CHECK, sysctl=ok(text))
    assert findings["sysctl.live"].outcome is Outcome.PASS
    skipped = findings["sysctl.skipped"]
    assert skipped.outcome is Outcome.NOT_RUN and not skipped.required
    assert "leaves out 4 settings, 1 of them differ" in skipped.summary
    assert "vm.swappiness = 60, wished 1" in skipped.evidence.output


def test_the_inventory_wins_over_the_table(ctx: Context) -> None:
    site = samples.with_config(ctx, sysctl={"vm.swappiness": 10, "net.ipv4.tcp_mtu_probing": 1})
    summary = found(site, sysctl.CHECK, sysctl=good(ctx)["sysctl"])["sysctl.live"].summary
    assert "vm.swappiness is 1, not 10" in summary and "tcp_mtu_probing" in summary


# -- swap and huge pages ---------------------------------------------------------------


def test_swap(ctx: Context) -> None:
    line = "/dev/sda2                               partition\t8388604\t\t0\t\t-2\n"
    swaps = ok(good(ctx)["swap"].stdout.replace("## end", line + "## end"))
    finding = found(ctx, kernel.CHECK, swap=swaps)["swap.off"]
    assert finding.outcome is Outcome.FAIL and "/dev/sda2" in finding.summary


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("enabled [always] madvise never\ndefrag always [madvise] never\n", Outcome.FAIL),
        ("enabled always madvise [never]\ndefrag always [madvise] never\n", Outcome.WARN),
        ("enabled always [madvise] never\ndefrag [always] madvise never\n", Outcome.WARN),
        ("enabled always [madvise] never\ndefrag \n", Outcome.NOT_RUN),
        ("enabled \ndefrag \n", Outcome.NOT_RUN),
    ],
)
def test_huge_pages(ctx: Context, text: str, outcome: Outcome) -> None:
    assert found(ctx, kernel.CHECK, thp=ok(text))["thp"].outcome is outcome


def test_huge_pages_of_a_foreign_kernel_are_left_out(ctx: Context) -> None:
    lab = samples.with_config(ctx, sysctl_skip=["transparent_hugepage"])
    always = ok("enabled [always] madvise never\ndefrag [always] madvise never\n")
    finding = found(lab, kernel.CHECK, good(ctx), thp=always)["thp"]
    assert finding.outcome is Outcome.NOT_RUN and not finding.required
    assert "enabled is always" in finding.summary


# -- names -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("## self head1\n10.9.0.11", "## self head1\n127.0.1.1", "loopback"),
        ("## head1\n10.9.0.11", "## head1\n127.0.1.1", "127.0.1.1"),
        ("## self head1\n10.9.0.11", "## self head1\n192.168.7.2", "192.168.7.2"),
        ("## worker1\n10.9.0.12", "## worker1\n10.9.0.99", "worker1 is 10.9.0.99"),
        ("10.9.0.13", "", "worker2 is nothing"),
        ("## self head1\n", "## self head1\n10.9.0.77 STREAM x\n", "10.9.0.77"),
    ],
)  # fmt: skip
def test_a_wrong_address_fails(ctx: Context, old: str, new: str, words: str) -> None:
    finding = found(ctx, hosts.CHECK, hosts=replaced(good(ctx)["hosts"], old, new))["hosts.self"]
    assert finding.outcome is Outcome.FAIL and words in finding.summary


GETENT = """#!/bin/sh
shift
for name; do
  grep "^$name " "{table}" | while read -r _ address; do
    echo "$address       STREAM $name"; echo "$address       DGRAM  "; echo "$address       RAW    "
  done
  grep -q "^$name " "{table}" || missing=2
done
exit ${{missing:-0}}
"""


@pytest.mark.parametrize(
    ("lost", "wrong", "words"),
    [
        ("", "", ""),
        ("", "worker1", "worker1 is 10.9.0.99"),
        ("worker2", "", "worker2 is nothing"),
    ],
)
def test_only_names_that_lead_elsewhere_are_told(
    ctx: Context, tmp_path: Path, lost: str, wrong: str, words: str
) -> None:
    nodes = {name: node.address for name, node in ctx.fleet.nodes.items()}
    right = 0 if lost else len(nodes) - bool(wrong)
    table = {**nodes, os.uname().nodename: ctx.node.address}
    if wrong:
        table[wrong] = "10.9.0.99"
    lines = [f"{name} {address}\n" for name, address in table.items() if name != lost]
    (tmp_path / "table").write_text("".join(lines))
    (tmp_path / "getent").write_text(GETENT.format(table=tmp_path / "table"))
    (tmp_path / "getent").chmod(0o755)
    asked = hosts.command(ctx).shell
    text = sh(asked, PATH=f"{tmp_path}:/usr/bin:/bin").stdout
    text = text.replace(f"## self {os.uname().nodename}", f"## self {ctx.node.name}")
    assert hosts.parse(text)[2] == right
    finding = found(ctx, hosts.CHECK, hosts=ok(text))["hosts.self"]
    assert finding.outcome is (Outcome.FAIL if words else Outcome.PASS) and words in finding.summary
    fewer = text.replace(f"## right {right}", f"## right {right - 1}")
    if right:
        cut = found(ctx, hosts.CHECK, hosts=ok(fewer))["hosts.self"]
        assert cut.outcome is Outcome.NOT_RUN and "not whole" in cut.summary


def test_another_host_name_warns(ctx: Context) -> None:
    other = replaced(good(ctx)["hosts"], "## self head1", "## self gpu-rack7")
    finding = found(ctx, hosts.CHECK, hosts=other)["hosts.self"]
    assert finding.outcome is Outcome.WARN and "gpu-rack7" in finding.summary


def test_another_address_of_the_engine_fails(ctx: Context) -> None:
    line = "901/environ:VLLM_HOST_IP="
    other = replaced(good(ctx)["procs"], f"{line}10.9.0.11", f"{line}10.1.0.11")
    finding = found(ctx, address.CHECK, procs=other)["address.engine"]
    assert finding.outcome is Outcome.FAIL and "raylet[901] has 10.1.0.11" in finding.summary
    lines = "\n".join(x for x in other.stdout.splitlines() if "/environ:" not in x)
    finding = found(ctx, address.CHECK, procs=ok(lines))["address.engine"]
    assert finding.outcome is Outcome.NOT_RUN


# -- clock -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stamps", "outcome"),
    [
        ("1000 1010 1000.4 1009.7", Outcome.PASS),  # asked for 10 s, known to 0.35 s
        ("1000 1010 1003.4 1012.7", Outcome.WARN),  # 3 s ahead
        ("1000 1010 992.4 1001.7", Outcome.WARN),  # 8 s behind
        ("1000 1010 1090.4 1099.7", Outcome.FAIL),
        ("1000 1010 10.4 19.7", Outcome.FAIL),
        ("1000 1400 1150 1151", Outcome.NOT_RUN),  # the way took minutes: nobody can tell
        ("1000 999 1000 1001", Outcome.NOT_RUN),
        ("1000 1010 1009 1001", Outcome.NOT_RUN),
        ("1000 1010 nan 1001", Outcome.NOT_RUN),
        ("1000 1010 1001", Outcome.NOT_RUN),
        ("", Outcome.NOT_RUN),
    ],
)
def test_clock(ctx: Context, stamps: str, outcome: Outcome) -> None:
    outputs = {**good(ctx), batch.CLOCK: ok(stamps)}
    assert found(ctx, clock.CHECK, outputs)["clock"].outcome is outcome


def test_clock_offset_is_bounded_by_the_way_and_not_by_the_checks(ctx: Context) -> None:
    finding = found(ctx, clock.CHECK)["clock"]
    assert finding.metrics["uncertainty_s"] == pytest.approx(0.35)
    assert abs(finding.metrics["offset_s"]) < 0.35
    assert "NTPSynchronized=yes" in finding.summary
    silent = found(ctx, clock.CHECK, clock_sync=Output(rc=127))["clock"]
    assert silent.outcome is Outcome.PASS and "NTPSynchronized=unknown" in silent.summary


# -- disk ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "outcome", "words"),
    [
        ("28200000 220000000", "230000000 18200000", Outcome.WARN, "/ has 7.3 % space"),
        ("28200000 220000000", "248000000 200000", Outcome.FAIL, "/ has 0.1 % space"),
        ("120000000 380000000", "480000000 20000000", Outcome.FAIL, "/opt has 4.0 % space"),
        ("401234 16375982", "16700000 77216", Outcome.FAIL, "/ has 0.5 % inodes"),
    ],
)
def test_disk(ctx: Context, old: str, new: str, outcome: Outcome, words: str) -> None:
    finding = found(ctx, disk.CHECK, disk=replaced(good(ctx)["disk"], old, new))["disk"]
    assert finding.outcome is outcome and words in finding.summary


def test_df_that_stopped_half_way_is_not_run(ctx: Context) -> None:
    text = good(ctx)["disk"].stdout.partition("## inodes")[0]
    assert found(ctx, disk.CHECK, disk=ok(text))["disk"].outcome is Outcome.NOT_RUN


# -- automatic upgrades ----------------------------------------------------------------


def test_a_blacklist_that_a_later_file_cleared_fails(ctx: Context) -> None:
    text = good(ctx)["guard"].stdout
    kept = [x for x in text.splitlines() if "Blacklist::" not in x or "nvidia" in x]
    finding = found(ctx, upgrades.CHECK, guard=ok("\n".join(kept)))["guard.upgrades"]
    assert finding.outcome is Outcome.FAIL and "libcuda" in finding.summary


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("/etc/needrestart/conf.d/zz.conf:$nrconf{restart} = 'a';", Outcome.FAIL),
        ('/etc/needrestart/conf.d/zz.conf:$nrconf{restart} = "i";', Outcome.FAIL),
        ("/etc/needrestart/conf.d/zz.conf:$nrconf{restart}='l';", Outcome.PASS),
    ],
)
def test_needrestart_goes_by_the_last_file(ctx: Context, line: str, outcome: Outcome) -> None:
    output = replaced(good(ctx)["guard"], "## end", f"{line}\n## end")
    assert found(ctx, upgrades.CHECK, guard=output)["guard.needrestart"].outcome is outcome


def test_without_the_packages_there_is_nothing_to_guard(ctx: Context) -> None:
    bare = ok("## packages\nun  needrestart\n## apt\n## needrestart\n## end\n")
    findings = found(ctx, upgrades.CHECK, guard=bare)
    assert {f.outcome for f in findings.values()} == {"pass"}
    assert all("not installed" in f.summary for f in findings.values())
    unset = replaced(good(ctx)["guard"], "$nrconf{restart} = 'l';", "")
    assert found(ctx, upgrades.CHECK, guard=unset)["guard.needrestart"].outcome == "fail"
