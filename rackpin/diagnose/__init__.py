"""Failing logs → causes and remedies, by rules that are data."""
