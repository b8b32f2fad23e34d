"""Cells wherever they run: the same folders, results and resumption under every launcher."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from queued import Queue
from ranks import Ranks
from tiny import JEPA_CONFIG
from tiny_sources import cell_of
from toy_cells import GatedCell, ToyCell

from sprii_envs.banks import D_CLEAN as D_CLEAN_BANK
from sprii_envs.banks import Bank, BankError, build, simulate
from sprii_envs.banks.generated import build_generated
from sprii_envs.fields import BurgersProtocol
from sprii_envs.files import write_json
from sprii_train import distributed
from sprii_train.experiments.cells import Cell, folder_of, locked, work
from sprii_train.experiments.grid import run_grid
from sprii_train.experiments.launchers import named_launcher, remote
from sprii_train.experiments.launchers.local import Local
from sprii_train.experiments.launchers.ray import Ray, RayTasks
from sprii_train.experiments.measures import MEASURES
from sprii_train.fit import Interrupted, TrainConfig
from sprii_train.settings import D_CLEAN

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs on other machines find the cells of these tests."""
    places = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))


def starts(cell: ToyCell, root: Path) -> int:
    path = folder_of(cell, root) / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def steps(cell: ToyCell, root: Path) -> list[str]:
    path = folder_of(cell, root) / "steps"
    return path.read_text().split() if path.exists() else []


def until(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """submitit ends its jobs here by SIGINT, which whatever a shell runs in the background inherits as ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


# By name


@pytest.mark.parametrize("name", ["slurm", "ray"])
def test_a_missing_package_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = {"slurm": "submitit", "ray": "ray"}[name]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=f"the launcher {name} needs {package}: pip install {package}, or the extra"):
        run_grid([ToyCell("a")], tmp_path, launcher=name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["slurm", "ray"])
def test_a_broken_package_says_why(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = {"slurm": "submitit", "ray": "ray"}[name]
    monkeypatch.delitem(sys.modules, package, raising=False)
    (tmp_path / f"{package}.py").write_text("raise AttributeError('of another version')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=f"{package}, which is installed but fails to import .*: of another version"):
        named_launcher(name, workers=None, threads=1)


def test_an_unknown_launcher_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="unknown launcher 'pbs'; legal names: local, slurm, ray"):
        run_grid([ToyCell("a")], tmp_path, launcher="pbs")


# The loop over jobs, under a launcher that runs cells on demand


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_jobs_at_once_failures_and_results(tmp_path: Path, workers: int, capsys: pytest.CaptureFixture[str]):
    cells = [ToyCell("a"), ToyCell("bad", breaks_at=2), ToyCell("b"), ToyCell("c", 3.0)]
    queue = Queue(workers)
    with pytest.raises(ArithmeticError, match="planned failure of bad"):
        run_grid(cells, tmp_path, launcher=queue)
    assert queue.most == min(workers, 4)
    assert queue.stopped
    assert "bad failed, the others go on: planned failure of bad" in capsys.readouterr().err
    queue = Queue(workers)
    results = run_grid(cells, tmp_path, launcher=queue)
    assert [job.cell.title for job in queue.jobs] == ["bad"]  # nothing else is launched again
    assert [(r["arm"], r["value"], r["resumed_at"]) for r in results] == [
        ("a", 1.0, 0), ("bad", 1.0, 2), ("b", 1.0, 0), ("c", 3.0, 0),
    ]  # fmt: skip


def test_cells_of_one_folder_follow_each_other(tmp_path: Path):
    """Two measures of one source: the second would only wait for the lock of the first."""
    first, second, other = ToyCell("a"), Second("a"), ToyCell("b")
    queue = Queue(9)
    assert [r["arm"] for r in run_grid([first, second, other], tmp_path, launcher=queue)] == ["a", "again", "b"]
    assert [job.cell for job in queue.jobs] == [first, other, second]


class Second(ToyCell):
    """Another result in the folder of a `ToyCell`."""

    result = "second.json"  # type: ignore[assignment]

    def run(self, folder: Path, report: Any) -> dict[str, Any]:
        return {"arm": "again"}


def test_jobs_of_one_cell_meet_at_its_lock(tmp_path: Path):
    cell = ToyCell("twin")
    with locked(folder_of(cell, tmp_path) / ".lock"):
        thread = threading.Thread(target=work, args=(cell, tmp_path, lambda *_: None))
        thread.start()
        time.sleep(0.2)
        assert starts(cell, tmp_path) == 0
        write_json(folder_of(cell, tmp_path) / cell.result, {"arm": "someone else's"})
    thread.join(20)
    assert starts(cell, tmp_path) == 0  # its result was there when the lock was free
    assert run_grid([cell], tmp_path) == [{"arm": "someone else's"}]


# Killed and repeated

GRID = """
from pathlib import Path
from test_launchers import LAUNCHERS
from toy_cells import GatedCell
from sprii_train.experiments.grid import run_grid
if __name__ == "__main__":
    cells = [GatedCell(name, gate={gate!r}) for name in ("gated", "other")]
    run_grid(cells, Path({root!r}), launcher=LAUNCHERS[{name!r}]())
"""


def slurm_here(**parameters: Any) -> Any:
    from sprii_train.experiments.launchers.slurm import Slurm

    return Slurm(cluster="local", every=0.05, **parameters)


LAUNCHERS: dict[str, Callable[[], Any]] = {"local": lambda: Local(2), "slurm": slurm_here}


@pytest.mark.usefixtures("interruptible")  # else what this starts waits a minute for jobs that ignore SIGINT
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("local", signal.SIGKILL),
        ("slurm", signal.SIGTERM),
        pytest.param("local", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("slurm", signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_a_killed_grid_resumes(tmp_path: Path, name: str, number: signal.Signals):
    if name == "slurm":
        pytest.importorskip("submitit")
    gate, root = tmp_path / "gate", tmp_path / "cells"
    cells = [GatedCell("gated", gate=str(gate)), GatedCell("other", gate=str(gate))]
    script = tmp_path / "script.py"
    script.write_text(GRID.format(gate=str(gate), root=str(root), name=name))
    with open(tmp_path / "said", "w") as output:  # a file, because orphans keep a pipe open
        process = subprocess.Popen([sys.executable, str(script)], stderr=output)
    until(lambda: all(steps(cell, root) for cell in cells) or process.poll() is not None)
    process.send_signal(number)
    assert process.wait(120) != 0
    said = (tmp_path / "said").read_text()
    assert [steps(cell, root) for cell in cells] == [["1"], ["1"]], said
    if number == signal.SIGTERM:
        assert "Interrupted: stopped; the same command resumes" in said
    assert not list(root.rglob("done.json"))
    gate.touch()  # lets orphans go on: a local one sees that its parent has died, a job of a cluster ends its cell
    results = run_grid(cells, root, launcher=Queue(2))
    assert [r["arm"] for r in results] == ["gated", "other"]
    assert all(steps(cell, root) == ["1", "2", "3", "4"] for cell in cells)


# Slurm: submitit's own executors stand for the cluster


def test_jobs_of_submitit(tmp_path: Path):
    pytest.importorskip("submitit")
    good, bad = ToyCell("good", 1.5), ToyCell("bad", breaks_at=2)
    with pytest.raises(ArithmeticError, match="planned failure of bad"):
        run_grid([good, bad], tmp_path, launcher=slurm_here())
    results = run_grid([good, bad], tmp_path, launcher=slurm_here())
    assert [r["resumed_at"] for r in results] == [0, 2]
    assert starts(good, tmp_path) == 1
    assert remote.told(good, tmp_path) == (4, 0.5)


def test_a_job_that_is_preempted_is_queued_again(tmp_path: Path):
    pytest.importorskip("submitit")
    cell = GatedCell("gated", gate=str(tmp_path / "gate"))
    launcher = slurm_here()
    (job,) = launcher.launch([cell], tmp_path)
    until(lambda: steps(cell, tmp_path) == ["1"])
    subprocess.run(["pkill", "-USR2", "-P", job.job.job_id], check=True)  # what Slurm sends before the time is up
    until(lambda: starts(cell, tmp_path) == 2)
    (tmp_path / "gate").touch()
    until(job.done)
    assert job.error() is None
    assert steps(cell, tmp_path) == ["1", "2", "3", "4"]


@pytest.mark.usefixtures("interruptible")
def test_a_job_that_vanishes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    submitit = pytest.importorskip("submitit")
    monkeypatch.setattr(submitit.core.core.Job, "_results_timeout_s", 0)
    cell = GatedCell("gated", gate=str(tmp_path / "gate"))
    launcher = slurm_here()
    (job,) = launcher.launch([cell], tmp_path)
    until(lambda: steps(cell, tmp_path) == ["1"])
    launcher.stop()
    until(job.done)  # the process that was told to end may take a moment
    assert isinstance(job.error(), ChildProcessError)
    assert "gated: job" in str(job.error())


def test_no_slurm_here(tmp_path: Path):
    pytest.importorskip("submitit")
    from sprii_train.experiments.launchers.slurm import Slurm

    with pytest.raises(ValueError, match="the launcher slurm found no Slurm here"):
        run_grid([ToyCell("a")], tmp_path, launcher=Slurm(cluster="slurm"))


def test_parameters_of_jobs():
    pytest.importorskip("submitit")
    from sprii_train.experiments.launchers.slurm import Slurm

    launcher = Slurm(3, 2, slurm_partition="gpu", timeout_min=10)
    assert (launcher.workers, Slurm().workers) == (3, sys.maxsize)
    assert launcher.parameters == {"timeout_min": 10, "cpus_per_task": 2, "name": "sprii", "slurm_partition": "gpu"}


# Ray: a stand-in of the few functions that are used, on threads


class RayStandIn:
    """`ray.remote`, `put`, `wait`, `get` and `cancel` of a cluster with two CPUs."""

    def __init__(self) -> None:
        self.pool, self.asked, self.cancelled = ThreadPoolExecutor(2), [], []
        self.exceptions = SimpleNamespace(RayError=CancelledError)
        self.up = True

    def is_initialized(self) -> bool:
        return False

    def init(self, address: str, **_: Any) -> None:
        if not self.up:
            raise ConnectionError(f"no cluster at {address}")

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        self.asked.append(options)

        def task(function: Callable[..., Any]) -> Any:
            def submit(*arguments: Any) -> Future[Any]:
                return self.pool.submit(function, *arguments)

            return SimpleNamespace(options=lambda name: SimpleNamespace(remote=submit), remote=submit)

        return task

    def put(self, value: Any) -> Any:
        return pickle.loads(pickle.dumps(value))

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def wait(self, references: list[Future[Any]], num_returns: int = 1, timeout: float = 0.0) -> tuple[list, list]:
        done, pending = wait(references, timeout, "ALL_COMPLETED" if num_returns > 1 else "FIRST_COMPLETED")
        return list(done), list(pending)

    def get(self, reference: Future[Any]) -> Any:
        return reference.result()

    def cancel(self, reference: Future[Any]) -> None:
        self.cancelled.append(reference)
        reference.cancel()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayStandIn]:
    stand_in = RayStandIn()
    monkeypatch.setitem(sys.modules, "ray", stand_in)  # type: ignore[arg-type]
    yield stand_in
    stand_in.pool.shutdown(cancel_futures=True)


def test_tasks_of_ray(tmp_path: Path, ray: RayStandIn):
    good, bad = ToyCell("good", 1.5), ToyCell("bad", breaks_at=2)
    with pytest.raises(ArithmeticError, match="planned failure of bad"):
        run_grid([good, bad], tmp_path, launcher="ray")
    assert [r["resumed_at"] for r in run_grid([good, bad], tmp_path, launcher=Ray(every=0.05, num_gpus=1))] == [0, 2]
    assert ray.asked == [{"num_cpus": 1}, {"num_cpus": 1, "num_gpus": 1}]


@pytest.mark.slow
def test_tasks_of_a_cluster_of_this_machine(tmp_path: Path):
    """Ray itself, where it is installed."""
    cluster = pytest.importorskip("ray")
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    cluster.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": paths}})
    try:
        good, bad = ToyCell("good", 1.5), ToyCell("bad", breaks_at=2)
        with pytest.raises(ArithmeticError, match="planned failure of bad"):
            run_grid([good, bad], tmp_path, launcher="ray")
        assert [r["resumed_at"] for r in run_grid([good, bad], tmp_path, launcher="ray")] == [0, 2]
    finally:
        cluster.shutdown()


def test_an_interrupted_grid_cancels_its_tasks(tmp_path: Path, ray: RayStandIn):
    cells = [GatedCell(name, gate=str(tmp_path / "gate")) for name in "abc"]

    class InterruptedRay(Ray):
        def wait(self) -> None:
            super().wait()
            if all(steps(cell, tmp_path) for cell in cells[:2]):
                threading.Timer(0.3, (tmp_path / "gate").touch).start()  # the stand-in cannot interrupt what runs
                raise KeyboardInterrupt

    launcher = InterruptedRay(every=0.05)
    with pytest.raises(Interrupted, match="the same command resumes"):
        run_grid(cells, tmp_path, launcher=launcher)
    assert len(ray.cancelled) == 3
    assert starts(cells[2], tmp_path) == 0
    assert isinstance(launcher._tasks[2].error(), ChildProcessError)
    assert [r["arm"] for r in run_grid(cells, tmp_path, launcher=Ray(every=0.05))] == list("abc")


# Banks as tasks of Ray

SMALL = D_CLEAN_BANK.replace(systems={"train": 30, "test": 10}, rollouts=4, systems_per_chunk=5)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_banks_built_as_tasks_have_the_same_bytes(tmp_path: Path, ray: RayStandIn):
    assert len(simulate.chunks(SMALL)) > 4  # more than are submitted at once
    build(SMALL, tmp_path / "here")
    told: list[int] = []
    build(SMALL, tmp_path / "there", elsewhere=RayTasks(), progress=lambda done, _: told.append(done))
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0, 160)
    field = replace(BurgersProtocol(), cells=40, points=5, frames=3, train=3, viscous_ood=1, inviscid_ood=1)
    build_generated(field, tmp_path / "field")
    build_generated(field, tmp_path / "field there", elsewhere=RayTasks(num_gpus=1))
    assert contents(tmp_path / "field there") == contents(tmp_path / "field")
    assert ray.asked == [{"num_cpus": 1}, {"num_cpus": 1, "num_gpus": 1}]


def test_a_bank_whose_task_is_lost_goes_on(tmp_path: Path, ray: RayStandIn):
    build(SMALL, tmp_path / "here")
    given = ray.get
    asked: list[Any] = []

    def get(reference: Any) -> Any:
        asked.append(reference)
        if len(asked) == 3:
            raise CancelledError("its machine has died")
        return given(reference)

    ray.get = get  # type: ignore[method-assign]
    with pytest.raises(
        BankError, match=r"a build worker was killed .* finished chunks are kept, the same call resumes"
    ):
        build(SMALL, tmp_path / "there", elsewhere=RayTasks())
    assert ray.cancelled
    assert len((tmp_path / "there.partial" / "journal").read_text().splitlines()) == 2
    build(SMALL, tmp_path / "there", elsewhere=RayTasks())
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_what_a_task_raises_is_raised(ray: RayStandIn):
    results = RayTasks()(_inverse, [2, 4, 0, 1])
    assert [next(results), next(results)] == [0.5, 0.25]
    with pytest.raises(ZeroDivisionError):
        next(results)


def _inverse(value: int) -> float:
    return 1 / value


@pytest.mark.slow
def test_banks_of_a_cluster_of_this_machine(tmp_path: Path):
    """Ray itself, where it is installed."""
    cluster = pytest.importorskip("ray")
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    cluster.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": paths}})
    try:
        build(SMALL, tmp_path / "here")
        build(SMALL, tmp_path / "there", elsewhere=RayTasks())
        assert contents(tmp_path / "there") == contents(tmp_path / "here")
    finally:
        cluster.shutdown()


def test_no_cluster_of_ray(tmp_path: Path, ray: RayStandIn):
    ray.up = False
    with pytest.raises(ValueError, match="the launcher ray found no cluster"):
        run_grid([ToyCell("a")], tmp_path, launcher="ray")


# Ranks: every cell over all of them


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with Ranks(tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks


def grid_over_ranks(cells: list[Cell], root: Path, launcher: str = "local") -> list[dict[str, Any]] | str:
    try:
        return run_grid(cells, root, launcher=launcher)
    except (ArithmeticError, ValueError) as error:
        return str(error)


def test_cells_run_over_all_ranks(bank: Bank, tmp_path: Path, ranks: Ranks):
    config, short = replace(JEPA_CONFIG, dropout=0.3), replace(D_CLEAN, history=JEPA_CONFIG.history)
    train = TrainConfig(steps=3, pairs=8, warmup=1, checkpoint_every=2, log_every=1, precision="fp32")
    cells = [
        cell_of(bank, "d-clean", arm, setting=short, learner=config, train=train, measure=MEASURES["held-out"])
        for arm in ("align-cross", "native")
    ]
    alone = run_grid(cells, tmp_path / "one", launcher=Queue(1))
    first, second = ranks(grid_over_ranks, cells, tmp_path / "two")
    assert first == second
    for row, expected in zip(first, alone, strict=True):
        measures = {k: v for k, v in expected.items() if isinstance(v, float) and k != "train_seconds"}
        assert {k: row[k] for k in measures} == pytest.approx(measures, rel=2e-2, abs=1e-4)
    assert ranks(grid_over_ranks, cells, tmp_path / "two", "slurm") == [first, first]  # nothing is left to launch
    (refused, _) = ranks(grid_over_ranks, cells, tmp_path / "three", "slurm")
    assert "legal: the launcher local" in refused


def test_a_failing_cell_fails_on_all_ranks_and_the_others_go_on(tmp_path: Path, ranks: Ranks):
    cells: list[Cell] = [Fails("bad"), Rank("good")]
    assert ranks(grid_over_ranks, cells, tmp_path) == ["planned"] * 2
    assert run_grid([cells[1]], tmp_path) == [{"rank": 0, "world": 2}]


class Rank(ToyCell):
    """Says which rank's result is kept."""

    def run(self, folder: Path, report: Any) -> dict[str, Any]:
        return {"rank": distributed.rank(), "world": distributed.world()}


class Fails(ToyCell):
    """Fails wherever it runs."""

    def run(self, folder: Path, report: Any) -> dict[str, Any]:
        raise ArithmeticError("planned")
