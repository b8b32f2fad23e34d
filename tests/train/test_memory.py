"""What glibc is told of freed memory, in processes of their own."""

import os
import platform
import subprocess
import sys

import pytest

CODE = """
import resource, torch
from sprii_train.memory import keep_freed_memory
keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        [torch.ones(2**20) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
@pytest.mark.parametrize(
    ("told", "most", "least"), [({}, 2_000, 0), ({"MALLOC_TRIM_THRESHOLD_": "131072"}, 10**6, 20_000)]
)
def test_memory_is_kept_unless_the_environment_says_otherwise(told: dict[str, str], most: int, least: int):
    """Twenty times 16 MiB are 82,000 pages if each is faulted in again."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    done = subprocess.run([sys.executable, "-c", CODE], env=clean | told, capture_output=True, text=True, check=True)
    assert least <= int(done.stdout) <= most
