"""The `sprii` command. Every subcommand is a dataclass; heavy imports wait until one is chosen."""

import io
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from sprii_envs.dependencies import PackageImportError, require

try:
    require("the command line", "tyro rich (for all commands: 'sprii[train]')", "tyro", "rich")
    import tyro
    from tyro.conf import FlagCreatePairsOff, OmitSubcommandPrefixes, Positional, subcommand

    from sprii_train.terminal import console, ends_with_its_reader, size
except PackageImportError as error:
    print(f"sprii: {error}", file=sys.stderr)
    sys.exit(2)

from sprii_envs.fields import WORKERS, integer, number
from sprii_train.cli_overcooked import OvercookedCommand

PresetName = Literal["smoke", "quick", "paper"]
LauncherName = Literal["local", "slurm", "ray"]
TargetPreset = Literal["smoke", "quick", "states", "paper"]
BankName = Literal["d-clean", "spring", "spring-sealed", "poke-factorial", "poke-original", "swimmer"]
REPLACED: dict[tuple[str, ...], str] = {
    ("pendulum", "compare"): "is now sprii reproduce tab:pendulum-r7, and its --rows are --arms",
    ("overcooked", "compare"): "is now sprii reproduce tab:overcooked-complete",
}
"""Commands that are gone: what does it now."""


@ends_with_its_reader
def main() -> None:
    """Entry point: parse, run, and turn a known failure into one line on stderr and exit status 2."""
    if "COLUMNS" in os.environ:  # tyro lays its help out in it, for ever if it is 5
        os.environ["COLUMNS"] = str(size("COLUMNS", sys.__stdout__))
    if (words := tuple(sys.argv[1:3])) in REPLACED:
        print(f"sprii: sprii {' '.join(words)} {REPLACED[words]}", file=sys.stderr)
        sys.exit(2)
    command = tyro.cli(
        OmitSubcommandPrefixes[
            Annotated[Quickstart, subcommand("quickstart")]
            | Annotated[Reproduce, subcommand("reproduce")]
            | Annotated[Scoreboard, subcommand("scoreboard")]
            | Annotated[BankCommand, subcommand("bank")]
            | Annotated[RelationsCommand, subcommand("relations")]
            | Annotated[PendulumCommand, subcommand("pendulum")]
            | Annotated[OvercookedCommand, subcommand("overcooked")]
            | Annotated[Benchmark, subcommand("benchmark")]
        ],
        prog="sprii",
        description="Environments with persistent properties, relation samplers, Align and Cross.",
    )
    for stream in (sys.stdout, sys.stderr):  # a terminal without γ or ± is no reason to lose a report
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        for kind, (name, extras) in _EXTRAS.items():
            if isinstance(command, kind):
                require(name, f"'sprii[{extras}]'", *_TRAIN)
        command.run()
    except KeyboardInterrupt:
        sys.exit("sprii: stopped; the same command resumes")
    except BrokenPipeError:
        raise
    except (ValueError, OSError, FloatingPointError, PackageImportError) as error:
        print(f"sprii: {error}", file=sys.stderr)
        sys.exit(2)
    except MemoryError as error:
        print(f"sprii: not enough memory: {error}", file=sys.stderr)
        sys.exit(2)


@dataclass
class Quickstart:
    """Build the D-Clean bank, train the arms that tell the story at a small budget, and report (about 10 minutes)."""

    preset: PresetName = "quick"
    """quick: a narrower model, the paper's orderings in minutes; smoke: a check that everything runs."""
    seeds: str | None = None
    """A count (3) or a list (0,4,7) of sources; by default the preset's."""
    out: Path = Path("runs/quickstart")
    """Folder of the bank, the runs and the report."""
    workers: int | None = None
    """Training processes; by default one a core."""

    def run(self) -> None:
        """Train and report."""
        written = [f"sprii quickstart --preset {self.preset}", *_given(self, "seeds")]
        if self.out != Quickstart.out:
            written += _given(self, "out")
        _reproduce(
            "tab:dclean-full",
            self.preset,
            self.out,
            " ".join(written),
            seeds=self.seeds,
            workers=self.workers,
            report=self.out,
        )


@dataclass
class Reproduce:
    """Reproduce a table or figure of the paper. A stopped run resumes when the command is repeated."""

    target: Positional[str] = ""
    """A label of `sprii reproduce --list`, such as tab:refinement-full; setting:NAME is the report of any setting; all
    is every label, with an index of what held."""
    list: Annotated[bool, FlagCreatePairsOff] = False
    """Print what can be reproduced, and what each preset would cost on this machine."""
    preset: TargetPreset = "quick"
    """quick: narrower models, minutes to an hour; states: PokeWorld without pixels; paper: the paper's models and
    budgets, days to months on a CPU."""
    seeds: str | None = None
    """A count (3) or a list (0,4,7) of sources; by default the preset's."""
    arms: str | None = None
    """Comma-separated arms; by default the preset's."""
    steps: int | None = None
    """Optimiser updates; by default the preset's."""
    population: Literal["test", "validation"] | None = None
    """tab:dclean-full: the systems reported on, by default test. Choose settings on validation only."""
    partners: Path | None = None
    """tab:overcooked-complete: a folder that `sprii overcooked partners train` wrote, in place of the shipped ones."""
    out: Path | None = None
    """Folder of banks, runs and reports; by default runs/PRESET, which all targets share."""
    workers: int | None = None
    """Sources at once; by default one a core, or as many as the cluster starts."""
    launcher: LauncherName = "local"
    """Where sources are trained and measured: processes here, Slurm jobs, or tasks of a Ray cluster."""
    device: str = "cpu"
    """A torch device that sources are trained on, such as cuda; they are measured on the CPU."""
    plugin: str | None = None
    """A module of yours that registers settings and learners, such as own_setting.setting; the current folder is
    searched too."""

    def run(self) -> None:
        """Train and report."""
        if self.plugin is not None:
            _load_plugin(self.plugin)
        if self.list:
            _list_targets()
            return
        if not self.target:
            raise ValueError("say what to reproduce: sprii reproduce --list names it")
        from sprii_train.fit import usable_device

        usable_device(self.device)  # with a launcher too: the precision, which names the folders, is this machine's
        from sprii_train.experiments.targets import canonical

        written = [f"sprii reproduce {canonical(self.target)}", f"--preset {self.preset}"]
        written += _given(self, "seeds", "arms", "steps", "population", "partners", "out")
        if self.device != "cpu":
            written.append(f"--device {self.device}")
        if self.plugin is not None:
            written.append(f"--plugin {self.plugin}")
        _reproduce(
            self.target,
            self.preset,
            self.out or Path(f"runs/{self.preset}"),
            " ".join(written),
            seeds=self.seeds,
            arms=self.arms,
            steps=self.steps,
            device=self.device,
            population=self.population,
            partners=self.partners,
            workers=self.workers,
            launcher=self.launcher,
        )


@dataclass
class Scoreboard:
    """Write one page of all reports under a folder: what held, what did not, and what was never tested."""

    folder: Positional[Path]
    """Folder whose subfolders hold reports, such as runs/quick or docs/results."""
    out: Path | None = None
    """The page; by default FOLDER/index.html."""

    def run(self) -> None:
        """Read and write; nothing is run."""
        from sprii_train.experiments.findings import scoreboard

        if not self.folder.is_dir():
            raise ValueError(f"{self.folder} is no folder of reports")
        print(f"index: {scoreboard(self.folder, where=self.out)}")


@dataclass
class Build:
    """Build a bank, or resume a build that was stopped."""

    protocol: Positional[BankName]
    path: Positional[Path]
    workers: int | None = None
    """Processes; by default one a core."""
    overwrite: Annotated[bool, FlagCreatePairsOff] = False
    """Replace a bank of another protocol at this path."""
    frames: int | None = None
    """Store frames of this size; by default as the protocol says."""
    no_frames: Annotated[bool, FlagCreatePairsOff] = False
    """Store no frames: they are drawn from the states when they are read."""
    rollouts: int | None = None
    """Episodes of every system, of each kind where there are kinds; by default as the protocol says."""
    seed: int | None = None
    """Seed of systems, starts and actions; by default as the protocol says."""

    def run(self) -> None:
        """Build with a progress bar."""
        import os

        from rich.progress import Progress

        from sprii_envs.banks import PROTOCOLS, build

        if self.no_frames and self.frames is not None:
            raise ValueError("--frames and --no-frames exclude each other")
        given = {"frames": self.frames, "rollouts": self.rollouts, "seed": self.seed}
        changes = {name: value for name, value in given.items() if value is not None}
        _check_workers(self.workers)
        protocol = PROTOCOLS[self.protocol].replace(**changes)
        if self.no_frames:
            protocol = protocol.replace(frames=None)
        with Progress(console=console(), transient=True) as progress:
            bar = progress.add_task("episodes", total=protocol.episodes)
            bank = build(
                protocol,
                self.path,
                workers=(os.cpu_count() or 1) if self.workers is None else self.workers,
                overwrite=self.overwrite,
                progress=lambda done, total: progress.update(bar, completed=done, total=total),
            )
        print(bank.describe())


@dataclass
class List:
    """Say which banks can be built, and how large they are."""

    def run(self) -> None:
        """Print a table of the protocols."""
        from rich.table import Table

        from sprii_envs.banks import PROTOCOLS, simulate

        table = Table("bank", "systems", box=None, pad_edge=False)
        table.add_column("episodes", justify="right")
        table.add_column("size", justify="right")
        for name, protocol in PROTOCOLS.items():
            systems = ", ".join(f"{count:,} {split}" for split, count in protocol.counts.items())
            size = sum(column.bytes for column in simulate.columns(protocol))
            table.add_row(name, systems, f"{protocol.episodes:,}", f"{size / 1e9:.2f} GB")
        console().print(table)


@dataclass
class Info:
    """Say what a bank holds."""

    path: Positional[Path]

    def run(self) -> None:
        """Print the description."""
        from sprii_envs.banks import Bank

        print(Bank.open(self.path).describe())


@dataclass
class Verify:
    """Compare every file of a bank with its checksum."""

    path: Positional[Path]

    def run(self) -> None:
        """Verify, or fail with the first file that differs."""
        from sprii_envs.banks import Bank

        bank = Bank.open(self.path, verify="checksums")
        print(f"{self.path}: every checksum holds (fingerprint {bank.fingerprint[:16]})")


@dataclass
class BankCommand:
    """List, build, describe or verify banks of episodes."""

    command: List | Build | Info | Verify

    def run(self) -> None:
        """Run the chosen one."""
        self.command.run()


@dataclass
class AuditRelation:
    """Say what a relation allows on a bank, and what a donor kernel draws."""

    bank: Positional[Path]
    """Folder of the bank."""
    relation: str
    """A name of `sprii relations list`: G1, G2, G3, same-system, same-rollout or label:COLUMN."""
    split: str = "train"
    """The episodes that pairs come from."""
    kernel: str | None = None
    """uniform (by default), candidates, derangement, derangement:COLUMN or mismatch:FACTOR."""
    alpha: float | None = None
    """Share of correct pairs; the others are drawn by the kernel, derangement (by default) or mismatch:FACTOR."""
    law: Literal["recipient", "pair", "balanced"] = "recipient"
    """Pair law; the batches of recipient come from distinct systems."""
    seed: int = 0
    """Seed of the candidate lists and of the pairs drawn."""
    other_system: Annotated[bool, FlagCreatePairsOff] = False
    """With label:COLUMN: donors of other systems only."""
    unseal: Annotated[bool, FlagCreatePairsOff] = False
    """Open a sealed split."""
    json: Path | None = None
    """Also write the numbers to this file."""

    def run(self) -> None:
        """Print the audit; recipients without a legal donor lower the coverage."""
        from sprii_envs.banks import Bank
        from sprii_envs.files import write_json
        from sprii_envs.relations import PairSampler, named_kernel, named_relation

        _check_json(self.json)
        bank = Bank.open(self.bank)
        if self.split in bank.protocol.sealed_splits and not self.unseal:
            raise ValueError(f"{self.bank}: the split {self.split!r} is sealed; --unseal opens it")
        table = bank.split(self.split, unseal=self.unseal)
        relation = named_relation(self.relation, table, other_system=self.other_system)
        name = self.kernel or ("uniform" if self.alpha is None else "derangement")
        kernel = named_kernel(name, table, relation, alpha=self.alpha, seed=self.seed)
        distinct = "system" if self.law == "recipient" else None
        sampler = PairSampler(table, relation, kernel, self.seed, self.law, distinct, "drop")
        audit = sampler.audit()
        print(audit)
        if self.json is not None:
            write_json(self.json, audit.to_dict())


@dataclass
class ListRelations:
    """Say which relations and donor kernels have a name."""

    def run(self) -> None:
        """Print both."""
        from sprii_envs.relations import NAMED_KERNELS, NAMED_RELATIONS

        relations = {"relation": "what a donor is", **NAMED_RELATIONS}
        for name, says in {**relations, "kernel": "which donor is drawn", **NAMED_KERNELS}.items():
            print(f"{name:<20}{says}")


@dataclass
class RelationsCommand:
    """List relations, or audit one on a bank."""

    command: Annotated[AuditRelation, subcommand("audit")] | Annotated[ListRelations, subcommand("list")]

    def run(self) -> None:
        """Run the chosen one."""
        self.command.run()


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


@dataclass
class Benchmark:
    """Measure speed, ours beside the peers', in one run."""

    what: Positional[Literal["envs"]]
    """envs: environment steps and frames per second, beside Gymnasium and whichever peers are installed."""
    seconds: float = 0.5
    """Length of one timing."""
    repeats: int = 5
    """Timings a row."""
    json: Path | None = None
    """Also write the numbers to this file."""

    def run(self) -> None:
        """Measure and print."""
        from sprii_envs.files import write_json
        from sprii_train.benchmarks.envs import benchmark, report

        number("--seconds", self.seconds, above=0, most=3600)
        integer("--repeats", self.repeats, least=1, most=1_000)
        _check_json(self.json)
        result = benchmark(self.seconds, self.repeats)
        print(report(result))
        if self.json is not None:
            write_json(self.json, result)


EVERYTHING = "all"
"""The label of every target."""
_TRAIN = ("torch", "safetensors", "sklearn", "scipy", "matplotlib", "jinja2", "tensorboard")
"""What the extra `train` installs beside the two packages of the command line."""
_EXTRAS = {
    Quickstart: ("quickstart", "train"),
    Reproduce: ("reproduce", "train"),
    Scoreboard: ("scoreboard", "train"),
    PendulumCommand: ("pendulum", "train"),
    OvercookedCommand: ("overcooked", "train,overcooked"),
}
"""Commands that need more than the two packages of the command line: name and extras."""


def check_folder(path: Path) -> None:
    """ValueError if a folder cannot be made there, before hours are spent on what it would hold."""
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ValueError(f"--out is {path}, but {there} is not a folder that can be written to")


def _check_workers(workers: int | None) -> None:
    if workers is not None:
        integer("--workers", workers, least=1, most=WORKERS)


def _check_json(path: Path | None) -> None:
    """ValueError, before any work is done, for a file that could not be written."""
    if path is not None and not path.parent.is_dir():
        raise ValueError(f"--json {path}: there is no folder {path.parent}")
    if path is not None and path.is_dir():
        raise ValueError(f"--json {path}: this is a folder; name a file")


def _load_plugin(name: str) -> None:
    """Import a module that registers; ValueError naming it, for one that is not there or does not import."""
    import importlib

    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # the command, unlike python -m, does not search where it is called
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"--plugin {name}: {error}; legal: a module that can be imported from here") from error


def _list_targets() -> None:
    from rich.table import Table

    from sprii_train.experiments.costs import estimate, span
    from sprii_train.experiments.targets import ALIASES, COMPOSED, TARGETS
    from sprii_train.settings import PRESET_NAMES

    table = Table(box=None, pad_edge=False)
    table.add_column(
        "table or figure", min_width=max(map(len, (*TARGETS, *COMPOSED)))
    )  # what is copied is never cut off
    table.add_column("what it shows")
    for name in PRESET_NAMES:
        table.add_column(name, justify="right")
    for target in TARGETS.values():
        table.add_row(target.label, target.title, *(span(estimate(target, name)) for name in PRESET_NAMES))
    for one in COMPOSED.values():
        parts = [[estimate(TARGETS[part], name) for part in one.parts] for name in PRESET_NAMES]
        costs = (None if None in own else sum(each or 0.0 for each in own) for own in parts)
        table.add_row(one.label, one.title, *map(span, costs))
    screen = console()
    screen.print(table)
    screen.print(
        "Times are of one worker on this machine, from the measured seconds of an update scaled by this machine's rate "
        "of matrix products, with nothing trained yet: targets that share sources share them."
    )
    told = ", ".join(f"{alias} ({label})" for alias, label in ALIASES.items())
    screen.print(f"Other labels of these tables, and their figures: {told}", soft_wrap=True)


def _given(command: object, *options: str) -> list[str]:
    """`--option value` of those that were given, as a shell reads them."""
    values = {name: getattr(command, name) for name in options}
    return [f"--{name} {shlex.quote(str(value))}" for name, value in values.items() if value is not None]


def _reproduce(
    label: str,
    preset: str,
    root: Path,
    command: str,
    *,
    seeds: str | None = None,
    arms: str | None = None,
    steps: int | None = None,
    device: str = "cpu",
    population: str | None = None,
    partners: Path | None = None,
    workers: int | None = None,
    launcher: str = "local",
    report: Path | None = None,
) -> None:
    from sprii_train import distributed
    from sprii_train.experiments.collect import reproduce_all, reproduce_composed
    from sprii_train.experiments.reproduce import Plan, reproduce
    from sprii_train.experiments.seeds import parse_seeds
    from sprii_train.experiments.targets import Target, composed, target
    from sprii_train.reports.page import print_page

    _check_workers(workers)
    if steps is not None:
        integer("--steps", steps, least=1, most=10**9)
    parsed = None if seeds is None else parse_seeds(seeds)
    named = None if arms is None else tuple(arm.strip() for arm in arms.split(","))
    one = composed(label)
    if one is not None or label == EVERYTHING:
        for name, value in (("arms", arms), ("population", population), ("partners", partners)):
            if value is not None:
                raise ValueError(f"--{name} is of one table or figure, but {label} is several")

    def plan_of(found: Target) -> Plan:
        return Plan(found, preset, root, parsed, named, steps, device, population, partners, report)

    if label == EVERYTHING:
        check_folder(root)
        written, failures = reproduce_all(
            plan_of, preset, root, lambda found: command.replace(f" {EVERYTHING} ", f" {found.label} ", 1),
            workers=workers, launcher=launcher,
        )  # fmt: skip
        if distributed.rank() == 0:
            for failed, why in failures.items():
                print(f"not run: {failed}: {why}")
            print(f"index: {written}")
        return
    if one is not None:
        folder, suffix = root / one.folder, ""
        check_folder(folder)
        page = reproduce_composed(one, plan_of, command, workers=workers, launcher=launcher)
    else:
        plan = plan_of(target(label))
        folder, suffix = plan.folder, plan.suffix
        check_folder(folder)
        page = reproduce(plan, command, workers=workers, launcher=launcher)
    if distributed.rank() == 0:
        print_page(page)
        print(f"\nreport: {folder / f'report{suffix}.html'}\nrows:   {folder / f'results{suffix}.json'}")
        for name in page.files:
            print(f"file:   {folder / name}")
