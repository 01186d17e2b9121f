"""A host that somebody built by hand: what a first run would change there, and interrupt."""
