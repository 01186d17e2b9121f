"""What must be true of a node before anything on it is changed. Pure: survey in, problems out."""

from __future__ import annotations

from rackpin import layout
from rackpin.facts import NodeSurvey
from rackpin.inventory import Fleet, Node
from rackpin.inventory_problems import Problem
from rackpin.stack.lock import Lock, StackError
from rackpin.stack.placed import LEFT_FREE, ModelState, PlacedModel

ARCHITECTURE = "x86_64"  # every shipped lock is for this one


def own_units(fleet: Fleet, node: Node) -> dict[int, str]:
    """Ports this node's units will listen on, and the unit that may already hold each."""
    ports: dict[int, str] = {}
    if fleet.in_ray(node):
        unit = layout.RAY_HEAD_UNIT if node.is_head else layout.RAY_WORKER_UNIT
        listens = fleet.config.ray.ports.of_node(node.is_head)
        ports.update(dict.fromkeys(listens.values(), unit))
    for instance in fleet.instances_on(node):
        ports[instance.port] = layout.vllm_unit(instance.name)
    return ports


def check_node(
    fleet: Fleet,
    node: Node,
    lock: Lock,
    survey: NodeSurvey,
    *,
    environment_exists: bool,
    clock: tuple[float, float],
) -> list[Problem]:
    """Everything wrong with this node. ``clock``: controller's epoch when asked and answered."""
    found: list[Problem] = []

    def problem(key: str, message: str, remedy: str) -> None:
        found.append(Problem(node.name, key, message, remedy))

    try:
        os = lock.require_os(survey.os.get("ID", ""), survey.os.get("VERSION_ID", ""))
    except StackError as error:
        problem("os", str(error), "install a listed release, or lock the stack for this one")
    else:
        if os.key != (node.os or lock.os[0].key):
            problem(
                "os",
                f"the node runs {os.key}, the inventory takes it for {node.os or lock.os[0].key}",
                f'give the node "os": "{os.key}"',
            )
        if os.python not in (None, lock.python):
            problem(
                "python",
                f"the stack has Python {os.python} for {os.key}",
                f"nodes are built with {lock.python} so far: use a stack of its own for it",
            )
        # What is under a driver comes from the lock, or not at all.
        if lock.host.driver and node.gpus:
            try:
                lock.require_debs(os.key)
            except StackError as error:
                problem("stack", str(error), "resolve it, or give the node another stack")
    if survey.arch != ARCHITECTURE:
        problem("arch", f"is {survey.arch}", f"locks are for {ARCHITECTURE}")
    if node.address not in survey.addresses:
        problem(
            "address",
            f"{node.address} is on no interface (has {', '.join(sorted(survey.addresses))})",
            "correct `address` in the inventory, or bring the interface up",
        )
    elif survey.route_source != node.address:
        way = survey.route_source or "nowhere"
        problem(
            "address",
            f"packets to the head {fleet.head.address} leave from {way}, not from {node.address}",
            "Ray would announce the wrong address: correct the route or `address`",
        )
    low, high = survey.epoch - clock[1], survey.epoch - clock[0]
    offset = 0.0 if low <= 0 <= high else min(low, high, key=abs)
    if abs(offset) > fleet.config.max_clock_offset_s:
        problem(
            "clock",
            f"is {offset:+.0f} s off this machine's (limit {fleet.config.max_clock_offset_s:g} s)",
            "set the clock (`date -s` or `chronyc makestep`), then find out why it was wrong",
        )
    if not environment_exists:
        free = survey.space.get("/opt", survey.space.get("/", 0)) / 1e9
        # beside the environment: the wheels themselves, for as long as others may want them
        kept = sum(w.size for w in lock.wheels) / 1e9 if fleet.config.transfers.neighbours else 0
        if free < node.min_free_gb + kept:
            least = f"min_free_gb is {node.min_free_gb:g}"
            least += f", its wheels for neighbours are {kept:.1f}" if kept else ""
            problem(
                "disk",
                f"{free:.1f} GB free under {layout.ROOT}, {least}",
                "free space or mount a larger disk there",
            )
    expected = own_units(fleet, node)
    for address, port, program, cgroup in survey.listeners:
        unit = expected.get(port)
        if unit and unit not in cgroup.split("/"):
            problem(
                f"port {port}",
                f"is in use by {program or 'some program'} on {address} ({cgroup or 'no unit'})",
                f"stop it or give {unit} another port in the inventory",
            )
    return found


def model_problems(node: str, model: PlacedModel, state: ModelState | None) -> list[Problem]:
    """Whether a model that is still to be fetched has room."""
    key = f"model {model.name}"
    if state is None:
        return [Problem(node, key, f"{model.path} could not be looked at", "see the output above")]
    missing = 0 if model.settled(state) else model.missing(state)
    if not missing or state.free >= missing + LEFT_FREE:
        return []
    return [
        Problem(
            node,
            key,
            f"{missing / 1e9:.1f} GB are to be fetched to {model.path}, {state.free / 1e9:.1f} GB "
            f"are free there, {LEFT_FREE / 1e9:.0f} GB must stay",
            "free space, or mount a larger disk there",
        )
    ]
