"""What stands for functions of pyinfra gives what they give, for a pyinfra that is known."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from types import SimpleNamespace
from typing import Any

import pyinfra
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.api import Config, Inventory, State
from pyinfra.context import ctx_config

from rackpin import pyinfra_speed

OWN = tuple(pyinfra_speed.replacements())


@cache
def stock() -> dict[str, Any]:
    """pyinfra's own functions: its modules are loaded anew beside those in use."""
    found = {}
    for name in ("arguments", "util"):
        spec = sys.modules[f"pyinfra.api.{name}"].__spec__
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found |= {key: getattr(module, key) for key in OWN if hasattr(module, key)}
    return found


def state_of(data: dict[str, Any], group: dict[str, Any]) -> Any:
    inventory = Inventory(([("@local", data)], group))
    return State(inventory, Config(SUDO=True, RETRY=2))


def outcome(function: Any, state: Any, kwargs: dict[str, Any]) -> Any:
    """The result, or what the exception says; the keywords that are left belong to it."""
    host = next(iter(state.inventory))
    left = dict(kwargs)
    with ctx_config.use(state.config):
        try:
            return function(state, host, left), left
        except Exception as error:
            return type(error).__name__, str(error)


KEYS = ("_sudo", "_sudo_user", "_env", "_timeout", "_retries", "_ignore_errors", "name", "other")
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text("ab", max_size=2),
    st.dictionaries(st.sampled_from("AB"), st.sampled_from("xy"), max_size=2),
)  # fmt: skip
DATA = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4)


@given(DATA, DATA, DATA, st.one_of(st.none(), DATA))
def test_arguments_are_popped_as_pyinfra_does(
    data: dict[str, Any], group: dict[str, Any], kwargs: dict[str, Any], deploy: Any
) -> None:
    state = state_of(data, group)
    next(iter(state.inventory)).current_deploy_kwargs = deploy
    made = pyinfra_speed.replacements()["pop_global_arguments"]
    own = stock()["pop_global_arguments"]
    assert made.__code__ is not own.__code__
    assert outcome(made, state, kwargs) == outcome(own, state, kwargs)


def test_every_argument_is_known() -> None:
    name = "all_global_arguments"
    assert pyinfra_speed.replacements()[name]() == stock()[name]()


@pytest.mark.parametrize("cli", [True, False])
@pytest.mark.parametrize("file", ["deploys/a.py", "deploys/none.py", None])
def test_the_order_is_the_same(cli: bool, file: str | None, monkeypatch: Any) -> None:
    """Asked from code of a deploy file, from a file that it includes, and from a loop."""
    monkeypatch.setattr(pyinfra, "is_cli", cli)
    state = SimpleNamespace(current_deploy_filename=file, current_op_file_number=3)
    name = "get_operation_order_from_stack"
    pair = (pyinfra_speed.replacements()[name], stock()[name])
    text = "\n\ndef ask():\n    return [f(state) for f in pair]\nfound += ask()\n"
    inner = compile(text, "deploys/b.py", "exec")
    outer = compile("\nfor _ in range(2):\n    exec(inner)\n", "deploys/a.py", "exec")
    found: list[list[int]] = []
    exec(outer, {"inner": inner, "pair": pair, "state": state, "found": found})
    assert len(found) == 4 and found[0] == found[1] and found[2] == found[3]
    if file == "deploys/a.py":
        before = [3] if cli else []
        assert found[0][: len(before) + 2] == [*before, 3, 5]


def test_another_pyinfra_is_left_alone() -> None:
    before = {m.__name__: dict(vars(m)) for m in pyinfra_speed.modules()}
    assert pyinfra_speed.apply("3.99.0") is False
    assert before == {m.__name__: dict(vars(m)) for m in pyinfra_speed.modules()}


def test_it_is_for_the_pyinfra_that_is_here() -> None:
    assert pyinfra_speed.apply() is True
    used = [vars(m)[n] for m in pyinfra_speed.modules() for n in OWN if n in vars(m)]
    assert len(used) >= 6 and {f.__module__ for f in used} == {"rackpin.pyinfra_speed"}
