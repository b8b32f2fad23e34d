"""The front end of CoPhy's learners: a de-rendering network that turns pictures into 784 features a colour slot.

A convolutional trunk sees a picture on a grid of 7 × 7; from it come the presence of every slot, and by a 1×1
convolution 16 channels a slot, whose rectified 16·7·7 values are the slot's features. A small network reads the slot's
position and its box in the picture from them. All is trained on frames of training pairs, and frozen. The published
network begins at ImageNet's weights; ours begins at random ones.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils.fusion import fuse_conv_bn_eval

from sprii_envs import files
from sprii_envs.arguments import check, choice, flag, instance, integer, number
from sprii_envs.banks import Store
from sprii_envs.cophy.bank import frames, slots
from sprii_envs.cophy.protocols import VIDEOS
from sprii_envs.relations import EpisodeTable
from sprii_train.checkpoints import CheckpointError, read_tensors, write_tensors
from sprii_train.fit import TrainConfig, fit
from sprii_train.identity import learner_state
from sprii_train.protocol import Batch, Codes, Objective, each
from sprii_train.records import Report

Array = NDArray[Any]
Rows = NDArray[np.int64]

GRID = 7
"""Cells along a side of what the trunk sees of a picture."""
CHANNELS = 16
"""Of a slot in every cell."""
FEATURES = CHANNELS * GRID * GRID
"""Of a slot."""
PIXELS = 224
"""Side of the picture that banks give boxes in; here they are fractions of it."""
TRUNKS = {"narrow": range(2, 7), "resnet18": range(4, 6)}
"""Trunk → numbers of times it can halve a picture until 7 × 7 cells are left."""

_WEIGHTS, _ABOUT, _QUALITY = "model.safetensors", "frontend.json", "quality.json"


@dataclass(frozen=True)
class FrontEndConfig:
    """A front end and its training; the defaults are the published sizes.

    Attributes:
        trunk: `resnet18`, or `narrow`: a convolution of stride 4, a residual block, and one more a halving.
        size: pixels along a side: 7·2^k.
        width: channels of the narrow trunk at first, a quarter of those at last.
        hidden: units that read position and box.
        steps: updates; of Balls the published 20 epochs are 17,500, at a random frame of every video an epoch.
        batch: frames of an update, an even number.
        learning_rate: of Adam, constant, or with `decay` at first.
        decay: to zero by a cosine.
        box_weight: of the box's squared error beside the position's.
        seed: of weights and frames.
        checkpoint_every, log_every: in steps.
        judged: frames that `quality` is measured on.
        device: that it is trained on; afterwards it is on the CPU.
    """

    trunk: str = "resnet18"
    size: int = 224
    width: int = 32
    hidden: int = 256
    steps: int = 17_500
    batch: int = 16
    learning_rate: float = 1e-3
    decay: bool = False
    box_weight: float = 1.0
    seed: int = 0
    checkpoint_every: int = 500
    log_every: int = 50
    judged: int = 1_000
    device: str = "cpu"

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, choice, "trunk", legal=TRUNKS)
        check(self, integer, "size", "width", "hidden", "steps", "checkpoint_every", "log_every", "judged", least=1)
        check(self, integer, "seed")
        check(self, number, "learning_rate", above=0)
        check(self, number, "box_weight", least=0)
        check(self, flag, "decay")
        check(self, instance, "device", of=str)
        if self.size not in (legal := [GRID * 2**n for n in TRUNKS[self.trunk]]):
            raise ValueError(
                f"FrontEndConfig.size is {self.size!r}; legal of {self.trunk}: {', '.join(map(str, legal))}"
            )
        if integer("FrontEndConfig.batch", self.batch, least=2) % 2:
            raise ValueError(f"FrontEndConfig.batch is {self.batch}; legal: an even number")

    @property
    def halvings(self) -> int:
        """How often the trunk halves a picture."""
        return int(math.log2(self.size // GRID))

    @property
    def train(self) -> TrainConfig:
        """Adam: no weight decay, and gradients as they are."""
        rates = () if self.decay else ((0, self.learning_rate),)
        return TrainConfig(
            steps=self.steps, pairs=self.batch // 2, learning_rate=self.learning_rate, weight_decay=0.0, warmup=0,
            clip=1e9, rates=rates, seed=self.seed, checkpoint_every=self.checkpoint_every, log_every=self.log_every,
            device=self.device,
        )  # fmt: skip


class Frames(NamedTuple):
    """B frames and what is true of their K slots; positions and boxes count where `present`.

    As `fit` takes windows: of any, halves and relations are of no account here.
    """

    images: Tensor  # (B, size, size, 3) uint8
    present: Tensor  # (B, K) bool
    position: Tensor  # (B, K, 3) float32, in the scene's units
    box: Tensor  # (B, K, 4) float32, corners x1 y1 x2 y2 as fractions of the picture

    @property
    def actions(self) -> Tensor:
        """(B, 0): by their number of rows `fit` counts the frames."""
        return self.position[:, 0, :0]

    def to(self, device: torch.device | str) -> "Frames":
        """The same frames on a device."""
        return each(self, lambda tensor: tensor.to(device))


class Seen(NamedTuple):
    """What a front end makes of B pictures."""

    presence: Tensor  # (B, K) logits
    features: Tensor  # (B, K, 784), none negative
    position: Tensor  # (B, K, 3)
    box: Tensor  # (B, K, 4), the second corner not before the first


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    """A convolution whose padding keeps the picture, and its normalisation."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class _Block(nn.Module):
    """A residual block of two 3×3 convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = _convolution(inputs, outputs, 3, stride), _convolution(outputs, outputs, 3, 1)
        same = inputs == outputs and stride == 1
        self.skip = nn.Identity() if same else _convolution(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.skip(x))


def trunk(config: FrontEndConfig) -> tuple[nn.Sequential, int]:
    """(B, 3, size, size) → (B, C, 7, 7), and C; ResNet-18 without its pooling where a picture is half as large."""
    if config.trunk == "resnet18":
        width, stem = 64, [*_convolution(3, 64, 7, 2), nn.ReLU()]
        stem += [nn.MaxPool2d(3, 2, 1)] if config.halvings == 5 else []
        stages = [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]
    else:
        width, stem = config.width, [_convolution(3, config.width, 7, 4), nn.ReLU()]
        stages = [(width, 1), *((width * min(4, 2**n), 2) for n in range(1, config.halvings - 1))]
    blocks = []
    for outputs, stride in stages:
        blocks.append(_Block(width, outputs, stride))
        width = outputs
    return nn.Sequential(*stem, *blocks), width


class FrontEnd(nn.Module):
    """The de-rendering network; a learner that `fit` trains without Align and Cross.

    Args:
        config: its sizes.
        slots: K, colours of the scene.
    """

    def __init__(self, config: FrontEndConfig, slots: int) -> None:
        super().__init__()
        self.config, self.slots = config, integer("slots", slots, least=1)
        self.trunk, width = trunk(config)
        self.presence = nn.Linear(width, slots)
        self.channels = nn.Conv2d(width, slots * CHANNELS, 1)
        self.pose = nn.Sequential(nn.Linear(FEATURES, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 7))

    def forward(self, images: Tensor) -> Seen:
        """What is seen in pictures (B, size, size, 3) uint8."""
        # Bytes lie channels last already, which is how convolutions are fast
        x = self.trunk(images.permute(0, 3, 1, 2).float().mul_(1 / 127.5).sub_(1.0))
        features = torch.relu(self.channels(x)).reshape(len(x), self.slots, FEATURES)
        position, corner, extent = self.pose(features).float().split([3, 2, 2], dim=-1)
        corner, extent = torch.sigmoid(corner), torch.sigmoid(extent)
        return Seen(
            self.presence(x.mean((2, 3))).float(), features, position, torch.cat([corner, corner + extent], dim=-1)
        )

    # As `fit` asks of a learner: nothing persists here, and the loss is native alone

    def prepare(self, windows: Frames) -> Batch:
        """Frames as they are."""
        return Batch(windows.images, windows.images, None, windows)

    def encode_history(self, history: Tensor) -> Tensor:
        """No persistent code, (B, 0)."""
        return history.new_zeros(len(history), 0, dtype=torch.float32)

    encode_current = encode_history

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross entropy of presence, squared errors of position and box where there is an object."""
        truth, seen = batch.y, self(batch.current)
        parts = {
            "presence": binary_cross_entropy_with_logits(seen.presence, truth.present.float()),
            "position": (seen.position - truth.position)[truth.present].square().mean(),
            "box": (seen.box - truth.box)[truth.present].square().mean(),
        }
        return parts["presence"] + parts["position"] + self.config.box_weight * parts["box"], parts

    def predict(self, z_s: Tensor, z_p: Tensor, u: Any) -> Tensor:
        raise TypeError("a front end predicts nothing: it is trained without Align and Cross")

    task_loss = predict

    @property
    def digest(self) -> str:
        """SHA-256 of the weights."""
        return learner_state(self)[0]

    def frozen(self) -> "FrontEnd":
        """A copy in evaluation mode that is faster: normalisations are part of their convolutions."""
        own = copy.deepcopy(self).eval().requires_grad_(False)
        for module in [m for m in own.modules() if isinstance(m, nn.Sequential)]:
            for i, (one, other) in enumerate(zip(list(module), list(module)[1:], strict=False)):
                if isinstance(one, nn.Conv2d) and isinstance(other, nn.BatchNorm2d):
                    module[i], module[i + 1] = fuse_conv_bn_eval(one, other), nn.Identity()
        return own.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread, so that sums have one order and results do not depend on the cores at hand."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def see(frontend: FrontEnd, images: Array, together: int = 64) -> Seen:
    """What a front end makes of pictures (N, size, size, 3) uint8, float32.

    Raises:
        ValueError: for pictures of another size.
    """
    size = frontend.config.size
    if images.dtype != np.uint8 or images.shape[1:] != (size, size, 3):
        raise ValueError(
            f"the pictures are {images.dtype} of shape {images.shape}; legal: uint8 (N, {size}, {size}, 3)"
        )
    with torch.inference_mode():
        parts = [frontend(torch.from_numpy(images[i : i + together])) for i in range(0, len(images), together)]
        return Seen(*(torch.cat(part) for part in zip(*parts, strict=True)))


def slot_count(store: Store) -> int:
    """K of a CoPhy bank."""
    return slots(store, np.arange(1)).kind.shape[1]


def truth(store: Store, rows: Rows, video: Array, times: Rows) -> tuple[Array, Array, Array]:
    """Presence (N, K), positions (N, K, 3) and boxes (N, K, 4) in one frame of each row (N,) of a store's table.

    An object that an intervention has removed is not there.

    Args:
        video: (N,) 0 is AB, 1 is CD.
    """
    episodes = store.table["episode"][rows]

    def read(name: str) -> Array:
        return _by_video(video, lambda v, at: store.windows(f"{v}_{name}", episodes[at], times[at], 1)[:, 0])

    states = read("states")
    present = (np.asarray(slots(store, rows).kind) >= 0) & states.any(-1)
    return present, states[..., :3], read("boxes") / np.float32(PIXELS)


def pictures_of(store: Store, rows: Rows, video: Array, times: Rows, size: int) -> Array:
    """One frame of each row of a store's table, (N, size, size, 3) uint8; see `truth`."""
    return _by_video(video, lambda v, at: frames(store, rows[at], v, times[at, None], size)[:, 0])


def _by_video(video: Array, read: Callable[[str, Rows], Array]) -> Array:
    """What `read` has of each video's rows, in the order of the rows."""
    where = [np.flatnonzero(video == v) for v in range(len(VIDEOS))]
    found = [read(name, at) for name, at in zip(VIDEOS, where, strict=True) if len(at)]
    return np.concatenate(found)[np.argsort(np.concatenate(where))]


class RandomFrames:
    """Random frames of a table's pairs, of both videos: a pure function of (seed, step).

    Args:
        store: a CoPhy bank, or one of the same columns and labels.
        table: the pairs; rows of the store's table.
        size: of the pictures.
        batch: frames of a call.
    """

    def __init__(self, store: Store, table: EpisodeTable, *, size: int, batch: int, seed: int) -> None:
        self.store, self.table, self.size, self.batch, self.seed = store, table, size, batch, seed
        self.rows = np.asarray(table.rows, np.int64)

    def identity(self) -> dict[str, Any]:
        """What the frames depend on; `fit` keeps it with the run."""
        return {
            "bank": self.store.fingerprint,
            "pairs": self.table.rows_fingerprint(),
            "pictures": picture_digest(self.store, self.size),
            "batch": self.batch,
            "seed": self.seed,
        }

    def __call__(self, step: int) -> Frames:
        """B frames."""
        rows, video, times = self.drawn(step)
        images = pictures_of(self.store, rows, video, times, self.size)
        return Frames(*map(torch.from_numpy, (images, *truth(self.store, rows, video, times))))

    def drawn(self, step: int) -> tuple[Rows, Rows, Rows]:
        """Rows of the store's table, videos and times, (B,) each."""
        rng = np.random.Generator(np.random.Philox(key=np.array([self.seed, step], np.uint64)))
        rows = self.rows[rng.integers(len(self.rows), size=self.batch)]
        lengths = self.store.table["length"][rows]
        return rows, rng.integers(2, size=self.batch), rng.integers(lengths)


def picture_digest(store: Store, size: int) -> str:
    """Of the first picture of a bank: another renderer's is another."""
    zero = np.zeros(1, np.int64)
    return hashlib.sha256(pictures_of(store, zero, zero, zero, size).tobytes()).hexdigest()[:16]


def train_frontend(
    store: Store, config: FrontEndConfig, folder: files.StrPath, *, progress: Report | None = None
) -> FrontEnd:
    """The front end of a CoPhy bank, trained on frames of its training pairs; resumes, or loads a finished one.

    Args:
        store: a CoPhy bank with the splits `train` and `validation`.
        folder: gets the run in `run/`, the weights, and `quality.json`: `trained`, `constant` and `untrained`, see
            `quality`.
        progress: called after each update with (updates done, losses).

    Returns:
        It in evaluation mode, its weights without gradients.

    Raises:
        CheckpointError: for a folder of another front end, or one that is damaged.
    """
    folder = files.absolute(folder)
    table, held = store.split("train"), store.split("validation")
    data = RandomFrames(store, table, size=config.size, batch=config.batch, seed=config.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        frontend = FrontEnd(config, slot_count(store))
    untrained = copy.deepcopy(frontend).eval()
    fit(frontend, cast(Any, data), Objective(), config.train, folder / "run", progress=progress, tensorboard=False)
    frontend.cpu().requires_grad_(False)
    if not (folder / _QUALITY).exists():
        judged = RandomFrames(store, held, size=config.size, batch=config.judged, seed=config.seed)(0)
        found = {
            "split": "validation",
            "frames": config.judged,
            "trained": quality(frontend, judged),
            "constant": constant_quality(store, table, judged, seed=config.seed),
            "untrained": quality(untrained, judged),
        }
        write_tensors(folder / _WEIGHTS, frontend.state_dict())
        about = {"config": asdict(replace(config, device="cpu")), "slots": frontend.slots, "digest": frontend.digest}
        kept = {"bytes": (folder / _WEIGHTS).stat().st_size, "sha256": files.checksum(folder / _WEIGHTS)}
        files.write_json(folder / _ABOUT, about | {"files": {_WEIGHTS: kept}})
        files.write_json(folder / _QUALITY, found)
    return frontend


def open_frontend(folder: files.StrPath) -> FrontEnd:
    """The finished front end in a folder of `train_frontend`, in evaluation mode, its weights without gradients.

    Raises:
        CheckpointError: naming the file that is missing or damaged.
    """
    folder = files.absolute(folder)
    remedy = f"remove {folder}, and let train_frontend write it again"
    about = files.read_json(folder / _ABOUT, CheckpointError, remedy)
    try:
        config, count, entry = FrontEndConfig(**about["config"]), about["slots"], about["files"][_WEIGHTS]
        frontend = FrontEnd(config, count)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / _ABOUT} is damaged: {error}; {remedy}") from error
    files.check_file(folder / _WEIGHTS, entry, error=CheckpointError, remedy=remedy)
    try:
        frontend.load_state_dict(read_tensors(folder / _WEIGHTS, remedy))
    except RuntimeError as error:
        raise CheckpointError(f"{folder / _WEIGHTS} is of another front end: {error}; {remedy}") from error
    return frontend.eval().requires_grad_(False)


def quality(frontend: FrontEnd, judged: Frames) -> dict[str, float]:
    """How well a front end sees frames, see `scores`."""
    with one_thread():
        seen = see(frontend.frozen(), judged.images.numpy())
    return scores(judged, (seen.presence > 0).numpy(), seen.position.numpy(), seen.box.numpy())


def constant_quality(store: Store, table: EpisodeTable, judged: Frames, *, seed: int) -> dict[str, float]:
    """The scores of one answer for all frames: a slot's most frequent presence, mean position and mean box.

    Args:
        table: pairs whose frames the answer is taken of, as many as are judged.
    """
    drawn = RandomFrames(store, table, size=0, batch=len(judged.present), seed=seed).drawn(0)
    present, position, box = truth(store, *drawn)
    count = np.maximum(present.sum(0), 1)[:, None]
    means = [(values * present[..., None]).sum(0) / count for values in (position, box)]
    shape = judged.present.shape
    return scores(
        judged,
        np.broadcast_to(present.mean(0) > 0.5, shape),
        *(np.broadcast_to(mean, (*shape, mean.shape[-1])) for mean in means),
    )


def scores(judged: Frames, present: Array, position: Array, box: Array) -> dict[str, float]:
    """What answers for B frames are worth.

    Returns:
        `presence_accuracy`: share of slots whose presence is right. `position_rmse`: root of the mean squared error of
        a coordinate, in the scene's units, over the objects that are there. `box_iou`: mean intersection over union
        of their boxes, over those that the picture shows.
    """
    there = judged.present.numpy()
    true = judged.box.numpy()[there]
    error = (position - judged.position.numpy())[there].astype(np.float64)
    shown_there = ((true[:, 2:] - true[:, :2]) > 0).all(1)
    return {
        "presence_accuracy": float((present == there).mean()),
        "position_rmse": float(np.sqrt(np.square(error).mean())),
        "box_iou": float(iou(box[there][shown_there], true[shown_there]).mean()),
    }


def iou(one: Array, other: Array) -> Array:
    """Intersection over union (N,) of boxes (N, 4), corners x1 y1 x2 y2; 0 where both are empty."""
    low, high = np.maximum(one[:, :2], other[:, :2]), np.minimum(one[:, 2:], other[:, 2:])
    common = np.clip(high - low, 0, None).prod(1)
    areas = sum(np.clip(b[:, 2:] - b[:, :2], 0, None).prod(1) for b in (one, other))
    return common / np.maximum(areas - common, 1e-12)
