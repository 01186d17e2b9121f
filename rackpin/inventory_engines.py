"""What must hold between engines and the nodes they run on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from rackpin.inventory import Instance
from rackpin.inventory_problems import FLEET, Problem, close_to, some
from rackpin.inventory_rules import Draft, Rule

# Engine arguments that follow from a key; twice said is once wrong.
OWNED_ARGS = {
    "--model": "model",
    "--served-model-name": "served_name",
    "--tensor-parallel-size": "tp",
    "-tp": "tp",
    "--pipeline-parallel-size": "pp",
    "-pp": "pp",
    "--host": "address",
    "--port": "port",
    "--gpu-memory-utilization": "gpu_memory_utilization",
    "--max-model-len": "max_model_len",
    "--distributed-executor-backend": "nodes",
    "--api-key": "api_key_file",
}
SECRET = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|CREDENTIALS?)($|_)")
NOT_SECRET = re.compile(r"_(FILE|PATH|DIR)$")  # says where a secret is, not what it is
PATH = re.compile(r"/[A-Za-z0-9._/@+=:-]+")  # goes into a unit's command line as it is
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def key_of(instance: Instance, field: str) -> str:
    return f"instances[{instance.name}].{field}"


def engine_names(draft: Draft) -> Iterator[Problem]:
    for name, times in Counter(i.name for i in draft.engines("name")).items():
        if times > 1:
            yield Problem(
                FLEET,
                f"instances[{name}].name",
                f"{times} instances have this name; a unit vllm@{name} can be only one of them",
                "give each its own name",
            )


def engine_nodes(draft: Draft) -> Iterator[Problem]:
    for instance in draft.engines("nodes"):
        for name, times in Counter(instance.nodes).items():
            node, key = draft.nodes.get(name), key_of(instance, "nodes")
            if node is None:
                near = close_to(name, draft.nodes)
                hint = f"did you mean {near!r}? " if near else ""
                remedy = f"{hint}Nodes are: {some(draft.nodes, 8)}"
                yield Problem(FLEET, key, f"there is no node {name!r}", remedy)
            elif instance.executor == "ray" and not node.in_ray:
                yield Problem(
                    name,
                    key,
                    f"{instance.name} runs over {len(instance.nodes)} nodes through Ray, but "
                    f"{name} is not in Ray; its groups: {', '.join(node.groups) or 'none'}",
                    f"put {name} in `workers`, or take it out of {key}",
                )
            if times > 1:
                yield Problem(FLEET, key, f"{name} is listed {times} times", "list it once")


def parallelism(draft: Draft) -> Iterator[Problem]:
    for instance in draft.engines("tp", "pp", "nodes"):
        tp, pp, count = instance.tp, instance.pp, len(instance.nodes)
        if (tp * pp) % count:
            yield Problem(
                FLEET,
                key_of(instance, "tp"),
                f"tp {tp} × pp {pp} = {tp * pp} GPUs do not divide over {count} nodes",
                f"make tp × pp a multiple of {count}, or list another number of nodes",
            )
    for instance in draft.engines("tp", "attention_heads"):
        tp, heads = instance.tp, instance.attention_heads
        if heads and heads % tp:
            fits = [n for n in range(1, heads + 1) if heads % n == 0]
            yield Problem(
                FLEET,
                key_of(instance, "tp"),
                f"tp {tp} does not divide the model's {heads} attention heads",
                f"use one of {', '.join(map(str, fits))}; more GPUs by pp, or by more instances",
            )


def gpus(draft: Draft) -> Iterator[Problem]:
    for node in draft.nodes.values():
        if node.name not in draft.gpus_known:
            continue
        # Those whose GPUs don't divide have no number a node; that was said already.
        here = [i for i in draft.engines("tp", "pp", "nodes") if node.name in i.nodes]
        even = [i for i in here if (i.tp * i.pp) % len(i.nodes) == 0]
        wants = [(i.name, i.gpus_per_node) for i in even]
        total = sum(want for _, want in wants)
        if total > node.gpus:
            parts = ", ".join(f"{name} {want}" for name, want in wants)
            yield Problem(
                node.name,
                "instances" if len(wants) > 1 else f"instances[{wants[0][0]}].tp",
                f"has {node.gpus} GPUs (SKU {node.sku or 'not given'}), asked for {total}: {parts}",
                "lower tp or pp, spread over more nodes, or move an instance elsewhere",
            )


def ports(draft: Draft) -> Iterator[Problem]:
    for node in draft.nodes.values():
        taken = draft.config.taken_everywhere
        workers = range(0)
        if node.in_ray and "ray" not in draft.broken:
            ray = draft.config.ray.ports
            taken |= {port: f"ray.ports.{key}" for key, port in ray.fixed().items()}
            workers = range(ray.worker_min, ray.worker_max + 1)
        for instance in draft.engines("port", "nodes"):
            if instance.nodes[0] != node.name:
                continue  # its API server is elsewhere
            port, key = instance.port, key_of(instance, "port")
            if port in taken or port in workers:
                owner = taken.get(port, f"Ray's workers ({workers.start}–{workers.stop - 1})")
                yield Problem(
                    node.name,
                    key,
                    f"{port} belongs to {owner} on this node",
                    "choose a free one, e.g. 8000 upwards",
                )
            taken.setdefault(port, key)


def engine_values(draft: Draft) -> Iterator[Problem]:
    for instance in draft.engines("model"):
        if not instance.model.startswith("/"):
            yield Problem(
                FLEET,
                key_of(instance, "model"),
                f"{instance.model!r} is not an absolute path on the nodes",
                "put the model on every node of the instance, or name it in `model_pin`, and give "
                "its path there",
            )
        elif not PATH.fullmatch(instance.model):
            yield Problem(
                FLEET,
                key_of(instance, "model"),
                f"{instance.model!r} has characters that a unit's command line would need quoted",
                "use a path of letters, digits and . _ / @ + = : -",
            )
    for instance in draft.engines():
        for arg in instance.args:
            owner = OWNED_ARGS.get(arg.split("=", 1)[0].replace("_", "-"), "")
            if owner == "api_key_file":
                what = "a key among the arguments is seen by everybody who runs `ps`"
                yield Problem(
                    FLEET, key_of(instance, "args"), what, "use `api_key_file`, remove it"
                )
            elif owner:
                what = f"{arg!r} follows from `{owner}` and would be said twice"
                yield Problem(FLEET, key_of(instance, "args"), what, f"remove it; set `{owner}`")
        yield from _env(FLEET, key_of(instance, "env"), instance.env)
    for node in draft.nodes.values():
        yield from _env(node.name, "env", node.env)


def _env(node: str, key: str, env: dict[str, str]) -> Iterator[Problem]:
    for name, value in env.items():
        if not VARIABLE.fullmatch(name):
            yield Problem(node, key, f"{name!r} is no name for a variable", "letters, digits and _")
        elif SECRET.search(name.upper()) and not NOT_SECRET.search(name.upper()):
            what = f"{name} looks like a secret; units, logs and reports show what stands here"
            yield Problem(node, key, what, "keep it out; an engine's key goes by `api_key_file`")
        elif "\n" in value or "\0" in value:
            yield Problem(node, key, f"{name} has more than one line", "give it in one line")


RULES: tuple[Rule, ...] = (
    engine_names,
    engine_nodes,
    parallelism,
    gpus,
    ports,
    engine_values,
)
