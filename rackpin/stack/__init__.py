"""Pins, their lock, and the wheelhouse made from it."""
