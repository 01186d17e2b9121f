"""A node after a swap of hardware or a reinstall: kept out, built, proved, let in again."""
