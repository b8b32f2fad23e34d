"""A bank several times larger than the memory of the process that reads it."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from sprii_envs.banks import D_CLEAN, Bank, build

EPISODES, WINDOW = 256, 24
SPARE = 8 << 20  # bytes that the reader may still allocate: an eighth of the frames

READER = f"""
import hashlib, resource, sys
import numpy as np
from sprii_envs.banks import Bank

bank = Bank.open(sys.argv[1])
lengths, frames = bank.table["length"], bank["frames"]
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
limit = int(status["VmData"].split()[0]) * 1024 + {SPARE}
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    np.array(frames)
    sys.exit("the whole bank fits")
except MemoryError:
    pass
digest = hashlib.sha256()
rows = np.random.default_rng(0).permutation(len(bank)).reshape(-1, 16)
for batch in rows:
    bank.prefetch("frames", batch, 40, {WINDOW})
    for start in (0, 17, 40):
        digest.update(bank.windows("frames", batch, start, {WINDOW}))
        digest.update(bank.frames(batch, start, {WINDOW}))
print(digest.hexdigest())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts memory maps on Linux only")
def test_a_bank_larger_than_memory_is_read_window_by_window(tmp_path):
    path = tmp_path / "bank"
    build(D_CLEAN.replace(systems={"train": EPISODES // 8}, rollouts=8, frames=64), path)
    bank = Bank.open(path)
    assert bank.column("frames").bytes >= 8 * SPARE
    frames = np.fromfile(path / bank.column("frames").file, np.uint8).reshape(bank.column("frames").shape)
    expected = hashlib.sha256()
    for batch in np.random.default_rng(0).permutation(EPISODES).reshape(-1, 16):
        for start in (0, 17, 40):
            window = np.ascontiguousarray(frames[batch, start : start + WINDOW])
            expected.update(window)
            expected.update(window)
    reader = subprocess.run([sys.executable, "-c", READER, str(path)], capture_output=True, text=True)
    assert reader.returncode == 0, reader.stderr
    assert reader.stdout.strip() == expected.hexdigest()
