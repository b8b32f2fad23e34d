"""Model-based control online: collect with the present model, train on everything collected, again.

The published loop of CaDM, with the paper's relation term (`app:pendulum-profile`).

Random actions in the first iteration, planned ones after it. A run is a function of its config; between iterations its
state is experience, weights and moments, so a stopped run resumes at the last finished iteration, bit for bit.
"""

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from sprii_envs import files
from sprii_envs.fields import check, choice, flag, instance, integer
from sprii_envs.world import rollout
from sprii_train.checkpoints import CheckpointError, load_training_state, save_training_state
from sprii_train.control import pendulum
from sprii_train.control.agent import planning_policy, random_policy
from sprii_train.control.controllers import CONTROLLERS, Config
from sprii_train.control.draws import COLLECTION, draw
from sprii_train.control.experience import Experience
from sprii_train.control.relations import CONTROL_RECIPES, ControlRecipe
from sprii_train.control.training import ControlTraining, build_optimizer, train_iteration, updates_done
from sprii_train.fit import usable_device
from sprii_train.identity import cell_code, digest
from sprii_train.learners.cadm import CaDM, CaDMConfig
from sprii_train.records import Records

Report = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class ControlRun:
    """One seed of one row of `tab:pendulum-r7`; the defaults are the published protocol.

    Attributes:
        recipe: name in `relations.CONTROL_RECIPES`.
        iterations: of collection and training; the first collects with random actions.
        episodes: collected in an iteration, all at once.
        cloned: one system and one start for all episodes of an iteration, as in the published code.
        controller: of collection.
        learner, training: `training.seed` is the seed of the run: of weights, draws, noise and batches.
        device: a torch device.
    """

    recipe: str = "cadm"
    iterations: int = 20
    episodes: int = 10
    cloned: bool = False
    controller: Config = CONTROLLERS["cem"]
    learner: CaDMConfig = field(default_factory=CaDMConfig)
    training: ControlTraining = field(default_factory=ControlTraining)
    device: str = "cpu"

    def __post_init__(self) -> None:
        check(self, choice, "recipe", legal=CONTROL_RECIPES)
        check(self, integer, "iterations", "episodes", least=1)
        check(self, flag, "cloned")
        check(self, instance, "controller", of=get_args(Config))
        check(self, instance, "learner", of=CaDMConfig)
        check(self, instance, "training", of=ControlTraining)
        check(self, instance, "device", of=str)

    @property
    def seed(self) -> int:
        """Of everything in the run."""
        return self.training.seed

    def identity(self) -> dict[str, Any]:
        """Everything that the weights depend on."""
        recipe: ControlRecipe = CONTROL_RECIPES[self.recipe]
        told = {k: v for k, v in asdict(self).items() if k not in ("device", "recipe")}
        return told | {
            "recipe": asdict(recipe),
            "controller": repr(self.controller),
            "code": cell_code(CaDM, type(self.controller), collect, train_iteration, build_optimizer),
        }


def collect(run: ControlRun, learner: CaDM, experience: Experience, iteration: int) -> float:
    """Add the episodes of an iteration to the experience; their mean return."""
    drawn = draw("ID", run.episodes, (COLLECTION, run.seed, iteration), cloned=run.cloned)
    limits = pendulum.bounds(run.device)
    noise = (run.seed << 32) + iteration
    if iteration == 0:
        policy = random_policy(run.episodes, limits, seed=noise)
    else:
        policy = planning_policy(
            learner, pendulum.reward, pendulum.WORLD.observe, limits, run.controller, run.episodes,
            seed=noise, reads_next=False, device=run.device,
        )  # fmt: skip
    found = rollout(pendulum.WORLD, drawn.values, drawn.states, policy, steps=pendulum.WORLD.max_episode_steps)
    shape = found.states.shape
    observations = pendulum.WORLD.observe(found.states.reshape(-1, shape[-1])).reshape(*shape[:2], -1)
    experience.add(observations, found.actions, drawn.ids, drawn.values)
    return float(found.rewards.sum(1).mean())


def train_control(run: ControlRun, folder: Path, report: Report | None = None) -> tuple[CaDM, list[dict[str, Any]]]:
    """Run what is left of all iterations.

    Args:
        folder: gets `iterations.json`, `metrics.jsonl`, TensorBoard events, the experience and a checkpoint. A finished
            run that is there is loaded, and a line on stderr says so.
        report: called after each iteration with its number, from 1, and values.

    Returns:
        The learner in evaluation mode, and a row an iteration: mean collected return, rows, eligible systems, losses,
        seconds of collection and training, the hash of all experience.

    Raises:
        ValueError: for a device that this machine lacks; nothing is written.
        CheckpointError: if the folder is damaged or of another run, also of one with another number of iterations.
        NonFiniteLoss: naming iteration, epoch, update and term.
    """
    device = usable_device(run.device)
    folder.mkdir(parents=True, exist_ok=True)
    learner = CaDM(run.learner, seed=run.seed).to(device)
    optimizer = build_optimizer(learner, run.training)
    cell_code.cache_clear()
    claim = digest(repr(run.identity()))[:16]
    start = load_training_state(folder / "checkpoints", learner, optimizer, claim, run.iterations)
    if start == run.iterations:
        print(f"{folder} holds this run, finished: its weights of iteration {start} are loaded", file=sys.stderr)
    rows, experience = [], Experience(
        run.learner.observation_dim, run.learner.action_dim, tuple(pendulum.WORLD.properties.names)
    )  # fmt: skip
    if start:
        experience = Experience.load(folder / f"experience-{start}")
        rows = _rows(folder / "iterations.json", start, experience.digest())
    _collect(folder, start)
    with Records(folder, updates_done(optimizer)) as records:
        for iteration in range(start, run.iterations):
            began = time.perf_counter()
            collected = collect(run, learner.eval(), experience, iteration)
            seconds = time.perf_counter() - began
            done = train_iteration(
                learner.train(), optimizer, experience, iteration, run.training, CONTROL_RECIPES[run.recipe], records
            )
            told = {"collected_return": collected, "collection_seconds": seconds, "training_seconds": done.seconds}
            rows.append(
                told
                | {name: getattr(done, name) for name in ("episodes", "rows", "updates", "eligible_systems")}
                | {"losses": dict(done.losses), "experience": experience.digest()}
            )
            experience.save(folder / f"experience-{iteration + 1}")
            files.write_json(folder / "iterations.json", {"iterations": rows})
            save_training_state(folder / "checkpoints", learner, optimizer, iteration + 1, claim)
            _collect(folder, iteration + 1)
            if report is not None:
                report(iteration + 1, {"self": done.losses["forward"], "return": collected})
    return learner.eval().requires_grad_(False), rows


def _collect(folder: Path, iterations: int) -> None:
    """Remove what killed writers left, and experience that no checkpoint is of."""
    files.collect(folder)
    for other in folder.glob("experience-*"):
        if other.name != f"experience-{iterations}":
            shutil.rmtree(other, ignore_errors=True)


def _rows(path: Path, count: int, experience: str) -> list[dict[str, Any]]:
    remedy = f"remove {path.parent}"
    rows = files.read_json(path, CheckpointError, remedy).get("iterations")
    if not isinstance(rows, list) or len(rows) < count or not all(isinstance(row, dict) for row in rows):
        raise CheckpointError(f"{path} is damaged: it lacks the rows of {count} iterations; {remedy}")
    if rows[count - 1].get("experience") != experience:
        raise CheckpointError(f"{path} is damaged: row {count} is of other experience; {remedy}")
    return rows[:count]
