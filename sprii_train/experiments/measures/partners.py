"""What an action learner earns with partners, and what its slots hold of them (`tab:overcooked-complete`)."""

import time
from typing import Any

import numpy as np

from sprii_train.experiments.measures.untrained import first_weights
from sprii_train.experiments.sources import Source


def partners(source: Source) -> dict[str, Any]:
    """Returns beside those of the imitated egos; probes and distance ratios of a panel beside those of first weights.

    The primary return is of episodes 6 to 20, averaged within partner, then over partners.
    """
    from sprii_envs.overcooked.bank import HistoryBank
    from sprii_train.overcooked.devices import keep_programs
    from sprii_train.overcooked.measures import imitated, shown, slots, swapped
    from sprii_train.overcooked.panel import panel
    from sprii_train.overcooked.play import play

    learner, bank, trials, seed = source.learner, source.store, source.cell.trials, source.seed
    setting: Any = source.setting  # with a roster
    assert isinstance(bank, HistoryBank)
    assert trials is not None
    keep_programs(bank.folder.parent / ".programs")
    began, roster, protocol = time.perf_counter(), setting.roster, bank.protocol
    returns = play(
        learner, protocol.game, roster, seat=protocol.seat, episodes=trials.episodes, repeats=trials.repeats, seed=seed
    )
    by_partner = returns[:, :, 5:].mean((1, 2))
    groups = {name: roster.group(name) for name in ("familiar", "held_out")}
    played = panel(protocol.game, protocol.seat, roster)
    codes = slots(learner, played)
    last, whole = imitated(bank)
    return {
        "returns": {name: float(value) for name, value in zip(roster.names, by_partner, strict=True)},
        **{f"return_{name}": float(by_partner[own].mean()) for name, own in groups.items()},
        "curve": returns.mean(1)[groups["familiar"]].mean(0).tolist(),
        "imitated": {
            f"{when}_{name}": float(np.mean([told[roster.names[i]] for i in own]))
            for when, told in (("last", last), ("all", whole))
            for name, own in groups.items()
        },
        **formed(played, codes, groups),
        "untrained": formed(played, slots(first_weights(source), played), groups),
        "without": formed(played, shown(played, np.array(groups["familiar"])), groups),
        "behaviour": formed(played, played.behaviour, groups),
        "swapped_familiar": swapped(learner, bank, "validation", played, codes, seed=seed)._asdict(),
        "swapped_held_out": swapped(learner, bank, "held_out", played, codes, seed=seed)._asdict(),
        "evaluation_seconds": time.perf_counter() - began,
    }


def formed(panel: Any, codes: Any, groups: dict[str, list[int]]) -> dict[str, Any]:
    """What probes and ratio say of slots, and what they say where one partner has two names.

    The published probe's error stands beside that of a penalty chosen by fit samples. Partners that the probe does not
    know are the held-out ones, and each familiar one in its turn (`left_out`). A ratio is None where slots differ
    between partners and not within them.
    """
    from sprii_train.overcooked.measures import (
        chosen,
        chosen_penalty,
        compact,
        distance_ratio,
        left_out,
        probe,
        two_names,
    )

    familiar, signatures = np.array(groups["familiar"]), compact(panel.signatures)
    fitted, tested = (chosen(panel, codes, familiar, fit=fit) for fit in (True, False))
    penalty, found = chosen_penalty(fitted, signatures), {}
    for name, own in groups.items():
        samples = chosen(panel, codes, np.array(own), fit=False)
        told, kinder = (probe(fitted, samples, signatures, **more) for more in ({}, {"penalty": penalty}))
        means = {field: float(value.mean()) for field, value in told._asdict().items()}
        found[f"probe_{name}"] = means | {
            "chosen": float(kinder.error.mean()), "penalty": penalty, "by_partner": told.error.tolist()
        }  # fmt: skip
    alone = left_out(fitted, tested, signatures)
    found["probe_left_out"] = {"chosen": float(alone.error.mean()), "constant": float(alone.constant.mean())}
    try:
        found["distance_ratio"] = distance_ratio(fitted, tested)
        found["two_names"] = dict(zip(("ratio", "probe"), two_names(fitted, tested), strict=True))
    except ValueError:
        found |= {"distance_ratio": None, "two_names": None}
    return found
