"""What is there against the lock: nodes, this machine, images."""
