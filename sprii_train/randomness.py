"""Seeds for torch's generators, whose own on CPUs reads no more than 32 bits of one."""

import numpy as np


def torch_seed(seed: int, step: int) -> int:
    """A seed below 2³² of what a run with this seed draws in this step; both at least 0.

    Not `(seed << 32) + step`: of that a generator of the CPU would see the step alone, and all runs draw the same.
    """
    return int(np.random.SeedSequence((seed, step)).generate_state(1)[0])
