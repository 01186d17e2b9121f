"""Rules are sound, each finds its example first, healthy logs give nothing, echoes stay quiet."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rackpin.cli import main
from rackpin.diagnose import rules as rules_module
from rackpin.diagnose.engine import diagnose, unknown_errors
from rackpin.diagnose.findings import Finding, filled, ranked
from rackpin.diagnose.rules import RuleError, loose, rules, word_of, xids
from tests.unit.texts import grows_gently, spoiled

DATA = Path(__file__).parent / "data" / "diagnose"
EXAMPLES: dict[str, str] = yaml.safe_load((DATA / "examples.yaml").read_text(encoding="utf-8"))
HEALTHY: dict[str, str] = yaml.safe_load((DATA / "healthy.yaml").read_text(encoding="utf-8"))
OOM = EXAMPLES["cuda.out-of-memory"]
WRAPPERS = """\
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


@pytest.mark.parametrize("rule", EXAMPLES)
def test_each_rule_finds_its_example_first(rule: str) -> None:
    findings = diagnose([("log", EXAMPLES[rule])])
    assert [finding.rule for finding in findings[:1]] == [rule]
    assert findings[0].evidence and findings[0].evidence.splitlines()[0] in EXAMPLES[rule]


def test_every_rule_has_an_example() -> None:
    assert {ready.rule.id for ready in rules()} == EXAMPLES.keys()


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_logs_give_no_finding(name: str) -> None:
    assert diagnose([("log", HEALTHY[name])]) == []


def test_echoes_name_rules_that_exist() -> None:
    known = {ready.rule.id for ready in rules()} | {f"xid.{code}" for code in xids()}
    families = {name.split(".")[0] for name in known}
    named = [name for ready in rules() for name in ready.rule.echoes]
    named += [name for xid in xids().values() for name in xid.echoes]
    for name in named:
        if name.endswith("*"):
            assert name.split(".")[0] in families
            assert any(rule.startswith(name.rstrip("*")) for rule in known)
        else:
            assert name in known


@pytest.mark.parametrize(
    "cause", ["vllm.free-memory-below-utilization", "disk.full", "nccl.shm-full", "cuda.error-802"]
)
def test_wrappers_are_echoes_of_any_cause(cause: str) -> None:
    for text in (EXAMPLES[cause] + "\n" + WRAPPERS, WRAPPERS + EXAMPLES[cause]):
        assert [finding.rule for finding in diagnose([("log", text)])] == [cause]


def test_wrappers_alone_stay_low_and_say_that_they_are() -> None:
    findings = diagnose([("log", WRAPPERS)])
    assert {(finding.kind, finding.confidence) for finding in findings} == {("wrapper", "low")}


def test_the_cause_in_one_nodes_log_explains_the_other_nodes() -> None:
    victim = "[rank8]: torch.distributed.DistBackendError: NCCL error\nncclSystemError: failed\n"
    findings = diagnose([("node-1", victim), ("node-0", EXAMPLES["torch.port-in-use"])])
    assert [(finding.rule, finding.file) for finding in findings] == [
        ("torch.port-in-use", "node-0")
    ]


def test_the_first_cause_comes_first() -> None:
    text = EXAMPLES["vllm.world-size-over-gpus"] + "\n" + OOM
    assert [f.rule for f in diagnose([("log", text)])] == [
        "vllm.world-size-over-gpus",
        "cuda.out-of-memory",
    ]


@given(
    st.sampled_from(
        [
            "cuda.out-of-memory",
            "nccl.ib-retry",
            "hub.gated",
            "ray.version-mismatch",
            "dkms.build-failed",
        ]
    ),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_prefixes_and_colours_change_nothing(rule: str, data: st.DataObject) -> None:
    text = data.draw(spoiled(EXAMPLES[rule] + "\n"))
    assert diagnose([("log", text)])[0].rule == rule


@given(st.text())
@settings(deadline=None)
def test_garbage_gives_no_finding(text: str) -> None:
    assert diagnose([("log", text)]) == []


@given(st.sampled_from(sorted(EXAMPLES)), st.data())
@settings(max_examples=60, deadline=None)
def test_a_cut_log_gives_findings_with_evidence(rule: str, data: st.DataObject) -> None:
    text = EXAMPLES[rule]
    for finding in diagnose([("log", text[: data.draw(st.integers(0, len(text)))])]):
        assert finding.evidence.splitlines()[0] in text


def test_messages_may_be_wrapped() -> None:
    text = (
        "ValueError: Free memory on device cuda:0 (22.76/24.0 GiB)\n   on startup is less than\n"
        "desired GPU memory utilization (0.97, 23.28 GiB).\n"
    )
    finding = diagnose([("log", text)])[0]
    assert finding.rule == "vllm.free-memory-below-utilization"
    assert finding.details["free_gib"] == "22.76" and finding.details["util"] == "0.97"
    assert len(finding.evidence.splitlines()) == 3 and finding.line == 1


def test_it_is_linear_and_quick() -> None:
    healthy = HEALTHY["vllm start"]
    assert grows_gently(lambda text: diagnose([("log", text)]), healthy)
    assert grows_gently(lambda text: diagnose([("log", text)]), OOM + "\n" + "x" * 3000 + "\n")


def test_a_blank_in_a_pattern_is_any_white_space() -> None:
    assert loose("a b[ c] ?d") == r"a\s+b[ c]\s?d"
    assert word_of(r"(?:x|y)foo ba?r\.baz") == "r.baz"
    assert word_of("one|another") == ""


def test_texts_leave_out_what_the_log_does_not_name() -> None:
    assert filled("port in use ({port}): {who}", {}) == "port in use: ?"
    assert filled("port in use ({port})", {"port": "80"}) == "port in use (80)"


def test_ranking_is_stable_whatever_the_order() -> None:
    def one(rule: str, kind: str, echoes: tuple[str, ...] = ()) -> Finding:
        return Finding(rule, "c", "e", "r", "high", kind, "log", 1, {}, "", echoes)

    given_ = [
        one("a.wrapped", "wrapper"),
        one("b.symptom", "symptom"),
        one("c.root", "root", ("b.*",)),
    ]
    for order in (given_, given_[::-1]):
        assert [finding.rule for finding in ranked(order)] == ["c.root"]
    both = [one("a.x", "root", ("b.y",)), one("b.y", "root", ("a.x",))]
    assert len(ranked(both)) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- {id: a.b, match: ['('], cause: something bad, fix: mend it now, source: here}", "a.b"),
        ("- {id: a.b, cause: something bad, fix: mend it now, source: here}", "match or reading"),
        (
            "- {id: a.b, match: [x], cause: something bad, fix: mend it now, source: here, odd: 1}",
            "odd",
        ),
        ("- [", "a.yaml"),
    ],
)
def test_a_wrong_rule_file_is_named(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(rules_module, "HERE", tmp_path)
    with pytest.raises(RuleError, match=why):
        rules_module.rules.__wrapped__()


def test_the_command_and_its_exit_codes(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(OOM, encoding="utf-8")
    found = CliRunner().invoke(main, ["diagnose", str(log), "--json"])
    assert found.exit_code == 1
    first = json.loads(found.output)[0]
    assert {"cause", "evidence", "remedy", "rule", "confidence"} <= first.keys()
    assert (first["rule"], first["file"]) == ("cuda.out-of-memory", str(log))
    clean = CliRunner().invoke(main, ["diagnose", "-", "--json"], input="all is well\n")
    assert (clean.exit_code, json.loads(clean.output)) == (0, [])
    people = CliRunner().invoke(main, ["diagnose", str(log)])
    assert "CUDA out of memory" in people.output and "To do:" in people.output
    assert CliRunner().invoke(main, ["diagnose"]).exit_code == 2
    assert CliRunner().invoke(main, ["diagnose", str(tmp_path / "none")]).exit_code == 2


def test_unknown_stays_unknown() -> None:
    text = "a line\nFrobnicationError: the frob is bent\n"
    told = CliRunner().invoke(main, ["diagnose", "-"], input=text)
    assert told.exit_code == 0
    assert "Unknown" in told.output and "FrobnicationError" in told.output
    assert [line.number for line in unknown_errors([text])] == [2]
    fine = CliRunner().invoke(main, ["diagnose", "-"], input="a line\n")
    assert "no line looks like an error" in fine.output


@pytest.mark.parametrize("piece", ["x", "a.", "[", "via ", "Depends: "])
def test_one_endless_line_takes_no_endless_time(piece: str) -> None:
    def work(text: str) -> object:
        return diagnose([("log", text)])

    assert grows_gently(work, piece * (30_000 // len(piece)))


def test_a_failed_build_explains_what_dpkg_says_of_it() -> None:
    text = (
        "Error! Bad return status for module build on kernel: 6.1.0-21-amd64 (x86_64)\n"
        "dpkg: error processing package nvidia-kernel-dkms (--configure):\n"
        " installed nvidia-kernel-dkms package post-installation script subprocess returned error "
        "exit status 10\n"
        "dpkg: dependency problems prevent configuration of nvidia-driver:\n"
        "E: Sub-process /usr/bin/dpkg returned an error code (1)\n"
    )
    assert [finding.rule for finding in diagnose([("log", text)])] == ["dkms.build-failed"]


def test_patterns_begin_at_any_line() -> None:
    text = "a first line\nNo devices were found\n"
    assert [(f.rule, f.line) for f in diagnose([("log", text)])] == [("driver.no-devices", 2)]
