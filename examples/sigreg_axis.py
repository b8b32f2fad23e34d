"""What SIGReg's sample axis does to Structure, at the quick budget and on validation systems (about five minutes).

    python examples/sigreg_axis.py

`step` tests the 96 windows of each time step and averages; `pooled` tests all 2,592 embeddings as one sample. The
weight is 0.02 in both, so `pooled` is 27 times as strong off the null. Printed, source by source, are the error at
h16 with the recipient's own context and with a same-system donor's.
"""

from dataclasses import replace
from pathlib import Path

from sprii_train.experiments.dclean import PRESETS, cells, open_bank

from sprii_train.experiments.grid import run_grid

OUT = Path("runs/sigreg-axis")


def main() -> None:
    """Train two sources of Structure for each axis; a stopped run resumes."""
    preset = replace(PRESETS["quick"], arms=("structure",))
    bank = open_bank(preset, OUT)
    for samples in ("step", "pooled"):
        learner = replace(preset.learner, sigreg_samples=samples)
        planned = cells(replace(preset, learner=learner), bank, population="validation")
        for row in run_grid(planned, OUT / "cells"):
            own, donor = row["self_h16"], row["correct_h16"]
            print(
                f"{samples:<7} seed {row['seed']}  self {own:.4f}  correct donor {donor:.4f}  ratio {donor / own:.1f}"
            )


if __name__ == "__main__":
    main()
