"""Simulated hardware of lab hosts."""
