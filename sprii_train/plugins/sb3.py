"""Relation pairs in Stable-Baselines3: `SAC(..., replay_buffer_class=RelationReplayBuffer)`."""

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from sprii_envs.arguments import integer
from sprii_envs.dependencies import needed
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, NoLegalDonorError, PairSampler, Relation, WindowSampler
from sprii_envs.relations.recipients import Law
from sprii_envs.relations.relation import check_relation

with needed("sprii_train.plugins.sb3 needs Stable-Baselines3", "stable-baselines3", "stable_baselines3"):
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.vec_env import VecNormalize


class ReplayWindows(NamedTuple):
    """K transitions in a row of one episode, n times; tensors are on the buffer's device."""

    observations: torch.Tensor  # (n, K + 1, …): the last one is what the last transition led to
    actions: torch.Tensor  # (n, K, A), as the buffer holds them: scaled to ±1
    rewards: torch.Tensor  # (n, K)
    dones: torch.Tensor  # (n, K): 1 where the task ended; a time limit is no such end
    episode: NDArray[np.int64]  # (n,), numbered by the buffer
    system: NDArray[np.str_]  # (n,)


class ReplayPairs(NamedTuple):
    """Related windows, and which of the n pairs satisfy the relation."""

    recipient: ReplayWindows
    donor: ReplayWindows
    correct: torch.Tensor  # (n,) bool


@dataclass
class _Episode:
    """A run of rows in one environment's column of the ring."""

    number: int
    system: str
    labels: tuple[Any, ...]
    column: int
    first: int
    length: int = 0  # in transitions


class _Ready(NamedTuple):
    """Samplers over the episodes that can be paired, and where those lie."""

    pairs: PairSampler
    windows: WindowSampler
    first: NDArray[np.int64]
    column: NDArray[np.int64]


class RelationReplayBuffer(ReplayBuffer):
    """A replay buffer that also gives windows of related episodes; `sample` is Stable-Baselines3's.

    The info of every step must name its `system_id`; `sprii_envs.wrappers.RepeatSystem` sees to it, and to episodes
    that are related. An episode can be paired from its end until the ring overwrites its first row. It also ends where
    an environment is reset halfway: where an observation is not the one before it led to.

    Keywords, given as `replay_buffer_kwargs`: `steps` K in a window (1: single transitions), `relation`, `columns`
    (further keys of the step's info: one label an episode, for relations over them), and the other arguments of
    `PairSampler`: `kernel`, `law`, `distinct`, `seed`. Recipients without a legal donor are left out.

    ValueError for Dict observations, and for `optimize_memory_usage`, which loses every episode's last observation.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        steps: int = 1,
        relation: Relation = SAME_SYSTEM,
        columns: tuple[str, ...] = (),
        **law: Any,
    ) -> None:
        if isinstance(observation_space, spaces.Dict) or optimize_memory_usage:
            raise ValueError(
                f"RelationReplayBuffer takes observations of one array and no optimize_memory_usage; got "
                f"{observation_space} and optimize_memory_usage={optimize_memory_usage}"
            )
        check_relation(relation)
        known = ("kernel", "law", "distinct", "seed")
        if unknown := [name for name in law if name not in known]:
            raise ValueError(f"unknown argument {unknown[0]!r}; legal: steps, relation, columns, {', '.join(known)}")
        if law.get("law", "recipient") not in get_args(Law):  # before the first steps are taken
            raise ValueError(f"law must be one of {', '.join(get_args(Law))}, got {law['law']!r}")
        super().__init__(
            buffer_size, observation_space, action_space, device, n_envs, False, handle_timeout_termination
        )
        self.steps, self.relation, self.columns, self.law = integer("steps", steps, least=1), relation, columns, law
        self.pair_step = 0
        """Step of the next `sample_pairs`, which depends on the seed, this and the episodes held alone."""
        self._forget()

    def reset(self) -> None:
        """Forget everything stored."""
        super().reset()
        self._forget()

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: list[dict[str, Any]]) -> None:
        """Store one transition of each environment; ValueError if an info lacks its system or a label."""
        for name in ("system_id", *self.columns):
            for i, info in enumerate(infos):
                if name not in info:
                    raise ValueError(
                        f"the step of environment {i} has no {name!r} in its info: sprii_envs.wrappers.RepeatSystem "
                        "puts the system there, a wrapper of yours any other label"
                    )
        row = self.pos
        seen = np.asarray(obs, self.observations.dtype).reshape(self.n_envs, *self.obs_shape)
        for i, info in enumerate(infos):
            self._make_room(i, row)
            run = self._running[i]
            if run and not (
                run.system == str(info["system_id"]) and np.array_equal(self.next_observations[row - 1, i], seen[i])
            ):
                self._end(i)
            if self._running[i] is None:
                labels = tuple(info[name] for name in self.columns)
                self._running[i] = _Episode(self._count, str(info["system_id"]), labels, i, row)
                self._count += 1
            self._running[i].length += 1  # type: ignore[union-attr]
        super().add(obs, next_obs, action, reward, done, infos)
        for i in np.flatnonzero(done):
            self._end(int(i))

    def sample_pairs(self, n: int, env: VecNormalize | None = None) -> ReplayPairs:
        """n related windows, normalised by `env` if given; one `pair_step` on.

        NoLegalDonorError while there are none: catch it, or wait until enough episodes have ended.
        """
        ready = self._prepare()
        batch = ready.pairs.batch(self.pair_step, n)
        w = ready.windows.batch(self.pair_step, batch, self.relation)
        self.pair_step += 1
        recipient = self._read(ready, w.recipient, w.recipient_start, env)
        donor = self._read(ready, w.donor, w.donor_start, env)
        return ReplayPairs(recipient, donor, self.to_torch(batch.correct))

    def _forget(self) -> None:
        self._ended: list[deque[_Episode]] = [deque() for _ in range(self.n_envs)]
        self._running: list[_Episode | None] = [None] * self.n_envs
        self._count = 0
        self._ready: _Ready | None = None

    def _make_room(self, column: int, row: int) -> None:
        """Before `row` is overwritten: the episode that began there goes as a whole, a running one loses the row."""
        ended, run = self._ended[column], self._running[column]
        if ended and ended[0].first == row:
            ended.popleft()
            self._ready = None
        elif run and run.length == self.buffer_size:
            run.first, run.length = (row + 1) % self.buffer_size, run.length - 1

    def _end(self, column: int) -> None:
        run = self._running[column]
        if run:
            self._ended[column].append(run)
        self._running[column], self._ready = None, None

    def _prepare(self) -> _Ready:
        if self._ready is None:
            history = self.steps + 1
            least = 2 * history if self.relation.same_episode else history
            held = [e for column in self._ended for e in column if e.length + 1 >= least]
            if not held:
                raise NoLegalDonorError(f"no episode of {least - 1} steps or more has ended, or is still in the buffer")
            seen = Counter[str]()
            columns: dict[str, Any] = {"episode": [], "system": [], "rollout": [], "length": []}
            for e in held:
                for name, value in zip(columns, (e.number, e.system, seen[e.system], e.length + 1), strict=True):
                    columns[name].append(value)
                seen[e.system] += 1
            columns |= {name: [e.labels[k] for e in held] for k, name in enumerate(self.columns)}
            table = EpisodeTable(columns)
            pairs = PairSampler(table, self.relation, on_missing="drop", **self.law)
            windows = WindowSampler(table, history, 0, pairs.seed)
            first, column = (np.array([getattr(e, name) for e in held]) for name in ("first", "column"))
            self._ready = _Ready(pairs, windows, first, column)
        return self._ready

    def _read(
        self, ready: _Ready, episodes: NDArray[np.int64], starts: NDArray[np.int64], env: VecNormalize | None
    ) -> ReplayWindows:
        rows = ((ready.first[episodes] + starts)[:, None] + np.arange(self.steps)) % self.buffer_size
        column = ready.column[episodes][:, None]
        last = self.next_observations[rows[:, -1:], column]
        observations = self._normalize_obs(np.concatenate([self.observations[rows, column], last], axis=1), env)
        arrays = (
            observations,
            self.actions[rows, column],
            self._normalize_reward(self.rewards[rows, column], env),
            self.dones[rows, column] * (1 - self.timeouts[rows, column]),
        )
        table = ready.pairs.table
        return ReplayWindows(*map(self.to_torch, arrays), table["episode"][episodes], table["system"][episodes])  # type: ignore[arg-type]
