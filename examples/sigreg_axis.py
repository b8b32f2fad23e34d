"""What SIGReg's sample axis does to Structure, at the quick budget and on validation systems (about five minutes).

    python examples/sigreg_axis.py

`step` tests the 96 windows of each time step and averages; `pooled` tests all 2,592 embeddings as one sample. The
weight is 0.02 in both, so `pooled` is 27 times as strong off the null. Printed, source by source, are the error at
h16 with the recipient's own context and with a same-system donor's.
"""

from dataclasses import replace
from pathlib import Path

from sprii_train.experiments.grid import run_grid
from sprii_train.experiments.groups import Group, Scope
from sprii_train.settings import D_CLEAN

OUT = Path("runs/sigreg-axis")


def main() -> None:
    """Train two sources of Structure for each axis; a stopped run resumes."""
    budget = D_CLEAN.budget("quick")
    group, store = Group("d-clean", ("structure",), ("held-out",)), D_CLEAN.open_store(OUT)
    for samples in ("step", "pooled"):
        spent = replace(budget, learner=replace(budget.learner, sigreg_samples=samples))
        cells = group.cells(Scope(D_CLEAN, spent, group.recipes, store, population="validation"))
        for row in run_grid(cells, OUT / "cells"):
            own, donor = row["self_h16"], row["correct_h16"]
            print(
                f"{samples:<7} seed {row['seed']}  self {own:.4f}  correct donor {donor:.4f}  ratio {donor / own:.1f}"
            )


if __name__ == "__main__":
    main()
