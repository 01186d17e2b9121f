"""Does what is pinned work together? Knowledge as data with sources, and a small engine."""
