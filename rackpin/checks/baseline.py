"""How fast an engine answers under one fixed load, against this fleet's own history and the SKU.

The load comes from the generator in the engine's own package (``vllm bench serve``), or from the
probe where that version has none. A short figure: it finds what halves the speed, and doesn't
size a fleet.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rackpin import layout
from rackpin.checks import engineprobe, gpuinfo, loadresult
from rackpin.checks.base import SERVING, Command, Context, Outputs, Question, one_line
from rackpin.checks.engineprobe import part
from rackpin.checks.gpuinfo import Told
from rackpin.checks.servingdata import SOURCE, Margin, serving
from rackpin.findings import Finding, Level
from rackpin.inventory import Instance
from rackpin.skus import Figure

# Loading the generator takes a minute on a cold disk, the load itself seconds on cards.
REQUEST_S, TOTAL_S, DEADLINE_S = 60, 230, 240
WAIT_S = 10  # for another measurement of this engine to end


def command(ctx: Context, instance: Instance) -> Command:
    params = {
        "load": serving().load.model_dump(exclude={"reason", "version"}),
        "user": layout.USER,
        "temporary": "/run",
        "request_s": REQUEST_S,
        "total_s": TOTAL_S,
        "wait_s": WAIT_S,
    }
    probes = ("client", "prompts", "load")
    return engineprobe.command(ctx, instance, "baseline", probes, params, DEADLINE_S)


class Baseline:
    id = "baseline"
    title = "Speed of each engine under a fixed load"
    level: Level = "fleet"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        mine = ctx.fleet.instances_on(ctx.node)
        return [command(ctx, instance) for instance in mine if fits(instance)]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        return [judge_instance(ctx, one, outputs) for one in ctx.fleet.instances_on(ctx.node)]


def fits(instance: Instance) -> bool:
    """Whether the fixed load fits under the model's limit, as far as the inventory says one."""
    load = serving().load
    limit = instance.max_model_len
    return limit is None or limit >= load.input_tokens + load.output_tokens


def judge_instance(ctx: Context, instance: Instance, outputs: Outputs) -> Finding:
    """``baseline.NAME``."""
    load, asked = serving().load, command(ctx, instance)
    output = outputs.get(asked.name)
    expected = f"{load}: all answered whole, as fast as before"
    question = Question(ctx, asked.name, asked, output, expected, SOURCE)
    if not fits(instance):
        why = f"the model's limit of {instance.max_model_len} tokens is below {load}"
        return question.not_run(
            why, remedy="nothing to do; such an engine has no baseline", required=False
        )
    facts = engineprobe.facts(question, instance, outputs)
    if isinstance(facts, Finding):
        return facts
    remedy = f"journalctl -u {layout.vllm_unit(instance.name)} -n 100; see smoke.{instance.name}"
    if "unasked" in facts:
        return question.not_run(one_line(str(facts["unasked"]), 200))
    first, error = part(facts, "first"), part(facts, "error")
    if error:
        fault = f"at the {error.get('step')}: {one_line(str(error.get('text')), 200)}"
        return question.verdict("", [fault], remedy=remedy)
    if first.get("status") != 200:
        fault = (
            f"first request: status {first.get('status')} {one_line(str(first.get('body')), 150)}"
        )
        return question.verdict("", [fault], remedy=remedy)
    told = Told()
    if first.get("tokens") != load.output_tokens:
        told.faults.append(f"first request: usage says {first.get('tokens')} tokens")
    by_generator = bool(facts.get("generator"))
    read = loadresult.of_generator if by_generator else loadresult.of_own_load
    metrics = read(facts, told)
    notes: list[str] = []
    if told.faults or told.untold:
        metrics = {}  # the speed of wrong answers is no figure, and must not get into the history
    else:
        notes = compare(ctx, instance, metrics, told)
        metrics["load_version"] = load.version
    by = loadresult.GENERATOR if by_generator else "rackpin's own load, this vLLM has no generator"
    return gpuinfo.conclude(
        question,
        f"{spoken(metrics)} ({by}); {'; '.join(notes)}",
        told,
        shown=loadresult.shown(facts),
        remedy="run it again on an idle engine; when it stays so: gpu.clocks, gpu.pcie and "
        f"fabric.nvlink of its nodes, collective.all_nodes, then {remedy}",
        metrics=metrics,
    )


def compare(ctx: Context, instance: Instance, metrics: dict[str, float], told: Told) -> list[str]:
    """Faults and worries against the SKU's figure and earlier runs; what it was held against."""
    notes = []
    figure = sku_figure(ctx, instance)
    if isinstance(figure, Figure):
        value, what = metrics["tokens_per_s"], f"SKU's figure {figure.expected:g} {figure.unit}"
        if value < figure.fail_below:
            told.faults.append(f"{value:.1f} tokens/s, below {figure.fail_below:g}; {what}")
        elif value < figure.warn_below:
            told.worries.append(f"{value:.1f} tokens/s, below {figure.warn_below:g}; {what}")
        notes.append(what)
    elif figure:
        told.worries.append(figure)
    earlier = earlier_values(ctx, instance)
    least = serving().earlier_runs.least
    count = min((len(values) for values in earlier.values()), default=0)
    if count < least:
        first = (
            "recorded as the first baseline" if not count else f"recorded as baseline {count + 1}"
        )
        return [*notes, f"{first}, compared with earlier runs from {least} on"]
    for name, margin in serving().earlier_runs.values.items():
        _hold(name, metrics[name], median(earlier[name]), margin, told)
    return [*notes, f"held against the median of {count} earlier runs"]


def _hold(name: str, value: float, usual: float, margin: Margin, told: Told) -> None:
    factor = value / usual if usual > 0 else 1.0
    beyond = (lambda b: factor < b) if margin.better == "higher" else (lambda b: factor > b)
    says = f"{name} {value:.4g} is {factor:.2f} times the usual {usual:.4g}"
    if beyond(margin.fail):
        told.faults.append(f"{says}; {margin.fail:g} is the bound")
    elif beyond(margin.warn):
        told.worries.append(f"{says}; from {margin.warn:g} on something is amiss")


def earlier_values(ctx: Context, instance: Instance) -> dict[str, list[float]]:
    """Values of earlier runs under this very load, by metric, the newest last."""
    check = f"baseline.{instance.name}"
    versions = list(ctx.history.get(f"{check} load_version", ()))
    found = {}
    for name in serving().earlier_runs.values:
        values = list(ctx.history.get(f"{check} {name}", ()))
        # Each run writes all of them or none, so they are aligned at their newest end.
        pairs = zip(reversed(values), reversed(versions), strict=False)
        same = [value for value, version in pairs if version == serving().load.version]
        found[name] = same[::-1]
    return found


def figure_name(instance: Instance) -> str:
    """The name of a SKU's figure for this engine: model and split decide what can be reached."""
    return f"serving_tokens_per_s {instance.served_name} tp{instance.tp} pp{instance.pp}"


def sku_figure(ctx: Context, instance: Instance) -> Figure | str | None:
    """The SKU's figure for this engine; a text when it was measured under another load."""
    sku = gpuinfo.sku_of(ctx)
    if isinstance(sku, str):
        return None
    figure = next((f for f in sku.figures if f.name == figure_name(instance)), None)
    if figure is not None and str(serving().load) not in figure.conditions:
        return f"skus/{sku.name}.yaml: {figure.name} was not measured with {serving().load}"
    return figure


def spoken(metrics: dict[str, float]) -> str:
    words = (
        ("first token after {:.3f} s", "ttft_s"),
        ("then one each {:.4f} s", "itl_s"),
        ("{:.1f} tokens/s", "tokens_per_s"),
    )
    return ", ".join(text.format(metrics[name]) for text, name in words if name in metrics)


CHECK = Baseline()
