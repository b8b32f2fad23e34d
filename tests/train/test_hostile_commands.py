"""Every option of every `sprii` command, given what no user means: one clear error, or it is legal.

Commands run in this process, up to where their hours of work would begin. Each line is first run with legal values, and
must get to work; then one value is hostile, or two are. A refusal has status 2, is of one line (or the parser's box),
names the option or the value, and leaves the folder as it was.

pytest -m slow -s tests/train/test_hostile_commands.py     # prints the counts
"""

import dataclasses
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch
from tyro.conf import Positional

from sprii_envs.banks import D_CLEAN, Bank, RecordedBank, build
from sprii_envs.dependencies import is_absent
from sprii_train.checkpoints import save
from sprii_train.cli import bank, main, overcooked, pendulum, relations, reproduce
from sprii_train.cli.benchmark import Benchmark
from sprii_train.cli.doctor import Doctor
from sprii_train.learners import CaDM, CaDMConfig

sys.path.append(str(Path(__file__).parents[1] / "envs/robots"))

pytestmark = pytest.mark.slow
ROOT, SECONDS, SEED = Path(__file__).parents[2], 60, 0
TINY = D_CLEAN.replace(
    name="tiny", systems={"train": 3, "validation": 1, "test": 1}, rollouts=2, steps=6, systems_per_chunk=8, frames=8
)


class Working(BaseException):
    """The work has begun: everything was legal."""


@dataclass(frozen=True)
class Line:
    """A command with legal values: `extra` is whose installation it needs."""

    words: tuple[str, ...]
    kind: type
    given: dict[str, str] = field(default_factory=dict)
    extra: str = "torch"

    def __str__(self) -> str:
        return " ".join((*self.words, *[v for k, v in self.given.items() if k in positionals(self.kind)][:1]))

    def argv(self, changed: dict[str, tuple[str, ...]]) -> list[str]:
        values = {name: (text,) for name, text in self.given.items()} | changed
        first = [text for name in positionals(self.kind) for text in values.get(name, ())]
        named = [[option(name), *texts] for name, texts in values.items() if name not in positionals(self.kind)]
        return [*self.words, *first, *(word for words in named for word in words)]


def positionals(kind: type) -> list[str]:
    """The parser's marker stands in the annotation that `Positional[...]` makes."""
    marker = Positional[int].__metadata__[0]  # type: ignore[attr-defined]
    hints = get_type_hints(kind, vars(sys.modules[kind.__module__]), include_extras=True)
    return [f.name for f in dataclasses.fields(kind) if marker in getattr(hints[f.name], "__metadata__", ())]


def valued(kind: type) -> list[str]:
    """Fields that take a value: all but flags."""
    hints = get_type_hints(kind, vars(sys.modules[kind.__module__]))
    return [f.name for f in dataclasses.fields(kind) if hints[f.name] is not bool]


def option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


LINES = [
    Line(("quickstart",), reproduce.Quickstart, {"preset": "smoke", "out": "runs", "workers": "1"}),
    Line(
        ("reproduce",),
        reproduce.Reproduce,
        {"target": "tab:dclean-full", "preset": "smoke", "out": "runs", "workers": "1"},
    ),
    Line(("scoreboard",), reproduce.Scoreboard, {"folder": "report"}),
    Line(("report",), reproduce.Report, {"folder": "report"}),
    Line(("bank", "list"), bank.List),
    Line(("bank", "build"), bank.Build, {"protocol": "tiny", "path": "new", "workers": "1"}),
    Line(("bank", "build"), bank.Build, {"protocol": "fhn-quick", "path": "new", "workers": "1"}),
    Line(("bank", "build"), bank.Build, {"protocol": "cophy-balls2", "path": "new", "workers": "1"}, "mujoco"),
    Line(("bank", "import"), bank.Import, {"data": "lerobot", "source": "lerobot", "path": "new"}, "av"),
    Line(
        ("bank", "import"),
        bank.Import,
        {"data": "cophy", "source": "published", "path": "new", "scene": "balls", "objects": "2", "workers": "1"},
        "mujoco",
    ),
    Line(
        ("bank", "import"),
        bank.Import,
        {"data": "rh20t", "source": "RH20T_cfg1", "path": "new", "size": "16", "workers": "1"},
        "imageio_ffmpeg",
    ),
    Line(("bank", "export"), bank.Export, {"data": "cophy", "bank": "balls", "path": "new", "workers": "1"}, "mujoco"),
    Line(("bank", "export"), bank.Export, {"data": "lerobot", "bank": "bank", "path": "new"}, "av"),
    Line(("bank", "export"), bank.Export, {"data": "lance", "bank": "bank", "path": "new"}, "lance"),
    Line(("bank", "info"), bank.Info, {"path": "bank"}),
    Line(("bank", "verify"), bank.Verify, {"path": "bank"}),
    Line(("relations", "audit"), relations.AuditRelation, {"bank": "bank", "relation": "same-system"}),
    Line(("relations", "list"), relations.ListRelations),
    Line(("pendulum", "train"), pendulum.TrainPendulum, {"preset": "smoke", "out": "new"}),
    Line(("pendulum", "evaluate"), pendulum.EvaluatePendulum, {"model": "model", "episodes": "2"}),
    Line(("overcooked", "partners", "train"), overcooked.TrainPartners, {"out": "new", "iterations": "4"}, "jaxmarl"),
    Line(("overcooked", "partners", "measure"), overcooked.MeasurePartners, {"out": "new"}, "jaxmarl"),
    Line(
        ("overcooked", "watch"),
        overcooked.WatchPartners,
        {"ego": "listens", "partner": "waits", "out": "new.gif"},
        "jaxmarl",
    ),
    Line(("benchmark",), Benchmark, {"what": "envs"}),
    Line(("doctor",), Doctor, {"settings": "d-clean", "presets": "smoke", "devices": "cpu"}),
]
HOSTILE = (
    *("", " ", "-1", "0", "1.5", "nan", "inf", "-inf", "1e999", "1" + "0" * 30, "2147483648", "None", "True", "0x10"),
    *("no such", "naïve→✓", "\udcff", "a" * 5000, "\n", "a\nb", "\x1b[31m", "$(x)", "*", "~", "--", "[1]", "{}", "'"),
    *(",", "0,0", "1,1,1", "-1,2", "a,b,", "99999999999,1", "nan,1", "--no-such", "d-clean", "cpu:9"),
    *("file.txt", "file.txt/x", "bank", "bank/table.npz", "no/such/folder", ".", "./", "link", "pipe", "report/x/../y"),
)
"""No path leads out of the folder of a trial: whatever is legal is done."""


def words(rng: random.Random) -> str:
    """A text of a few characters that mean something somewhere."""
    return "".join(rng.choice("0123456789,-+eE_:=\\ nNaif\t'\"é∞٣²") for _ in range(rng.randint(1, 6)))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with something of every kind that commands read."""
    made = tmp_path_factory.mktemp("hostile") / "template"
    build(TINY, made / "bank")
    shutil.copytree(ROOT / "docs/results/dclean-quick", made / "report" / "dclean-quick")
    (made / "file.txt").write_text("precious\n")
    (made / "link").symlink_to("nowhere")
    torch.manual_seed(0)
    layers: dict[str, Any] = {"encoder": (4,) * 3, "dynamics": (4,) * 4}
    small = CaDMConfig(observation_dim=3, action_dim=1, history=3, window=4, context=2, **layers)
    save(CaDM(small), made / "model")
    return made


def balls(path: Path) -> Bank | RecordedBank:
    pytest.importorskip("imageio_ffmpeg")
    from sprii_envs.cophy.bank import CoPhyProtocol, build_cophy

    return build_cophy(CoPhyProtocol("balls", 2, train=1, validation=1, test=1), path)


def published(path: Path) -> None:
    from sprii_envs.cophy.exporting import export_cophy

    export_cophy(balls(path.with_name("balls")), path, size=16)


def scenes(path: Path) -> None:
    from rh20t_tree import scene  # pyright: ignore[reportMissingImports]

    for user in range(4):
        scene(path, 1, user)


def lerobot(path: Path) -> None:
    from sprii_envs.banks.lerobot import export_lerobot

    export_lerobot(Bank.open(path.with_name("bank")), path)


MADE = {"balls": balls, "published": published, "RH20T_cfg1": scenes, "lerobot": lerobot}
"""What one line reads, in a template of its own."""


@pytest.fixture
def prepared(line: Line, template: Path, tmp_path: Path) -> Path:
    pytest.importorskip(line.extra)
    for name in MADE.keys() & {line.given.get("source"), line.given.get("bank")}:
        shutil.copytree(template, tmp_path / "with", symlinks=True)
        MADE[name](tmp_path / "with" / name)
        return tmp_path / "with"
    return template


@pytest.fixture
def stopped(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Working` in place of what takes hours; banks of D-Clean's smoke preset are the tiny one."""

    def begins(*_: Any, **__: Any) -> Any:
        raise Working

    import sprii_envs.banks

    for where in (
        "sprii_envs.banks.building._build_chunk",
        "sprii_envs.banks.building.pool",
        "sprii_envs.banks.generated.in_order",
        "sprii_envs.cophy.exporting.in_order",
        "sprii_envs.cophy.published.in_order",
        "sprii_envs.robots.rh20t.record_episodes",
        "sprii_train.settings.base.Setting.open_store",
        "sprii_train.settings.overcooked.PartnerSetting.open_store",
        "sprii_train.control.loop.collect",
        "sprii_train.evaluation.run._bar",
        "sprii_train.benchmarks.envs.measure",
        "sprii_train.benchmarks.steps._Child.try_one",
        "sprii_train.benchmarks.doctor._rate",
        "sprii_train.overcooked.selfplay.iterate",
        "sprii_train.overcooked.selfplay.collect",
        "sprii_train.overcooked.watch.step",
    ):
        if "overcooked" not in where or not is_absent("jaxmarl"):
            monkeypatch.setattr(where, begins)
    monkeypatch.setitem(sprii_envs.banks.PROTOCOLS, "tiny", TINY)
    monkeypatch.setattr(bank, "_bar", _silent)


class _silent:
    def __enter__(self) -> Callable[[int, int], None]:
        return lambda done, total: None

    def __exit__(self, *_: object) -> None: ...


def held(folder: Path) -> dict[str, tuple[int, int] | str]:
    """Names, sizes and times of all files."""
    return {
        str(p.relative_to(folder)): (p.lstat().st_size, p.lstat().st_mtime_ns) if p.is_file() else "folder"
        for p in folder.rglob("*")
    }


class Trial:
    """Commands in a copy of the template, put back whenever one has written."""

    def __init__(self, template: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        self.template, self.folder, self.monkeypatch, self.capsys = template, root / "work", monkeypatch, capsys
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.fresh()

    def fresh(self) -> None:
        os.chdir(self.template)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder, symlinks=True)
        os.mkfifo(self.folder / "pipe")
        os.chdir(self.folder)
        self.before = held(self.folder)

    def run(self, argv: list[str]) -> tuple[str, str]:
        """How it ended, and what it said."""

        def late(*_: object) -> None:
            raise TimeoutError(f"more than {SECONDS} seconds")

        assert not any(os.path.isabs(text) or ".." in text.removeprefix("report/x/..") for text in argv), argv
        self.monkeypatch.setattr(sys, "argv", ["sprii", *argv])
        signal.signal(signal.SIGALRM, late)
        signal.alarm(SECONDS)
        ended = "legal"
        try:
            main()
        except Working:
            pass
        except SystemExit as stop:
            ended = "legal" if stop.code in (0, None) else f"status {stop.code}"
        except BaseException as error:
            ended = f"{type(error).__name__}: {error!s:.200}"
        finally:
            signal.alarm(0)
        said = self.capsys.readouterr()
        return ended, said.err if ended != "legal" else ""

    def attempt(self, line: Line, changed: dict[str, tuple[str, ...]]) -> None:
        argv = line.argv(changed)
        ended, said = self.run(argv)
        self.counts["tried"] += 1
        self.counts["legal" if ended == "legal" else "refused"] += 1
        after = held(self.folder)
        if ended != "legal":
            for problem in self.problems(ended, said, changed, after):
                self.wrong.append(f"{' '.join(each if len(each) < 60 else '…' for each in argv)!r}: {problem}")
        if after != self.before:
            self.fresh()

    def problems(
        self, ended: str, said: str, changed: dict[str, tuple[str, ...]], after: dict[str, Any]
    ) -> Iterator[str]:
        if ended != "status 2":
            yield f"{ended}: {said[-300:]}"
            return
        if "Traceback" in said:
            yield f"a traceback: {said[-300:]}"
        told = [row for row in said.splitlines() if row.startswith("sprii:")]
        boxed = not told and "----------" in said  # the parser's
        if not boxed and (len(told) != 1 or said.splitlines()[-1] != told[0]):
            yield f"not one line: {said[-300:]!r}"
        if not any(self.names(name, each, said) for name, texts in changed.items() for each in texts or (".",)):
            yield f"names neither option nor value: {said.strip()[-300:]!r}"
        if after != self.before:
            new = {k for k in [*after, *self.before] if after.get(k) != self.before.get(k)}
            yield f"left {sorted(new)[:5]} and said {said.strip()[-200:]!r}"

    @staticmethod
    def names(name: str, text: str, said: str) -> bool:
        flat, path = " ".join(said.split()), Path(text)
        forms = {option(name), name.upper(), f"{name} is ", f"{name} {text}"[:60], f"'{name}'", f"command.{name}'"}
        forms |= {repr(text)[:60], repr(text)[1:-1][:60], " ".join(text.split())[:40]}  # quoted, escaped, in a line
        forms |= {f" {text}/", f"/{text}/", " ?/", "/?/", *map(str, (path, *path.parents[:-1]))}  # as a path
        forms |= {repr(part.strip()) for part in text.split(",")}  # one of several
        forms |= {"(required)"} if not text.strip(".") else set()
        if str(path) == "." or name in ("path", "out", "bank", "source"):
            forms |= {f"{path.absolute()}", f"{path.absolute().parent}/"}
        return any(
            f" {form} " in f" {flat} " if len(form) < 2 else form in flat or form in said for form in forms - {"", "."}
        )


@pytest.mark.parametrize("line", LINES, ids=str)
def test_a_command_refuses_in_one_line_and_leaves_nothing(line, prepared, stopped, tmp_path, monkeypatch, capsys):
    trial, rng = Trial(prepared, tmp_path, monkeypatch, capsys), random.Random(SEED)
    monkeypatch.chdir(trial.folder)
    assert trial.run(line.argv({})) == ("legal", "")
    trial.fresh()
    names = valued(line.kind)
    for name in names:
        for text in (*HOSTILE, *(words(rng) for _ in range(12))):
            trial.attempt(line, {name: (text,)})
        trial.attempt(line, {name: ()})
        if name not in positionals(line.kind):
            for text in rng.sample(HOSTILE, 4):
                trial.attempt(line, {name: (line.given.get(name, "1"), option(name), text)})
    for _ in range(20 if len(names) > 1 else 0):
        trial.attempt(line, {name: (rng.choice(HOSTILE),) for name in rng.sample(names, 2)})
    for stray in ("--no-such", "stray", "--"):
        trial.attempt(line, {"": (stray,)})
    with capsys.disabled():
        print(f"\nsprii {line}: {len(names)} options, {dict(trial.counts)}")
    assert not trial.wrong, f"{len(trial.wrong)} of {trial.counts['tried']}\n" + "\n".join(trial.wrong)
