"""Errors of the solvers of fields beside exact solutions and finer steps, and what their banks cost.

    python benchmarks/fields.py [--cases 4] [--cells 400,800,1600] [--skip-fhn]

Burgers: relative L2 of each case at t = 0.25, 1 and 5 on 50 places, beside Cole–Hopf and, at ν = 0, Lax–Oleinik.
FitzHugh–Nagumo: relative L2 at t = 10 of the split solver beside RK4 with a step of 0.002. A cost is CPU time of one
process, from a few chunks of the bank; with N workers on as many cores it takes an N-th of it.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from sprii_envs.arguments import option
from sprii_envs.fields import burgers, fhn
from sprii_envs.fields.protocols import OUTER_VISCOSITIES, PROTOCOLS, VISCOSITIES

TIMES = (0.25, 1.0, 5.0)


def burgers_errors(nu: float, cases: int, cells: int) -> np.ndarray:
    """Relative L2, (cases, times)."""
    modes, x = burgers.modes(0, np.full(cases, nu), np.arange(cases)), burgers.grid(cells)
    solved = burgers.solve(burgers.field(*modes, x), nu, frames=21)
    places = np.arange(0, cells, cells // 50)
    errors = []
    for t in TIMES:
        if nu:
            exact = burgers.cole_hopf(*modes, nu, t, x[places], places=20_001)
        else:
            exact = burgers.lax_oleinik(*modes, t, x[places])
        off = np.linalg.norm(solved[:, round(t / 0.25), places] - exact, axis=1)
        errors.append(off / np.linalg.norm(exact, axis=1))
    return np.stack(errors, axis=1)


def seconds(run: Callable[[], object]) -> float:
    """CPU time."""
    before = time.process_time()
    run()
    return time.process_time() - before


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=option(), default=4)
    parser.add_argument("--cells", default="400,800,1600", help="multiples of 50, with commas between")
    parser.add_argument("--skip-fhn", action="store_true")
    options = parser.parse_args()
    sizes = [int(word) for word in options.cells.split(",")]
    print("Burgers, median and greatest relative L2 error:")
    print("| ν | " + " | ".join(f"{size} cells" for size in sizes) + " |")
    print("|---|" + "---|" * len(sizes))
    for nu in (0.0, *sorted(VISCOSITIES + OUTER_VISCOSITIES)):
        found = [burgers_errors(nu, options.cases, size) for size in sizes]
        print(f"| {nu:g} | " + " | ".join(f"{np.median(e):.1e}, {e.max():.1e}" for e in found) + " |", flush=True)
    if not options.skip_fhn:
        first = fhn.initial(0, [15])
        exact = fhn.solve(first, (0.03, 0.20), solver="rk4", step=0.002, frames=11)[:, -1]
        print("\nFitzHugh–Nagumo, split:")
        for step in (0.05, 0.02, 0.01):
            off = fhn.solve(first, (0.03, 0.20), step=step, frames=11)[:, -1] - exact
            print(f"step {step:g}: relative L2 {np.linalg.norm(off) / np.linalg.norm(exact):.1e}", flush=True)
    print("\n| bank | episodes | size | CPU time |\n|---|---|---|---|")
    for name, protocol in PROTOCOLS.items():
        plan = protocol.plan()
        # Chunks of every kind of system: a shock takes more steps than a field that has diffused.
        chunks = [plan[i : i + protocol.together] for i in range(0, len(plan), protocol.together)]
        some = chunks[:: max(1, len(chunks) // (3 if name.startswith("fhn") else 12))]
        took = [seconds(partial(protocol.fields, chunk)) / len(chunk) for chunk in some]
        print(
            f"| `{name}` | {len(plan):,} | {protocol.bytes / 1e9:.2f} GB | {np.mean(took) * len(plan):.0f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
