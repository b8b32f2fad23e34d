"""Model-based control online: collect with the present model, train on everything collected, again.

The published loop of CaDM, with the paper's relation term (`app:pendulum-profile`).

Random actions in the first iteration, planned ones after it. A run is a function of its config; between iterations its
state is experience, weights and moments, so a stopped run resumes at the last finished iteration, bit for bit.
"""

import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from sprii_envs import files
from sprii_envs.arguments import check, flag, instance, integer
from sprii_envs.world import rollout
from sprii_train.checkpoints import CheckpointError, load_training_state, save_training_state
from sprii_train.control import pendulum
from sprii_train.control.agent import on_states, planning_policy
from sprii_train.control.controllers import CONTROLLERS, Config
from sprii_train.control.draws import COLLECTION, draw
from sprii_train.control.experience import Experience
from sprii_train.control.relations import check_recipe
from sprii_train.control.training import ControlTraining, build_optimizer, train_iteration, updates_done
from sprii_train.evaluation import RandomAgent
from sprii_train.fit import usable_device
from sprii_train.identity import cell_code, digest
from sprii_train.learners.cadm import CaDM, CaDMConfig
from sprii_train.randomness import torch_seed
from sprii_train.recipes import Recipe
from sprii_train.records import Records, Report


@dataclass(frozen=True)
class ControlRun:
    """One run, whatever its learner and recipe; the defaults are the published protocol.

    Attributes:
        steps: iterations of collection and training; the first collects with random actions.
        episodes: collected in an iteration, all at once.
        cloned: one system and one start for all episodes of an iteration, as in the published code.
        controller: of collection.
        training: after each collection.
        seed: of weights, draws, noise and batches.
        device: a torch device.
    """

    steps: int = 20
    episodes: int = 10
    cloned: bool = False
    controller: Config = CONTROLLERS["cem"]
    training: ControlTraining = ControlTraining()  # noqa: RUF009 (frozen)
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        check(self, integer, "steps", "episodes", least=1)
        check(self, integer, "seed")
        check(self, flag, "cloned")
        check(self, instance, "controller", of=get_args(Config))
        check(self, instance, "training", of=ControlTraining)
        check(self, instance, "device", of=str)

    def law(self) -> dict[str, Any]:
        """What the weights depend on."""
        return {k: v for k, v in asdict(self).items() if k != "device"} | {"controller": repr(self.controller)}


def collect(run: ControlRun, learner: CaDM, experience: Experience, iteration: int) -> float:
    """Add the episodes of an iteration to the experience; their mean return."""
    drawn = draw("ID", run.episodes, (COLLECTION, run.seed, iteration), cloned=run.cloned)
    noise = torch_seed(run.seed, iteration)
    if iteration == 0:
        agent = RandomAgent(seed=noise, bounds=pendulum.bounds())
        agent.reset(run.episodes)
        policy = agent.act
    else:
        policy = planning_policy(
            learner, pendulum.reward, pendulum.bounds(run.device), run.controller, run.episodes,
            seed=noise, reads_next=False, rows=learner.rows, device=run.device,
        )  # fmt: skip
    world = pendulum.WORLD
    found = rollout(world, drawn.values, drawn.states, on_states(policy, world), steps=world.max_episode_steps)
    shape = found.states.shape
    observations = world.observe(found.states.reshape(-1, shape[-1])).reshape(*shape[:2], -1)
    experience.add(observations, found.actions, drawn.ids, drawn.values)
    return float(found.rewards.sum(1).mean())


def train_control(
    run: ControlRun, config: CaDMConfig, recipe: Recipe, folder: Path, report: Report | None = None
) -> tuple[CaDM, list[dict[str, Any]]]:
    """Run what is left of all iterations.

    Args:
        config: of the learner.
        recipe: of Align alone, see `relations.check_recipe`.
        folder: gets `iterations.json`, `metrics.jsonl`, TensorBoard events, the experience and a checkpoint. A finished
            run that is there is loaded, and a line on stderr says so.
        report: called after each iteration with its number, from 1, and values.

    Returns:
        The learner in evaluation mode, and a row an iteration: mean collected return, rows, eligible systems, losses,
        seconds of collection and training, the hash of all experience.

    Raises:
        ValueError: for another config or recipe, or a device that this machine lacks; nothing is written.
        CheckpointError: if the folder is damaged or of another run, also of one with another number of iterations.
        NonFiniteLoss: naming iteration, epoch, update and term.
    """
    check_recipe(recipe)
    learner = CaDM(config, seed=run.seed).to(usable_device(run.device))
    folder.mkdir(parents=True, exist_ok=True)
    optimizer = build_optimizer(learner, run.training)
    cell_code.cache_clear()
    code = cell_code(CaDM, type(run.controller), collect, train_iteration, build_optimizer)
    claim = digest(repr((run.law(), config, recipe, code)))[:16]
    start = load_training_state(folder / "checkpoints", learner, optimizer, claim, run.steps)
    if start == run.steps:
        print(f"{folder} holds this run, finished: its weights of iteration {start} are loaded", file=sys.stderr)
    experience = Experience(config.observation_dim, config.action_dim, tuple(pendulum.WORLD.properties.names))
    rows: list[dict[str, Any]] = []
    if start:
        experience = Experience.load(folder / f"experience-{start}")
        rows = _rows(folder / "iterations.json", start, experience.digest())
    _collect(folder, start)
    with Records(folder, updates_done(optimizer)) as records:
        for iteration in range(start, run.steps):
            began = time.perf_counter()
            collected = collect(run, learner.eval(), experience, iteration)
            seconds = time.perf_counter() - began
            done = train_iteration(
                learner.train(), optimizer, experience, iteration, run.training, recipe, records, seed=run.seed
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


def iterations_of(folder: Path) -> list[dict[str, Any]]:
    """What `train_control` says of the iterations of a finished run."""
    return files.read_json(folder / "iterations.json", CheckpointError)["iterations"]


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
