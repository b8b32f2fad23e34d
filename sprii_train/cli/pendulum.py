"""`sprii pendulum`: models for control, one at a time."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, subcommand

from sprii_envs.fields import integer
from sprii_train.cli.options import PresetName, check_folder
from sprii_train.terminal import console


@dataclass
class TrainPendulum:
    """Train one row with one seed: collect, train on everything collected, again. Resumes when repeated."""

    recipe: Positional[str] = "cadm"
    """cadm, random or r7."""
    preset: PresetName = "quick"
    """Budget, as of sprii reproduce tab:pendulum-r7."""
    seed: int = 0
    """Of weights, systems, starts, noise and batches."""
    iterations: int | None = None
    """By default the preset's. A finished run cannot be extended: its folder holds it to this number."""
    device: str = "cpu"
    """A torch device."""
    out: Path | None = None
    """Folder of the run; by default runs/pendulum-PRESET-RECIPE-SEED."""

    def run(self) -> None:
        """Train with a line an iteration."""
        from dataclasses import replace

        from sprii_train.checkpoints import save
        from sprii_train.control.loop import train_control
        from sprii_train.recipes import CONTROL_RECIPES, recipe
        from sprii_train.settings import PENDULUM

        if self.iterations is not None:
            integer("--iterations", self.iterations, least=1, most=10_000)
        integer("--seed", self.seed)
        arm, spent = recipe(self.recipe, CONTROL_RECIPES), PENDULUM.budget(self.preset)
        steps = spent.train.steps if self.iterations is None else self.iterations
        run = replace(spent.train, steps=steps, seed=self.seed, device=self.device)
        root = self.out or Path(f"runs/pendulum-{self.preset}-{self.recipe}-{self.seed}")
        check_folder(root)

        def report(iteration: int, values: dict[str, float]) -> None:
            print(f"iteration {iteration}/{steps}  collected return {values['return']:.0f}", flush=True)

        learner, _ = train_control(run, spent.learner, arm, root, report)
        save(learner.cpu(), root / "model")
        print(f"model: {root / 'model'}")


@dataclass
class EvaluatePendulum:
    """Return and success of a trained model in every group."""

    model: Positional[Path]
    """A folder that `sprii pendulum train` wrote: RUN/model."""
    controller: Literal["cem", "icem", "mppi", "shooting"] = "icem"
    """The planner, with its published settings."""
    horizon: int = 20
    """Steps that it looks ahead."""
    episodes: int = 10
    """Of each group."""
    seed: int = 0
    """Of systems, starts and the planner's noise."""
    device: str = "cpu"
    """A torch device."""

    def run(self) -> None:
        """Evaluate and print a table."""
        from rich.table import Table

        from sprii_train.checkpoints import load
        from sprii_train.control.controllers import named_controller
        from sprii_train.control.evaluation import evaluate, learned
        from sprii_train.fit import usable_device
        from sprii_train.learners.cadm import CaDM

        integer("--horizon", self.horizon, least=1, most=1_000)
        integer("--episodes", self.episodes, least=1, most=10_000)
        integer("--seed", self.seed)
        device = usable_device(self.device)
        if (self.model / "model").is_dir():
            raise ValueError(f"{self.model} is the folder of a run; its model is {self.model / 'model'}")
        learner = load(self.model)
        if not isinstance(learner, CaDM):
            raise ValueError(f"{self.model} holds a {type(learner).__name__}; legal: CaDM")
        policy = learned(learner.to(device), named_controller(self.controller, horizon=self.horizon), seed=self.seed)
        table = Table("group", "return", "SD of episodes", "success", box=None, pad_edge=False)
        for group, trial in evaluate(policy, seed=self.seed, episodes=self.episodes).items():
            success = f"{100 * trial.success.mean():.0f}%"
            sd = f"{trial.returns.std(ddof=1):.1f}" if self.episodes > 1 else "–"
            table.add_row(group, f"{trial.returns.mean():.1f}", sd, success)
        console().print(table)


@dataclass
class PendulumCommand:
    """Model-based control of the pendulum: train a model, or evaluate it."""

    command: Annotated[TrainPendulum, subcommand("train")] | Annotated[EvaluatePendulum, subcommand("evaluate")]

    def run(self) -> None:
        """Run the chosen one."""
        self.command.run()
