"""A node's identity: what its files say, and what differs after a swap."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rackpin.fleet.differences import Difference, differences
from rackpin.fleet.identity import Adapter, Card, Identity, IdentityError, Nic, parse, script
from tests.unit.shell import sh

CARDS = {f"0000:{bus}:00.0": f"GPU-{bus}-4d2a" for bus in ("1b", "43", "52")}


def node(**changes: object) -> Identity:
    made = Identity(
        board={"product_serial": "S1", "board_serial": "B1", "bios_version": "2.1"},
        machine_id="aa" * 16,
        driver=True,
        gpus={s: Card(model="H100", uuid=u, vbios="96.00") for s, u in CARDS.items()},
        hcas={
            "mlx5_0": Adapter(slot="0000:18:00.0", guid="a0:01", board="MT_1", firmware="28.39"),
            "mlx5_1": Adapter(slot="0000:40:00.0", guid="a0:02", board="MT_1", firmware="28.39"),
        },
        nics={"eth0": Nic(slot="0000:5e:00.0", mac="b8:ce:f6:00:00:01")},
        pci={slot: "10de:2330 030200" for slot in CARDS},
        memory_kib=2113444852,
        host_keys=["SHA256:one"],
    )
    return made.model_copy(update=changes)


def texts(was: Identity, now: Identity) -> list[str]:
    return [str(one) for one in differences(was, now)]


def test_the_same_node_has_no_difference() -> None:
    assert differences(node(), node()) == []


def test_a_card_that_was_swapped_is_named_by_slot() -> None:
    gpus = {**node().gpus, "0000:43:00.0": Card(model="H100", uuid="GPU-new", vbios="96.00")}
    (found,) = differences(node(), node(gpus=gpus))
    assert str(found) == "gpu 0000:43:00.0 uuid: GPU-43-4d2a → GPU-new"
    assert found.binding and "verify" in found.follows


def test_seven_of_eight_and_a_vbios_are_both_told() -> None:
    gpus = {s: c for s, c in node().gpus.items() if "52" not in s}
    gpus["0000:1b:00.0"] = gpus["0000:1b:00.0"].model_copy(update={"vbios": "96.01"})
    pci = {s: v for s, v in node().pci.items() if "52" not in s}
    found = texts(node(), node(gpus=gpus, pci=pci))
    assert "gpu 0000:52:00.0: H100 GPU-52-4d2a → –" in found
    assert "gpu 0000:1b:00.0 vbios: 96.00 → 96.01" in found
    assert "pci 0000:52:00.0: 10de:2330 030200 → –" in found


def test_adapters_in_another_order_are_no_other_adapters() -> None:
    old = node().hcas
    swapped = {"mlx5_0": old["mlx5_1"], "mlx5_1": old["mlx5_0"]}
    found = differences(node(), node(hcas=swapped))
    assert [f.what for f in found] == ["a0:02 name", "a0:01 name"]
    assert all(f.part == "hca" and "names" in f.follows for f in found)


def test_an_adapter_that_was_swapped_changes_its_guid_only() -> None:
    new = Adapter(slot="0000:40:00.0", guid="ff:09", board="MT_1", firmware="28.42")
    found = texts(node(), node(hcas={**node().hcas, "mlx5_1": new}))
    assert found == ["hca mlx5_1 guid: a0:02 → ff:09", "hca mlx5_1 firmware: 28.39 → 28.42"]


def test_one_renamed_and_one_new_adapter_are_told_apart() -> None:
    old = node().hcas
    found = texts(
        node(), node(hcas={"mlx5_0": old["mlx5_1"], "mlx5_1": Adapter(slot="x", guid="ff:09")})
    )
    assert "hca a0:02 name: mlx5_1 → mlx5_0" in found
    assert any("ff:09" in one for one in found) and any("a0:01" in one for one in found)


def test_what_is_not_known_is_no_difference() -> None:
    """Without a driver no card can be told; before its first use a card has no UUID."""
    assert texts(node(), node(driver=False, gpus={})) == []
    fresh = {s: Card(model="H100") for s in CARDS}
    assert texts(node(), node(gpus=fresh)) == []


@pytest.mark.parametrize(
    "changes, part, binding",
    [
        ({"machine_id": "bb" * 16}, "os", True),
        ({"memory_kib": 2113444852 - 64 * 2**20}, "memory", True),
        ({"board": {"product_serial": "S2", "board_serial": "B1", "bios_version": "2.1"}},
         "board", True),
        ({"nics": {"eth0": Nic(slot="0000:5e:00.0", mac="b8:ce:f6:00:00:99")}}, "nic", True),
        ({"host_keys": ["SHA256:two"]}, "host key", False),
    ],
)  # fmt: skip
def test_other_parts(changes: dict[str, object], part: str, binding: bool) -> None:
    (found,) = differences(node(), node(**changes))
    assert (found.part, found.binding) == (part, binding)
    assert isinstance(found, Difference) and found.follows


def test_a_few_megabytes_of_memory_are_the_kernels_own() -> None:
    assert differences(node(), node(memory_kib=node().memory_kib + 4096)) == []


def tree(root: Path) -> None:
    """A node's files, as the kernel and NVIDIA's driver lay them out."""
    files = {
        "etc/machine-id": "3d1219c7\n",
        "proc/meminfo": "MemTotal:       2113444852 kB\nMemFree:  1 kB\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1\n",
        "proc/driver/nvidia/gpus/0000:1b:00.0/information": (
            "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\nGPU UUID: \t GPU-1b\n"
            "Video BIOS: \t 96.00.61.00.01\nBus Location: \t 0000:1b:00.0\n"
        ),
        "proc/driver/nvidia/gpus/0000:43:00.0/information": (
            "Model: \t\t NVIDIA H100 80GB HBM3\n"
            "GPU UUID: \t GPU-????????-????-????-????-????????????\n"
            "Video BIOS: \t ??.??.??.??.??\n"
        ),
        "sys/class/dmi/id/product_serial": "S|1 \n",
        "sys/class/infiniband/mlx5_0/node_guid": "a088:c203:00ab:1234\n",
        "sys/class/infiniband/mlx5_0/fw_ver": "28.39.1002\n",
        "sys/class/infiniband/mlx5_0/board_id": "MT_0000000838\n",
        "sys/devices/pci/0000:18:00.0/vendor": "0x15b3\n",
        "sys/class/net/lo/address": "00:00:00:00:00:00\n",
        "sys/class/net/eno1/address": "b8:ce:f6:00:00:02\n",
        "sys/class/net/eno1/bonding_slave/perm_hwaddr": "b8:ce:f6:00:00:01\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("class/infiniband/mlx5_0/device", "class/net/eno1/device"):
        (root / "sys" / name).symlink_to(root / "sys/devices/pci/0000:18:00.0")


def look(root: Path) -> list[str]:
    done = subprocess.run(
        ["sh", "-s"], input=script(str(root)), capture_output=True, text=True, check=True,
        timeout=20,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_the_script_reads_a_nodes_files(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "sys/class/dmi/id/product_serial").write_text("S1\n")
    found = parse(look(tmp_path))
    assert found.board == {"product_serial": "S1"} and found.driver
    assert found.gpus["0000:1b:00.0"].uuid == "GPU-1b"
    assert found.gpus["0000:43:00.0"] == Card(model="NVIDIA H100 80GB HBM3")
    assert found.hcas["mlx5_0"].slot == "0000:18:00.0"
    assert found.nics == {"eno1": Nic(slot="0000:18:00.0", mac="b8:ce:f6:00:00:01")}
    assert found.memory_kib == 2113444852 and found.machine_id == "3d1219c7"


def test_an_odd_or_cut_answer_is_an_error_never_an_empty_node(tmp_path: Path) -> None:
    tree(tmp_path)  # a serial number with the separator in it
    with pytest.raises(IdentityError, match="board"):
        parse(look(tmp_path))
    (tmp_path / "sys/class/dmi/id/product_serial").write_text("S1\n")
    lines = look(tmp_path)
    with pytest.raises(IdentityError, match="cut"):
        parse(lines[:-1])
    with pytest.raises(IdentityError):
        parse([line for line in lines if line != "@@ memory"])


def test_host_keys_are_told_as_ssh_keygen_tells_them(tmp_path: Path) -> None:
    ssh = tmp_path / "etc" / "ssh"
    ssh.mkdir(parents=True)
    told = []
    for kind in ("ed25519", "rsa"):
        key = ssh / f"ssh_host_{kind}_key"
        make = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "a comment", "-f", str(key)]
        subprocess.run(make, check=True, timeout=60)
        line = subprocess.check_output(["ssh-keygen", "-lf", f"{key}.pub"], text=True, timeout=60)
        told.append(line.split()[1])
    (ssh / "ssh_host_odd_key.pub").write_text("")  # a key that is being made
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal:  1000 kB\n")
    text = sh(script(str(tmp_path))).stdout
    assert parse(text.splitlines()).host_keys == sorted(told)
    with pytest.raises(IdentityError):
        parse(text.replace("@@ keys\n", "@@ keys\nno base64\n").splitlines())
