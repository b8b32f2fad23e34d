"""The wheel has every file of the packages, and runs where no checkout is."""

import os
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("sprii_envs", "sprii_train")
pytestmark = pytest.mark.slow

USES_DATA = """
import sprii_envs, sprii_train, gymnasium as gym
assert "checkout" not in sprii_envs.__file__ + sprii_train.__file__ and "lib" in sprii_envs.__file__
env = gym.make("sprii/Swimmer-v0")  # its MJCF
env.reset(seed=0)
env.step(env.action_space.sample())
from importlib.resources import files
assert len(list(files("sprii_envs").joinpath("assets", "overcooked").iterdir())) == 9
print(sprii_envs.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built of a copy: setuptools would take files that were deleted since from an old `build` folder."""
    copy, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(copy)]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    (built,) = out.glob("sprii-*-py3-none-any.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Folder of the programs of an environment with the wheel, and everything else from this one."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--python", python, "install", "--no-deps", wheel], check=True
    )
    (packages,) = folder.glob("lib/python*/site-packages")
    # a path in a .pth file is searched, and its own .pth files, those of an editable checkout, are not read
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    return folder / "bin"


def run(program: Path, *arguments: str, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([program, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_of_the_packages_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        within = {name for name in archive.namelist() if name.startswith(PACKAGES) and ".dist-info/" not in name}
    files = {
        path.relative_to(ROOT).as_posix()
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert within == files


def test_it_runs_outside_of_the_checkout(installed, tmp_path):
    where = run(installed / "python", "-c", USES_DATA, cwd=tmp_path).strip()
    assert Path(where).is_relative_to(installed.parent)
    assert run(installed / "sprii", "--version", cwd=tmp_path).startswith("sprii ")


def test_the_main_job_runs_outside_of_the_checkout(installed, tmp_path):
    said = run(installed / "sprii", "quickstart", "--preset", "smoke", "--workers", "1", cwd=tmp_path)
    assert "Align + Cross" in said
    assert (tmp_path / "runs" / "quickstart-smoke" / "report.html").stat().st_size > 100_000
