"""Every recorded output of nvidia-smi against its index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rackpin.parse.nvidia_smi import KERNEL, Smi, read
from tests.recorded.corpus import Sample, needs_corpus, samples

# The index's words for our names of the form and of the failure.
FORMS = {"-q": "query"}
CLASSES = {
    "driver not loaded": "driver-not-loaded",
    "driver/library version mismatch": "library-mismatch",
    "no devices found": "no-devices",
    "GPU is lost": "gpu-lost",
    "unknown error on one GPU": "nvml-unknown",
    "device handle not found": "other",
}
# What the thread behind a sample says about it, not the text.
OUTSIDE = {"cause", "fix"}


def _named(smi: Smi) -> str:
    names = Counter(gpu.name for gpu in smi.gpus if gpu.name)
    return ",".join(f"{name} x{count}" for name, count in names.items())


def _memory(smi: Smi) -> str:
    known = [gpu for gpu in smi.gpus if gpu.memory_total is not None]
    return ",".join(f"{gpu.memory_used}/{gpu.memory_total}" for gpu in known)


def _mig(smi: Smi) -> str:
    word = {True: "Enabled", False: "Disabled", None: "N/A"}[smi.mig]
    return word.lower() if smi.form == "table" else word


def _pending(smi: Smi) -> str:
    found = [str(i) for i, gpu in enumerate(smi.gpus) if gpu.page_retirement_pending]
    return f"GPUs {','.join(found)}" if found else "none"


def _error(smi: Smi) -> str:
    if smi.error == "other" and any("is ERR!" in text for text in smi.errors):
        return "ERR! field"
    return smi.error or "none"


def _class(expected: str, smi: Smi) -> bool:
    wanted = CLASSES.get(expected.split(" (")[0], "other")
    return smi.error == wanted and bool(smi.errors)


SAYS: dict[str, Callable[[Smi], str]] = {
    "driver": lambda smi: smi.driver or "absent",
    "cuda": lambda smi: smi.cuda or "absent",
    "nvml": lambda smi: smi.nvml or "absent",
    "gpus": lambda smi: str(len(smi.gpus)),
    "attached": lambda smi: str(smi.attached),
    "gpu_sections": lambda smi: str(len(smi.gpus)),
    "names": _named,
    "bus_ids": lambda smi: ",".join(str(gpu.bus_id) for gpu in smi.gpus),
    "bus_id": lambda smi: ",".join(smi.failed_gpus),
    "mem_used/total_MiB": _memory,
    "mig": _mig,
    "fabric_state": lambda smi: smi.gpus[0].fabric_state or "N/A",
    "error_values": lambda smi: str(sum(len(gpu.bad) for gpu in smi.gpus)),
    "err_cells": lambda smi: str(sum(len(gpu.bad) for gpu in smi.gpus)),
    "error": _error,
    "pending_page_blacklist": _pending,
    "columns": lambda smi: str(len(smi.columns)),
    "rows": lambda smi: str(len(smi.rows)),
    "all_rows_same_width": lambda smi: str(smi.same_width),
    "kernel_module": lambda smi: smi.driver or "",
    "flavour": lambda smi: smi.flavour or "",
}


@needs_corpus
@pytest.mark.parametrize("sample", samples("nvidia-smi"), ids=str)
def test_says_what_the_index_says(sample: Sample) -> None:
    smi = read(sample.text)
    for key, expected in sample.expect.items():
        if key in OUTSIDE:
            continue
        if key == "form":
            assert smi.form == FORMS.get(expected, expected)
        elif key == "error_class":
            assert _class(expected, smi), smi
        elif key in SAYS:
            assert SAYS[key](smi) == expected, key
        else:  # a column of a CSV, with its text as printed
            names = [title if "[" in key else title.split(" [")[0] for title in smi.columns]
            assert smi.rows[0][names.index(key)] == expected, key
    assert (smi.complete is False) == ("TRUNCATED" in sample.note)
    assert (smi.form == KERNEL) == ("flavour" in sample.expect)
