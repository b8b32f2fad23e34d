"""An ego that learns by recurrent PPO with one fixed partner: the learning history that AD imitates.

The same clipped updates as the partners' self-play, for one seat and the team's own reward. Episodes are kept at even
distances of the run, all kitchens at once (`app:overcooked-profile`: recorded episode prefixes of a history).
"""

import functools
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sprii_envs.arguments import WORKERS, integer
from sprii_envs.banks import StoreError
from sprii_envs.files import lock
from sprii_envs.overcooked.bank import (
    COLUMNS,
    HistoryBank,
    HistoryProtocol,
    Run,
    identity,
    open_histories,
    planned,
    write_histories,
)
from sprii_envs.overcooked.collect import Histories
from sprii_envs.overcooked.game import Game, check_process, observe, reset, step
from sprii_envs.overcooked.partners.network import features, heads, recur
from sprii_envs.overcooked.partners.partner import Partner, actor
from sprii_envs.overcooked.partners.roster import Roster, roster_of
from sprii_envs.relations.arrays import read_npz, write_npz
from sprii_train.overcooked.ippo import IPPO, RETURNS, Sequences, Training, advantages, improve, initial, value_of

FORMAT = 1
"""Of the file of a run that waits for the others."""

EGO = IPPO(learning_rate=3e-3, entropy=0.01)
"""What a run learns with; the protocol says its kitchens."""

HELD = 2**30
"""Bytes that the runs which are learnt at once hold by default: with Python, torch and jax below 2 GB."""


def made_with(protocol: HistoryProtocol) -> str:
    """What the histories of a protocol depend on besides it: the ego's learning."""
    return f"{replace(EGO, kitchens=protocol.kitchens)!r}, returns {RETURNS}"


def runs_at_once(protocol: HistoryProtocol, cores: int) -> int:
    """How many runs are learnt at once by default: one a core, of as many as `HELD` has room for, and at least one."""
    steps = protocol.histories * protocol.episodes * protocol.game.max_steps
    return max(1, min(cores, HELD // (steps * int(np.prod(protocol.game.shape)))))


def build_histories(
    protocol: HistoryProtocol,
    partners: Iterable[Partner],
    folder: Path | str,
    *,
    progress: Callable[[int, int], None] | None = None,
    workers: int | None = None,
) -> HistoryBank:
    """Learn with every partner and write the bank; what is there of it is not done again.

    Args:
        workers: runs at once, in threads; by default `runs_at_once`.

    Raises:
        ValueError: for kitchens that do not make minibatches, or less than one worker.
        StoreError: if the folder holds another bank, a damaged one or something else, or if what is there of a run is
            damaged.
    """
    folder, partners, made = Path(folder), roster_of(partners), made_with(protocol)
    config = replace(EGO, kitchens=protocol.kitchens)
    if protocol.kitchens % config.minibatches:
        raise ValueError(f"kitchens is {protocol.kitchens}; legal: a multiple of {config.minibatches}")
    if workers is not None:
        workers = integer("workers", workers, least=1, most=WORKERS)
    place = Path(os.path.realpath(folder))
    parts = place.with_name(f".{place.name}-{identity(protocol, partners, made)[:12]}")
    with lock(parts.with_suffix(".lock"), error=StoreError):
        bank = open_histories(folder, protocol, partners, made)
        if bank is not None:
            bank.verify()
        else:
            for partner in partners:
                partner.fits(protocol.game)
            plan = planned(protocol, partners)
            _learn(plan, protocol, partners, config, parts, progress, workers)
            bank = write_histories(folder, protocol, partners, made, lambda run: _read(_part(parts, run), protocol))
        shutil.rmtree(parts, ignore_errors=True)
    return bank


def _learn(
    plan: Sequence[Run],
    protocol: HistoryProtocol,
    partners: Roster,
    config: IPPO,
    parts: Path,
    progress: Callable[[int, int], None] | None,
    workers: int | None,
) -> None:
    """Learn the runs whose files are not there, each into its own."""
    parts.mkdir(parents=True, exist_ok=True)
    todo = []
    for run in plan:
        if _part(parts, run).exists():
            _read(_part(parts, run), protocol)  # what is damaged is told of before the others take hours
        else:
            todo.append(run)

    def learn(run: Run) -> None:
        seed = int(np.random.SeedSequence([protocol.seed, run.number]).generate_state(1)[0])
        own = learn_with(
            protocol.game, config, protocol.seat, partners[run.partner],
            iterations=protocol.iterations, kept=protocol.kept(), histories=protocol.histories, seed=seed,
        )  # fmt: skip
        write_npz(_part(parts, run), FORMAT, {name: getattr(own, name) for name in COLUMNS}, compress=True)

    with ThreadPoolExecutor(workers or runs_at_once(protocol, os.cpu_count() or 1)) as pool:
        waiting = [pool.submit(learn, run) for run in todo]
        try:
            for n, done in enumerate(as_completed(waiting), 1 + len(plan) - len(todo)):
                done.result()
                if progress is not None:
                    progress(n, len(plan))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def learn_with(
    game: Game,
    config: IPPO,
    seat: int,
    partner: Partner,
    *,
    iterations: int,
    kept: Sequence[int],
    seed: int,
    histories: int | None = None,
) -> Histories:
    """One run: the episodes of the iterations `kept`, one history a kitchen, (histories, len(kept), T, …).

    Args:
        seat: of the ego.
        iterations: episodes in each kitchen, an update after each.
        kept: which of them, 0 to iterations − 1, in order.
        seed: of weights, starts, recipes and actions.
        histories: of the first so many kitchens; None is all.
    """
    check_process()
    partner.fits(game)
    training = initial(game, config, seed)
    rows = config.kitchens if histories is None else histories
    shape = (rows, len(kept), game.max_steps)
    mine, theirs = np.empty((2, *shape), np.uint8)
    found = Histories(np.empty((*shape, *game.shape), np.uint8), mine, theirs, np.empty(shape, np.float32))
    weights, first = partner.reads, partner.initial()
    for iteration in range(iterations):
        training, played = _iterate(game, config, seat, partner.family, training, weights, first)
        if iteration in kept:
            at = list(kept).index(iteration)
            for name, part in zip(COLUMNS, played, strict=True):  # filled in place: a run's episodes are held once
                getattr(found, name)[:, at] = np.moveaxis(np.asarray(part)[:, :rows], 1, 0)
    return found


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _iterate(game: Game, config: IPPO, seat: int, family: str, training: Training, weights: Any, first: Any):
    """Play, then learn: the next training, and what the ego saw, what both did and what was paid, time first."""
    key, begun, moved, shuffled = jax.random.split(training.key, 4)
    answer = jax.vmap(actor(game, 1 - seat, family), in_axes=(None, 0, 0, 0, None, 0))
    rows, parameters = config.kitchens, training.parameters

    def move(now, at):
        state, carry, theirs = now
        time, key = at
        seen = jax.vmap(functools.partial(observe, game))(state)
        choose, reply_key, turn = jax.random.split(key, 3)
        carry = recur(parameters, carry, features(parameters, seen[:, seat]))
        logits, value = heads(parameters, carry)
        action = jax.random.categorical(choose, logits)
        log_probability = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], -1)[:, 0]
        reply, theirs = answer(weights, theirs, state, seen[:, 1 - seat], time, jax.random.split(reply_key, rows))
        pair = jnp.stack([action, reply] if seat == 0 else [reply, action], axis=1)
        _, state, reward, _ = jax.vmap(functools.partial(step, game))(jax.random.split(turn, rows), state, pair)
        told = (seen[:, seat], action, reply, reward, log_probability, value)
        return (state, carry, theirs), told

    _, state = jax.vmap(functools.partial(reset, game))(jax.random.split(begun, rows))
    theirs = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (rows, *jnp.shape(leaf))), first)
    start = (state, jnp.zeros((rows, config.width)), theirs)
    steps = (jnp.arange(game.max_steps), jax.random.split(moved, game.max_steps))
    (state, carry, _), seen = jax.lax.scan(move, start, steps)
    observation, action, reply, reward, log_probability, value = seen
    last = jax.vmap(functools.partial(observe, game))(state)[:, seat]
    cut = value_of(parameters, carry, last)
    advantage = advantages(reward, value, cut, config.discount, config.trace)
    batch = Sequences(observation, action, log_probability, advantage, advantage + value)
    found, moments = improve(config, training, batch, shuffled)
    played = (observation, action.astype(jnp.uint8), reply.astype(jnp.uint8), reward)
    return Training(found, moments, key), played


def _part(folder: Path, run: Run) -> Path:
    return folder / f"run-{run.number}.npz"


def _read(part: Path, protocol: HistoryProtocol) -> Histories:
    """The histories of a finished run; StoreError naming the file if it is damaged."""
    try:
        arrays = read_npz(part, FORMAT, "histories of a run", COLUMNS)
    except (OSError, ValueError) as error:
        raise StoreError(f"{error}; remove it to learn that run again") from None
    shape = (protocol.histories, protocol.episodes, protocol.game.max_steps)
    for name in COLUMNS:
        expected = (*shape, *protocol.game.shape) if name == "observations" else shape
        dtype = np.float32 if name == "rewards" else np.uint8
        if arrays[name].shape != expected or arrays[name].dtype != dtype:
            raise StoreError(
                f"{part} is damaged: {name} are {arrays[name].dtype} of shape {arrays[name].shape}, expected "
                f"{np.dtype(dtype)} of {expected}; remove it to learn that run again"
            )
    return Histories(*(arrays[name] for name in COLUMNS))
