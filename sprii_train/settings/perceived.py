"""The store of a protocol of CoPhy as a front end sees it, found in a folder of banks or made there.

The bank is simulated, the front end trained on its training pairs, and its features are cached, all side by side; each
folder is named by a digest of all that it depends on.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sprii_envs.cophy.bank import build_cophy
from sprii_envs.cophy.protocols import CoPhyProtocol
from sprii_envs.files import read_json
from sprii_train.cophy.features import Features, features_of, place_of
from sprii_train.cophy.frontend import FrontEnd, FrontEndConfig, RandomFrames, train_frontend
from sprii_train.fit import ENGINE
from sprii_train.identity import code_of, digest


@dataclass(frozen=True)
class Perceived:
    """A protocol's bank, and what a front end makes of it.

    Attributes:
        protocol: of the bank.
        frontend: of the network and its training.
    """

    protocol: CoPhyProtocol
    frontend: FrontEndConfig

    def __call__(self, folder: Path) -> Features:
        workers = min(4, os.cpu_count() or 1)
        of = self.protocol
        name = f"{of.name}-{of.scene}-{of.objects}-{digest(repr(of))[:12]}"
        bank = build_cophy(of, folder / name, workers=workers, progress=_told("pairs", 100))
        law = replace(self.frontend, device="cpu"), code_of(FrontEnd, RandomFrames, *ENGINE)
        place = folder / f"{name}-frontend-{digest(repr(law))[:12]}"
        count = _told("updates of the front end", 100)
        total = self.frontend.steps
        frontend = train_frontend(bank, self.frontend, place, progress=lambda done, _: count(done, total))
        return features_of(
            bank, frontend, place_of(bank, frontend), workers=workers, progress=_told("pairs seen", 100),
            quality=read_json(place / "quality.json"),
        )  # fmt: skip


def _told(what: str, every: int) -> Callable[[int, int], None]:
    def tell(done: int, of: int) -> None:
        if done % every == 0 or done == of:
            print(f"{what}: {done} of {of}", flush=True)

    return tell
