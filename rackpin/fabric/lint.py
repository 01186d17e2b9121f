"""Settings of NCCL that are wrong or do nothing, by ``data/nccl-settings.yaml``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

import yaml
from packaging.specifiers import SpecifierSet

PREFIX = "NCCL_"
CONF_VALUE_MAX = 1023  # bytes of a value in nccl.conf; source: NVIDIA/nccl src/misc/param.cc
Level = Literal["wrong", "hint"]


@dataclass(frozen=True)
class Fault:
    """What is wrong with one setting, what to do, and who says so."""

    level: Level
    name: str
    say: str
    remedy: str
    source: str


@lru_cache(maxsize=2)
def table(name: str) -> dict[str, Any]:
    """A table of ``rackpin/data/``."""
    text = files("rackpin").joinpath("data", f"{name}.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@lru_cache(maxsize=1)
def variables() -> dict[str, tuple[str, bool]]:
    """By full name: the releases that read it ("" for all), and whether it is a number."""
    known: dict[str, tuple[str, bool]] = {}
    for kind, numeric in (("numbers", True), ("texts", False)):
        for releases, names in table("nccl-variables")[kind].items():
            spec = "" if releases == "any" else releases
            known |= {PREFIX + name: (spec, numeric) for name in names}
    return known


def lint(env: Mapping[str, str], versions: Iterable[str] = ()) -> list[Fault]:
    """Every fault of these variables; ``versions`` are the releases of NCCL that will read them.

    Without versions only what no release would accept is called wrong.
    """
    own = sorted(set(versions))
    return [fault for name in sorted(env) for fault in _of(name, env[name], own)]


def _of(name: str, value: str, versions: list[str]) -> Iterator[Fault]:
    data = table("nccl-settings")
    if name in data["absent"]:
        source = "names in NVIDIA/nccl src/, all tags from v2.8.3-1; vLLM's envs.py"
        yield Fault("wrong", name, f"{name} does nothing", data["absent"][name], source)
        return
    if not name.startswith(PREFIX):
        return
    for other in data["others"]:
        if any(fnmatchcase(name, pattern) for pattern in other["names"]):
            if "say" in other:
                yield _fault("hint", other, name, value)
            return
    if name not in variables():
        yield from _unknown(name, versions)
        return
    releases, numeric = variables()[name]
    unread = [v for v in versions if not SpecifierSet(releases).contains(v, prereleases=True)]
    if unread:
        # One of two libraries may still read it; then it is only said.
        level: Level = "wrong" if len(unread) == len(versions) else "hint"
        say = f"NCCL {', '.join(unread)} doesn't read {name}; it is in {releases}"
        yield Fault(level, name, say, "leave it out, or pin such a release", "NVIDIA/nccl src/")
    if value != value.strip() or value[:1] in ("'", '"'):
        say = f"{name} has quotes or blanks around its value, which NCCL takes for part of it"
        yield Fault("wrong", name, say, "the bare value", "NVIDIA/nccl src/misc/param.cc")
    elif numeric and not re.fullmatch(r"[-+]?(0[xX][0-9a-fA-F]+|\d+)", value):
        say = f"{name}={value} is not a number, so NCCL reads 0 or its beginning"
        yield Fault("wrong", name, say, "give a number", "NVIDIA/nccl src/misc/param.cc")
    elif rule := _rule(name, value, versions):
        yield _fault(rule["level"], rule, name, value)
    if len(value.encode()) > CONF_VALUE_MAX:
        say = f"{name} has more than {CONF_VALUE_MAX} bytes; nccl.conf cuts it there"
        yield Fault("wrong", name, say, "shorten it", "NVIDIA/nccl src/misc/param.cc")


def _rule(name: str, value: str, versions: list[str]) -> dict[str, Any] | None:
    for rule in table("nccl-settings")["rules"]:
        if name not in rule["names"]:
            continue
        spec = rule.get("versions", "")
        if spec and not any(SpecifierSet(spec).contains(v, prereleases=True) for v in versions):
            continue
        fits = re.fullmatch(rule.get("value", ".*"), value)
        spared = "unless" in rule and re.fullmatch(rule["unless"], value)
        if fits and not spared:
            found: dict[str, Any] = rule
            return found
    return None


def _fault(level: Level, row: Mapping[str, str], name: str, value: str) -> Fault:
    filled = {"name": name, "value": value}
    return Fault(
        level, name, row["say"].format(**filled), row["remedy"].format(**filled), row["source"]
    )


def _unknown(name: str, versions: list[str]) -> Iterator[Fault]:
    span = SpecifierSet(table("nccl-settings")["span"])
    near = get_close_matches(name, variables(), n=1, cutoff=0.8)
    remedy = f"did you mean {near[0]}?" if near else "leave it out, or look for its right name"
    listed = bool(versions) and all(span.contains(v, prereleases=True) for v in versions)
    say = (
        f"NCCL {', '.join(versions)} doesn't read {name}"
        if listed
        else f"{name} is in no release of NCCL that rackpin knows ({span})"
    )
    # A plugin may have variables of its own; without a near name nobody can tell.
    yield Fault("wrong" if listed and near else "hint", name, say, remedy, "NVIDIA/nccl src/")
