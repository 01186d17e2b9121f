"""A rolling change: plan, waves, and what is known of each node whatever ends the run."""
