"""What `sprii doctor` prints: the machine, an update of every preset on its devices, and the cost of every target."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from sprii_train.benchmarks import machine
from sprii_train.benchmarks.steps import TOLERANCE, Tried, product_rate, try_presets
from sprii_train.experiments.costs import estimate, span
from sprii_train.experiments.costs import product_rate as cpu_rate
from sprii_train.experiments.targets import ALIASES, TARGETS, target
from sprii_train.settings import PRESET_NAMES, SETTINGS, Setting
from sprii_train.terminal import console


def examine(
    folder: Path,
    devices: Sequence[str] | None,
    settings: Mapping[str, Setting],
    presets: Sequence[str],
    *,
    pairs: int | None = 2,
    limit: float | None = None,
    targets: bool = True,
) -> dict[str, Any]:
    """Print all of it as it is found, and return it.

    Args:
        folder: of runs, see `machine.offers`.
        devices: by default all.
        settings, presets: that are tried.
        pairs, limit: see `steps.try_presets`.
        targets: whether the cost of each is told.
    """
    screen = console()
    offered = machine.offers(folder)
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, words in offered.items():
        table.add_row(name, words)
    lacking = machine.extras()
    for name, missing in lacking.items():
        table.add_row(
            f"Extra {name}", f"missing {', '.join(missing)}: pip install 'sprii[{name}]'" if missing else "ok"
        )
    screen.print(table)
    asked = tuple(machine.devices()) if devices is None else tuple(devices)
    tried: list[Tried] = []
    if presets:
        screen.print(f"\nOne update of every preset on {', '.join(asked)}; beside the first device's, in float32:")
        room = machine.available_memory()
        tried = try_presets(
            settings, asked, presets=presets, pairs=pairs, room=room, limit=limit,
            told=lambda one: screen.print(_told(one)),
        )  # fmt: skip
        screen.print(_judged(tried))
        ran = {update.device for one in tried for update in one.updates if update.error is None}
        if not any(device.startswith("cuda") for device in ran):
            screen.print("No update ran on CUDA: it is untested here.")
    found: dict[str, Any] = {"machine": offered, "extras": {name: list(each) for name, each in lacking.items()}}
    found["devices"] = list(asked)
    found["presets"] = [_plain(one) for one in tried]
    if targets:
        rates = {device: _rate(device) for device in asked}
        found["rates"] = rates
        found["targets"] = costs(rates)
        screen.print(_cost_table(rates, found["targets"]))
        screen.print(
            "Times are of one worker, nothing trained yet: measured seconds of an update scaled by a device's rate of "
            "float32 products, rough, and roughest of small learners on a device other than the CPU."
        )
    return found


def costs(rates: Mapping[str, float | str]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Target → preset → device → seconds; None where they are not known."""
    labels = [*TARGETS, *(label for name in SETTINGS if ALIASES.get(label := f"setting:{name}") is None)]
    known = {device: rate for device, rate in rates.items() if isinstance(rate, float)}
    return {
        label: {
            preset: {device: estimate(target(label), preset, rate) for device, rate in known.items()}
            for preset in PRESET_NAMES
        }
        for label in labels
    }


def _rate(device: str) -> float | str:
    """FLOP/s, or why there is none."""
    try:
        return cpu_rate() if device == "cpu" else product_rate(device)
    except Exception as error:  # what a device cannot do is what is asked
        return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _told(one: Tried) -> str:
    whose = one.settings[0] + (f" (and {len(one.settings) - 1} more)" if len(one.settings) > 1 else "")
    memory = "?" if one.memory is None else f"{one.memory / 2**30:.2f} GiB"
    batch = f"{one.pairs} pairs take {memory}" if one.pairs else f"a loop of its own, {memory}"
    updates = "; ".join(
        f"{each.device} {'' if each.seconds is None else f'{each.seconds * 1e3:.0f} ms '}{each.verdict}"
        for each in one.updates
    )
    return f"  {whose}, {one.preset}: {one.learner}, {one.weights:,} weights, {batch}; {one.tried} tried: {updates}"


def _judged(tried: Sequence[Tried]) -> str:
    updates = [update for one in tried for update in one.updates]
    failed = sum(update.error is not None for update in updates)
    apart = sum(update.difference is not None and update.difference > TOLERANCE for update in updates)
    return f"{len(updates) - failed} of {len(updates)} updates ran; {apart} differ by more than {TOLERANCE:g}"


def _plain(one: Tried) -> dict[str, Any]:
    """As JSON has words for it."""
    row = asdict(one) | {"settings": list(one.settings)}
    row["updates"] = [asdict(update) | {"verdict": update.verdict} for update in one.updates]
    for update in row["updates"]:
        if update["difference"] == float("inf"):
            update["difference"] = None
    return row


def _cost_table(rates: Mapping[str, float | str], found: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, title="What a target would cost", title_justify="left")
    table.add_column("table or figure", min_width=max(map(len, found)))
    for device, rate in rates.items():
        about = f"{rate / 1e9:.0f} GFLOP/s" if isinstance(rate, float) else rate
        for preset in PRESET_NAMES:
            table.add_column(f"{device} {preset}\n{about}" if preset == PRESET_NAMES[0] else preset, justify="right")
    for label, presets in found.items():
        table.add_row(label, *(span(presets[preset].get(device)) for device in rates for preset in PRESET_NAMES))
    return table
