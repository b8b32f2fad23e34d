"""One training engine for every learner: progress, TensorBoard, checkpoints, exact resume, NaN guard.

Batches, dropout masks and random directions are functions of (seed, step), so a state is weights, moments and a step
number, and a resumed run equals an uninterrupted one bit for bit on a CPU with the same number of threads. Over several
ranks (`sprii_train.distributed`) each has its share of that batch, and rank 0 writes.
"""

import hashlib
import json
import math
import signal
import sys
import threading
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from sprii_envs.arguments import check, choice, instance, integer, number, numbers, shown
from sprii_envs.files import absolute, read_json, write_json
from sprii_train import distributed
from sprii_train.checkpoints import CheckpointError, load_training_state, save, save_training_state, training_states
from sprii_train.identity import code_of, learner_state, plain_attributes
from sprii_train.memory import keep_freed_memory
from sprii_train.microbatches import chunked_loss
from sprii_train.protocol import Objective, Windows, check_objective, own_modes, take, training_loss
from sprii_train.randomness import torch_seed
from sprii_train.records import Records, Report


class NonFiniteLoss(FloatingPointError):
    """A term of the loss or the gradient stopped being finite; names term, step and last good checkpoint."""


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop (SIGTERM, SIGINT) and has written its checkpoint."""


class Diagnostic(Protocol):
    """A measure of a learner in training: `fit` writes its rows to `<name>.jsonl`, one every so many steps.

    It is called after the update, in training mode, with this rank's windows of it; in a process group on every rank.
    """

    @property
    def name(self) -> str: ...
    @property
    def every(self) -> int: ...
    def __call__(
        self, learner: nn.Module, windows: Windows, objective: Objective, seed: int, step: int
    ) -> dict[str, Any]: ...


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation settings; the defaults are the paper's for D-Clean and PokeWorld (`app:implementation`).

    Attributes:
        steps: optimiser updates.
        pairs: donor–recipient pairs in a batch, from distinct systems (96 windows).
        learning_rate, weight_decay, warmup, clip: AdamW, linear warm-up steps then cosine to zero, gradient norm.
        rates: (first step, rate) of each piece of a constant rate, in place of warm-up and cosine; none by default.
        precision: `fp32`, `bf16` (autocast around the networks; statistics stay float32), or `auto`: bf16 on CUDA and
            on CPUs with native bfloat16 dot products, else fp32.
        seed: of weights, batches, dropout and random directions: the *source* of the paper's tables.
        checkpoint_every, log_every: in steps.
        endpoints: shares of the steps at which the learner is kept besides its end, see `endpoint_folder`.
        device: a torch device.
        microbatch: pairs whose activations are held at once (`microbatches.chunked_loss`); 0 is all of them.
    """

    steps: int = 20_000
    pairs: int = 48
    learning_rate: float = 3e-4
    weight_decay: float = 0.05
    warmup: int = 500
    clip: float = 1.0
    rates: tuple[tuple[int, float], ...] = ()
    precision: str = "auto"
    seed: int = 0
    checkpoint_every: int = 500
    log_every: int = 50
    device: str = "cpu"
    endpoints: tuple[float, ...] = ()
    microbatch: int = 0

    def __post_init__(self) -> None:
        check(self, integer, "steps", "checkpoint_every", "log_every", least=1)
        check(self, integer, "pairs", least=2)
        check(self, integer, "warmup", "seed", "microbatch")
        check(self, number, "learning_rate", "clip", above=0)
        check(self, number, "weight_decay", least=0)
        check(self, choice, "precision", legal=("auto", "fp32", "bf16"))
        check(self, instance, "device", of=str)
        check(self, numbers, "endpoints", least=0)
        if any(not 0 < share < 1 for share in self.endpoints):
            raise ValueError(f"TrainConfig.endpoints are {self.endpoints}; legal: shares between 0 and 1")
        ends = [self.after(share) for share in self.endpoints]
        if len({*ends, self.steps}) <= len(ends):
            raise ValueError(
                f"TrainConfig.endpoints {self.endpoints} of {self.steps} steps are after {', '.join(map(str, ends))}; "
                f"legal: distinct steps before the last"
            )
        if not isinstance(self.rates, tuple | list) or any(not _is_pair(each) for each in self.rates):
            raise ValueError(f"TrainConfig.rates is {shown(self.rates)}; legal: pairs of a first step and a rate")
        begins = [integer("a first step of TrainConfig.rates", begin) for begin, _ in self.rates]
        for _, rate in self.rates:
            number("a rate of TrainConfig.rates", rate, above=0)
        if begins and (begins[0] or begins != sorted(set(begins))):
            raise ValueError(f"TrainConfig.rates begin at {begins}; legal: increasing steps, the first of them 0")

    def after(self, share: float) -> int:
        """Steps of a share of the run, one at least."""
        return max(1, round(share * self.steps))

    # What a config of another optimiser or schedule overrides

    def optimizer(self, learner: nn.Module) -> torch.optim.Optimizer:
        """Over all parameters; its default rate is what `rate` is told."""
        return build_optimizer(learner, self)

    def rate(self, step: int, initial: float) -> float:
        """Of update number `step` (from 0)."""
        return learning_rate(self, step)

    def objective(self, objective: Objective, step: int) -> Objective:
        """A recipe's objective as it stands at a step."""
        return objective


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def learning_rate(config: TrainConfig, step: int) -> float:
    """Rate of update number `step` (from 0): its piece, or linear warm-up, then cosine to zero at `config.steps`."""
    if config.rates:
        return next(rate for begin, rate in reversed(config.rates) if begin <= step)
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    progress = (step - config.warmup) / max(1, config.steps - config.warmup)
    return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * progress))


def usable_device(name: str | torch.device) -> torch.device:
    """The device of that name.

    Raises:
        ValueError: for one that torch does not know or this machine lacks.
    """
    legal = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError):
        raise ValueError(f"device is {shown(name)}, which cannot be used here; legal: {', '.join(legal)}") from None
    return device


def device_name(text: str) -> str:
    """A `type` of `argparse`: a device of this machine, refused as `usable_device` refuses."""
    try:
        return str(usable_device(text))
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def resolve_precision(config: TrainConfig) -> str:
    """`fp32` or `bf16` for this device."""
    if config.precision != "auto":
        return config.precision
    if torch.device(config.device).type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return "bf16" if getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)() else "fp32"


def what_matters(config: TrainConfig) -> dict[str, Any]:
    """The settings that a run's weights depend on, with the precision resolved: its identity."""
    told = {"log_every", "checkpoint_every", "device"}
    told |= {name for name in ("rates", "endpoints", "microbatch") if not getattr(config, name)}
    return {k: v for k, v in asdict(config).items() if k not in told} | {"precision": resolve_precision(config)}


def endpoint_folder(directory: Path, step: int) -> Path:
    """Where `fit` keeps the learner of an endpoint, as `checkpoints.save` writes it."""
    return directory / "endpoints" / f"step-{step:08d}"


def build_optimizer(learner: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Fused AdamW over all parameters."""
    return torch.optim.AdamW(
        learner.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )


def train_step(
    learner: nn.Module,
    windows: Windows,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    config: TrainConfig,
    step: int,
    precision: str,
    compute: Callable[..., tuple[Tensor, dict[str, Tensor]]] = training_loss,
) -> dict[str, float]:
    """One update. Returns the loss, its parts, the gradient norm and the rate.

    Args:
        compute: `training_loss`, or that of several ranks (`distributed.parallel`).

    Raises:
        NonFiniteLoss: before any weight changes.
    """
    device = windows.actions.device
    seeded = torch.default_generator if device.type == "cpu" else torch  # torch's own also tells GPUs, by a stack trace
    seeded.manual_seed(torch_seed(config.seed, step))
    if callable(at_step := getattr(learner, "at_step", None)):
        at_step(config.seed, step)
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        loss, parts = compute(learner, windows, config.objective(objective, step))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = clip_grad_norm_(learner.parameters(), config.clip)
    told = distributed.average(torch.stack([value.detach().double() for value in (loss, *parts.values(), norm)]))
    *told, norm = told.tolist()  # the step's only wait for the device; weights have not changed yet
    values = dict(zip(("loss", *parts), told, strict=True))
    bad = [name for name, value in values.items() if not math.isfinite(value) and name != "loss"]
    if bad or not math.isfinite(values["loss"]):
        raise NonFiniteLoss(f"step {step}: {', '.join(bad) or 'loss'} is not finite")
    if not math.isfinite(norm):
        raise NonFiniteLoss(f"step {step}: the gradient norm is not finite although the loss is {values['loss']}")
    rate = config.rate(step, optimizer.defaults["lr"])
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    if callable(after_step := getattr(learner, "after_step", None)):
        after_step()
    return values | {"gradient_norm": norm, "learning_rate": rate}


def fit(
    learner: nn.Module,
    data: Callable[[int], Windows],
    objective: Objective,
    config: TrainConfig,
    directory: str | Path,
    *,
    identity: dict[str, Any] | None = None,
    progress: Report | None = None,
    tensorboard: bool = True,
    diagnostics: Sequence["Diagnostic"] = (),
) -> nn.Module:
    """Train `learner` in place, resuming from `directory` when it holds a checkpoint of the same run.

    Args:
        learner: a module with the operations of `protocol.Learner`, initialised from the seed.
        data: step → stacked windows of `config.pairs` donors and recipients; a pure function of the step. Its
            `identity()` says in JSON what the windows depend on; without it, `identity["data"]` must.
        objective: weights of the three terms.
        directory: receives `run.json`, `metrics.jsonl`, TensorBoard events and checkpoints.
        identity: anything else that makes this run what it is. Compared without it are the configs, the learner's
            initial tensors, attributes and code (`sprii_train.identity`: all that it refers to of one's own), and the
            data's `identity()`, plain attributes and code; `identity["learner"]` and `identity["data"]` take the place
            of what is found of either. A directory that holds a run of another identity is refused; one that holds
            this run, finished, is loaded, and a line on stderr says so.
        progress: called after each step with (steps done, values), on rank 0.
        diagnostics: measures of the learner that training is told of and unmoved by (what they leave in evaluation mode
            is in its own again); each has a file in the directory. One with `ends(step)` may end training after its
            turn.

    Raises:
        ValueError: for data without an identity, an identity that is no JSON, data of another number of pairs than
            `config.pairs`, ranks that do not divide them, a diagnostic that cannot be taken, or an objective that the
            learner refuses (`protocol.check_objective`).
        CheckpointError: the directory belongs to another run, or its checkpoint is damaged.
        NonFiniteLoss: naming the term and the last good checkpoint.
        Interrupted: after SIGTERM or SIGINT, with a checkpoint written.
    """
    for name, value, kind in (("learner", learner, nn.Module), ("objective", objective, Objective),
                              ("config", config, TrainConfig)):  # fmt: skip
        instance(name, value, of=kind)
    root = absolute(directory)
    distributed.join()
    device = distributed.own_device(config.device)
    precision = resolve_precision(config)
    batch = _batches(data, config.pairs)
    _check_diagnostics(diagnostics, learner)
    check_objective(learner, objective)
    run = distributed.first(lambda: _describe(learner, data, objective, config, {} if identity is None else identity))
    distributed.first(lambda: _claim(root, run))
    learner.to(device).train()
    keep_freed_memory()
    optimizer = config.optimizer(learner)
    claim = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:16]
    start = load_training_state(root / "checkpoints", learner, optimizer, claim, config.steps)
    main = distributed.rank() == 0
    if start >= config.steps:
        if main:
            print(f"{root} holds this run, finished: its weights of step {start} are loaded", file=sys.stderr)
        return learner.eval()
    loss = partial(chunked_loss, pairs=config.microbatch) if config.microbatch else training_loss
    compute = distributed.parallel(learner, loss)
    kept = {config.after(share) for share in config.endpoints}
    ending: list[Any] = [each for each in diagnostics if callable(getattr(each, "ends", None))]
    with (
        _stop_requests() as stop,
        torch.random.fork_rng(),
        Records(root, start, tensorboard=tensorboard, diagnostics=[d.name for d in diagnostics], on=main) as records,
    ):
        try:
            for step in range(start, config.steps):
                windows = batch(step).to(device)
                values = train_step(learner, windows, objective, optimizer, config, step, precision, compute)
                done = step + 1
                if done % config.log_every == 0 or done == config.steps or done in kept:
                    records.log(done, values)
                with own_modes(learner):
                    for diagnostic in diagnostics:
                        if done % diagnostic.every == 0:
                            found = diagnostic(learner, windows, objective, config.seed, done)
                            records.add(diagnostic.name, done, found)
                    if progress is not None and main:
                        progress(done, values)
                if any(done % each.every == 0 and distributed.first(partial(each.ends, done)) for each in ending):
                    break
                if done in kept:
                    distributed.first(lambda done=done: save(learner, endpoint_folder(root, done)))
                stopping = distributed.any_rank(stop.is_set(), device)
                if done % config.checkpoint_every == 0 or done == config.steps or stopping:
                    state = root / "checkpoints", learner, optimizer, done, claim
                    distributed.first(lambda state=state: save_training_state(*state))
                del windows  # or two batches are held while the next is read
                if stopping and done < config.steps:
                    raise Interrupted(f"stopped at step {done} of {config.steps}; the same command resumes from there")
        except NonFiniteLoss as error:
            good = training_states(root / "checkpoints")
            raise NonFiniteLoss(f"{error}; last good checkpoint: {good[-1] if good else 'none'}") from None
    return learner.eval()


def _check_diagnostics(diagnostics: Sequence["Diagnostic"], learner: nn.Module) -> None:
    """ValueError for names that are not files of their own, and whatever a diagnostic's own `check` refuses."""
    names = [diagnostic.name for diagnostic in diagnostics]
    for diagnostic in diagnostics:
        name = diagnostic.name
        if name == "metrics" or not name or Path(name).name != name or names.count(name) > 1:
            raise ValueError(f"a diagnostic is named {name!r}; legal: a file name of its own, other than metrics")
        if callable(check := getattr(diagnostic, "check", None)):
            check(learner)


def _batches(data: Callable[[int], Windows], pairs: int) -> Callable[[int], Windows]:
    """step → this rank's windows, of data that can read a share (`shard`) or that is cut after reading."""
    world = distributed.world()
    if pairs % world:
        raise ValueError(f"TrainConfig.pairs is {pairs}; legal: a multiple of {world}, so that all ranks get as many")
    shard: Callable[[int, int], Callable[[int], Windows]] | None = getattr(data, "shard", None)
    cut = world > 1 and shard is None
    read = data if world == 1 or shard is None else shard(distributed.rank(), world)
    expected = 2 * pairs if cut else 2 * pairs // world
    own = torch.arange(2 * pairs).view(2, pairs)[:, distributed.own_share(pairs)].flatten()

    def batch(step: int) -> Windows:
        windows = read(step)
        if len(windows.actions) != expected:
            raise ValueError(
                f"TrainConfig.pairs is {pairs}, but the data gave {len(windows.actions)} windows at step {step}; "
                f"legal: {expected}, donors stacked on recipients"
            )
        return take(windows, own) if cut else windows

    return batch


ENGINE = (train_step, build_optimizer, _batches)
"""What weights depend on besides learner, data and objective, whose code is compared beside theirs."""


def _describe(
    learner: nn.Module, data: Any, objective: Objective, config: TrainConfig, identity: dict[str, Any]
) -> dict[str, Any]:
    """The identity of a run, as `run.json` holds it.

    Raises:
        ValueError: for data without an identity, or one that is no JSON.
    """
    if not isinstance(identity, dict):
        raise ValueError(f"fit's identity is {shown(identity)}; legal: a dict of JSON values")
    for name, value in identity.items():
        _check_json(f"fit's identity[{name!r}]", value)
    parts: list[Any] = [type(objective), *([] if type(config) is TrainConfig else [type(config)])]
    run: dict[str, Any] = {"train": what_matters(config), "objective": asdict(objective)}
    if "learner" not in identity:
        settings = getattr(learner, "config", None)
        weights, attributes = learner_state(learner)
        run["learner"] = {
            "class": f"{type(learner).__module__}.{type(learner).__qualname__}",
            "config": asdict(settings) if is_dataclass(settings) and not isinstance(settings, type) else None,
            "weights": weights[:16],
            "attributes": attributes[:16],
        }
        parts.append(learner)
    if "data" not in identity:
        if not callable(describe := getattr(data, "identity", None)):
            raise ValueError(
                f"the data ({getattr(data, '__qualname__', type(data).__qualname__)}) do not say what they are, and "
                "runs on others would be taken for this one; give them a method identity(), or "
                'fit(identity={"data": …}) a hash or a name of them'
            )
        if (told := describe()) is None:
            raise ValueError("the data's identity() is None; legal: what the windows depend on, as JSON")
        _check_json("the data's identity()", told)
        run["data"], run["data_attributes"] = told, plain_attributes(data)[:16]
        held = getattr(data, "__dict__", {}).values()
        parts += [data if isinstance(data, FunctionType | partial) else type(data), *map(type, held)]
        parts += [value for value in held if isinstance(value, FunctionType | MethodType | partial)]
    return json.loads(json.dumps(run | {"code": code_of(*ENGINE, *parts)} | identity))


def _check_json(name: str, value: Any) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # NaN is no number that a later run would find equal
        raise ValueError(f"{name} is {shown(value)}; legal: JSON, numbers in it finite") from None


def _differences(a: Any, b: Any, path: str = "") -> list[str]:
    """`path: there x, here y` for every leaf in which two runs differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = sorted(a.keys() | b.keys())
        return [line for k in keys for line in _differences(a.get(k), b.get(k), f"{path}.{k}" if path else k)]
    return [] if a == b else [f"{path}: there {a!r}, here {b!r}"]


def _claim(root: Path, run: dict[str, Any]) -> None:
    path = root / "run.json"
    if path.exists():
        held = read_json(path, CheckpointError, f"remove the folder {root}")
        if held != run:
            raise CheckpointError(
                f"{root} holds another run ({'; '.join(_differences(held, run))}); choose another folder or remove it"
            )
    else:
        try:
            root.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise CheckpointError(f"{root} is a file; the run needs a folder") from None
        write_json(path, run)


@contextmanager
def _stop_requests():
    """An event that SIGTERM and SIGINT set while the block runs (signals reach only the main thread)."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {s: signal.signal(s, lambda *_: stop.set()) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for s, handler in previous.items():
            signal.signal(s, handler)
