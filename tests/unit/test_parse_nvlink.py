"""The reader of ``nvidia-smi nvlink`` and ``topo -p2p``: forms without samples, damage, speed."""

from __future__ import annotations

import pytest
from hypothesis import given

from rackpin.parse.kinds import NotThisKind
from rackpin.parse.nvlink import read
from tests.unit.parse_noise import HARMLESS, cuts, damaged, garbage, linear, reading


def _gpu(index: int) -> str:
    return (
        f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: GPU-01234567-89ab-cdef-0123-45678{index:07d})\n"
    )


STATUS = "".join(
    _gpu(i)
    + "".join(
        f"\t Link {k}: {'<inactive>' if (i, k) == (1, 2) else '26.562 GB/s'}\n" for k in range(4)
    )
    for i in range(2)
)
ERRORS = _gpu(0) + "".join(
    f"\t Link {k}: {name} Errors: {k * 11}\n"
    for k in range(3)
    for name in ("Replay", "Recovery", "CRC")
)
P2P = (
    " \tGPU0\tGPU1\tGPU2\t\n GPU0\tX\tOK\tCNS\t\n GPU1\tOK\tX\tNS\t\n GPU2\tCNS\tNS\tX\t\n"
    "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n"
)
FORMS = {"status": STATUS, "errors": ERRORS, "p2p": P2P}


def test_status() -> None:
    reading_of = read(STATUS)
    first, second = reading_of.gpus
    assert (first.active, first.inactive, first.speed_gbps, first.name) == (
        4,
        0,
        26.562,
        "NVIDIA H100 80GB HBM3",
    )
    assert (second.active, second.inactive, second.links[2].active) == (3, 1, False)
    assert (reading_of.tool, reading_of.complete, reading_of.errors) == ("nvlink", True, ())


def test_error_counters() -> None:
    gpu = read(ERRORS).gpus[0]
    assert (gpu.active, gpu.inactive) == (None, None)
    assert gpu.links[2].counters == {"Replay Errors": 22, "Recovery Errors": 22, "CRC Errors": 22}
    assert read(ERRORS).tool == "nvlink -e"


def test_capabilities_and_remote_ends() -> None:
    capable = read(
        _gpu(0) + "\t Link 0, P2P is supported: true\n\t Link 0, SLI is supported: false\n"
    )
    assert capable.tool == "nvlink -c"
    assert capable.gpus[0].links[0].capabilities == {
        "P2P is supported": True,
        "SLI is supported": False,
    }
    remote = read(_gpu(0) + "\t Link 0: Remote Device 00000000:05:00.0: Link 2\n")
    assert remote.tool == "nvlink -R"
    assert remote.gpus[0].links[0].remote == "Remote Device 00000000:05:00.0: Link 2"


@pytest.mark.parametrize(
    ("said", "active"),
    [
        ("NVML: Unable to retrieve Nvlink information as all links are inActive", 0),
        ("Unable to retrieve NVLink information as all links are inActive.", 0),
        ("Nvlink queries are not supported for Devices in MIG mode", None),
        ("Unable to get link state: Unknown Error", None),
    ],
)
def test_a_message_instead_of_links(said: str, active: int | None) -> None:
    gpu = read(f"{_gpu(0)}{said}\n").gpus[0]
    assert (gpu.active, gpu.inactive, gpu.message) == (active, None, said)


def test_a_message_on_the_gpus_own_line() -> None:
    said = "NVML: Unable to retrieve Nvlink information as all links are inActive"
    gpus = read(
        f"{_gpu(0).rstrip()} {said}\n{_gpu(1).rstrip()} Device does not support Nvlink\n"
    ).gpus
    assert [(gpu.active, gpu.name) for gpu in gpus] == [
        (0, "NVIDIA H100 80GB HBM3"),
        (None, "NVIDIA H100 80GB HBM3"),
    ]


def test_a_state_of_no_known_word_is_no_working_link() -> None:
    text = "GPU 0: NVIDIA B200 (UUID: GPU-...)\n\t Link 0: Active\n\t Link 1: (Not supported)\n"
    gpu = read(text).gpus[0]
    assert (gpu.name, gpu.active, gpu.inactive, len(gpu.links)) == ("NVIDIA B200", 1, 0, 2)
    assert (gpu.links[0].speed, gpu.links[1].active) == (None, None)


def test_a_gpu_with_fewer_links_than_its_like_is_not_whole() -> None:
    cut = read(STATUS[: STATUS.rindex("\t Link 2")])
    assert [gpu.complete for gpu in cut.gpus] == [True, False] and cut.complete is False
    alone = read(STATUS[: STATUS.index("GPU 1")])
    assert alone.gpus[0].complete is None and alone.complete is None
    assert read(STATUS.replace("GPU 1:", "GPU 3:")).complete is False
    assert read(STATUS.replace("\t Link 1: 26.562 GB/s\n", "\t ...\n")).complete is False


def test_gpus_without_nvlink_have_nothing_below_their_line() -> None:
    gpus = read(_gpu(0) + _gpu(1)).gpus
    assert [(gpu.active, gpu.inactive, gpu.links) for gpu in gpus] == [(None, None, ())] * 2


def test_links_above_any_gpu_have_no_index() -> None:
    gpu = read(STATUS.partition("\n")[2]).gpus[0]
    assert (gpu.index, gpu.name, gpu.active) == (None, None, 4)


def test_p2p() -> None:
    said = read(P2P)
    assert said.tool == "topo -p2p" and len(said.gpus) == 3 and said.complete
    assert said.pairs == {"CNS": [[0, 2]], "NS": [[1, 2]], "OK": [[0, 1]]}
    assert said.matrix == (("X", "OK", "CNS"), ("OK", "X", "NS"), ("CNS", "NS", "X"))


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("form", FORMS)
def test_noise_changes_nothing(form: str, change: object) -> None:
    assert callable(change)
    assert read(change(FORMS[form])) == read(FORMS[form])


def test_a_cut_text_says_nothing_that_the_whole_does_not() -> None:
    for form, text in FORMS.items():
        whole = read(text)
        for cut in cuts(text):
            if not (part := reading(read, cut)):
                continue
            bare = not any(gpu.links for gpu in part.gpus)  # as of GPUs without NVLink
            assert part.tool == ("nvlink" if bare and form != "p2p" else whole.tool)
            assert len(part.gpus) <= len(whole.gpus)
            for mine, theirs in zip(part.gpus, whole.gpus, strict=False):
                assert mine.links == theirs.links[: len(mine.links)] or form == "errors"
                assert mine.inactive in (None, 0, theirs.inactive) and mine.name == theirs.name
                counted = {name: n for link in mine.links for name, n in link.counters.items()}
                assert all(n in (0, 11, 22) for n in counted.values())
            for state, pairs in (part.pairs or {}).items():
                assert all(pair in (whole.pairs or {})[state] for pair in pairs)


def test_a_failure_of_the_tool_is_a_reading() -> None:
    said = read("Failed to initialize NVML: Driver/library version mismatch\n")
    assert (said.error, said.gpus) == ("library-mismatch", ()) and said.errors


@pytest.mark.parametrize(
    "text",
    [
        "",
        _gpu(0).rstrip(),
        _gpu(0) + "something else\n",
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n",
        "Link up\n",
    ],
)
def test_other_texts_are_refused_with_a_reason(text: str) -> None:
    with pytest.raises(NotThisKind, match=r"\w+"):
        read(text)


@given(damaged(STATUS + ERRORS + P2P))
def test_damage_never_crashes(text: str) -> None:
    assert (said := reading(read, text)) is None or said.tool


@given(garbage)
def test_garbage_never_crashes(text: str) -> None:
    assert (said := reading(read, text)) is None or said.tool


@pytest.mark.parametrize(
    "text", [*FORMS.values(), "Link 0: ", "GPU 0: a (UUID: ", " Link 1: a: 1\n"]
)
def test_time_grows_with_the_text(text: str) -> None:
    assert linear(read, text)
