"""Every stage of site.py but verify, for a node that is kept out: `rackpin rebuild` asks it then.

A run with verify ends with 1 while all of its nodes are quarantined; this one says by its exit
status whether every operation succeeded. A node that isn't quarantined gets what site.py gives it.
"""

from pyinfra import local

local.include("deploys/apt.py")
local.include("deploys/base.py")
local.include("deploys/driver.py")
local.include("deploys/cuda.py")
local.include("deploys/fabric.py")
local.include("deploys/python.py")
local.include("deploys/nccl.py")
local.include("deploys/ray.py")
local.include("deploys/serve.py")
local.include("deploys/gateway.py")
local.include("deploys/audit.py")
