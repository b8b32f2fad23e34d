"""A bank as a local Minari dataset."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from sprii_envs import rendering
from sprii_envs.banks.bank import Bank
from sprii_envs.banks.minari.package import episode_buffer, package
from sprii_envs.banks.minari.writing import check_about, needed, place, write
from sprii_envs.banks.storage import BankError
from sprii_envs.properties import unknown_name
from sprii_envs.relations import EpisodeTable
from sprii_envs.relations.table import few
from sprii_envs.world import World

Observations = Literal["states", "frames", "pixels"]


def to_minari(
    bank: Bank,
    dataset_id: str,
    split: str | EpisodeTable | None = None,
    *,
    observations: Observations | None = None,
    size: int | None = None,
    unseal: bool = False,
    about: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """Write episodes of a bank to the local Minari dataset `dataset_id` (HDF5, no JPEG); returns the MinariDataset.

    Args:
        split: name of a split, or a table selected from `bank.table`; by default every split that is not sealed
        observations: "states" (L, S) float32, the bank's; "frames" (L, H, W) uint8; or "pixels" (L, H, W, 2) uint8, the
            present and the previous frame as the environment shows them. By default frames if the bank stores
            them, else states.
        size: image size of frames that the bank does not store
        unseal: must be True for episodes of a sealed split
        about: fields of the dataset: author, author_email, code_permalink, algorithm_name, description, requirements
        progress: called with (done, total) episodes

    An episode of `length` L has L observations and L − 1 actions and rewards, the bank's bits. The last step is a
    truncation and none a termination: the bank stops before the state in which the world ended the episode
    (`ending` says why) or at its planned length. Metadata of an episode: every column of the bank's table (its
    episode number as `bank_episode`), `system_id`, and the reset `options` with which the recovered environment and
    the recorded actions repeat the episode.

    Raises ValueError (BankError for what is wrong with the bank or its splits): unknown or sealed split, illegal or
    taken id, no frames and no size, an episode without a transition, too little disk space. An export that fails or is
    killed leaves no dataset.
    """
    package()
    place(dataset_id)
    table = _episodes(bank, split, unseal)
    stored = "frames" in bank.columns
    chosen = observations or ("frames" if stored else "states")
    if chosen not in ("states", "frames", "pixels"):
        raise unknown_name("kind of observations", chosen, ("states", "frames", "pixels"))
    shape = None
    if chosen != "states":
        if size is None and not stored:
            raise BankError(f"{bank.path}: this bank stores no frames, so say which to draw: to_minari(..., size=64)")
        shape = bank.column("frames").shape[2:] if size is None else rendering.image_size(size)
    elif size is not None:
        raise ValueError(f"size={size!r} is of frames, but the observations are states: pass observations='frames'")
    space = _observation_space(bank.world, chosen, shape)
    told = {
        "algorithm_name": f"{bank.protocol.behaviour.kind} behaviour",
        "description": f"{bank!r}".replace(str(bank.path), bank.path.name),
        "requirements": ["sprii"],
        **(about or {}),
    }
    item = int(np.prod(space.shape)) * np.dtype(space.dtype).itemsize + 4 * bank.world.action_size + 6
    dataset = write(
        dataset_id,
        _buffers(bank, table, chosen, shape, progress),
        _metadata(bank, table),
        spaces=(space, gym.spaces.Box(-1.0, 1.0, (bank.world.action_size,), np.float32)),
        env_spec=_spec(bank, chosen, shape),
        about={**check_about(told), "sprii_protocol": bank.protocol.to_dict(), "sprii_fingerprint": bank.fingerprint},
        size=needed(int(table["length"].sum()) * item, len(table)),
    )
    return dataset


def _episodes(bank: Bank, split: str | EpisodeTable | None, unseal: bool) -> EpisodeTable:
    """The episodes to write; BankError for a sealed one without `unseal`, and for one of a single observation."""
    sealed = np.array(bank.protocol.sealed_splits, str)
    if isinstance(split, str):
        table = bank.split(split, unseal=unseal)
    elif split is None:
        open_rows = unseal | ~np.isin(bank.table["split"], sealed)
        if not open_rows.any():
            raise BankError(f"{bank.path}: every split is sealed ({', '.join(sealed)}); pass split= and unseal=True")
        table = bank.table.select(open_rows)
    else:
        table = split
        try:
            own = np.array_equal(bank.table.locate(table.every()), table.rows)
        except ValueError:
            own = False
        if not own:
            raise BankError(f"{bank.path}: the table given is not selected from this bank's table")
        closed = np.isin(bank.table["split"][table.rows], sealed)
        if closed.any() and not unseal:
            name = str(bank.table["split"][table.rows][closed.argmax()])
            raise BankError(f"{bank.path}: {closed.sum()} episodes are of the sealed split {name!r}: pass unseal=True")
    short = table["length"] < 2
    if short.any():
        raise BankError(
            f"{bank.path}: {short.sum()} episodes have one observation and no transition, which Minari cannot hold: "
            f"{few(table['episode'][short])}; pass split=table.select(table['length'] > 1)"
        )
    return table


def _observation_space(world: World, observations: str, shape: tuple[int, ...] | None) -> gym.spaces.Box:
    if shape is not None:
        return gym.spaces.Box(0, 255, shape if observations == "frames" else (*shape, 2), np.uint8)
    size = len(world.state_names)
    if type(world).observe is World.observe:  # the observation is the state, and has its bounds
        low, high = world.observation_bounds
        return gym.spaces.Box(low, high, dtype=np.float32)
    return gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)


def _spec(bank: Bank, observations: str, shape: tuple[int, ...] | None) -> EnvSpec:
    """The environment with the constants of the protocol and its number of steps."""
    spec = copy.deepcopy(gym.spec(bank.protocol.env_id))
    seen = {"obs_type": "state"} if shape is None else {"obs_type": "pixels", "image_size": list(shape)}
    spec.kwargs = {**spec.kwargs, **bank.protocol.constants, **seen}
    spec.max_episode_steps = bank.protocol.steps - 1
    return spec


def _buffers(
    bank: Bank,
    table: EpisodeTable,
    observations: str,
    shape: tuple[int, ...] | None,
    progress: Callable[[int, int], None] | None,
) -> Iterator[Any]:
    """One EpisodeBuffer after the other, read from the bank when the storage asks for it."""
    names = bank.properties.names
    for done, (row, length) in enumerate(zip(table.rows.tolist(), table["length"].tolist(), strict=True)):
        if progress:
            progress(done, len(table))
        states = bank.windows("states", [row], 0, length)[0]
        last = np.zeros(length - 1, np.bool_)
        last[-1] = True
        yield episode_buffer(
            options={
                "system": {name: float(bank.table[name][row]) for name in names},
                "state": states[0].astype(np.float64),
            },
            observations=states if shape is None else _images(bank, row, length, observations, shape),
            actions=bank.windows("actions", [row], 0, length - 1)[0],
            rewards=bank.windows("rewards", [row], 0, length - 1)[0],
            terminations=np.zeros(length - 1, np.bool_),
            truncations=last,
        )
    if progress:
        progress(len(table), len(table))


def _images(bank: Bank, row: int, length: int, observations: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    frames = bank.frames([row], 0, length, shape)[0]
    if observations == "frames":
        return frames
    return np.stack([frames, np.concatenate([frames[:1], frames[:-1]])], axis=-1)


def _metadata(bank: Bank, table: EpisodeTable) -> Iterator[dict[str, Any]]:
    """What is known of each episode, as Python scalars."""
    rows = table.rows
    names = [name for name in bank.table.columns if name not in ("episode", "length")]
    columns = {"bank_episode": bank.table["episode"][rows], **{name: bank.table[name][rows] for name in names}}
    columns["system_id"] = bank.systems.ids[bank.table.codes("system")[0][rows]]
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield dict(zip(columns, values, strict=True))
