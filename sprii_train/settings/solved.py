"""The store of a protocol of fields, solved into a folder of banks and found there."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from sprii_envs.banks import Store
from sprii_envs.fields.bank import BurgersProtocol, FHNProtocol, build_fields


@dataclass(frozen=True)
class Solved:
    """The folder is named by a digest of the whole protocol."""

    protocol: BurgersProtocol | FHNProtocol

    def __call__(self, folder: Path) -> Store:
        digest = hashlib.sha256(repr(self.protocol).encode()).hexdigest()[:12]
        place = folder / f"{self.protocol.name}-{digest}"
        return build_fields(self.protocol, place, workers=min(4, os.cpu_count() or 1), progress=_progress)


def _progress(done: int, of: int) -> None:
    if done % 100 == 0 or done == of:
        print(f"fields: {done} of {of} trajectories", flush=True)
