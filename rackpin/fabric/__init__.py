"""What connects the cards of a fleet: adapters, their ports, and NCCL's settings made of them."""
