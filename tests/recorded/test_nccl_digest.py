"""The node's own shortening of NCCL's log loses nothing of the way, on recorded logs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from rackpin.parse import nccl_log
from rackpin.parse.kinds import NotThisKind
from rackpin.verify import nccl_command, transport
from tests.recorded.corpus import Sample, needs_corpus, samples

pytestmark = needs_corpus


@pytest.mark.parametrize("sample", samples("nccl-log"), ids=str)
def test_the_way_is_the_same_in_short(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / "log.1.host.77").write_text(sample.text)
    (tmp_path / "digest").write_text(nccl_command.DIGEST)
    command = ["sh", str(tmp_path / "digest"), "1"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.endswith(f"{transport.WHOLE}\n")
    assert len(said) <= max(nccl_command.LOG_LEAST, len(sample.text))
    whole = nccl_log.read(sample.text)
    try:
        short = nccl_log.read(said.replace(f"{transport.WHOLE}\n", ""))
    except NotThisKind:
        assert not (whole.transports or whole.hcas or whole.nvls), "it lost all of the way"
        return
    proxies = {re.sub(r"\(\d+\)", "", via) for via in whole.transports if "(" in via}
    assert set(short.transports) >= {v for v in whole.transports if "(" not in v} | proxies
    assert (short.hcas, short.nvls) == (whole.hcas, whole.nvls)
