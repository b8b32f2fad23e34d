"""What an action learner earns with partners, and what its slots hold of them (`tab:overcooked-complete`)."""

import time
from typing import Any

from sprii_train.experiments.measures.untrained import first_weights
from sprii_train.experiments.sources import Source


def partners(source: Source) -> dict[str, Any]:
    """Returns, probes of behaviour, distance ratios beside the untrained learner's, and exchanged histories.

    The primary return is of episodes 6 to 20, averaged within partner, then over partners.
    """
    from sprii_envs.overcooked.bank import HistoryBank
    from sprii_train.overcooked.measures import probe, ratios, slots, swapped
    from sprii_train.overcooked.play import play

    learner, bank, trials, seed = source.learner, source.store, source.cell.trials, source.seed
    setting: Any = source.setting  # with a roster
    assert isinstance(bank, HistoryBank)
    assert trials is not None
    began, roster, protocol = time.perf_counter(), setting.roster, bank.protocol
    returns = play(
        learner, protocol.game, roster, seat=protocol.seat, episodes=trials.episodes, repeats=trials.repeats, seed=seed
    )
    by_partner = returns[:, :, 5:].mean((1, 2))
    fitted, own, unseen = (slots(learner, bank, split) for split in ("train", "validation", "held_out"))
    untrained = first_weights(source)
    familiar, held_out = (roster.group(name) for name in ("familiar", "held_out"))
    return {
        "returns": {name: float(value) for name, value in zip(roster.names, by_partner, strict=True)},
        "return_familiar": float(by_partner[familiar].mean()),
        "return_held_out": float(by_partner[held_out].mean()),
        "curve": returns.mean(1)[familiar].mean(0).tolist(),
        "probe_familiar": probe(fitted, own)._asdict(),
        "probe_held_out": probe(fitted, unseen)._asdict(),
        **ratios(fitted, own),
        "untrained": ratios(*(slots(untrained, bank, split) for split in ("train", "validation"))),
        "swapped_familiar": swapped(learner, bank, "validation", seed=seed)._asdict(),
        "swapped_held_out": swapped(learner, bank, "held_out", seed=seed)._asdict(),
        "evaluation_seconds": time.perf_counter() - began,
    }
