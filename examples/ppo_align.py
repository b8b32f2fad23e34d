"""PPO in one file, told by an encoder which pendulum it has: the encoder reads an earlier episode, and Align trains it.

    python examples/ppo_align.py --seeds 3                       # five arms; each and seed about 35 s of a core
    python examples/ppo_align.py --seeds 1 --arms none align

Pendulums of 0.1 to 1 kg and 0.2 to 1.5 m: a torque turns some 500 times faster than others, and no observation tells
which. Each is met for two episodes: the first without a context, the second with what was read off the first. The arms
differ in the context alone. Writes a table, a csv of it and a figure; docs/ppo_align.md says what came out.
"""

import argparse
import csv
import itertools
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor, nn

from sprii_envs.arguments import MOST, option
from sprii_envs.envs.pendulum import PROPERTIES
from sprii_envs.files import written_file
from sprii_envs.properties import SystemSet
from sprii_envs.wrappers import VectorRepeatSystem
from sprii_train.analysis.bootstrap import source_system_bootstrap, system_bootstrap
from sprii_train.analysis.statistics import Contrast, Interval, difference, mean_of
from sprii_train.objectives import align

ARMS = {
    "none": "no context",
    "true": "true mass and length",
    "untrained": "untrained encoder",
    "ppo": "encoder trained by PPO's loss",
    "align": "encoder trained by Align",
}
WRONG = "align, wrong donor"  # the same agents and encoders, told of another system
CONTRASTS = [(arm, "none") for arm in ("true", "untrained", "ppo", "align")]
CONTRASTS += [("align", other) for other in ("untrained", "ppo", "true", WRONG)]
LOW, HIGH = (0.1, 0.2), (1.0, 1.5)  # kg, m: the pendulums of training
GROUPS = {  # those of the evaluation, none of which was trained on
    "new": (LOW, HIGH),
    "heavy, short": ((1.0, 0.2), (1.8, 0.4)),
    "light, long": ((0.2, 1.5), (0.4, 1.8)),
    "light, short": ((0.05, 0.15), (0.1, 0.2)),
}
CODE, ALIGN_STEPS, READ = 8, 16, 32  # width of a context; Align's steps an iteration; transitions read at each
EPOCHS, MINIBATCHES, RATE, GAMMA, LAMBDA, CLIP = 4, 8, 1e-3, 0.98, 0.95, 0.2


def mlp(inputs: int, outputs: int, gain: float = 1.0) -> nn.Sequential:
    layers = [nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
    for layer, scale in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


class Encoder(nn.Module):
    """Transitions (n, T, O + A + O) of one episode a row → codes (n, CODE): an MLP of each, their mean, an MLP."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.each, self.whole = mlp(size, 64), mlp(64, CODE)

    def forward(self, history: Tensor) -> Tensor:
        return self.whole(self.each(history).mean(1))


class Agent(nn.Module):
    """A Gaussian policy and a value of (observation, code, 1 once there is a code)."""

    def __init__(self, observation: int, action: int) -> None:
        super().__init__()
        self.actor, self.critic = mlp(observation + CODE + 1, action, 0.01), mlp(observation + CODE + 1, 1)
        self.log_std = nn.Parameter(torch.full((action,), -0.5))

    def policy(self, x: Tensor) -> torch.distributions.Normal:
        return torch.distributions.Normal(self.actor(x), self.log_std.exp(), validate_args=False)


class Episodes(NamedTuple):
    """One episode of each of N slots."""

    seen: Tensor  # (T + 1, N, O) standardised observations
    action: Tensor  # (T, N, A)
    reward: Tensor  # (T, N)

    def history(self) -> Tensor:
        """What an encoder reads: observation, action and change of every transition, (N, T, O + A + O)."""
        change = 4.0 * self.seen.diff(dim=0)
        return torch.cat([self.seen[:-1], self.action.clamp(-1, 1), change], dim=2).transpose(0, 1)


def few(history: Tensor) -> Tensor:
    """Some transitions of each history, drawn anew at every call."""
    return history[:, torch.randperm(history.shape[1])[:READ]]


def systems(n: int, seed: int, low: tuple[float, float] = LOW, high: tuple[float, float] = HIGH) -> SystemSet:
    """Pendulums, even on logarithmic scales; another seed, other systems."""
    return SystemSet(PROPERTIES, np.exp(np.random.default_rng(seed).uniform(np.log(low), np.log(high), (n, 2))))


def advantages(reward: Tensor, value: Tensor) -> Tensor:
    """Generalised advantages (T, N) of rewards (T, N) and values (T + 1, N), of episodes that a time limit cuts off."""
    gain, last = torch.zeros_like(reward), torch.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        last = reward[t] + GAMMA * value[t + 1] - value[t] + GAMMA * LAMBDA * last
        gain[t] = last
    return gain


class Trainee:
    """One arm: the agent, its encoder, and the vector environment that they learn in."""

    def __init__(self, arm: str, seed: int, envs: int) -> None:
        torch.manual_seed(seed)
        self.arm, self.rng = arm, np.random.default_rng(seed)
        native = gym.make_vec(
            "sprii/Pendulum-v0", num_envs=envs, systems=systems(4096, seed), autoreset_mode="Disabled"
        )
        seen = [native.reset(seed=seed)[0]]
        for _ in range(100):
            seen.append(native.step(self.rng.uniform(-1, 1, (envs, 1)).astype(np.float32))[0])
        self.mean, self.sd = torch.from_numpy(np.mean(seen, (0, 1))), torch.from_numpy(np.std(seen, (0, 1)))
        self.envs = VectorRepeatSystem(native, episodes=2)
        self.agent, self.encoder = Agent(3, 1), Encoder(3 + 1 + 3)

    @torch.no_grad()
    def play(
        self, envs: gym.vector.VectorEnv, observation: np.ndarray, context: Tensor, noise: float = 1.0
    ) -> Episodes:
        """The episodes that begin with `observation` (N, O), under contexts (N, CODE + 1)."""
        seen, actions, rewards, over = [(torch.from_numpy(observation) - self.mean) / self.sd], [], [], False
        std = noise * self.agent.log_std.exp()
        while not over:
            mean = self.agent.actor(torch.cat([seen[-1], context], dim=1))
            actions.append(mean + std * torch.randn_like(mean))
            observation, reward, _, truncated, _ = envs.step(actions[-1].clamp(-1, 1).numpy())
            seen.append((torch.from_numpy(observation) - self.mean) / self.sd)
            rewards.append(torch.from_numpy(reward).float())
            over = truncated.all()  # a pendulum never terminates, so that all end together
        return Episodes(torch.stack(seen), torch.stack(actions), torch.stack(rewards))

    def context(self, history: Tensor, persistent: np.ndarray) -> Tensor:
        """What the second episode is told, (N, CODE + 1)."""
        if self.arm == "none":
            return torch.zeros(len(history), CODE + 1)
        if self.arm == "true":
            scaled = 2.0 * np.log(persistent / LOW) / np.log(np.divide(HIGH, LOW)) - 1.0
            code = nn.functional.pad(torch.from_numpy(scaled).float(), (0, CODE - 2))
        else:
            code = self.encoder(history)
        return torch.cat([code, torch.ones(len(code), 1)], dim=1)

    def learn(self, iterations: int) -> list[float]:
        """The mean return of second episodes, by iteration."""
        slots = self.envs.num_envs
        unknown, curve, scale, begin = torch.zeros(slots, CODE + 1), [], 0.0, time.perf_counter()
        learnt = [*self.agent.parameters(), *(self.encoder.parameters() if self.arm == "ppo" else ())]
        optimiser = torch.optim.Adam(learnt, RATE, eps=1e-5)
        aligner = torch.optim.Adam(self.encoder.parameters(), RATE)
        related: deque[tuple[Tensor, Tensor]] = deque(maxlen=8)
        for i in range(iterations):
            for group in (*optimiser.param_groups, *aligner.param_groups):
                group["lr"] = RATE * (1 - i / iterations)
            # New systems, without a context; then the same ones, told of that first episode.
            observation, infos = self.envs.reset()
            first = self.play(self.envs, observation, unknown)
            history = first.history()
            with torch.no_grad():
                told = self.context(history, infos["persistent"])
            second = self.play(self.envs, self.envs.reset()[0], told)
            curve.append(float(second.reward.sum(0).mean()))
            scale = scale or 0.1 / float(first.reward.std())

            if self.arm == "align":  # all that two episodes of one system share is the system
                related.append((history, second.history()))
                for _ in range(ALIGN_STEPS):
                    one, other = related[self.rng.integers(len(related))]
                    loss = align(self.encoder(few(one)), self.encoder(few(other))).total
                    aligner.zero_grad()
                    loss.backward()
                    aligner.step()

            both = Episodes(*(torch.cat(parts, dim=1) for parts in zip(first, second, strict=True)))
            context = torch.cat([unknown, told])
            steps, count = both.reward.shape
            with torch.no_grad():
                x = torch.cat([both.seen, context.expand(steps + 1, -1, -1)], dim=2)
                value = self.agent.critic(x)[..., 0]
                chance = self.agent.policy(x[:-1]).log_prob(both.action).sum(2)
            gain = advantages(scale * both.reward, value)
            target = gain + value[:-1]
            for _ in range(EPOCHS):
                for rows in torch.randperm(steps * count).chunk(MINIBATCHES):
                    t, n = rows // count, rows % count
                    if self.arm == "ppo":
                        context = torch.cat([unknown, self.context(few(history), infos["persistent"])])
                    x, advantage = torch.cat([both.seen[t, n], context[n]], dim=1), gain[t, n]
                    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                    ratio = (self.agent.policy(x).log_prob(both.action[t, n]).sum(1) - chance[t, n]).exp()
                    loss = -torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
                    loss = loss + 0.5 * (self.agent.critic(x)[:, 0] - target[t, n]).square().mean()
                    optimiser.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(learnt, 0.5)
                    optimiser.step()
            if i % 10 == 9:
                speed = (i + 1) * steps * count / (time.perf_counter() - begin)
                print(f"{self.arm:>9}, iteration {i + 1:3}: return {curve[-1]:6.0f}, {speed:,.0f} frames/s")
        return curve

    @torch.no_grad()
    def evaluate(self, found: SystemSet) -> tuple[np.ndarray, np.ndarray]:
        """Returns (n,) of second episodes without noise, told of their own system, and of another one of `found`."""
        envs = gym.make_vec("sprii/Pendulum-v0", num_envs=len(found), autoreset_mode="Disabled")
        observation, infos = envs.reset(seed=len(found), options={"system": found.values})
        first = self.play(envs, observation, torch.zeros(len(found), CODE + 1))
        told = self.context(first.history(), infos["persistent"])
        observation, _ = envs.reset(options={"system": "same"})
        start, returns = envs.unwrapped.state, []  # type: ignore[attr-defined]
        for context in (told, told.roll(len(told) // 2, dims=0)):
            envs.reset(options={"system": "same", "state": start})
            returns.append(self.play(envs, observation, context, noise=0.0).reward.sum(0).double().numpy())
        return returns[0], returns[1]


def report(scores: dict[str, dict[str, np.ndarray]]) -> dict[str, dict[str, Interval]]:
    """Prints means and contrasts of returns (seeds, n) by group and arm, with 95 % intervals over seeds and systems."""
    kept = {}
    for group, found in scores.items():
        contrasts: dict[str, Contrast] = {name: mean_of(name) for name in found}
        contrasts |= {f"{a} − {b}": difference(a, b) for a, b in CONTRASTS if a in found and b in found}
        several = len(next(iter(found.values()))) > 1
        kept[group] = (source_system_bootstrap if several else system_bootstrap)(found, contrasts, seed=0)
        for name, (mean, low, high, *_) in kept[group].items():
            print(f"{group:>12} | {name:<26} | {mean:7.1f} [{low:.1f}, {high:.1f}]")
    return kept


def draw(curves: dict[str, np.ndarray], kept: dict[str, dict[str, Interval]], path: Path) -> None:
    """Returns while training, and of the evaluation by group."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for k, (arm, curve) in enumerate(curves.items()):
        x = np.arange(1, curve.shape[1] + 1)
        left.plot(x, curve.mean(0), color=f"C{k}")
        left.fill_between(x, curve.min(0), curve.max(0), color=f"C{k}", alpha=0.15, linewidth=0)
        for name, mark in {arm: "o", WRONG: "x"}.items() if arm == "align" else [(arm, "o")]:
            mean, low, high = np.array([each[name][:3] for each in kept.values()]).T
            x, label = np.arange(len(kept)) + 0.1 * k - 0.25 + 0.1 * (mark == "x"), ARMS.get(name, name)
            right.errorbar(x, mean, (mean - low, high - mean), fmt=mark, color=f"C{k}", capsize=3, label=label)
    left.set(xlabel="iteration", ylabel="return of second episodes", title="training: mean and range of seeds")
    right.set(xticks=range(len(kept)), ylabel="return", title="systems not trained on: mean, 95 % interval")
    right.set_xticklabels(list(kept))
    right.legend(frameon=False, fontsize=8)
    FigureCanvasAgg(figure)
    with written_file(path) as part:
        figure.savefig(part, dpi=120, format="png")


def write(path: Path, header: list[str], rows: list[list]) -> None:
    with written_file(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def main() -> None:
    """Train every arm with every seed, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", type=option(), default=3, help="0, 1, …")
    parser.add_argument("--first-seed", type=option(least=0, most=MOST), default=0)
    parser.add_argument("--iterations", type=option(), default=50, help="of two episodes of 200 steps in every slot")
    parser.add_argument("--envs", type=option(least=2), default=128)
    parser.add_argument("--systems", type=option(least=2), default=128, help="evaluated of each group")
    parser.add_argument("--out", type=Path, default=Path("runs/ppo-align"))
    told = parser.parse_args()
    torch.set_num_threads(1)
    told.out.mkdir(parents=True, exist_ok=True)
    tests = {group: systems(told.systems, 10**6, *ends) for group, ends in GROUPS.items()}
    scores = {group: {name: [] for name in (*told.arms, *[WRONG] * ("align" in told.arms))} for group in GROUPS}
    curves, rows = {arm: [] for arm in told.arms}, []
    for seed, arm in itertools.product(range(told.first_seed, told.first_seed + told.seeds), dict.fromkeys(told.arms)):
        trainee = Trainee(arm, seed, told.envs)
        curves[arm].append(trainee.learn(told.iterations))
        for group, found in tests.items():
            own, wrong = trainee.evaluate(found)
            print(f"{arm:>9}, seed {seed}, {group}: {own.mean():.1f}, wrong donor {wrong.mean():.1f}", flush=True)
            scores[group][arm].append(own)
            if arm == "align":
                scores[group][WRONG].append(wrong)
            each = zip(found.values.tolist(), own, wrong, strict=True)
            rows += [[arm, seed, group, *values, *returns] for values, *returns in each]
    kept = report({group: {name: np.array(r) for name, r in found.items()} for group, found in scores.items()})
    draw({arm: np.array(curve) for arm, curve in curves.items()}, kept, told.out / "ppo_align.png")
    write(told.out / "ppo_align.csv", ["arm", "seed", "group", "mass", "length", "return", "wrong donor"], rows)
    learnt = [[arm, seed, *each] for arm, found in curves.items() for seed, each in enumerate(found, told.first_seed)]
    write(told.out / "curves.csv", ["arm", "seed", *map(str, range(1, told.iterations + 1))], learnt)
    print(f"written: {told.out}/ppo_align.csv, curves.csv, ppo_align.png")


if __name__ == "__main__":
    main()
