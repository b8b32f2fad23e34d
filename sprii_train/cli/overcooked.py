"""`sprii overcooked`: partners, and how they play. Heavy imports wait until a command is chosen."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, subcommand

from sprii_train.cli.options import as_options, check_folder

EPISODES = 100_000
"""Of a pair at most: all are played at once."""


@dataclass
class TrainPartners:
    """Train partners by self-play, several seeds with several checkpoints each. Resumes when repeated."""

    out: Path = Path("runs/overcooked-partners")
    """Folder of the roster."""
    seeds: str = "5"
    """A count (5) or a list (0,4,7): one training run each."""
    held_out: str | None = None
    """Seeds whose partners no policy may be trained with, empty for none; by default the last of several."""
    iterations: int = 600
    """Of each seed; one is an episode in each of 64 kitchens."""
    checkpoints: str = "0.25,1"
    """Shares of the iterations after which a partner is kept."""
    layout: str = "grounded_coord_simple"
    """An OvercookedV2 layout."""
    max_steps: int = 100
    """Of an episode."""
    view: int | None = 2
    """Cells seen in each direction; None is the whole kitchen."""
    device: str = "cpu"
    """A JAX device, such as cuda. Another one gives other partners: sums are rounded in another order."""

    def run(self) -> None:
        """Train, then list the roster."""
        from sprii_envs.overcooked.game import Game
        from sprii_envs.overcooked.partners.partner import NEURAL
        from sprii_train.experiments.seeds import chosen, parse_seeds
        from sprii_train.overcooked.devices import on_device
        from sprii_train.overcooked.selfplay import SelfPlay, train_partners

        check_folder(self.out)
        seeds = chosen(parse_seeds(self.seeds))
        held_out = (str(seeds[-1]) if len(seeds) > 1 else "") if self.held_out is None else self.held_out
        with as_options("SelfPlay"):
            config = SelfPlay(
                game=Game(self.layout, self.max_steps, self.view),
                iterations=self.iterations,
                checkpoints=_numbers("checkpoints", self.checkpoints),
                seeds=seeds,
                held_out=_numbers("held-out", held_out, int) if held_out else (),
            )
        told = [f"sprii overcooked partners train --seeds {self.seeds} --held-out {shlex.quote(held_out)}"]
        told += [f"--iterations {self.iterations} --checkpoints {self.checkpoints} --layout {self.layout}"]
        told += [f"--max-steps {self.max_steps} --view {self.view}"]
        told += [] if self.device == "cpu" else [f"--device {self.device}"]

        def report(seed: int, done: int, value: float) -> None:
            print(f"seed {seed}  iteration {done}/{config.iterations}  return {value:.1f}", flush=True)

        with on_device(self.device):
            found = train_partners(config, self.out, report, command=" ".join(told))
        networks = sum(partner.family == NEURAL for partner in found)
        print(f"{networks} networks and {len(found) - networks} scripted partners: {self.out / 'partners.json'}")


@dataclass
class MeasurePartners:
    """Measure partners again: self-play returns beside those they were shipped with, and the cross-play matrix."""

    folder: Positional[Path | None] = None
    """A folder that `train` wrote; by default the shipped partners."""
    episodes: int = 200
    """Of each pair."""
    seat: Literal[0, 1] = 0
    """Of the egos, the matrix's rows."""
    out: Path = Path("runs/overcooked-crossplay")
    """Folder of the figure and the numbers."""
    device: str = "cpu"
    """A JAX device, such as cuda."""

    def run(self) -> None:
        """Print both and write the figure."""
        from sprii_envs.arguments import integer
        from sprii_train.overcooked.devices import on_device

        integer("--episodes", self.episodes, least=1, most=EPISODES)
        check_folder(self.out)
        with on_device(self.device):
            self._measure()

    def _measure(self) -> None:
        from rich.table import Table

        from sprii_envs.files import write_json, write_whole
        from sprii_envs.overcooked.partners.partner import NEURAL
        from sprii_envs.overcooked.partners.roster import game_of, load_roster, manifest, shipped_folder
        from sprii_train.overcooked.selfplay import crossplay, self_play
        from sprii_train.reports.figures import png
        from sprii_train.reports.overcooked_figures import crossplay_figure
        from sprii_train.terminal import console

        folder = self.folder or shipped_folder()
        roster, game = load_roster(folder), game_of(folder)
        neural = [partner for partner in roster if partner.family == NEURAL]
        recorded = {row["name"]: row.get("self_play") for row in manifest(folder)["partners"]}
        columns = ("partner", "source", "steps", "held out", "recorded return", "return now")
        table = Table(*columns, box=None, pad_edge=False)
        for partner in neural:
            now = self_play(game, partner, episodes=self.episodes).mean()
            about = [str(partner.source), f"{partner.checkpoint:,}", "yes" if partner.held_out else ""]
            before = recorded.get(partner.name)
            returns = [f"{before:.2f}" if isinstance(before, int | float) else "", f"{now:.2f}"]
            table.add_row(partner.name, *about, *returns)
        console().print(table)
        matrix = crossplay(game, neural, list(roster), seat=self.seat, episodes=self.episodes)
        egos = [partner.name for partner in neural]
        name = "crossplay" if self.seat == 0 else f"crossplay-seat-{self.seat}"
        write_json(self.out / f"{name}.json", {"egos": egos, "partners": roster.names, "returns": matrix.tolist(),
                                                 "episodes": self.episodes, "seat": self.seat})  # fmt: skip
        write_whole(self.out / f"{name}.png", png(crossplay_figure(matrix, egos, roster.names)))
        print(f"cross-play: {self.out / f'{name}.png'}")


@dataclass
class PartnersCommand:
    """Train or measure partners."""

    command: Annotated[TrainPartners, subcommand("train")] | Annotated[MeasurePartners, subcommand("measure")]

    def run(self) -> None:
        """Run the chosen one."""
        self.command.run()


@dataclass
class WatchPartners:
    """One episode of two partners as a GIF."""

    ego: str
    """Name of the partner in seat 0, before the button in the default layout."""
    partner: str
    """Name of the partner in seat 1, which cooks there."""
    folder: Path | None = None
    """A folder that `partners train` wrote; by default the shipped partners."""
    seed: int = 0
    """Of the episode."""
    out: Path = Path("overcooked.gif")
    """File to write."""

    def run(self) -> None:
        """Play and write."""
        from sprii_envs.arguments import integer
        from sprii_envs.overcooked.game import SEEDS
        from sprii_envs.overcooked.partners.roster import game_of, load_roster, shipped_folder
        from sprii_train.overcooked.watch import episode_gif

        integer("--seed", self.seed, most=SEEDS - 1)
        if self.out.suffix.lower() != ".gif":
            raise ValueError(f"--out is {self.out}; legal: a file that ends in .gif")
        folder = self.folder or shipped_folder()
        roster = load_roster(folder)
        ego, partner = (roster[roster.id(name)] for name in (self.ego, self.partner))
        returned = episode_gif(ego, partner, self.out, seed=self.seed, game=game_of(folder))
        print(f"return {returned:.0f}: {self.out}")


@dataclass
class OvercookedCommand:
    """A partner as the persistent entity: partners, and a GIF of an episode."""

    command: Annotated[PartnersCommand, subcommand("partners")] | Annotated[WatchPartners, subcommand("watch")]

    def run(self) -> None:
        """Run the chosen one, once the extra is there."""
        import sprii_envs.overcooked  # noqa: F401

        self.command.run()


def _numbers(option: str, text: str, kind: type = float) -> tuple[Any, ...]:
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"--{option} is {text!r}; legal: comma-separated {'integers' if kind is int else 'numbers'}"
        ) from None
