"""What a machine offers: processor, memory, devices, precision, simulators, extras; each in words, or why not."""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from sprii_envs import __version__, dependencies
from sprii_train.fit import TrainConfig, resolve_precision

MODULES = {
    "scikit-learn": "sklearn", "pillow": "PIL", "imageio-ffmpeg": "imageio_ffmpeg", "pylance": "lance",
    "stable-baselines3": "stable_baselines3",
}  # fmt: skip
"""Distributions whose module has another name."""
INSTRUCTIONS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "bf16", "sve")
"""That products are faster by, as Linux names them."""
OFFSCREEN = "import mujoco as m; m.Renderer(m.MjModel.from_xml_string('<mujoco/>'), 16, 16).render()"


def offers(folder: Path) -> dict[str, str]:
    """What is there, by name.

    Args:
        folder: where runs would be written; the nearest one that exists is asked how much room it has.
    """
    asked: Mapping[str, Callable[[], str]] = {
        "Software": _software,
        "Processor": _processor,
        "Instructions": _instructions,
        "Threads": lambda: f"{torch.get_num_threads()} of torch, {len(_affinity())} cores for this process",
        "Memory": _memory,
        "Disk": lambda: _disk(folder),
        "Devices": lambda: "; ".join(f"{name} ({words})" for name, words in devices().items()),
        "Precision": _precision,
        "Compiler": lambda: next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "cl"))), "none is on the path"),
        "MuJoCo": _mujoco,
        "JAX": _jax,
    }
    return {name: _said(ask) for name, ask in asked.items()}


def devices() -> dict[str, str]:
    """Torch devices by name, and what each is."""
    found = {"cpu": torch.backends.cpu.get_cpu_capability()}
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        found[f"cuda:{i}"] = f"{about.name}, {about.total_memory / 2**30:.0f} GiB"
    if torch.backends.mps.is_available():
        found["mps"] = platform.processor() or "Apple"
    return found


def extras() -> dict[str, tuple[str, ...]]:
    """Optional extras of sprii, and the packages that each lacks here."""
    found: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires("sprii") or ():
        package, extra = re.match(r"[\w.-]+", requirement), re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", requirement)
        if package is None or extra is None or package[0] == "sprii":
            continue
        missing = found.setdefault(extra[1], [])
        module = MODULES.get(package[0], package[0].replace("-", "_"))
        if dependencies.is_absent(module) and not _installed(package[0]):
            missing.append(package[0])
    return {name: tuple(missing) for name, missing in found.items()}


def available_memory() -> int | None:
    """Bytes that a process may still take, where the system says so."""
    if (info := Path("/proc/meminfo")).exists() and (told := re.search(r"MemAvailable:\s+(\d+)", info.read_text())):
        return int(told[1]) * 1024
    return None


def _said(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except Exception as error:  # a broken driver or package is what this is asked to tell
        return f"unknown: {type(error).__name__}: {' '.join(str(error).split())}"


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _software() -> str:
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    build = f"ROCm {torch.version.hip}" if torch.version.hip else build
    return (
        f"sprii {__version__}, Python {platform.python_version()}, torch {torch.__version__} ({build}), "
        f"{platform.system()} {platform.machine()}"
    )


def _cpuinfo(field: str) -> str:
    info = Path("/proc/cpuinfo")
    told = re.search(rf"^{field}\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return told[1] if told else ""


def _affinity() -> set[int]:
    return os.sched_getaffinity(0) if sys.platform == "linux" else set(range(os.cpu_count() or 1))


def _processor() -> str:
    return f"{_cpuinfo('model name') or platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def _instructions() -> str:
    flags = set((_cpuinfo("flags") or _cpuinfo("Features")).split())
    known = ", ".join(name for name in INSTRUCTIONS if name in flags) or "the system does not list them"
    return f"{known}; torch uses {torch.backends.cpu.get_cpu_capability()}"


def _memory() -> str:
    free = available_memory()
    if free is None:
        return "unknown: the system does not say"
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} GiB of them free"


def _disk(folder: Path) -> str:
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    return f"{shutil.disk_usage(there).free / 2**30:.1f} GiB free in {there}"


def _precision() -> str:
    return ", ".join(f"{name}: {resolve_precision(TrainConfig(device=name))}" for name in devices()) + " by auto"


def _mujoco() -> str:
    if dependencies.is_absent("mujoco"):
        return "missing: pip install 'sprii[mujoco]'"
    environment = os.environ if sys.platform != "linux" else {"MUJOCO_GL": "egl"} | os.environ
    drawn = subprocess.run(  # a process of its own: a driver may end it
        [sys.executable, "-c", OFFSCREEN],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    way = environment.get("MUJOCO_GL", "the system's")
    last = (drawn.stderr.strip().splitlines() or [f"exit status {drawn.returncode}"])[-1]
    seen = f"draws off screen ({way})" if drawn.returncode == 0 else f"draws nothing off screen ({way}: {last})"
    return f"{importlib.metadata.version('mujoco')}, {seen}"


def _jax() -> str:
    if dependencies.is_absent("jax"):
        return "missing: pip install 'sprii[overcooked]'"
    import jax

    return f"{jax.__version__}, {', '.join(str(device) for device in jax.devices())}"
