"""The command line, run as a user runs it."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import pytest

import sprii_envs  # noqa: F401  (registers the environments)
import sprii_train.experiments.reproduce as reproducing
from sprii_envs.dependencies import is_absent
from sprii_train.cli import main
from sprii_train.fit import Interrupted

ROOT = Path(__file__).parents[2]
SPRII = [sys.executable, "-m", "sprii_train"]


def sprii(*arguments, **kwargs):
    return subprocess.run([*SPRII, *map(str, arguments)], capture_output=True, text=True, timeout=300, **kwargs)


def in_process(monkeypatch, capsys, *arguments):
    """Exit status, stdout and stderr of the command, run in this process."""
    monkeypatch.setattr(sys, "argv", ["sprii", *map(str, arguments)])
    status = 0
    try:
        main()
    except SystemExit as stop:
        status = stop.code
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    out = tmp_path_factory.mktemp("smoke") / "run"
    done = sprii("quickstart", "--preset", "smoke", "--out", out)
    assert done.returncode == 0, done.stderr
    return out, done


def scores(out):
    """Rows without the time that they took."""
    rows = json.loads((out / "results.json").read_text())["rows"]
    return [{k: v for k, v in row.items() if k != "train_seconds"} for row in rows]


def test_quickstart_leaves_a_report_rows_and_pictures(smoke):
    out, done = smoke
    results = json.loads((out / "results.json").read_text())
    assert [r["arm"] for r in results["rows"]] == ["structure", "same-rollout", "align-cross", "align-random"]
    assert {"arm", "seed", "steps", "drag_r2", "between_within", "self_h16", "correct_h16", "gap"} <= set(
        results["rows"][0]
    )
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)  # self-contained
    for picture in ("summary", "atlas", "curves"):
        assert (out / f"{picture}.png").read_bytes().startswith(b"\x89PNG")
    assert "Structure" in done.stdout
    assert "report.html" in done.stdout
    assert all(verdict["verdict"] for verdict in results["verdicts"])


def test_repeating_the_command_trains_nothing_again(smoke, monkeypatch, capsys):
    out, _ = smoke
    before = {p: p.stat().st_mtime_ns for p in out.glob("cells/*/held-out-test.json")}
    assert len(before) == 4
    assert in_process(monkeypatch, capsys, "quickstart", "--preset", "smoke", "--out", out)[0] == 0
    assert before == {p: p.stat().st_mtime_ns for p in out.glob("cells/*/held-out-test.json")}


def test_the_report_is_of_the_arms_that_are_done_while_others_run(smoke, monkeypatch, capsys, tmp_path):
    """Stopped where the grid begins, one arm to go: a row says so, nothing is judged, and the pictures are there."""
    out = tmp_path / "filling"
    shutil.copytree(smoke[0], out)
    for file in [*out.glob("report*"), *out.glob("results*"), *out.glob("*.png")]:
        file.unlink()
    (left,) = out.glob("cells/*align-random-seed0*/held-out-test.json")
    left.unlink()

    def stopped(cells, root, **_):
        raise Interrupted("stopped; the same command resumes")

    monkeypatch.setattr(reproducing, "run_grid", stopped)
    assert in_process(monkeypatch, capsys, "quickstart", "--preset", "smoke", "--out", out)[0] == 130
    results = json.loads((out / "results.json").read_text())
    assert [row["arm"] for row in results["rows"]] == ["structure", "same-rollout", "align-cross"]
    first, columns = results["tables"][0]["rows"], len(results["tables"][0]["columns"])
    assert first[:-1] == json.loads((smoke[0] / "results.json").read_text())["tables"][0]["rows"][:-2]
    assert first[-1] == [left.parent.name.rsplit("-", 1)[0], *["still running"] * (columns - 1)]
    assert [verdict["verdict"] for verdict in results["verdicts"]] == ["not tested"]
    assert "still running" in (out / "report.html").read_text()
    assert (out / "atlas.png").stat().st_size > 1000


ARMS = ("structure", "align-cross")
"""Of the quickstart, one after the other, so that the run cannot end before it is stopped."""


@pytest.fixture
def started(smoke, tmp_path):
    """The command that trains `ARMS` on a copy of the quickstart's bank, its folder, and a process of it at work."""
    out = tmp_path / "stopped"
    shutil.copytree(smoke[0] / "banks", out / "banks")
    command = [*SPRII, "reproduce", "tab:dclean-full", "--preset", "smoke", "--arms", ",".join(ARMS)]
    command += ["--workers", "1", "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while not list(out.glob("cells/*/checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(out.glob("cells/*/checkpoints/step-*"))
    assert len(list(out.glob("cells/*/held-out-test.json"))) < len(ARMS), "the run was over before it was stopped"
    return command, out, process


def descendants(pid):
    children = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(p for child in children for p in descendants(child))]


def end(process, number):
    """What the command said when the signal ended it; asserts that its workers end too (Linux)."""
    workers = descendants(process.pid)
    assert workers
    process.send_signal(number)
    _, said = process.communicate(timeout=120)  # a worker that lives on would hold stderr open
    assert process.returncode != 0
    deadline = time.monotonic() + 120
    while (alive := [p for p in workers if Path(f"/proc/{p}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive
    return said


on_linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="lists processes through /proc")


@on_linux
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_no_process_outlives_the_command(number, started):
    said = end(started[2], number)
    assert "the same command resumes" in said
    assert "Traceback" not in said


@on_linux
def test_kill_9_during_training_leaves_no_process_and_the_same_command_gives_the_same_numbers(smoke, started):
    command, out, process = started
    end(process, signal.SIGKILL)
    resumed = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert resumed.returncode == 0, resumed.stderr
    expected = [row for row in scores(smoke[0]) if row["arm"] in ARMS]
    assert len(expected) == len(ARMS)
    assert scores(out / "tab-dclean-full") == expected


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("reproduce", "dclean", "--seeds", "0,1,1"), "names seed 1 twice"),
        (("reproduce", "dclean", "--arms", "align,magic"), "unknown arm 'magic'; legal names: native, structure"),
        (("reproduce", "dclean", "--arms", "align,align"), "twice"),
        (("quickstart", "--workers", "0"), "--workers is 0"),
        (
            ("bank", "build", "d-clea", "x"),
            "unknown bank 'd-clea'; did you mean 'd-clean'? legal names: d-clean, spring",
        ),
        (
            ("bank", "build", "d-clean", "x", "--plugin", "nowhere"),
            "--plugin nowhere: No module named 'nowhere'; legal",
        ),
        (("bank", "info", "nowhere"), "bank.json does not exist"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(arguments, named, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, _, err = in_process(monkeypatch, capsys, *arguments)
    assert status == 2
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["sprii", *{arguments!r}]
from sprii_train.cli import main
main()
"""
EXTRAS = ("torch", "safetensors", "sklearn", "scipy", "matplotlib", "jinja2", "tensorboard")


def without(names, *arguments):
    """The command where the packages are not installed."""
    code = BLOCKED.format(names=names, arguments=tuple(map(str, arguments)))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "extras"),
    [
        (("quickstart",), "train"),
        (("reproduce", "--list"), "train"),
        (("reproduce", "dclean"), "train"),
        (("pendulum", "train"), "train"),
        (("pendulum", "evaluate", "model"), "train"),
        (("overcooked", "partners", "train"), "train,overcooked"),
        (("overcooked", "watch", "--ego", "a", "--partner", "b"), "train,overcooked"),
    ],
)
def test_a_command_without_its_extra_is_one_line(arguments, extras):
    done = without((*EXTRAS, "fcntl"), *arguments)
    assert done.returncode == 2
    names = ", ".join(EXTRAS).replace("sklearn", "scikit-learn")
    assert done.stderr == f"sprii: {arguments[0]} needs {names}: pip install 'sprii[{extras}]'\n"
    assert not done.stdout


@pytest.mark.parametrize(
    ("arguments", "now"),
    [
        (("pendulum", "compare"), "tab:pendulum-r7, and its --rows are --arms"),
        (("overcooked", "compare"), "tab:overcooked-complete, with its --partners"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--help",), ("--preset", "smoke", "--rows", "cadm"), ("--workers", "0", "x")])
def test_a_command_that_was_replaced_says_by_what(arguments, now, options, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, out, err = in_process(monkeypatch, capsys, *arguments, *options)
    assert (status, out) == (2, "")
    assert err == f"sprii: sprii {' '.join(arguments)} is now sprii reproduce {now}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [("bank", "list"), ("relations", "list"), ("--help",)])
def test_what_needs_no_training_runs_without_the_extra(arguments):
    done = without((*EXTRAS, "jax", "jaxmarl", "mujoco", "pygame", "minari", "fcntl"), *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_a_setting_without_its_extra_is_one_line(tmp_path):
    done = without(("jax", "jaxmarl"), "reproduce", "tab:overcooked-complete", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr == "sprii: Overcooked needs jax, jaxmarl: pip install 'sprii[overcooked]'\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_every_module_imports_where_there_are_no_locks():
    """As on Windows, which has no `fcntl`."""
    code = """
import importlib, pkgutil, sys
sys.modules["fcntl"] = None
import sprii_train
for module in pkgutil.walk_packages(sprii_train.__path__, "sprii_train."):
    if not module.name.startswith(("sprii_train.plugins", "sprii_train.overcooked", "sprii_train.__main__")):
        importlib.import_module(module.name)
        print(module.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 100


@pytest.mark.parametrize("names", [("tyro",), ("rich",), ("tyro", "rich")])
def test_the_command_line_without_its_own_packages_is_one_line(names):
    done = without(names, "bank", "list")
    assert done.returncode == 2
    packages = "tyro rich (for all commands: 'sprii[train]')"
    assert done.stderr == f"sprii: the command line needs {', '.join(names)}: pip install {packages}\n"


def test_a_broken_package_is_one_line(tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.12: cannot open\\n shared object file')")
    done = sprii("quickstart", env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith("sprii: quickstart needs torch, which is installed but fails to import")
    assert said.endswith("OSError: libcudart.so.12: cannot open shared object file")


@pytest.mark.parametrize("columns", ["abc", "0", "1", "²", "5", "9" * 12])
def test_any_width_of_the_terminal_is_usable(columns):
    for arguments in (("--help",), ("bank", "list")):
        done = sprii(*arguments, env=os.environ | {"COLUMNS": columns, "LINES": columns})
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


@pytest.mark.parametrize("huge", [2**32, 2**64, 10**30])
@pytest.mark.parametrize(
    "arguments",
    [
        ("quickstart", "--seeds"),
        ("quickstart", "--seeds", "0,"),
        ("quickstart", "--workers"),
        ("reproduce", "dclean", "--seeds"),
        ("reproduce", "dclean", "--steps"),
        ("reproduce", "tab:refinement-full", "--seeds"),
        ("reproduce", "tab:refinement-full", "--steps"),
        ("reproduce", "tab:refinement-full", "--workers"),
        ("bank", "build", "d-clean", "bank", "--rollouts"),
        ("bank", "build", "d-clean", "bank", "--frames"),
        ("bank", "build", "d-clean", "bank", "--workers"),
        ("pendulum", "train", "--seed"),
        ("pendulum", "train", "--iterations"),
        ("pendulum", "evaluate", "model", "--horizon"),
        ("pendulum", "evaluate", "model", "--episodes"),
        ("pendulum", "evaluate", "model", "--systems"),
        ("pendulum", "evaluate", "model", "--seed"),
        ("benchmark", "envs", "--repeats"),
        ("benchmark", "envs", "--seconds"),
        ("benchmark", "envs", "--n"),
        ("overcooked", "partners", "train", "--seeds"),
        ("overcooked", "partners", "train", "--held-out"),
        ("overcooked", "partners", "train", "--iterations"),
        ("overcooked", "partners", "train", "--checkpoints"),
        ("overcooked", "partners", "train", "--max-steps"),
        ("overcooked", "partners", "train", "--view"),
        ("overcooked", "partners", "measure", "--episodes"),
        ("overcooked", "watch", "--ego", "a", "--partner", "b", "--seed"),
    ],
)
def test_every_number_has_an_upper_end(arguments, huge, monkeypatch, capsys, tmp_path):
    if arguments[0] == "overcooked" and is_absent("jaxmarl"):
        pytest.skip("needs jaxmarl")
    monkeypatch.chdir(tmp_path)
    value = f"{arguments[-1]}{huge}" if arguments[-1].endswith(",") else huge
    *options, last = arguments
    status, out, err = in_process(monkeypatch, capsys, *options, *([value] if last.endswith(",") else [last, value]))
    assert status == 2
    (said,) = err.strip().splitlines()
    assert str(huge) in said or str(float(huge)) in said
    assert "legal" in said or "must be" in said
    assert not out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "value"),
    [("held-out", "1e400"), ("held-out", "nan"), ("checkpoints", "nan"), ("checkpoints", "7"), ("held-out", "-1,2")],
)
def test_numbers_of_partners_are_numbers(option, value, monkeypatch, capsys, tmp_path):
    if is_absent("jaxmarl"):
        pytest.skip("needs jaxmarl")
    monkeypatch.chdir(tmp_path)
    status, _, err = in_process(monkeypatch, capsys, "overcooked", "partners", "train", f"--{option}", value)
    assert status == 2
    (said,) = err.strip().splitlines()
    assert "legal: " in said
    assert value.partition(",")[0] in said
    assert f"--{option}" in said


def test_bank_list_names_what_can_be_built(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    from sprii_envs.banks import PROTOCOLS
    from sprii_envs.cophy.protocols import PROTOCOLS as COPHY
    from sprii_envs.fields.bank import PROTOCOLS as FIELDS
    from sprii_envs.robots.arms import PROTOCOLS as ARMS
    from sprii_envs.robots.tactile import PROTOCOLS as GRASPS

    lines = in_process(monkeypatch, capsys, "bank", "list")[1].splitlines()
    assert [line.split()[0] for line in lines[1:]] == [*PROTOCOLS, *FIELDS, *COPHY, *ARMS, *GRASPS]
    assert [line for line in lines if line.startswith("d-clean ") and "11,200" in line and line.endswith("0.02 GB")]
    (told,) = [line for line in lines if line.startswith("rh20t (stand-in) ")]
    assert all(counted in told for counted in ("74 train", "25 validation", "25 test"))


def test_bank_build_with_changes(tmp_path):
    done = sprii("bank", "build", "d-clean", tmp_path / "a", "--frames", 8, "--rollouts", 1, "--seed", 5)
    assert "frames" in done.stdout
    assert "1,400 of 64" in done.stdout
    assert "(seed 5)" in done.stdout
    done = sprii("bank", "build", "d-clean", tmp_path / "a", "--no-frames", "--rollouts", 1, "--seed", 5)
    assert done.returncode == 2
    assert "bank of another protocol (frames: 8, not None)" in done.stderr
    done = sprii("bank", "build", "d-clean", tmp_path / "a", "--no-frames", "--rollouts", 1, "--overwrite")
    assert "frames" not in done.stdout
    assert done.returncode == 0
    assert sprii("bank", "build", "d-clean", tmp_path / "b", "--no-frames", "--frames", 8).returncode == 2


def test_banks_of_fields_are_built_and_imported(tmp_path, monkeypatch, capsys):
    from dataclasses import replace

    from sprii_envs.fields import bank

    small = replace(bank.BurgersProtocol(), cells=40, points=5, frames=3, train=1, viscous_ood=1, inviscid_ood=1)
    monkeypatch.setitem(bank.PROTOCOLS, "burgers", small)
    status, out, _ = in_process(monkeypatch, capsys, "bank", "build", "burgers", tmp_path / "a", "--workers", 1)
    assert not status
    assert "inviscid_ood 1 episode of 1 system" in out
    status, _, err = in_process(monkeypatch, capsys, "bank", "build", "burgers", tmp_path / "a", "--seed", 2)
    assert status == 2
    assert "its seed is 0, not 2" in err
    status, _, err = in_process(monkeypatch, capsys, "bank", "build", "burgers", tmp_path / "a", "--rollouts", 2)
    assert "--rollouts is not of burgers; legal: --seed and --workers" in err
    status, _, err = in_process(monkeypatch, capsys, "bank", "import", "burgers", tmp_path, tmp_path / "b")
    assert status == 2
    assert "train is missing" in err


def test_banks_of_cophy_are_built_exported_and_imported(tmp_path, monkeypatch, capsys):
    pytest.importorskip("mujoco")
    pytest.importorskip("imageio_ffmpeg")

    def bank(*arguments):
        return in_process(monkeypatch, capsys, "bank", *arguments)

    built, out, back, one = tmp_path / "built", tmp_path / "out", tmp_path / "back", ("--workers", 1)
    status, said, _ = bank("build", "cophy-collision", built, "--pairs", 2, 1, 1, "--seed", 3, *one)
    assert not status
    for line in ("train       2 episodes of 2 systems", "mass_0…3, friction_0…3", "cd_boxes    4×4 float32"):
        assert line in said
    said = bank("info", built)[1]
    assert re.search(r"of the first 4 pairs: moved_apart \d.*, ab_hits [01]\.\d", said)
    status, said, _ = bank("export", "cophy", built, out, "--size", 32, *one)
    assert not status
    assert said.endswith(f"{out}: 4 examples of {built}\n")
    assert (out / "collisionCF" / "3" / "cd" / "rgb.mp4").is_file()
    (out / "collisionCF" / "1" / "confounders.npy").unlink()
    imported = ("import", "cophy", out, back, "--scene", "collision", "--size", 16, *one)
    status, _, err = bank(*imported)
    assert status == 2
    assert "1/confounders.npy is missing; damaged='drop' (--drop) leaves such examples out" in err
    status, said, _ = bank(*imported, "--drop")
    assert not status
    left = r"left out +1 example: 1 damaged \(info --dropped lists them\), such as .*confounders.npy is missing"
    assert re.search(left, said)
    said = bank("info", back, "--dropped")[1]
    assert re.search(left, said)
    assert re.search(r"\n +1: .*confounders.npy is missing", said)
    status, _, err = bank("export", "cophy", built, built, *one)
    assert status == 2
    assert "built holds a bank" in err
    assert (
        "objects is 7; legal: " in bank("import", "cophy", out, tmp_path / "no", "--scene", "balls", "--objects", 7)[2]
    )
    assert "ab_frames   16×16×3 uint8" in said
    assert "3 of 15 to 15 observations" in said


def test_a_bank_of_the_stand_in_for_rh20t_says_so(tmp_path, monkeypatch, capsys):
    from sprii_envs.robots import arms

    monkeypatch.setitem(arms.PROTOCOLS, "rh20t", arms.ArmsProtocol(tasks=5, each=4, size=16))
    status, said, _ = in_process(monkeypatch, capsys, "bank", "build", "rh20t", tmp_path / "a", "--workers", 1)
    assert not status
    for line in (
        "stand-in    simulated in place of recordings of rh20t",
        "frames      16×16 uint8",
        "force       6 float32",
    ):
        assert line in said


def test_scenes_of_rh20t_are_imported_and_what_is_left_out_is_told(tmp_path, monkeypatch, capsys):
    pytest.importorskip("imageio_ffmpeg")
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "envs" / "robots")
    from rh20t_tree import scene

    root = tmp_path / "RH20T_cfg1"
    for user in range(4):
        scene(root, 1, user)
    scene(root, 1, 4, rating=0)

    def bank(*arguments):
        return in_process(monkeypatch, capsys, "bank", *arguments)

    options = ("--size", 16, "--joints", "--seed", 3, "--workers", 1)
    status, said, _ = bank("import", "rh20t", root, tmp_path / "bank", *options)
    assert not status
    for line in (
        "1 example: 1 rating (info --dropped lists them), such as its rating is 0",
        "1 tasks: 1 train",
        "joint       7 float32",
    ):
        assert line in said
    said = bank("info", tmp_path / "bank", "--dropped")[1]
    assert "task_0001_user_0004_scene_0001_cfg_0001: its rating is 0, wanted at least 2" in said


def test_banks_go_to_lerobot_and_lance_and_back(tmp_path, monkeypatch, capsys):
    for package in ("pyarrow", "av", "lance"):
        pytest.importorskip(package)
    import numpy as np

    from sprii_envs.banks import D_CLEAN, Recording, StreamSpec, build, open_store

    def bank(*arguments):
        status, said, err = in_process(monkeypatch, capsys, "bank", *arguments)
        assert not status, err
        return said

    built = build(D_CLEAN.replace(systems={"train": 3, "validation": 1}, rollouts=2, frames=16), tmp_path / "bank")
    said = bank("export", "lerobot", built.path, tmp_path / "data", "--task", "drag", "--fps", 10, "--exact")
    assert said.endswith(f"{tmp_path / 'data'}: 8 episodes of {built.path}\n")
    (tmp_path / "own.csv").write_text("episode,system,split\n5,left,train\n2,right,final\n")
    said = bank(
        "import", "lerobot", tmp_path / "data", tmp_path / "back", "--labels", tmp_path / "own.csv", "--sealed", "final"
    )
    assert "final                     1 episode of 1 system (sealed)" in said
    assert "observation.images.frames 16×16 uint8" in said
    back = open_store(tmp_path / "back")
    assert (back.windows("observation.state", [5], [0], 9) == built.windows("states", [5], [0], 9)).all()
    assert (back.windows("observation.images.frames", [2], [3], 5) == built.windows("frames", [2], [3], 5)).all()
    said = bank("export", "lance", built.path, tmp_path / "lance")
    assert said.endswith(f"{tmp_path / 'lance'}: 8 episodes of {built.path}\n")
    assert bank("info", tmp_path / "lance").startswith(f"sprii-lance bank at {tmp_path / 'lance'}\n  episodes")
    assert "every checksum holds" in bank("verify", tmp_path / "lance")
    with Recording(tmp_path / "a", {"x": StreamSpec(())}, {"kind": "stand-in", "benchmark": "baxter"}) as recording:
        recording.append({"x": np.zeros(3)}, system=0)
    bank("export", "lance", tmp_path / "a", tmp_path / "b")
    bank("export", "lerobot", tmp_path / "b", tmp_path / "c")
    bank("import", "lerobot", tmp_path / "c", tmp_path / "d")
    for folder in "abd":
        assert re.search("stand-in +simulated in place of recordings of baxter", bank("info", tmp_path / folder))


def test_a_bank_is_not_begun_without_ray(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    for bank in ("d-clean", "burgers"):
        status, _, err = in_process(monkeypatch, capsys, "bank", "build", bank, tmp_path / "x", "--launcher", "ray")
        assert status == 2
        assert "the launcher ray needs ray: pip install ray, or the extra 'ray'" in err
    assert not list(tmp_path.iterdir())


def test_banks_of_grasps_are_built_and_imported(tmp_path, monkeypatch, capsys):
    import numpy as np

    from sprii_envs.robots import tactile
    from sprii_envs.robots.baxter import CONFIGURATIONS, FOLDERS

    def bank(*arguments):
        return in_process(monkeypatch, capsys, "bank", *arguments)

    monkeypatch.setitem(tactile.PROTOCOLS, "baxter", tactile.TactileProtocol(counts=(2, 1, 1)))
    status, said, _ = bank("build", "baxter", tmp_path / "a", "--workers", 1, "--seed", 3)
    assert not status
    assert re.search(r"train +12 episodes of 6 systems", said)
    assert re.search(r"tactile +16 float32", said)
    status, _, err = bank("build", "baxter", tmp_path / "a", "--workers", 1)
    assert status == 2
    assert "its seed is 3, not 0" in err
    for shape, level in CONFIGURATIONS:
        folder = tmp_path / "published" / "Dataset" / FOLDERS[shape] / "80_Samples" / str(level)
        folder.mkdir(parents=True)
        for grasp in range(1, 171):
            np.savetxt(folder / f"g{grasp}.csv", np.full((80, 16), grasp % 7), delimiter=",", fmt="%d")
    (folder / "g9.csv").write_text("1,2\n")
    status, _, err = bank("import", "baxter", tmp_path / "published", tmp_path / "b")
    assert status == 2
    assert "g9.csv has 1 rows, expected 80; damaged='drop' (--drop) leaves such grasps out" in err
    status, said, _ = bank("import", "baxter", tmp_path / "published", tmp_path / "b", "--drop")
    assert not status
    assert re.search(r"left out +1 example: 1 damaged \(info --dropped lists them\), such as .*g9.csv has 1 rows", said)
    assert "1,019 of 80 to 80 observations" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("build", "d-clean", "x", "--launcher", "ray", "--workers", 2), "--workers is of the launcher local"),
        (("import", "lerobot", "x", "y"), "info.json does not exist"),
        (
            ("import", "lerobot", "x", "y", "--labels", "own.txt"),
            "--labels is own.txt; legal: a file that ends in .csv",
        ),
        (("import", "lerobot", "x", "y", "--labels", "own.csv"), "own.csv cannot be read"),
        (("import", "lerobot", "x", "y", "--scene", "balls"), "--scene is not of lerobot; legal: of cophy"),
        (("import", "fhn", "x", "y", "--sealed", "test"), "--sealed is not of fhn; legal: of lerobot"),
        (("export", "lance", "x", "y", "--fps", 9), "--fps is not of lance; legal: of lerobot"),
        (("export", "cophy", "x", "y", "--unseal"), "--unseal is not of cophy; legal: of lerobot, lance"),
        (("import", "burgers", "x", "y", "--drop"), "--drop is not of burgers; legal: of cophy, baxter"),
        (("import", "baxter", "x", "y", "--size", 9), "--size is not of baxter; legal: of cophy"),
        (("import", "baxter", "x", "y"), "x/Cubes/80_Samples/0 is missing"),
        (("build", "baxter", "x", "--rollouts", 2), "--rollouts is not of baxter; legal: --seed and --workers"),
        (("build", "cophy-balls4", "x", "--frames", 8), "--frames is not of cophy-balls4; legal: --pairs, --seed and"),
        (("build", "cophy-balls4", "x", "--pairs", 0, 1, 1), "--pairs of train is 0; legal: an integer >= 1"),
        (("build", "burgers", "x", "--pairs", 1, 1, 1), "--pairs is not of burgers; legal: --seed and --workers"),
        (("build", "d-clean", "x", "--pairs", 1, 1, 1), "--pairs is not of d-clean; legal: of CoPhy's banks"),
        (("build", "cophy-balls9", "x"), "cophy-balls"),
        (("import", "cophy", "x", "y"), "--scene is None; legal: balls, collision, blocktower"),
        (("import", "cophy", "x", "y", "--scene", "balls"), "--objects is None; legal for balls: 2, 3, 4, 5, 6"),
        (("import", "cophy", "x", "y", "--scene", "balls", "--objects", 7), "objects is 7"),
        (("import", "cophy", "x", "y", "--scene", "collision"), "collisionCF is missing"),
        (("import", "cophy", "x", "y", "--additional"), "--additional is not of cophy; legal: of burgers"),
        (("import", "burgers", "x", "y", "--size", 9), "--size is not of burgers; legal: of cophy, rh20t, lerobot"),
        (("import", "cophy", "x", "y", "--scene", "collision", "--size", 9, "--no-videos"), "exclude each other"),
        (("export", "cophy", "x", "y"), "bank.json does not exist"),
        (("import", "rh20t", "x", "y", "--drop"), "--drop is not of rh20t; legal: of cophy"),
        (("import", "cophy", "x", "y", "--config", 2), "--config is not of cophy; legal: of rh20t"),
        (("import", "fhn", "x", "y", "--size", 9), "--size is not of fhn; legal: of cophy, rh20t, lerobot"),
        (("import", "rh20t", "x", "y", "--config", 2), "--camera is None; legal: a serial"),
        (("import", "rh20t", "x", "y", "--config", 2), "config 2 has no usual one"),
        (("import", "rh20t", "x", "y", "--size", 0), "--size is 0; legal: an integer >= 8"),
        (("import", "rh20t", "x", "y", "--high-frequency", "--config", 5, "--camera", 1), "--high-frequency is True"),
        (("import", "rh20t", "x", "y"), "x is missing; it holds a folder a scene"),
    ],
)
def test_what_no_bank_is_asked_for(arguments, said, tmp_path, monkeypatch, capsys):
    if "lerobot" in arguments:
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    status, out, err = in_process(monkeypatch, capsys, "bank", *arguments)
    assert status == 2
    assert said in err
    assert not out.strip()
    assert not list(tmp_path.iterdir())


def test_any_bank_is_described_and_verified(tmp_path, monkeypatch, capsys):
    import numpy as np

    from sprii_envs.banks import Recording, StreamSpec

    path, streams = tmp_path / "bank", {"imu": StreamSpec((6,), rate="10"), "opening": StreamSpec((), per="transition")}
    recording = Recording(path, streams, sealed=("final",))
    recording.__enter__()
    recording.append({"imu": np.zeros((30, 6)), "opening": np.zeros(2)}, length=3, system="a", split="train", flow=1.0)
    recording.__exit__(RuntimeError, RuntimeError(), None)
    for command in ("info", "verify"):
        status, _, err = in_process(monkeypatch, capsys, "bank", command, path)
        assert status == 2
        assert "is not finished" in err
        assert "the same call goes on" in err
    with recording:
        recording.append(
            {"imu": np.zeros((50, 6)), "opening": np.zeros(4)}, length=5, system="b", split="final", flow=2.0
        )
    status, out, _ = in_process(monkeypatch, capsys, "bank", "info", path)
    assert status == 0
    assert f"sprii-recorded bank at {path}" in out
    for line in (
        "episodes    2 of 3 to 5 observations",
        "train       1 episode of 1 system",
        "final       1 episode of 1 system (sealed)",
        "labels      flow",
        "imu         6 float32, 10 a step, one step per observation",
        "opening     number float32, one step per transition",
    ):
        assert f"  {line}\n" in out
    status, out, _ = in_process(monkeypatch, capsys, "bank", "verify", path)
    assert status == 0
    assert "every checksum holds" in out
    (path / "imu.f32").write_bytes(b"\1" + (path / "imu.f32").read_bytes()[1:])
    status, _, err = in_process(monkeypatch, capsys, "bank", "verify", path)
    assert status == 2
    assert "imu.f32 is damaged" in err


def test_bank_build_info_verify_and_damage(tmp_path):
    bank = tmp_path / "bank"
    assert "1,000 train" in sprii("bank", "build", "d-clean", bank).stdout
    assert sprii("bank", "info", bank).returncode == 0
    assert "every checksum holds" in sprii("bank", "verify", bank).stdout
    states = bank / "states.f32"
    states.write_bytes(states.read_bytes()[:-4])
    damaged = sprii("bank", "verify", bank)
    assert damaged.returncode == 2
    assert "states.f32" in damaged.stderr


@pytest.fixture(scope="module")
def poke(tmp_path_factory):
    """A small factorial bank: 2 × 8 × 4 levels, of which a block has three in training."""
    from sprii_envs.banks import PROTOCOLS, build, populations

    levels = {"mass": 2, "drag": 8, "stiffness": 4}
    parts = {"train": populations.FactorialBlocks(levels, 0, 3), "sealed": populations.FactorialBlocks(levels, 3, 4)}
    small = {"systems": parts, "sealed_splits": ("sealed",), "rollouts": 2, "steps": 8, "frames": None}
    return build(PROTOCOLS["poke-factorial"].replace(**small), tmp_path_factory.mktemp("poke") / "bank").path


def test_relations_audit_prints_what_a_kernel_draws(poke, monkeypatch, capsys, tmp_path):
    def audited(*arguments):
        """Lines of an audit as a mapping."""
        status, out, err = in_process(monkeypatch, capsys, "relations", "audit", *arguments)
        assert status == 0, err
        return {line.split("  ")[0]: line.split("  ")[-1].strip() for line in out.splitlines()}

    # G1: of the 7 × 3 systems of a mass and another drag, the 5 of the same stiffness are not eligible.
    found = audited(poke, "--relation", "G1")
    assert (found["eligible systems"], found["selected systems"], found["supported histories"]) == ("16", "16", "32")
    found = audited(poke, "--relation", "G1", "--kernel", "candidates", "--seed", 2)
    assert (found["eligible systems"], found["selected systems"], found["supported histories"]) == ("16", "3", "6")
    out = tmp_path / "audit.json"
    found = audited(poke, "--relation", "G3", "--kernel", "mismatch:drag", "--alpha", "0.5", "--json", out)
    rates = [found[f"match {name}_level *"] for name in ("mass", "drag", "stiffness")]
    assert rates == ["100.00 %", "50.00 %", "100.00 %"]
    saved = json.loads(out.read_text(encoding="utf-8"))
    assert saved["supported_histories"] == [11, 11]  # one right and two of each of those 5 systems
    assert saved["correct_rate"] == 0.5
    found = audited(poke, "--relation", "label:mass_level", "--other-system", "--kernel", "derangement:mass_level")
    assert found["match mass_level *"] == "0.00 %"
    found = audited(poke, "--relation", "G3", "--alpha", "0.25")
    assert found["correct pairs *"] == "25.00 %"
    assert found["kernel"].endswith("Derangement(by='system'), mode='exact')")
    assert audited(poke, "--relation", "G1", "--law", "pair")["pair law"] == "pair"
    found = audited(poke, "--relation", "same-system", "--split", "sealed", "--unseal")
    assert found["episodes"] == "32"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--relation", "G4"), "unknown relation 'G4'; did you mean 'G"),
        (("--relation", "label:colour"), "no column 'colour'"),
        (("--relation", "G1", "--kernel", "candidate"), "unknown kernel 'candidate'; did you mean 'candidates'"),
        (("--relation", "G3", "--kernel", "candidates"), "made for the relations G1 and G2"),
        (("--relation", "G3", "--kernel", "derangement", "--alpha", "1.5"), "alpha is 1.5; legal: a number in [0, 1]"),
        (("--relation", "G3", "--kernel", "derangement", "--alpha", "nan"), "alpha is nan; legal: a number in [0, 1]"),
        (("--relation", "G1", "--alpha", "0.5"), "use a relation that shares 'system'"),
        (("--relation", "G3", "--alpha", "0.5", "--kernel", "uniform"), "alpha mixes wrong pairs in"),
        (("--relation", "G3", "--json", "no-folder/audit.json"), "no-folder"),
        (("--relation", "G1", "--kernel", "derangement"), "use a relation that shares 'system'"),
        (("--relation", "same-system", "--kernel", "mismatch:drag"), "such as G3"),
        (("--relation", "G1", "--other-system"), "goes with 'label:COLUMN' only"),
        (("--relation", "G1", "--split", "sealed"), "--unseal opens it"),
        (("--relation", "G1", "--split", "trian"), "no split 'trian'"),
        (("--relation", "G1", "--seed", "-1"), "seed is -1; legal: an integer >= 0"),
        (("--relation", "G1", "--seed", str(2**64)), "an integer >= 0, at most 18446744073709551615"),
        (("--relation", "G2", "--split", "sealed", "--unseal"), "32 of 32 recipients have no legal donor"),
    ],
)
def test_relations_audit_refuses_in_one_line(arguments, named, poke, monkeypatch, capsys):
    status, out, err = in_process(monkeypatch, capsys, "relations", "audit", poke, *arguments)
    assert status == 2
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert not out


def test_relations_list_names_what_audit_takes(monkeypatch, capsys):
    from sprii_envs.relations import NAMED_KERNELS, NAMED_RELATIONS

    lines = in_process(monkeypatch, capsys, "relations", "list")[1].splitlines()
    assert {line.split()[0] for line in lines} == {"relation", "kernel", *NAMED_RELATIONS, *NAMED_KERNELS}


def test_benchmark_envs_refuses_a_file_it_could_not_write(monkeypatch, capsys, tmp_path):
    for path in (tmp_path / "missing" / "rates.json", tmp_path):
        status, out, err = in_process(monkeypatch, capsys, "benchmark", "envs", "--json", path)
        assert status == 2
        assert str(path) in err
        assert not out


@pytest.mark.slow
def test_benchmark_envs_prints_ours_beside_the_peers(tmp_path):
    out = tmp_path / "rates.json"
    done = sprii("benchmark", "envs", "--seconds", "0.01", "--repeats", "1", "--json", out)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    rows = {(row["name"], row["n"]): row for row in found["steps"] + found["frames"]}
    for id in (i for i, spec in gymnasium.registry.items() if i.startswith("sprii/") and spec.vector_entry_point):
        assert any(id[6:-3] in name for name, _ in rows), id
    for name, n in rows:
        row = rows[name, n]
        assert (row["left_out"] is None) == ("rate" in row)
        assert f"{name:<44} {n:>5}" in done.stdout
        if row.get("ratio") is not None:
            peer = next(r for (other, _), r in rows.items() if other == row["peer"])
            assert row["ratio"] > 0.0
            assert "rate" in peer
    assert rows["sprii Pendulum", 1]["ratio"] == pytest.approx(
        rows["sprii Pendulum", 1]["rate"] / rows["Gymnasium Pendulum-v1", 1]["rate"]
    )
    refused = sprii("benchmark", "envs", "--repeats", "0")
    assert refused.returncode == 2
    assert "--repeats" in refused.stderr


# reproduce LABEL


def test_reproduce_lists_every_label_with_what_it_would_cost(monkeypatch, capsys):
    from sprii_train.experiments import costs
    from sprii_train.experiments.targets import ALIASES, COMPOSED, TARGETS
    from sprii_train.settings import PRESET_NAMES, SETTINGS

    monkeypatch.setattr(costs, "product_rate", lambda: costs.REFERENCE_RATE)
    monkeypatch.setenv("COLUMNS", "200")
    status, out, err = in_process(monkeypatch, capsys, "reproduce", "--list")
    assert (status, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split()[-len(PRESET_NAMES) :] == list(PRESET_NAMES)
    found = {line.split()[0]: line for line in lines if line.startswith(("tab:", "fig:", "app:", "ext:"))}
    settings = {line.split()[0] for line in lines if line.startswith("setting:")}
    assert settings == {f"setting:{name}" for name in SETTINGS} - {
        f"setting:{alias}"
        for alias in (
            *("overcooked", "overcooked-half", "overcooked-quarter", "burgers", "burgers-adaptive", "fhn", "baxter"),
            *("swimmer", "rh20t", "pendulum-context"),
        )
    }
    assert set(found) == {*TARGETS, *COMPOSED}
    for line in found.values():
        told = re.findall(r"(?:< 1|\d+) (?:min|h|days)|(?<= )–(?= |$)", line)
        assert len(told) == len(PRESET_NAMES), line
    (others,) = [line for line in lines if line.startswith("Other labels")]
    assert all(f"{alias} ({label})" in others for alias, label in ALIASES.items())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "target is '': say what to reproduce; legal: what sprii reproduce --list names"),
        (
            ("tab:refinement",),
            "unknown table or figure 'tab:refinement'; did you mean 'tab:refinement-full'? legal names: all, ",
        ),
        (("tab:refinement-full", "--arms", "g1,magic"), "unknown arm 'magic'; legal names: structure, g1, g2, g3"),
        (("tab:refinement-full", "--arms", ""), "--arms is '', which has an empty name; legal: names of arms"),
        (("tab:refinement-full", "--arms", "g1,"), "--arms is 'g1,', which has an empty name"),
        (("tab:refinement-full", "--seeds", "1,1"), "names seed 1 twice"),
        (("tab:refinement-full", "--steps", "0"), "--steps is 0; legal: an integer >= 1"),
        (("tab:refinement-full", "--workers", "0"), "--workers is 0"),
        (
            ("tab:refinement-full", "--population", "validation"),
            "--population is not of tab:refinement-full, which says itself",
        ),
        (("tab:v3-horizon", "--preset", "states"), "has no preset 'states'; legal: smoke, quick, paper"),
        (("tab:refinement-full", "--device", "abacus"), "device is 'abacus', which cannot be used here; legal: cpu"),
        (("dclean", "--device", "cuda:99"), "device is 'cuda:99', which cannot be used here; legal: cpu"),
        (("dclean", "--preset", "states"), "'d-clean' has no preset 'states'; legal: smoke, quick, paper"),
        (("dclean", "--partners", "mine"), "--partners is mine, but the setting 'd-clean' has no partners"),
    ],
)
def test_reproduce_refuses_in_one_line_and_writes_nothing(arguments, named, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, out, err = in_process(monkeypatch, capsys, "reproduce", *arguments)
    assert status == 2
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert not out
    assert not list(tmp_path.iterdir())


def test_reproduce_writes_down_the_command_that_repeats_it(monkeypatch, capsys, tmp_path):
    """Only what was given; and where the report lies."""
    import sprii_train.experiments.reproduce as reproducing
    from sprii_train.reports.page import Page

    calls = []

    def reproduce(plan, command, **kwargs):
        calls.append((plan, command))
        return Page("T", "", [], [], [], command, {})

    monkeypatch.setattr(reproducing, "reproduce", reproduce)
    out = tmp_path / "my runs"
    given = ("tab:refinement-full", "--preset", "smoke", "--seeds", "2", "--arms", "g1, g2", "--steps", 5, "--out", out)
    status, said, _ = in_process(monkeypatch, capsys, "reproduce", *given)
    assert status == 0
    assert str(out / "tab-refinement-full" / "report.html") in said.replace("\n", "")
    (plan, command), = calls  # fmt: skip
    assert (plan.target.label, plan.preset, plan.root) == ("tab:refinement-full", "smoke", out)
    assert (plan.seeds, plan.arms, plan.steps) == (2, ("g1", "g2"), 5)
    assert shlex.split(command) == [
        "sprii", "reproduce", "tab:refinement-full", "--preset", "smoke", "--seeds", "2", "--arms", "g1, g2",
        "--steps", "5", "--out", str(out),
    ]  # fmt: skip
    in_process(monkeypatch, capsys, "reproduce", "tab:v3-horizon")
    plan, command = calls[1]
    assert command == "sprii reproduce tab:v3-horizon --preset quick"
    assert (plan.seeds, plan.arms, plan.steps, plan.root) == (None, None, None, Path("runs/quick"))
    in_process(monkeypatch, capsys, "reproduce", "fig:v3-dclean-readers", "--device", "cpu")
    plan, command = calls[2]
    assert (plan.target.label, plan.device) == ("tab:v3-bottleneck-endpoints", "cpu")
    assert command == "sprii reproduce tab:v3-bottleneck-endpoints --preset quick"


def test_reproduce_hands_a_device_to_the_training(monkeypatch, capsys):
    """`cpu:0` is a device of every machine."""
    import sprii_train.experiments.reproduce as reproducing
    from sprii_train.reports.page import Page

    plans = []
    monkeypatch.setattr(reproducing, "reproduce", lambda plan, command, **_: plans.append(plan) or Page(
        "T", "", [], [], [], command, {}
    ))  # fmt: skip
    status, _, _ = in_process(monkeypatch, capsys, "reproduce", "tab:v3-horizon", "--device", "cpu:0")
    assert status == 0
    assert plans[0].budget(plans[0].target.groups[0]).train.device == "cpu:0"
    in_process(monkeypatch, capsys, "quickstart", "--device", "cpu:0")
    assert plans[1].budget(plans[1].target.groups[0]).train.device == "cpu:0"
    assert in_process(monkeypatch, capsys, "quickstart", "--device", "abacus")[0] == 2
    assert len(plans) == 2


@pytest.mark.parametrize(("arguments", "unbuffered"), [(("--help",), ""), (("bank", "--help"), "1")])
def test_a_reader_that_has_gone_is_no_error_to_tell_of(arguments, unbuffered):
    """As in `sprii … | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*SPRII, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=300,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals a process group")
def test_two_interrupts_of_a_build_end_it(tmp_path):
    """The second came while workers ended, of which one kept a lock that the other waited for."""
    command = [*SPRII, "bank", "build", "poke-factorial", str(tmp_path / "bank"), "--no-frames", "--rollouts", "800"]
    process = subprocess.Popen(
        [*command, "--workers", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("bank.partial/*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(2.0)  # workers have begun
    assert process.poll() is None, "the build was over before it was stopped"
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command resumes" in said


def test_version_is_the_package_s(monkeypatch, capsys):
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert in_process(monkeypatch, capsys, "--version") == (0, f"sprii {version}\n", "")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text()
