"""The store of a protocol of CoPhy as a front end sees it: made once, found again, opened by any worker."""

from pathlib import Path

import numpy as np
import pytest

from sprii_envs.banks import StoreError, open_store
from sprii_envs.cophy.protocols import CoPhyProtocol
from sprii_train.cophy.features import Features
from sprii_train.cophy.frontend import FrontEndConfig
from sprii_train.settings.base import Setting
from sprii_train.settings.perceived import Perceived

pytest.importorskip("mujoco")

SEEN = Perceived(
    CoPhyProtocol("collision", 2, train=4, validation=2, test=1),
    FrontEndConfig(trunk="narrow", size=28, width=8, hidden=16, steps=4, batch=4, judged=8),
)


def test_a_setting_takes_it_and_any_worker_opens_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setting = Setting("own", SEEN, properties=(), history=3, anchors=())
    store = setting.open_store(tmp_path)
    assert isinstance(store, Features)
    assert store.features.shape == (7, 2, 15, 2, 784)
    assert {"trained", "constant", "untrained"} < set(store.quality)
    assert setting.episodes(store, "validation")["episode"].tolist() == [4, 5]
    assert np.array_equal(store.windows("cd_states", [2], [0], 15), store.bank.windows("cd_states", [2], [0], 15))
    assert "pairs seen: 7 of 7" in capsys.readouterr().out
    folders = sorted((tmp_path / "banks").iterdir())
    again = setting.open_store(tmp_path)
    assert sorted((tmp_path / "banks").iterdir()) == folders
    assert "pairs seen" not in capsys.readouterr().out
    assert open_store(store.name).fingerprint == again.fingerprint == store.fingerprint
    states = Path(store.bank.name, "ab_states.f32")
    data = bytearray(states.read_bytes())
    data[0] ^= 1
    states.write_bytes(data)
    with pytest.raises(StoreError, match=r"ab_states\.f32 is damaged"):
        setting.open_store(tmp_path)
