"""The fleet as data: what an inventory may say, and what deploys and checks read.

Only shapes, units and single-value limits stand here. :mod:`rackpin.inventory_check` makes a
:class:`Fleet` from what pyinfra merged, or says everything that is wrong with it at once.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rackpin.findings import Level
from rackpin.inventory_parts import (
    NAME,
    AptPin,
    AptRepository,
    BundleConfig,
    GatewayConfig,
    Model,
    Port,
    Seconds,
)
from rackpin.stack.share import Share, Transfers

ROOT = Path(__file__).resolve().parent.parent
# Groups that a stage serves; a node may be in others too (racks, tenants), never only in those.
ROLES = ("head", "workers", "gateway", "monitoring")

SERVED_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$"

# As /etc/modprobe.d takes them without quotes.
ModuleOption = Annotated[str, Field(pattern=r"^NVreg_[A-Za-z0-9_]+$")]
OptionText = Annotated[str, Field(pattern=r"^[A-Za-z0-9_=;:,.-]+$")]


class Limits(Model):
    """What the serving processes must have; systemd units carry them, not only limits.conf."""

    memlock: Literal["infinity"] | int = "infinity"  # bytes; RDMA registers pinned memory
    nofile: int = Field(1048576, ge=1024)
    tasks_max: Literal["infinity"] | int = "infinity"
    # What this machine's container can really give; for hosts that clamp silently.
    observed_memlock_min: Literal["infinity"] | int | None = None
    observed_nofile_min: int | None = None


class RayPorts(Model):
    """Fixed ports, so that a firewall rule and a check can name them."""

    gcs: Port = 6379
    node_manager: Port = 6380
    object_manager: Port = 6381
    runtime_env_agent: Port = 6382
    dashboard_agent_listen: Port = 52365
    dashboard_agent_grpc: Port = 6384
    metrics_export: Port = 6385
    dashboard: Port = 8265
    worker_min: Port = 10002
    worker_max: Port = 10999

    def fixed(self) -> dict[str, int]:
        """Every port but the workers' range, by its key."""
        return {key: port for key, port in self if not key.startswith("worker_")}

    def of_node(self, head: bool) -> dict[str, int]:
        """The fixed ports that a node's Ray unit listens on, by key."""
        only_head = () if head else ("gcs", "dashboard")
        return {key: port for key, port in self.fixed().items() if key not in only_head}


class RayConfig(Model):
    ports: RayPorts = RayPorts()
    temp_dir: str = "/var/lib/rackpin/ray"
    dashboard_host: str = "127.0.0.1"  # CVE-2023-48022: the job API has no authentication
    object_store_bytes: int | None = Field(None, ge=75 * 2**20)  # None: Ray's own 30 % of memory
    num_cpus: int | None = Field(None, ge=1)
    reconnect_timeout_s: Seconds = 20  # a raylet without its head gives up after this and rejoins
    wait_head_s: Seconds = 900  # a worker's unit waits this long for the head at boot
    memory_usage_threshold: float = Field(0.95, gt=0, le=1)
    log_max_bytes: int = Field(100 * 1024 * 1024, ge=2**20)
    # Ray stops spilling objects to disk when the disk under temp_dir is this full.
    spill_disk_max: float = Field(0.9, gt=0, le=1)
    log_backups: int = Field(5, ge=0)
    stop_timeout_s: Seconds = 60


class Instance(Model):
    """One engine: a unit ``vllm@NAME`` on the first of ``nodes``."""

    name: str = Field(pattern=NAME)
    nodes: list[str] = Field(min_length=1)
    model: str  # absolute path on the nodes
    # Of the stack's models: its files come from the bundle to that path. None: a site's own affair.
    model_pin: str | None = None
    served_name: str = Field(pattern=SERVED_NAME)
    tp: int = Field(1, ge=1)
    pp: int = Field(1, ge=1)
    port: Port = 8000
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    max_model_len: int | None = Field(None, ge=1)
    attention_heads: int | None = Field(None, ge=1)  # when given, TP must divide it
    args: list[str] = Field(default_factory=list)  # further engine arguments, as they are
    env: dict[str, str] = Field(default_factory=dict)  # no secrets here
    api_key_file: str  # on the control machine, mode 0600; an absolute path once it is loaded
    # For cards, Ray's resources, the port and the model path, before the start. Times restart_burst
    # it is restart_window_s: what is only late never makes the unit stay failed.
    wait_s: Seconds = 1800
    start_timeout_s: Seconds = 1800  # until a completion works
    stop_timeout_s: Seconds = 60
    restart_delay_s: Seconds = 5
    restart_burst: int = Field(4, ge=1)  # failed starts in restart_window_s before it stays failed
    restart_window_s: Seconds = 7200
    # Its share of the requests for served_name at the gateway; 0: it gets none.
    weight: int = Field(1, ge=0, le=100)

    @property
    def executor(self) -> Literal["ray", "local"]:
        return "ray" if len(self.nodes) > 1 else "local"

    @property
    def gpus_per_node(self) -> int:
        return self.tp * self.pp // len(self.nodes)


class FleetConfig(Model):
    """Values that are one for the whole fleet: give them to the group ``all`` of the inventory."""

    fleet: str = Field(pattern=NAME)
    stack: str = Field(min_length=1)  # a directory of stacks/ with a pins.yaml
    instances: list[Instance] = Field(default_factory=list)
    ray: RayConfig = RayConfig()
    gateway: GatewayConfig = GatewayConfig()
    limits: Limits = Limits()
    sysctl: dict[str, str | int] = Field(default_factory=dict)  # over the defaults, key by key
    # Shell patterns ("vm.*") of keys that these hosts can't set; reported. The word
    # transparent_hugepage is one of them.
    sysctl_skip: list[str] = Field(default_factory=list)
    bundle: BundleConfig | None = None  # None: nodes have other ways out
    wheelhouse_url: str  # where nodes fetch wheels, e.g. http://10.0.0.5:8900; a bundle has its own
    transfers: Transfers = Transfers()  # of wheels, while nodes are built
    time_servers: list[str] = Field(default_factory=list)  # empty: the OS's own
    extra_hosts: dict[str, str] = Field(default_factory=dict)  # name -> address for /etc/hosts
    extra_listeners: list[Port] = Field(default_factory=list)  # TCP ports of the site's own agents
    max_clock_offset_s: float = Field(60.0, gt=0)
    max_offset_warn_s: float = Field(2.0, gt=0)
    # GB/s busbw over all nodes; None: no SKU figure
    collective_min_gb_s: float | None = Field(None, gt=0)
    # RoCE: the byte (DSCP × 4) by which switches know lossless traffic; None: as adapters have it.
    roce_traffic_class: int | None = Field(None, ge=0, le=255)
    nccl_port: Port = 22122  # of the sshd that tests over several nodes start for themselves
    acs_off: bool = True  # on bare metal; False where virtual machines get cards passed through
    verify_level: Level = "node"  # how much the verify stage asks
    report_dir: str = "reports"
    reports_kept: int = Field(200, ge=2)  # runs; older ones are deleted
    # FILE.prom for node exporter's textfile collector on the controller
    metrics_file: str | None = Field(None, pattern=r"\.prom$")
    # Who is quarantined, and what each node is; beside the inventory, absolute once loaded.
    state_dir: str = "state"
    apt_repositories: list[AptRepository] = Field(default_factory=list)
    apt_pins: list[AptPin] = Field(default_factory=list)
    apt_proxy: str | None = None  # for the hosts of apt_repositories only

    @property
    def taken_everywhere(self) -> dict[int, str]:
        """TCP ports that no engine and no gateway may have on any node → the key that has them."""
        taken: dict[int, str] = dict.fromkeys(self.extra_listeners, "extra_listeners")
        if self.transfers.neighbours:
            taken[self.transfers.port] = "transfers.port"
        return taken


class Node(Model):
    """One host as the inventory describes it."""

    name: str
    groups: list[str]
    address: str  # where the other nodes reach it; never loopback
    sku: str
    os: str | None = None  # ubuntu-22.04, where the stack is for several; None: its first
    gpus: int = Field(ge=0)  # from the SKU unless the node says otherwise
    fabric_interface: str | None = None  # None: the interface that owns ``address``
    env: dict[str, str] = Field(default_factory=dict)  # for the units of this node
    min_free_gb: float = Field(20.0, ge=0)  # on /opt, before an environment is built
    nvswitch: bool = False  # from the SKU unless the node says otherwise: needs fabric manager
    # Parameters of the NVIDIA module, e.g. {"NVreg_EnableGpuFirmware": 0}.
    nvidia_options: dict[ModuleOption, int | OptionText] = Field(default_factory=dict)
    # May a stage reboot the node when it must: when it serves nothing, also from under Ray and
    # engines, or not at all.
    reboot: Literal["idle", "allowed", "never"] = "idle"

    @property
    def is_head(self) -> bool:
        return "head" in self.groups

    @property
    def is_gateway(self) -> bool:
        return "gateway" in self.groups

    @property
    def in_ray(self) -> bool:
        return "head" in self.groups or "workers" in self.groups


# The list that was asked for last, and its engines by node: a list is never changed once loaded.
_last: tuple[list[Instance], dict[str, list[Instance]]] = ([], {})


def _by_node(instances: list[Instance]) -> dict[str, list[Instance]]:
    """Engines by each of their nodes, in the inventory's order."""
    global _last
    last = _last  # threads may ask for other fleets
    if last[0] is not instances:
        found: dict[str, list[Instance]] = {}
        for instance in instances:
            for name in dict.fromkeys(instance.nodes):
                found.setdefault(name, []).append(instance)
        _last = last = (instances, found)
    return last[1]


class Fleet(Model):
    config: FleetConfig
    nodes: dict[str, Node]
    # Quarantined nodes → by whom and why. They get every stage but serve nothing, and an engine
    # that needs one of them waits with it.
    kept_out: dict[str, str] = Field(default_factory=dict)
    # Engines that get no request from the gateway → by whom and why. They go on running.
    drained: dict[str, str] = Field(default_factory=dict)
    # Nodes that an open roll did not come to yet → which roll. They still have another lock.
    behind: dict[str, str] = Field(default_factory=dict)

    @property
    def head(self) -> Node:
        return next(node for node in self.nodes.values() if node.is_head)

    @property
    def gateways(self) -> list[Node]:
        """Nodes that pass requests to engines; a quarantined one is none."""
        return [n for n in self.nodes.values() if n.is_gateway and n.name not in self.kept_out]

    @property
    def ray_nodes(self) -> list[Node]:
        """Nodes that must be in Ray, all alike; one that a roll left behind may be or not."""
        return [n for n in self.nodes.values() if self.in_ray(n) and n.name not in self.behind]

    def share(self, node: Node, names: Collection[str]) -> Share | None:
        """The node's part in handing wheels on among these nodes, if this fleet does."""
        others = sorted(self.nodes[name].address for name in names if name != node.name)
        transfers = self.config.transfers
        return Share(transfers, node.address, others) if transfers.neighbours and others else None

    def models_on(self, node: Node) -> dict[str, str]:
        """Which of the stack's models engines on this node want placed, by path."""
        return {i.model: i.model_pin for i in self.instances_over(node) if i.model_pin}

    def in_ray(self, node: Node) -> bool:
        """It belongs to Ray and nobody keeps it out."""
        return node.in_ray and node.name not in self.kept_out

    def instances_on(self, node: Node) -> list[Instance]:
        """Engines whose API server runs on this node, if none of their nodes is kept out."""
        return [i for i in self.instances_over(node) if i.nodes[0] == node.name]

    def instances_over(self, node: Node) -> list[Instance]:
        """Engines with ranks on this node, if none of their nodes is kept out."""
        mine = _by_node(self.config.instances).get(node.name, ())
        return [i for i in mine if not self.kept_out.keys() & set(i.nodes)]

    def waiting(self) -> dict[str, list[str]]:
        """Engines that can't run now → the quarantined nodes they need."""
        needed = {i.name: [n for n in i.nodes if n in self.kept_out] for i in self.config.instances}
        return {name: nodes for name, nodes in needed.items() if nodes}

    def ray_gpus(self, node: Node) -> int:
        """GPUs that Ray may give away: those that no single-node engine holds."""
        held = sum(i.gpus_per_node for i in self.instances_on(node) if i.executor == "local")
        return node.gpus - held
