"""One update of every preset on every device: whether it runs, what it takes, and whether it is the CPU's.

Windows are random numbers in the shapes that a learner reads, so that no bank is needed; weights, windows and seeds are
the same on every device, dropout is off, and the comparison is in float32.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import torch
from torch import Tensor, nn

from sprii_train.cophy.windows import ObjectWindows
from sprii_train.experiments.launchers.local import forks
from sprii_train.fields.environments import EnvironmentWindows
from sprii_train.fields.windows import FieldWindows
from sprii_train.fit import TrainConfig, resolve_precision, train_step
from sprii_train.learners import (
    ADConfig,
    AmortisedCoDAConfig,
    CoDAConfig,
    GEPSConfig,
    MultimodalConfig,
    NODConfig,
    NODHierConfig,
    ObjectJEPAConfig,
    TactileConfig,
    learner_of,
)
from sprii_train.learners.ad import QUERY, SUPPORT, PlayWindows
from sprii_train.learners.nod_hier import ChainWindows
from sprii_train.learners.segments import SegmentConfig
from sprii_train.microbatches import chunked_loss
from sprii_train.protocol import Windows, training_loss
from sprii_train.recipes import RECIPES
from sprii_train.settings import PRESET_NAMES, Budget, Setting
from sprii_train.swimmer.rows import windows as segment_windows

TOLERANCE = 1e-3
"""Largest relative difference of loss or gradient from the CPU's that counts as rounding."""
BYTES_A_WEIGHT = 16
"""Of float32 weights, gradients and both moments."""
KITCHENS = 256
"""Different observations of a batch of Overcooked, about as many as its panel shows."""
SHARE = 0.2
"""Of the limit, that building a preset may take, and each of its updates."""
PATIENCE = 60.0
"""Seconds that a process may take to begin."""


@dataclass(frozen=True)
class Update:
    """One update on one device.

    Attributes:
        device: its name.
        seconds: of the update, without the first.
        loss: before it.
        difference: from the first device, relative: the larger of those of the loss and of the gradient; None for it.
        error: why there was none, in one line; the numbers are then None.
    """

    device: str
    seconds: float | None = None
    loss: float | None = None
    difference: float | None = None
    error: str | None = None

    @property
    def verdict(self) -> str:
        """In words."""
        if self.error is not None:
            return self.error
        if self.difference is None:
            return "the reference"
        near = "equal" if self.difference <= TOLERANCE else "DIFFERS"
        return f"{near} ({self.difference:.0e})"


@dataclass(frozen=True)
class Tried:
    """A preset of settings that share it.

    Attributes:
        settings, preset: names.
        learner: its name.
        weights: numbers that are trained.
        pairs, tried: of the preset's own batch, and of the one that was tried; 0 for a loop without pairs.
        memory: bytes that an update of the preset's own batch takes: weights, moments and what is kept for backward.
        updates: by device.
    """

    settings: tuple[str, ...]
    preset: str
    learner: str
    weights: int
    pairs: int
    tried: int
    memory: int | None
    updates: tuple[Update, ...]


class About(NamedTuple):
    """What is told of a preset before its updates, see `Tried`."""

    learner: str
    weights: int
    pairs: int
    tried: int
    memory: int | None


class Bounds(NamedTuple):
    """Bytes of memory that a preset may take and seconds that a step of its trial may; None: any."""

    room: int | None
    seconds: float | None = None


Said = About | Update


def try_presets(
    settings: Mapping[str, Setting],
    devices: Sequence[str],
    *,
    presets: Sequence[str] = PRESET_NAMES,
    pairs: int | None = 2,
    room: int | None = None,
    limit: float | None = None,
    told: Callable[[Tried], None] = lambda _: None,
) -> list[Tried]:
    """An update of every preset on every device, the first of which is the reference; cheap presets first.

    Args:
        pairs: of the batch that is tried, 2 at least; None is each preset's own.
        room: bytes of memory; a preset whose batch takes more is not tried.
        limit: seconds of all; they then run in a process of their own, a step takes `SHARE` of them at most, and
            what there is no time for is not tried. None: they run in this process, however long they take.
        told: of each as it is done.
    """
    found, child, begin = [], _Child(), time.monotonic()
    try:
        for names, setting, preset, budget in _distinct(settings, presets):
            given = setting, budget, tuple(devices), pairs
            if limit is None:
                said, why = list(_try(*given, Bounds(room))), ""
            elif (left := limit - (time.monotonic() - begin)) < 1.0:
                said, why = [], f"not tried: the {limit:g} s are over; --limit widens them"
            else:
                share = min(left, SHARE * limit)
                said, why = child.try_one((*given, Bounds(room, share)), share, left)
            about, updates = _about(budget, pairs), []
            for one in said:
                if isinstance(one, Update):
                    updates.append(one)
                else:
                    about = one
            updates += [Update(device, error=why) for device in devices[len(updates) :]]
            found.append(Tried(names, preset, *about, tuple(updates)))
            told(found[-1])
    finally:
        child.end()
    return found


def random_windows(setting: Setting, config: Any, pairs: int, seed: int = 0) -> Any:
    """Windows of donors stacked on recipients, of a learner's shapes: normal numbers, frames of any value."""
    draw, n = torch.Generator().manual_seed(seed), 2 * pairs

    def normal(*shape: int) -> Tensor:
        return torch.randn(n, *shape, generator=draw)

    def whole(high: int, *shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
        return torch.randint(0, high, (n, *shape), generator=draw, dtype=dtype)

    match config:
        case CoDAConfig() | AmortisedCoDAConfig() | GEPSConfig():
            seen = normal(config.frames, config.points)
            seen[..., -1] = seen[..., 0]  # on a ring
            return EnvironmentWindows(seen, torch.arange(pairs).repeat(2) % config.environments, seen)
        case NODConfig():
            return FieldWindows(normal(config.frames, config.points), normal(config.frames, config.points))
        case NODHierConfig():
            side, chain = max(8, 2 * config.modes), len(config.heads)
            heads = whole(chain, chain, dtype=torch.int64)
            return ChainWindows(
                normal(config.frames, 2, side, side), normal(2, side, side), heads, normal(chain, 2, side, side)
            )
        case ADConfig():
            shape = SUPPORT + QUERY, config.steps
            kitchens = torch.randint(0, 4, (KITCHENS, config.inputs), generator=draw, dtype=torch.uint8)
            seen = kitchens[whole(KITCHENS, *shape, dtype=torch.int64)]
            return PlayWindows(seen, whole(config.actions, *shape), normal(*shape))
        case ObjectJEPAConfig():
            return _objects(setting, config, normal, whole, n)
        case SegmentConfig():
            seen = {"segments": normal(2, 48), "query": normal(16), "mask": torch.ones(n, 2)}
            return segment_windows(seen, normal(32))
        case TactileConfig():
            ahead = normal(len(config.horizons), config.taxels)
            none = normal(config.horizons[-1], 0)
            return Windows(normal(config.history, config.taxels), normal(config.history - 1, 0), ahead, none)
    steps, last, k = setting.history, config.horizons[-1], len(config.horizons)
    image, actions = getattr(config, "image", 0), config.action_dim
    if image:
        now, ahead = whole(256, 1 + steps, image, image), whole(256, k, 2, image, image)
    else:
        now, ahead = normal(steps, config.observation_dim), normal(k, config.observation_dim)
    if isinstance(config, MultimodalConfig):
        now = {"sensors": normal(steps, config.sensors), "frames": now}
        ahead = {"sensors": normal(k, config.sensors), "frames": ahead}
    return Windows(now, normal(steps - 1, actions), ahead, normal(last, actions))


def _objects(setting: Setting, config: Any, normal: Any, whole: Any, n: int) -> ObjectWindows:
    """Three objects of one video each, all seen."""
    t, o = setting.history, 3
    each = torch.arange(o).expand(n, o).contiguous()
    return ObjectWindows(
        features=normal(1, t, o, config.features), poses=normal(1, t, o, 3), seen=torch.ones(n, 1, o, dtype=torch.bool),
        video=torch.zeros_like(each), place=each, query_features=normal(t, o, config.features),
        query_poses=normal(t, o, 3), active=torch.ones(n, o, dtype=torch.bool), slot=each,
        kind=whole(2, o, dtype=torch.int64), focal=whole(o, dtype=torch.int64), positions=normal(t, o, 3),
        still=torch.zeros(n, t, o, dtype=torch.bool),
    )  # fmt: skip


def _distinct(
    settings: Mapping[str, Setting], presets: Sequence[str]
) -> list[tuple[tuple[str, ...], Setting, str, Budget]]:
    """Settings whose presets have one learner and batch are tried once; of each preset, the cheap ones first."""
    groups: dict[Any, tuple[list[str], Setting, str, Budget]] = {}
    for preset in presets:
        for name, setting in settings.items():
            if (budget := setting.budgets.get(preset)) is not None:
                key = preset, repr(budget.learner), getattr(budget.train, "pairs", 0), setting.history
                groups.setdefault(key, ([], setting, preset, budget))[0].append(name)

    def cost(group: tuple[list[str], Setting, str, Budget]) -> tuple[int, float]:
        _, _, preset, budget = group
        pairs = _own(budget)
        return list(presets).index(preset), (budget.step_seconds or 0.0) / pairs if pairs else 0.0

    ordered = sorted(groups.values(), key=cost)
    return [(tuple(names), setting, preset, budget) for names, setting, preset, budget in ordered]


def _try(setting: Setting, budget: Budget, devices: Sequence[str], pairs: int | None, bounds: Bounds) -> Iterator[Said]:
    """What is known of the preset, again when there is more, and an update on every device."""
    train = budget.train if isinstance(budget.train, TrainConfig) else TrainConfig(pairs=_own(budget) or 2)
    about = _about(budget, pairs)
    yield about
    own, tried = max(about.pairs, 2), about.tried
    try:
        config = setting.learner_config(_still(budget.learner), RECIPES["align-cross"])
        name, build = learner_of(config)[0], learner_of(config)[1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            learner = build(config)
            windows = random_windows(setting, config, tried)
            if callable(fit_statistics := getattr(learner, "fit_statistics", None)):
                fit_statistics(windows)
            fixed = BYTES_A_WEIGHT * sum(weight.numel() for weight in learner.parameters())
            small = windows if tried == 2 else random_windows(setting, config, 2)
            stepped = time.perf_counter()
            kept = _kept(learner, small, train)
            seconds = (time.perf_counter() - stepped) * tried / 2
    except Exception as error:
        yield from (Update(each, error=_line(error)) for each in devices)
        return
    held = train.microbatch or own
    yield About(name, fixed // BYTES_A_WEIGHT, about.pairs, tried, fixed + kept * min(own, held) // 2)
    needed = fixed + kept * min(tried, held) // 2
    if bounds.room is not None and needed > bounds.room:
        told = (
            f"not tried: a batch of {tried} pairs takes {needed / 2**30:.1f} GiB, there are {bounds.room / 2**30:.1f}"
        )
        yield from (Update(each, error=told) for each in devices)
        return
    reference: tuple[float, list[Tensor]] | None = None
    for device in devices:
        if device.startswith("cpu") and bounds.seconds is not None and 2 * seconds > bounds.seconds:
            yield Update(device, error=f"not tried: an update takes about {seconds:.0f} s; --limit widens its share")
            continue
        update, gradient = _update(learner, windows, train, device)
        if update.loss is not None and reference is not None:
            loss, first = reference
            apart = max(abs(update.loss - loss) / max(abs(loss), 1e-12), _apart(gradient, first))
            update = replace(update, difference=apart)
        elif update.loss is not None:
            reference = update.loss, gradient
        yield update


def _own(budget: Budget) -> int:
    return getattr(budget.train, "pairs", 0)


def _about(budget: Budget, pairs: int | None) -> About:
    own = _own(budget)
    tried = own or 2 if pairs is None else max(2, min(pairs, own or pairs))
    return About(learner_of(budget.learner)[0], 0, own, tried, None)


class _Child:
    """A process that tries presets one after another, and is replaced when one takes too long or ends it.

    One, because a GPU takes seconds to begin; a process, because nothing else stops an update.
    """

    process: Any = None

    def try_one(self, given: tuple[Any, ...], seconds: float, left: float) -> tuple[list[Said], str]:
        """What `_try` yields, each within so many seconds and all within what is left, and why there was no more."""
        if self.process is None:
            context = forks()
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(
                target=_serve, args=(theirs, torch.get_num_threads(), dict(os.environ)), daemon=True
            )
            self.process.start()
            theirs.close()
        said: list[Said] = []
        try:
            if not self.pipe.poll(PATIENCE):  # the first of all imports everything
                raise TimeoutError
            self.pipe.recv()  # it is ready
            self.pipe.send_bytes(cloudpickle.dumps(given))
            end = time.monotonic() + left
            while self.pipe.poll(max(0.0, min(seconds, end - time.monotonic()))):
                if (one := self.pipe.recv()) is None:
                    return said, ""
                said.append(one)
            why = f"not tried: cut after {min(seconds, left):.0f} s; --limit widens its share"
        except TimeoutError:
            why = f"its process did not begin in {PATIENCE:.0f} s"
        except (EOFError, OSError):
            self.process.join(1)
            why = f"its process ended with exit status {self.process.exitcode}"
        self.end()
        return said, why

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None


def _serve(pipe: Any, threads: int, environment: dict[str, str]) -> None:
    os.environ.clear()  # a server has that of its start
    os.environ.update(environment)
    torch.set_num_threads(threads)
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            pipe.send("ready")
            for one in _try(*cloudpickle.loads(pipe.recv_bytes())):
                pipe.send(one)
            pipe.send(None)


def _still(config: Any) -> Any:
    """Without dropout, whose masks each kind of device draws in its own way."""
    return replace(config, dropout=0.0) if hasattr(config, "dropout") else config


def _update(learner: nn.Module, windows: Any, train: TrainConfig, device: str) -> tuple[Update, list[Tensor]]:
    """An update in float32, whose numbers are compared, and one in the precision of the device, which is timed."""
    exact = torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = False
        loss, gradient, _ = _stepped(learner, windows, train, device, "fp32")
        _, _, seconds = _stepped(learner, windows, train, device, resolve_precision(replace(train, device=device)))
        return Update(device, seconds, loss), gradient
    except Exception as error:  # out of memory, or what the device has no kernel for
        return Update(device, error=_line(error)), []
    finally:
        torch.backends.cudnn.allow_tf32 = exact


def _stepped(
    learner: nn.Module, windows: Any, train: TrainConfig, device: str, precision: str
) -> tuple[float, list[Tensor], float]:
    """Loss and gradients (on the CPU, in double precision) of an update of a copy, and seconds with the device done.

    Gradients are those of before clipping, so that a common factor that a device gets wrong shows.
    """
    kind = torch.device(device)
    copy, given = deepcopy(learner).to(kind).train(), windows.to(kind)
    optimizer = train.optimizer(copy)
    cuda = [kind] if kind.type == "cuda" else []
    compute = partial(chunked_loss, pairs=train.microbatch) if train.microbatch else training_loss
    with torch.random.fork_rng(devices=cuda):
        _finish(kind)
        start = time.perf_counter()
        values = train_step(copy, given, RECIPES["align-cross"].objective, optimizer, train, 0, precision, compute)
        _finish(kind)
        seconds = time.perf_counter() - start
    clipped = max(1.0, (values["gradient_norm"] + 1e-6) / train.clip)  # as torch's clip_grad_norm_ divides
    gradients = [clipped * weight.grad.double().cpu() for weight in copy.parameters() if weight.grad is not None]
    return values["loss"], gradients, seconds


def _kept(learner: nn.Module, windows: Any, train: TrainConfig) -> int:
    """Bytes that a batch keeps for its backward pass: those of distinct storages, without weights."""
    copy, sizes = deepcopy(learner).train(), {}
    own = {weight.untyped_storage().data_ptr() for weight in copy.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), torch.random.fork_rng(devices=[]):
        train_step(copy, windows, RECIPES["align-cross"].objective, train.optimizer(copy), train, 0, "fp32")
    return sum(sizes.values())


def _finish(device: torch.device) -> None:
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).synchronize()


def _apart(gradient: list[Tensor], first: list[Tensor]) -> float:
    """Norm of the difference over that of the first."""
    if [g.shape for g in gradient] != [g.shape for g in first]:
        return float("inf")
    whole, own = (torch.cat([g.flatten() for g in each]) for each in (first, gradient))
    return float((own - whole).norm() / whole.norm().clamp_min(1e-12))


def _line(error: Exception) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:160]}{'…' if len(words) > 160 else ''}"


def product_rate(device: str, size: int = 2048, repeats: int = 5) -> float:
    """Best measured FLOP/s of a float32 product on a device that is not the CPU; see `costs.product_rate` for that."""
    kind = torch.device(device)
    a, b = torch.randn(size, size, device=kind), torch.randn(size, size, device=kind)
    best = float("inf")
    for _ in range(repeats + 1):
        _finish(kind)
        start = time.perf_counter()
        torch.mm(a, b)
        _finish(kind)
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best
