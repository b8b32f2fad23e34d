"""`sprii doctor`: what a machine offers, whether every preset takes a step on it, and what each target would cost."""

from dataclasses import dataclass
from pathlib import Path

from sprii_envs.arguments import integer, number
from sprii_envs.properties import unknown_name
from sprii_train.cli.options import check_file


@dataclass
class Doctor:
    """Print what this machine offers, an update of every preset on every device, and what targets would cost."""

    devices: str | None = None
    """Torch devices, such as cpu,cuda:0; by default all. The first is what the others are compared with."""
    presets: str = "smoke,quick,states,paper"
    """Presets to try; none: nothing is tried."""
    settings: str | None = None
    """Settings to try; by default all."""
    pairs: int | None = 2
    """Pairs of the batch that is tried, at most a preset's own; None: its own, where memory allows."""
    limit: float | None = 90.0
    """Seconds of all updates, of which one may take a fifth; None: as long as they take."""
    targets: bool = True
    """Also print what each target would cost here."""
    out: Path = Path("runs")
    """Where runs would be written; nothing is, only its disk is asked."""
    json: Path | None = None
    """Also write all of it to this file."""

    def run(self) -> None:
        """Measure and print."""
        from sprii_envs.files import write_json
        from sprii_train.benchmarks import doctor
        from sprii_train.settings import PRESET_NAMES, SETTINGS, load_entry_points

        load_entry_points()
        if self.pairs is not None:
            integer("--pairs", self.pairs, least=2)
        if self.limit is not None:
            number("--limit", self.limit, above=0)
        check_file("--json", self.json)
        presets = () if self.presets == "none" else tuple(self.presets.split(","))
        names = tuple(SETTINGS) if self.settings is None else tuple(self.settings.split(","))
        for kind, given, legal in (("preset", presets, PRESET_NAMES), ("setting", names, tuple(SETTINGS))):
            for name in given:
                if name not in legal:
                    raise unknown_name(kind, name, legal)
        devices = None if self.devices is None else tuple(self.devices.split(","))
        found = doctor.examine(
            self.out, devices, {name: SETTINGS[name] for name in names}, presets,
            pairs=self.pairs, limit=self.limit, targets=self.targets,
        )  # fmt: skip
        if self.json is not None:
            write_json(self.json, found)
