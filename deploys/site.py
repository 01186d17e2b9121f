"""The whole way of a node, in order. Each line is a file that can be run by itself."""

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
local.include("deploys/verify.py")
