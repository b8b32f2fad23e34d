"""Direct context against decoded properties, with the same donors (`tab:v3-bottleneck-endpoints`)."""

from dataclasses import replace
from typing import Any

import numpy as np

from sprii_envs.standardiser import Standardiser
from sprii_train.analysis.formation import group_means, score
from sprii_train.analysis.populations import Sample
from sprii_train.analysis.value.cases import codes
from sprii_train.analysis.value.readers import ReaderConfig, fit_readers
from sprii_train.analysis.value.slots import Arm
from sprii_train.cases.windows import window_cases
from sprii_train.experiments.measures.value import reader_config, system_errors
from sprii_train.experiments.sources import Source

HORIZONS = (1, 2, 4, 8, 16, 32)
WINDOWS = 32  # of a system
READERS: tuple[Arm, ...] = ("null", "persistent", "decode", "oracle")
WRONG_SEED = 20_265  # of Fixed Wrong's map of systems


def bottleneck(
    source: Source, horizons: tuple[int, ...] = HORIZONS, config: ReaderConfig | None = None
) -> dict[str, Any]:
    """MSE of fresh readers by horizon, of wrong donors through the Persistent readers, and the decoder.

    Errors are in training SDs of the state, `decode_h32`, and in raw units, `raw_decode_h32`. Decode and Oracle read the
    property itself, as the decoder's printed errors do. The row has means; errors of every reader by system, (R, N, K),
    in SDs, and the decoder's squared errors, (N,), are kept beside the model.
    """
    cases = window_cases(source, horizons, WINDOWS)
    seeds = tuple(range(source.cell.readers.count))
    config = replace(config or reader_config(source), log_factors=False)
    fitted = {arm: fit_readers(cases.train, arm, config, seeds) for arm in READERS}
    raw, wrong = cases.standardiser.scale, cases.development.mismatched(WRONG_SEED)
    given = {arm: (readers, cases.development) for arm, readers in fitted.items()} | {
        "wrong": (fitted["persistent"], wrong)
    }
    errors = {arm: system_errors(*each, raw / state_scale(source)) for arm, each in given.items()}
    row: dict[str, Any] = {}
    for arm, each in given.items():
        for prefix, grid in (("", errors[arm]), ("raw_", system_errors(*each, raw))):
            row |= {f"{prefix}{arm}_h{h}": float(grid[..., k].mean()) for k, h in enumerate(horizons)}
    decoder = fitted["decode"][0].slot.decoder  # one for all readers of a source
    assert decoder is not None
    held_out = cases.development
    scored = score(decoder[0], Sample(held_out.population, codes(held_out), held_out.systems, held_out.factors))
    squared = group_means(scored.squared_errors[:, None], held_out.systems)[0][:, 0]
    row |= {"decoder_r2": scored.r2, "decoder_mse": float(squared.mean())}
    kept = errors | {"decoder": squared}
    source.keep(kept)
    return row


def state_scale(source: Source) -> np.ndarray:
    """SD (D,) of what the targets are increments of, over all observations of training episodes."""
    store, setting = source.store, source.setting
    table = setting.episodes(store, "train")
    column = setting.observation if isinstance(setting.observation, str) else setting.observation[0]
    states = store.windows(column, table["episode"], np.zeros(len(table), np.int64), int(table["length"].min()))
    return Standardiser.fit(states.reshape(states.shape[0] * states.shape[1], -1)).scale
