"""A package that is absent, and one that is there and does not import: what is said of each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sprii_envs.dependencies import PackageImportError, is_absent, needed, require

BROKEN = {
    "ImportError: versions 4 and 3 differ": 'raise ImportError("versions 4 and\\n 3 differ")',
    "AttributeError: 'NoneType' object has no attribute 'glGetError'": "None.glGetError",
    "OSError: libphysics.so.9: cannot open shared object file": 'import ctypes; ctypes.CDLL("libphysics.so.9")',
    "ModuleNotFoundError: No module named 'no_such_helper'": "import no_such_helper",
    "SyntaxError: invalid syntax": "def",
}
"""What is said → the `__init__.py` that fails so."""


def package(folder: Path, name: str, source: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(source, encoding="utf-8")
    return folder


def run(code: str, *first: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that finds packages in the folders before the installed ones."""
    path = os.pathsep.join([*map(str, first), *filter(None, sys.path)])
    env = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)


@pytest.mark.parametrize(("says", "source"), BROKEN.items())
def test_a_package_that_does_not_import_is_not_called_missing(says, source, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(package(tmp_path, "broken_physics", source))
    assert not is_absent("broken_physics")
    with pytest.raises(PackageImportError) as caught, needed("Rain needs Physics", "physics", "broken_physics"):
        import broken_physics  # noqa: F401  # pyright: ignore[reportMissingImports]
    with pytest.raises(PackageImportError) as required:
        require("Rain", "physics", "math", "broken_physics")
    for message in map(str, (caught.value, required.value)):
        assert says in message
        assert "which is installed but fails to import" in message
        assert "\n" not in message
    assert "--force-reinstall" in str(caught.value) or "no_such_helper" in says  # pip adds what is only missing
    assert type(caught.value.__cause__).__name__ == says.split(":")[0]


def test_an_absent_package_is_to_be_installed():
    with pytest.raises(PackageImportError) as caught, needed("Rain needs Physics", "physics", "no_such_physics"):
        import no_such_physics  # noqa: F401  # pyright: ignore[reportMissingImports]
    assert str(caught.value) == "Rain needs Physics: pip install physics"
    with pytest.raises(PackageImportError, match=r"^Rain needs no_such_a, no_such_b: pip install 'rain\[all\]'$"):
        require("Rain", "'rain[all]'", "no_such_a", "math", "no_such_b")


MAKE = """
import gymnasium as gym, sprii_envs
try:
    env = gym.make({id!r}, **{kwargs})
    env.reset(seed=0)
    env.render()
    print("works")
except sprii_envs.dependencies.PackageImportError as error:
    assert isinstance(error, ImportError) and isinstance(error, gym.error.DependencyNotInstalled)
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "id", "kwargs"),
    [
        ("mujoco", "sprii/Swimmer-v0", {}),
        ("pygame", "sprii/Pendulum-v0", {"render_mode": "human"}),
        ("jax", "sprii/Overcooked-v0", {}),
        ("jaxmarl", "sprii/Overcooked-v0", {}),
    ],
)
def test_every_environment_says_what_its_broken_package_says(name, id, kwargs, tmp_path):
    if id == "sprii/Overcooked-v0" and any(is_absent(p) for p in ("jax", "jaxmarl", "imageio", "pettingzoo")):
        pytest.skip("another package of the extra is missing, which is said first")
    folder = package(tmp_path, name, 'raise AttributeError("of another version")')
    done = run(MAKE.format(id=id, kwargs=kwargs), folder)
    assert "fails to import" in done.stdout, done.stderr
    assert done.stdout.rstrip().endswith("AttributeError: of another version")


def test_an_old_mujoco_is_not_called_missing(tmp_path):
    done = run(MAKE.format(id="sprii/Swimmer-v0", kwargs={}), package(tmp_path, "mujoco", '__version__ = "2.3"'))
    assert "installed but fails to import" in done.stdout
    assert "mujoco.rollout" in done.stdout


@pytest.mark.parametrize("graphics", ["osmesa", "egl", "no-such-graphics"])
def test_the_swimmer_needs_no_graphics(graphics):
    pytest.importorskip("mujoco")
    code = """
import os, gymnasium as gym, sprii_envs
env = gym.make("sprii/Swimmer-v0")
env.reset(seed=0)
print(env.step([0.5, -0.5])[1].hex(), os.environ.get("MUJOCO_GL"))
"""
    plain, named = run(code, MUJOCO_GL="disabled"), run(code, MUJOCO_GL=graphics)
    assert named.stdout.split() == [plain.stdout.split()[0], graphics], named.stderr


def test_a_bank_whose_simulator_is_broken_is_refused_before_anything_is_built(tmp_path):
    pytest.importorskip("mujoco")
    folder = package(tmp_path / "packages", "mujoco", 'raise ImportError("mujoco 4 and mujoco-core 3 do not fit")')
    code = f"""
from sprii_envs.banks import SWIMMER, BankError, build
try:
    build(SWIMMER, {str(tmp_path / "bank")!r})
except BankError as error:
    print(error)
"""
    done = run(code, folder)
    assert done.stdout.startswith("the bank 'swimmer' cannot be built: Swimmer needs MuJoCo, which is installed"), done
    assert "mujoco-core 3 do not fit" in done.stdout
    assert {p.name for p in tmp_path.iterdir()} == {"packages"}


def test_broken_packages_of_datasets_say_why(tmp_path):
    pytest.importorskip("h5py")
    folder = package(tmp_path, "minari", 'raise OSError("libhdf5.so: cannot open shared object file")')
    code = "from sprii_envs.banks.minari.package import package; package()"
    said = run(code, folder).stderr.splitlines()[-1]
    assert "Minari datasets need Minari 0.5.4 or newer with HDF5 and Pillow, which is installed but fails" in said
    assert said.endswith("OSError: libhdf5.so: cannot open shared object file")


def test_every_module_imports_without_locks_and_without_extras():
    """As on Windows, which has no `fcntl`, after a base installation."""
    code = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("fcntl", "resource", "mujoco", "pygame", "minari", "h5py", "PIL", "torch"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import sprii_envs
for module in pkgutil.walk_packages(sprii_envs.__path__, "sprii_envs."):
    if "overcooked" not in module.name:
        importlib.import_module(module.name)
        print(module.name)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 40
