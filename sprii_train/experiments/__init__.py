"""Worlds, budgets and sources; what is measured of a source; the paper's tables; the grid that runs resumable cells."""
