"""Where things are on a node: paths, unit names, the user. One place, used by stages and checks."""

from __future__ import annotations

USER = "rackpin"  # runs Ray and the engines
ROOT = "/opt/rackpin"
CURRENT = f"{ROOT}/current"  # atomic link to the environment in use
PREVIOUS = f"{ROOT}/previous"
ENV_DIR = f"{ROOT}/env"  # one directory per lock: STACK-DIGEST
PYTHON = f"{CURRENT}/bin/python"
ETC = "/etc/rackpin"
NCCL_ENV = f"{ETC}/nccl.env"  # what was found of the node's fabric, for its units
INSTANCE_DIR = f"{ETC}/vllm"  # NAME.json (what to run) and NAME.env (0600, secrets)
LIB = "/usr/local/lib/rackpin"  # gates and readiness probes that units call
STATE = "/var/lib/rackpin"
PENDING = f"{STATE}/pending"  # what changed files still ask for; survives a killed run
XDG_CONFIG = f"{STATE}/home/.config"  # of the user that runs Ray and the engines
BACKUPS = f"{STATE}/backup"  # an operator's own file, kept before rackpin owns its path
APT = f"{STATE}/apt"
APT_PROVED = f"{APT}/proved"  # digest of the apt wish that was proved last
APT_HELD = f"{APT}/held"  # packages that rackpin holds; a site's own holds are not in it

GATEWAY_UNIT = "rackpin-gateway.service"
GATEWAY = f"{ETC}/gateway"  # nginx.conf, and 0600: keys and the certificate's key
RAY_HEAD_UNIT = "ray-head.service"
RAY_WORKER_UNIT = "ray-worker.service"


def vllm_unit(instance: str) -> str:
    return f"vllm@{instance}.service"
