"""The recordings in a folder of banks, or where there are none a stand-in for them that says so."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from sprii_envs.banks import Store, open_store
from sprii_envs.banks.generated import GeneratedProtocol, build_generated


@dataclass(frozen=True)
class Recorded:
    """The store of the protocol's name, such as `sprii bank import` makes; else its stand-in, made there."""

    protocol: GeneratedProtocol

    def __call__(self, folder: Path) -> Store:
        if (folder / self.protocol.name).exists():
            return open_store(folder / self.protocol.name)
        digest = hashlib.sha256(repr(self.protocol).encode()).hexdigest()[:12]
        return build_generated(self.protocol, folder / f"{self.protocol.name}-standin-{digest}")
