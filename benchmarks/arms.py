"""What a task's other episodes tell of the stand-in's forces, beyond the recent past of an episode.

    python benchmarks/arms.py [--tasks 124] [--each 8] [--seed 0]

Mean square error of normalised force and torque on the tasks of the test split, of a ridge regression fitted to those
of training, from 2.4 s of force, pose and gripper and the clock; with the forces that another episode of the task, the
mean of all others, or an episode of another task had at the same two times.
"""

import argparse

import numpy as np

from sprii_envs.arguments import option
from sprii_envs.robots.arms import ArmsProtocol, motions

HISTORY, AHEAD = 24, (1, 4, 16)


def ridge(train: np.ndarray, test: np.ndarray, wanted: np.ndarray, held: np.ndarray) -> float:
    """Mean square error on test rows."""
    a, b = (np.concatenate([x, np.ones((len(x), 1))], axis=1) for x in (train, test))
    weights = np.linalg.solve(a.T @ a + 10.0 * np.eye(a.shape[1]), a.T @ wanted)
    return float(((b @ weights - held) ** 2).mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", type=option(least=16), default=124)
    parser.add_argument("--each", type=option(least=4), default=8)
    parser.add_argument("--seed", type=option(least=0), default=0)
    options = parser.parse_args()
    protocol = ArmsProtocol(tasks=options.tasks, each=options.each, seed=options.seed)
    plan, frames = protocol.plan(), protocol.frames
    splits, tasks, episodes = (np.array([row[name] for row in plan]) for name in ("split", "task", "place"))
    found = motions(protocol.seed, tasks, episodes, frames=frames, people=protocol.people)
    force = (found.force - found.force.mean((0, 1))) / found.force.std((0, 1))
    low = np.concatenate([found.force, found.tcp, found.gripper], axis=-1)
    low = (low - low.mean((0, 1))) / low.std((0, 1)).clip(1e-9)
    by_task = force.reshape(options.tasks, options.each, frames, 6)
    others = (by_task.sum(axis=1, keepdims=True) - by_task) / (options.each - 1)
    one = np.roll(by_task, 1, axis=1)
    donors = {"past": None, "another task": np.roll(one, 7, axis=0), "one episode": one, "mean of the others": others}
    print("| steps ahead | " + " | ".join(donors) + " |\n|---|" + "---|" * len(donors))
    for ahead in AHEAD:
        anchors = np.arange(HISTORY, frames - ahead)
        past = np.stack([low[:, a - HISTORY + 1 : a + 1].reshape(len(low), -1) for a in anchors], axis=1)
        clock = np.broadcast_to(np.eye(len(anchors)), (len(low), len(anchors), len(anchors)))
        errors = []
        for donor in donors.values():
            parts = [past, clock]
            if donor is not None:
                told = donor.reshape(force.shape)
                parts += [told[:, anchors], told[:, anchors + ahead]]
            inputs = np.concatenate(parts, axis=-1)
            rows = [splits == name for name in ("train", "test")]
            fit = [inputs[r].reshape(-1, inputs.shape[-1]) for r in rows]
            wanted = [force[r][:, anchors + ahead].reshape(-1, 6) for r in rows]
            errors.append(ridge(fit[0], fit[1], wanted[0], wanted[1]))
        print(f"| {ahead} | " + " | ".join(f"{error:.3f}" for error in errors) + " |", flush=True)


if __name__ == "__main__":
    main()
