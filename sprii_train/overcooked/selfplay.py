"""Partners from self-play: train seeds, keep checkpoints on the way, write a roster that `load_roster` reads."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from sprii_envs.arguments import check, instance, integer, integers, numbers
from sprii_envs.files import read_json, write_json, write_whole
from sprii_envs.overcooked.collect import collect
from sprii_envs.overcooked.game import Game, check_process, engine
from sprii_envs.overcooked.partners.partner import NEURAL, Partner
from sprii_envs.overcooked.partners.roster import ANYWHERE, write_roster
from sprii_envs.overcooked.partners.scripted import BUTTON, POT, towards
from sprii_train.checkpoints import CheckpointError
from sprii_train.overcooked.ippo import IPPO, RETURNS, Training, initial, iterate, shaping_at

_REMEDY = "choose another folder"

Report = Callable[[int, int, float], None]
"""Seed, iteration and mean return."""


@dataclass(frozen=True)
class SelfPlay:
    """One family of partners.

    Attributes:
        iterations: of a seed; one is an episode in every kitchen.
        checkpoints: shares of the iterations after which the network is kept as a partner.
        seeds: one training run each.
        held_out: those of `seeds` whose partners no policy may be trained with.
        measured: episodes of self-play that a partner's return is the mean of.
    """

    game: Game = field(default_factory=Game)
    ippo: IPPO = field(default_factory=IPPO)
    iterations: int = 600
    checkpoints: tuple[float, ...] = (0.5, 1.0)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    held_out: tuple[int, ...] = (4,)
    measured: int = 200
    save_every: int = 50

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, instance, "game", of=Game)
        check(self, instance, "ippo", of=IPPO)
        check(self, integer, "iterations", "measured", "save_every", least=1)
        check(self, numbers, "checkpoints", above=0, most=1, some=True)
        check(self, integers, "seeds", some=True)
        check(self, integers, "held_out")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"SelfPlay.seeds is {self.seeds}; legal: different integers >= 0")
        if unknown := sorted(set(self.held_out) - set(self.seeds)):
            raise ValueError(f"held_out names seed {unknown[0]}; legal: {', '.join(map(str, self.seeds))}")

    def kept(self) -> list[int]:
        """Iterations after which a partner is kept."""
        return sorted({max(1, round(share * self.iterations)) for share in self.checkpoints})


def train_partners(config: SelfPlay, folder: Path, report: Report, *, command: str = "") -> list[Partner]:
    """Train every seed that is not finished, then write the roster with the scripted families.

    A run that was stopped goes on where its last state was saved, and ends with the same bits.

    Raises:
        CheckpointError: if the folder holds runs of another configuration, or a damaged state.
    """
    check_process()
    identity = json.loads(json.dumps(asdict(config) | {"seeds": [], "held_out": [], "returns": RETURNS}))
    told = folder / "config.json"
    if told.exists() and (there := read_json(told, CheckpointError, _REMEDY)) != identity:
        differ = [name for name in identity if there.get(name) != identity[name]]
        raise CheckpointError(
            f"{folder} holds partners of another configuration ({', '.join(differ)} differ: "
            f"{there.get(differ[0])} there); legal: a new folder, or the same one"
        )
    write_json(told, identity)
    found: list[Partner] = []
    for seed in config.seeds:
        found += _train(config, seed, folder, report)
    provenance = {
        partner.name: {
            "command": command,
            "seed": partner.source,
            "returns": RETURNS,
            "self_play": float(self_play(config.game, partner, episodes=config.measured).mean()),
        }
        for partner in found
    }
    partners = found + scripted_partners(config.game)
    write_roster(folder, config.game, partners, provenance)
    return partners


def self_play(game: Game, partner: Partner, *, episodes: int, seed: int = 1) -> np.ndarray:
    """Returns (episodes,) of a partner with itself."""
    return collect(game, 0, partner, partner, histories=episodes, seed=seed, observations=False).returns[:, 0]


def scripted_partners(game: Game) -> list[Partner]:
    """The families that a kitchen allows: those of any, cooks where there are one pot, recipes, and a button."""
    layout = engine(game).layout
    recipes = layout.possible_recipes or []
    if towards(game, BUTTON) is None or (layout.static_objects == POT).sum() != 1 or len(recipes) < 2:
        return list(ANYWHERE)
    return [
        *ANYWHERE,
        Partner("cooks-first", "cook", {"untold": 0, "heeds": False}),
        Partner("cooks-second", "cook", {"untold": 1, "heeds": False}),
        Partner("listens", "cook", {"untold": 0}),
        Partner("waits", "cook"),
        Partner("waits-each-dish", "cook", {"forgets": True}),
    ]


def _train(config: SelfPlay, seed: int, folder: Path, report: Report) -> list[Partner]:
    state = folder / "states" / f"seed-{seed}.safetensors"
    training, kept, done = initial(config.game, config.ippo, seed), {}, 0
    if state.exists():
        training, kept, done = _read(state, training, config)
    for iteration in range(done, config.iterations):
        weight = shaping_at(iteration, config.iterations, config.ippo)
        training, returned = iterate(config.game, config.ippo, training, jnp.float32(weight))
        if iteration + 1 in config.kept():
            kept[iteration + 1] = {name: np.asarray(array) for name, array in training.parameters.items()}
        if (iteration + 1) % config.save_every == 0 or iteration + 1 == config.iterations:
            report(seed, iteration + 1, float(returned))
            write_whole(state, _written(training, kept, iteration + 1))
    steps = config.ippo.kitchens * config.game.max_steps
    return [
        Partner(f"ippo-{seed}-{i}", NEURAL, {}, kept[at], seed, at * steps, seed in config.held_out)
        for i, at in enumerate(config.kept())
    ]


def _written(training: Training, kept: dict[int, dict[str, Any]], done: int) -> bytes:
    arrays = {f"leaf.{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(training))}
    for at, parameters in kept.items():
        arrays |= {f"kept.{at}.{name}": array for name, array in parameters.items()}
    arrays["done"] = np.array([done])
    return save({**arrays, "sha256": _digest(arrays)})


def _digest(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """SHA-256 of names, types, shapes and values, (32,) uint8."""
    whole = hashlib.sha256()
    for name in sorted(arrays):
        whole.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode() + arrays[name].tobytes())
    return np.frombuffer(whole.digest(), np.uint8)


def _read(path: Path, like: Training, config: SelfPlay) -> tuple[Training, dict[int, dict[str, Any]], int]:
    remedy = "remove it to train that seed again"
    try:
        arrays = load(path.read_bytes())
        sound = np.array_equal(arrays.pop("sha256"), _digest(arrays))
        leaves, structure = jax.tree.flatten(like)
        found = [arrays.pop(f"leaf.{i}") for i in range(len(leaves))]
        done = int(arrays.pop("done")[0])
    except (SafetensorError, KeyError, IndexError) as error:
        raise CheckpointError(f"{path} is damaged: {error}; {remedy}") from None
    if not sound:
        raise CheckpointError(f"{path} is damaged: its checksum is another; {remedy}")
    kept: dict[int, dict[str, Any]] = {}
    for name, array in arrays.items():
        _, at, parameter = name.split(".", 2)
        kept.setdefault(int(at), {})[parameter] = array
    fits = [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in leaves]
    if not fits or not 0 < done <= config.iterations or set(kept) != {at for at in config.kept() if at <= done}:
        raise CheckpointError(f"{path} is not of this training; {remedy}")
    return jax.tree.unflatten(structure, [jnp.asarray(x) for x in found]), kept, done


def crossplay(
    game: Game, egos: Sequence[Partner], partners: Sequence[Partner], *, seat: int, episodes: int, seed: int = 1
) -> np.ndarray:
    """Mean return (egos, partners), each ego in `seat`, over `episodes` with the same seeds for all pairs."""
    return np.array(
        [
            [
                collect(game, seat, ego, partner, histories=episodes, seed=seed, observations=False).returns.mean()
                for partner in partners
            ]
            for ego in egos
        ]
    )
