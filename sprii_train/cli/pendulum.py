"""`sprii pendulum`: models for control, one at a time."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, subcommand

from sprii_envs.arguments import integer
from sprii_train.cli.options import PresetName, check_file, check_folder, load_plugin

ControllerName = Literal["cem", "icem", "mppi", "shooting"]
FitName = Literal["newton", "gradient", "cem"]


@dataclass
class TrainPendulum:
    """Train one row with one seed: collect, train on everything collected, again. Resumes when repeated."""

    recipe: Positional[str] = "cadm"
    """cadm, random or r7."""
    preset: PresetName = "quick"
    """Budget, as of sprii reproduce tab:pendulum-r7."""
    seed: int = 0
    """Of weights, systems, starts, noise and batches."""
    controller: ControllerName | None = None
    """The planner that collects, with its published settings; by default the preset's own."""
    horizon: int | None = None
    """Steps that it looks ahead; by default its own."""
    iterations: int | None = None
    """By default the preset's. A finished run cannot be extended: its folder holds it to this number."""
    device: str = "cpu"
    """A torch device."""
    out: Path | None = None
    """Folder of the run; by default runs/pendulum-PRESET-RECIPE-SEED, and -CONTROLLER if one is given."""

    def run(self) -> None:
        """Train with a line an iteration."""
        from dataclasses import replace

        from sprii_train.checkpoints import save
        from sprii_train.control.controllers import named_controller
        from sprii_train.control.loop import train_control
        from sprii_train.recipes import CONTROL_RECIPES, recipe
        from sprii_train.settings import PENDULUM

        if self.iterations is not None:
            integer("--iterations", self.iterations, least=1, most=10_000)
        if self.horizon is not None:
            integer("--horizon", self.horizon, least=1, most=1_000)
        integer("--seed", self.seed)
        arm, spent = recipe(self.recipe, CONTROL_RECIPES), PENDULUM.budget(self.preset)
        steps = spent.train.steps if self.iterations is None else self.iterations
        run = replace(spent.train, steps=steps, seed=self.seed, device=self.device)
        if self.controller is not None:
            run = replace(run, controller=named_controller(self.controller))
        if self.horizon is not None:
            run = replace(run, controller=replace(run.controller, horizon=self.horizon))
        name = "-".join(["pendulum", self.preset, self.recipe, str(self.seed), *filter(None, [self.controller])])
        root = self.out or Path("runs") / name
        check_folder(root)

        def report(iteration: int, values: dict[str, float]) -> None:
            print(f"iteration {iteration}/{steps}  collected return {values['return']:.0f}", flush=True)

        learner, _ = train_control(run, spent.learner, arm, root, report)
        save(learner.cpu(), root / "model")
        print(f"model: {root / 'model'}")


@dataclass
class EvaluatePendulum:
    """Return and success of a saved model in every group, with the oracle's and the paper's beside."""

    model: Positional[Path]
    """A folder that holds a model, such as RUN/model of `sprii pendulum train`: any learner with the operations
    context and step."""
    controller: ControllerName = "icem"
    """The planner, with its published settings."""
    horizon: int = 20
    """Steps that it looks ahead."""
    episodes: int | None = None
    """Of each group; by default 10, or the next multiple of --systems."""
    systems: int | None = None
    """Drawn for each group, each for as many episodes; by default one for every episode."""
    groups: str | None = None
    """Comma-separated groups, such as ID,OOD_c3; by default all."""
    seed: int = 0
    """Of systems, starts and the planner's noise."""
    device: str = "cpu"
    """A torch device that the model plans on."""
    fit: FitName | None = None
    """Fit the context at every step by prediction error of the running episode, by this method; the row of the model's
    own context stands beside."""
    transitions: int = 10
    """Last ones of the episode that --fit reads."""
    log: Path | None = None
    """Experience of ID pendulums that calibrates --fit; by default what the model's run collected, or new episodes
    under held torques."""
    alone: FlagCreatePairsOff[bool] = False
    """Without the oracle, random actions, the paper's rows and, with --fit, the model's own context."""
    by_system: FlagCreatePairsOff[bool] = False
    """A row for each system too."""
    json: Path | None = None
    """A file for episodes and rows."""
    plugin: str | None = None
    """A module of yours that registers the learner; the current folder is searched too."""

    def run(self) -> None:
        """Evaluate and print a table."""
        from sprii_train.checkpoints import load
        from sprii_train.control.controllers import named_controller
        from sprii_train.control.experience import Experience
        from sprii_train.control.models import MODELS
        from sprii_train.control.offline import fit_by, log_of
        from sprii_train.control.pendulum_agents import ENV_ID, learned, references
        from sprii_train.evaluation import evaluate_agent
        from sprii_train.fit import usable_device
        from sprii_train.learners import load_entry_points

        integer("--horizon", self.horizon, least=1, most=1_000)
        integer("--seed", self.seed)
        integer("--transitions", self.transitions, least=1, most=1_000)
        if self.log is not None and self.fit is None:
            raise ValueError("--log calibrates --fit, which is not given")
        for name in ("episodes", "systems"):
            if (value := getattr(self, name)) is not None:
                integer(f"--{name}", value, least=1, most=10_000)
        check_file("--json", self.json)
        device = usable_device(self.device)
        if self.plugin is not None:
            load_plugin(self.plugin)
        load_entry_points()
        if (self.model / "model").is_dir():
            raise ValueError(f"{self.model} is the folder of a run; its model is {self.model / 'model'}")
        controller = named_controller(self.controller, horizon=self.horizon)
        model = load(self.model, also=MODELS).to(device)
        plain = agent = learned(model, controller, seed=self.seed, device=device)
        beside = {} if self.alone else references(controller, seed=self.seed)
        if self.fit is not None:
            log = log_of(self.model) if self.log is None else Experience.load(self.log)
            fit = fit_by(model, log, method=self.fit, transitions=self.transitions, seed=self.seed)
            agent = learned(model, controller, seed=self.seed, device=device, fit=fit)
            beside = beside if self.alone else {"own context": plain} | beside
        found = evaluate_agent(
            agent, ENV_ID,
            groups=None if self.groups is None else [name.strip() for name in self.groups.split(",")],
            episodes=self.episodes, systems=self.systems, seed=self.seed,
            name=str(self.model) if self.fit is None else f"{self.model} + fit", references=beside or None,
        )  # fmt: skip
        found.show(by_system=self.by_system)
        if self.json is not None:
            found.to_json(self.json)
            print(f"rows: {self.json}")


@dataclass
class PendulumCommand:
    """Model-based control of the pendulum: train a model, or evaluate it."""

    command: Annotated[TrainPendulum, subcommand("train")] | Annotated[EvaluatePendulum, subcommand("evaluate")]

    def run(self) -> None:
        """Run the chosen one."""
        self.command.run()
