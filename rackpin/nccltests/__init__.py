"""nccl-tests, built on the node from the pinned source against each NCCL that is there."""
