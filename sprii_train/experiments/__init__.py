"""One file per experiment of the paper, and the grid that runs its cells."""
