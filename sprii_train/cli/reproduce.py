"""`sprii quickstart`, `sprii reproduce`, `sprii scoreboard` and `sprii report`: tables and figures of the paper."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional

from sprii_envs.arguments import integer
from sprii_train.cli.options import (
    LauncherName,
    PresetName,
    check_file,
    check_folder,
    check_workers,
    given,
    load_plugin,
)
from sprii_train.terminal import console

TargetPreset = Literal["smoke", "quick", "states", "paper"]
EVERYTHING = "all"
"""The label of every target."""


@dataclass
class Quickstart:
    """Build the D-Clean bank, train the four arms that tell the story at a small budget, and report as they are done
    (about 8 core-minutes)."""

    preset: PresetName = "quick"
    """quick: a narrower model, the paper's orderings in minutes; smoke: a check that everything runs."""
    seeds: str | None = None
    """A count (3) or a list (0,4,7) of sources; by default source 0 alone, whose intervals, over report systems, say
    nothing of another training."""
    out: Path | None = None
    """Folder of the bank, the runs and the report; by default runs/quickstart, runs/quickstart-PRESET if not quick."""
    workers: int | None = None
    """Training processes; by default one a core."""
    device: str = "cpu"
    """A torch device that sources are trained on, such as cuda; they are measured on the CPU."""

    def run(self) -> None:
        """Train and report."""
        from sprii_train.fit import usable_device

        usable_device(self.device)
        written = [f"sprii quickstart --preset {self.preset}", *given(self, "seeds", "out")]
        if self.device != "cpu":
            written.append(f"--device {self.device}")
        root = self.out or Path("runs/quickstart" if self.preset == "quick" else f"runs/quickstart-{self.preset}")
        _reproduce(
            "tab:dclean-full",
            self.preset,
            root,
            " ".join(written),
            seeds="1" if self.seeds is None else self.seeds,
            device=self.device,
            workers=self.workers,
            report=root,
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
    """quick: narrower models, minutes to hours; states: PokeWorld without pixels; paper: the paper's models and
    budgets, days to months on a CPU."""
    seeds: str | None = None
    """A count of sources (2: the first two of the preset's; beyond its last they go on by one) or a list (0,4,7; one
    alone: 5,); by default the preset's."""
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
            load_plugin(self.plugin)
        if self.list:
            _list_targets()
            return
        if not self.target:
            raise ValueError(
                f"target is {self.target!r}: say what to reproduce; legal: what sprii reproduce --list names"
            )
        from sprii_train.fit import usable_device

        usable_device(self.device)  # with a launcher too: the precision, which names the folders, is this machine's
        from sprii_train.experiments.targets import canonical

        written = [f"sprii reproduce {canonical(self.target)}", f"--preset {self.preset}"]
        written += given(self, "seeds", "arms", "steps", "population", "partners", "out")
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

        _check_folder(self.folder)
        check_file("--out", self.out)
        print(f"index: {scoreboard(self.folder, where=self.out)}")


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        what = "a file" if folder.exists() else "not there"
        raise ValueError(f"folder is {str(folder)!r}, which is {what}; legal: a folder of reports")


@dataclass
class Report:
    """Draw a report, or those of a folder, again from their results.json and figures, in today's form. No number
    changes; nothing is run."""

    folder: Positional[Path]
    """Folder of a report, or whose own folders are reports, such as runs/quick."""
    deep: Annotated[bool, FlagCreatePairsOff] = False
    """Every report beneath the folder, however deep, but for cells and banks."""

    def run(self) -> None:
        """Read and write."""
        from sprii_train.reports.kept import redraw

        _check_folder(self.folder)
        written, left = redraw(self.folder, deep=self.deep)
        for page in written:
            print(f"report: {page}")
        for told in left:
            print(f"left as it is: {told}")


def _list_targets() -> None:
    from rich.table import Table

    from sprii_train.experiments.costs import estimate, span
    from sprii_train.experiments.targets import ALIASES, COMPOSED, TARGETS, target
    from sprii_train.settings import PRESET_NAMES, SETTINGS, load_entry_points

    load_entry_points()

    table = Table(box=None, pad_edge=False)
    table.add_column(
        "table or figure", min_width=max(map(len, (*TARGETS, *COMPOSED)))
    )  # what is copied is never cut off
    table.add_column("what it shows")
    for name in PRESET_NAMES:
        table.add_column(name, justify="right")
    for found in TARGETS.values():
        table.add_row(found.label, found.title, *(span(estimate(found, name)) for name in PRESET_NAMES))
    for name in SETTINGS:
        if ALIASES.get(label := f"setting:{name}") is None:
            report = target(label)
            table.add_row(label, report.title, *(span(estimate(report, preset)) for preset in PRESET_NAMES))
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

    check_workers(workers)
    if steps is not None:
        integer("--steps", steps, least=1, most=10**9)
    parsed = None if seeds is None else parse_seeds(seeds)
    named = None if arms is None else tuple(arm.strip() for arm in arms.split(","))
    if named is not None and not all(named):
        raise ValueError(f"--arms is {arms!r}, which has an empty name; legal: names of arms, separated by commas")
    one = composed(label)
    if one is not None or label == EVERYTHING:
        for name, value in (("arms", arms), ("population", population), ("partners", partners)):
            if value is not None:
                raise ValueError(f"--{name} is of one target, but {label} is made of several; give it to one of them")

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
