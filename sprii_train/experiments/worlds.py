"""What a world's protocol says about its sources: which episodes, histories and factors (`app:data-splits`)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.banks import (
    D_CLEAN,
    POKE_FACTORIAL,
    POKE_ORIGINAL,
    SPRING,
    SPRING_SEALED,
    Bank,
    BankProtocol,
    build,
)
from sprii_envs.fields import integer
from sprii_envs.relations import EpisodeTable
from sprii_train.analysis.formation import sample_of
from sprii_train.analysis.populations import Population, Sample, Training, population_of
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.learners.jepa import JEPA, JEPAConfig
from sprii_train.recipes import Recipe

MEASURED_SEED = 20_260_903
"""Of the training systems that measurements are standardised by and fitted on, as in the paper's atlas."""

ENCODED = 256
"""Histories encoded at once: bounds memory, changes nothing."""

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """How sources of one world are trained and measured.

    Attributes:
        name: key on the command line.
        protocol: of the bank.
        factors: persistent properties.
        history: observations of a history.
        kind: kind of episode that histories come from; None takes all.
        shortest: see `PairedWindows`; SpringWorld offers whole episodes.
        anchors: last observations of the histories that a measurement averages in an episode.
        sealed: protocol of a second bank, of the systems kept for a last evaluation.
    """

    name: str
    protocol: BankProtocol
    factors: tuple[str, ...]
    history: int
    anchors: tuple[int, ...]
    kind: str | None = None
    shortest: int | None = None
    sealed: BankProtocol | None = None

    def open_bank(self, root: Path) -> Bank:
        """The bank under `root/banks`, built if it is not there, its checksums verified if it is."""
        return _open(self.protocol, root / "banks")

    def open_sealed(self, folder: Path) -> Bank:
        """The sealed bank in the folder of the main one, built if it is not there, its checksums verified if it is.

        Raises:
            ValueError: for a world that has none.
        """
        if self.sealed is None:
            raise ValueError(f"the world {self.name!r} has no sealed bank")
        return _open(self.sealed, folder)

    def episodes(self, bank: Bank, split: str, *, systems: int | None = None, unseal: bool = False) -> EpisodeTable:
        """Episodes of a split that histories come from; of all systems, or of a fixed random choice of them.

        Raises:
            ValueError: for a split that the bank does not have, a sealed one, or `systems` below 1.
        """
        table = bank.split(split, unseal=unseal)
        if self.kind is not None:
            table = table.select(table["kind"] == self.kind)
        if systems is not None:
            systems = integer("systems", systems, least=1)
            ids = np.random.default_rng(MEASURED_SEED).permutation(np.unique(table["system"]))
            table = table.select(np.isin(table["system"], ids[:systems]))
        return table

    def reader(self, bank: Bank, config: JEPAConfig) -> WindowReader:
        """The reader of a learner's observations."""
        labels = self.factors if config.context == "supervised" else ()
        return WindowReader(bank, config.history, config.horizons, labels, config.image)

    def data(self, bank: Bank, config: JEPAConfig, recipe: Recipe, *, pairs: int, seed: int) -> PairedWindows:
        """Training batches of a recipe."""
        table = self.episodes(bank, "train")
        relation, kernel = recipe.pairing(table)
        return PairedWindows(
            self.reader(bank, config), table, relation=relation, kernel=kernel, pairs=pairs, seed=seed,
            shortest=self.shortest,
        )  # fmt: skip

    def starts(self, anchor: int) -> int:
        """Where the history begins that ends at an anchor."""
        return anchor - self.history + 1


# Banks hold states; frames are drawn from them at the learner's size, which costs about 1 % of an update.
D_CLEAN_WORLD = World("d-clean", D_CLEAN, ("drag",), 24, (24, 32, 40, 47))
POKE_WORLD = World("poke", POKE_FACTORIAL.replace(frames=None), ("mass", "drag", "stiffness"), 24, (24, 32, 40, 47))
POKE_ORIGINAL_WORLDS = {
    f"poke-r{r}": World(
        f"poke-r{r}",
        POKE_ORIGINAL.replace(rollouts=r, frames=None),
        POKE_WORLD.factors,
        POKE_WORLD.history,
        POKE_WORLD.anchors,
    )
    for r in (2, 4, 8)
}
SPRING_WORLD = World("spring", SPRING, POKE_WORLD.factors, 96, (95,), kind="forced", shortest=16, sealed=SPRING_SEALED)

WORLDS: dict[str, World] = {
    world.name: world for world in (D_CLEAN_WORLD, POKE_WORLD, *POKE_ORIGINAL_WORLDS.values(), SPRING_WORLD)
}


def encode_histories(learner: JEPA, reader: WindowReader, table: EpisodeTable, start: int) -> NDArray[np.float64]:
    """Contexts (n, d_p) of one history of every episode, in evaluation mode."""
    return encode_windows(learner, reader, table["episode"], np.full(len(table), start))


@torch.no_grad()
def encode_windows(learner: JEPA, reader: WindowReader, episodes: Rows, starts: Rows) -> NDArray[np.float64]:
    """Contexts (n, d_p) of the histories of episodes (n,) from observations `starts` (n,), in evaluation mode."""
    learner.eval()
    parts = []
    for first in range(0, len(episodes), ENCODED):
        part = slice(first, first + ENCODED)
        parts.append(learner.encode_history(learner.prepare(reader.histories(episodes[part], starts[part])).history))
    return torch.cat(parts).double().numpy()


@torch.no_grad()
def present_features(learner: JEPA, observations: NDArray[Any]) -> NDArray[np.float64]:
    """Features (n, d_q) of present observations, in evaluation mode: z_s, or the embedding where there is none.

    Args:
        observations: states (n, S); or frames (n, 2, H, W), each after the one before it, or (n, 1, H, W) without a
            difference.
    """
    learner.eval()
    parts = []
    for first in range(0, len(observations), 20 * ENCODED):
        now = torch.from_numpy(np.ascontiguousarray(observations[first : first + 20 * ENCODED]))
        if learner.config.image:
            embedding = learner.embed(now.expand(-1, 2, -1, -1), now.new_empty(len(now), 0, 2, *now.shape[2:]))
        else:
            embedding = learner.embed(now.float()[:, None], now.float()[:, None][:, :0])
        split = learner.config.context != "monolithic"
        parts.append(learner.encode_current(embedding[:, 0]) if split else embedding[:, 0])
    return torch.cat(parts).double().numpy()


def measured_windows(
    world: World, learner: JEPA, bank: Bank, split: str, *, systems: int | None = None, unseal: bool = False
) -> Sample[Population]:
    """Codes of a split, one row for every anchor of every episode: `formation.rollout_means` averages the anchors."""
    reader = world.reader(bank, learner.config)
    table = world.episodes(bank, split, systems=systems, unseal=unseal)
    codes = np.stack([encode_histories(learner, reader, table, world.starts(a)) for a in world.anchors], axis=1)
    rows = np.repeat(np.arange(len(table)), len(world.anchors))
    return sample_of(population_of(bank, split), codes.reshape(len(rows), -1), table, world.factors, rows)


def training_windows(world: World, learner: JEPA, bank: Bank, systems: int) -> Sample[Training]:
    """The same of a fixed random choice of training systems."""
    found = measured_windows(world, learner, bank, "train", systems=systems)
    assert isinstance(found.population, Training)
    return cast(Sample[Training], found)


def _open(protocol: BankProtocol, folder: Path) -> Bank:
    size = "-".join(str(n) for n in protocol.counts.values())
    rollouts = protocol.rollouts if isinstance(protocol.rollouts, int) else "kinds"
    bank = build(protocol, folder / f"{protocol.name}-{size}-r{rollouts}", wait=True)
    bank.verify(checksums=True)
    return bank
