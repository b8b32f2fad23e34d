"""What holds of every learner of objects: sizes, masks, symmetries, whose codes are read, the reader's operations."""

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from tiny_objects import object_windows
from torch import Tensor

from sprii_train.checkpoints import load, save
from sprii_train.cophy.windows import GIVEN, ObjectWindows, check_windows
from sprii_train.learners import LEARNERS, ObjectCPCConfig, ObjectJEPAConfig, ObjectRSSMConfig
from sprii_train.objectives import align
from sprii_train.protocol import Objective, check_learner, encode, take, training_loss

SMALL: Any = {"features": 6, "projection": 8, "width": 8, "persistent": 5}
CONFIGS: dict[str, Any] = {
    "object-jepa": ObjectJEPAConfig(**SMALL, current=4, sigreg_slices=16),
    "object-cpc": ObjectCPCConfig(**SMALL, current=4, sigreg_slices=16),
    "object-rssm": ObjectRSSMConfig(**SMALL, latent=3, decoder=7),
}
CROSS = Objective(lambda_x=1.0, native_on="recipients", cross_directions="one")
BOTH = [(name, context) for name in CONFIGS for context in ("split", "monolithic")]
N = 4


def made(name: str, context: str = "split", seed: int = 0) -> Any:
    torch.manual_seed(seed)
    learner: Any = LEARNERS[name][0](replace(CONFIGS[name], context=context))
    if name == "object-rssm":
        learner.fit_statistics(torch.randn(50, 6))
    return learner.eval()


def terms(learner: Any, windows: ObjectWindows, objective: Objective = CROSS) -> dict[str, Tensor]:
    return training_loss(learner, cast(Any, windows), objective)[1]


def recipients(windows: ObjectWindows) -> ObjectWindows:
    return take(windows, slice(N, None))


def interaction(w: int) -> int:
    """edge and update of [x, x_j] – w – w, and a norm."""
    return 2 * (2 * w * w + w + w * w + w) + 2 * w


def gru(before: int, hidden: int) -> int:
    return 3 * hidden * (before + hidden + 2)


PROJECTION = 2 * 1568 + (1568 * 256 + 256) + (256 * 128 + 128) + 2 * 128
PERSISTENT = interaction(128) + 2 * gru(128, 128) + (128 * 64 + 64) + 2 * 64
CURRENT = interaction(128) + gru(128, 64) + gru(64, 64) + 2 * 64
STEP = interaction(128) + gru(128, 128)


@pytest.mark.parametrize(
    ("name", "context", "expected"),
    [
        (name, context, PROJECTION + rest)
        for name in ("object-jepa", "object-cpc")
        for context, rest in (
            ("split", PERSISTENT + CURRENT + (64 * 128 + 128 + 256) + STEP + (192 * 128 + 128) + (128 * 128 + 128)),
            (
                "monolithic",
                interaction(128) + 2 * gru(128, 128) + 256
                + (128 * 128 + 128 + 256) + STEP + (256 * 128 + 128) + (128 * 128 + 128),
            ),
        )
    ] + [
        (
            "object-rssm", context,
            PROJECTION + rest + STEP + ((160 + p) * 128 + 128)
            + ((128 + p) * 128 + 128 + 128 * 64 + 64) + (256 * 128 + 128 + 128 * 64 + 64)
            + ((160 + p) * 256 + 256 + 256 * 784 + 784),
        )
        for context, rest, p in (("split", PERSISTENT, 64), ("monolithic", 0, 0))
    ],
)  # fmt: skip
def test_the_papers_sizes(name: str, context: str, expected: int):
    learner: Any = LEARNERS[name][0](replace(LEARNERS[name][1](), context=context)).eval()
    assert sum(p.numel() for p in learner.parameters()) == expected
    windows = recipients(object_windows(N, features=784, objects=4, slots=9, videos=1))
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    state = 160 if name == "object-rssm" else 64
    width = {"split": (4 * state, 4 * 64), "monolithic": (0, 4 * (160 if name == "object-rssm" else 128))}[context]
    assert (codes.z_s.shape, codes.z_p.shape) == ((N, width[0]), (N, width[1]))
    prediction = learner.predict(codes.z_s, codes.z_p, batch.u)
    assert prediction.shape == (N, 5, 4, 784 if name == "object-rssm" else 128)
    memory = learner.object_memory(windows.features[:, 0], windows.poses[:, 0], windows.seen[:, 0])
    query = learner.object_query(windows.query_features[:, :3], windows.query_poses[:, :3], windows.active)
    exported = {"split": 64 + state, "monolithic": 160 if name == "object-rssm" else 128}[context]
    assert learner.object_state(memory, query).shape == (N, 4, exported)


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize(("name", "context"), BOTH)
def test_the_operations_hold_and_every_parameter_learns(name: str, context: str, absent: bool):
    learner, windows = made(name, context), object_windows(N, absent=absent)
    check_learner(learner, cast(Any, windows))
    loss, parts = training_loss(learner.train(), cast(Any, windows), replace(CROSS, lambda_p=1.0))
    loss.backward()
    for key, parameter in learner.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
        assert (parameter.grad != 0).any(), key
    assert {"self", "cross", "align"} <= parts.keys()


@pytest.mark.parametrize(("name", "context"), BOTH)
def test_what_is_absent_changes_nothing(name: str, context: str):
    """Neither absent objects of a query, nor those of a video, nor videos that a row does not have."""
    learner, windows = made(name, context), object_windows(N, absent=True)
    seen = windows.seen.clone()
    seen[:N, 1] = False  # a donor row with a video fewer
    windows = windows._replace(seen=seen, video=torch.where(windows.video == 1, 2, windows.video))
    junk = 9.0 * torch.randn(windows.features.shape)
    changed = windows._replace(
        features=torch.where(seen[:, :, None, :, None], windows.features, junk),
        query_features=torch.where(
            windows.active[:, None, :, None], windows.query_features, torch.cat([junk[N:, 0], junk[N:, 0]])
        ),
        slot=windows.slot.masked_fill(~windows.active, 0),
        kind=windows.kind.masked_fill(~windows.active, 1),
    )
    objective = replace(CROSS, lambda_p=0.3)
    for key, value in terms(learner, windows, objective).items():
        torch.testing.assert_close(terms(learner, changed, objective)[key], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "context"), BOTH)
def test_objects_have_no_order(name: str, context: str):
    """With the objects of rows and videos in another order, codes and predictions are in that order."""
    learner, windows = made(name, context), object_windows(N, absent=True)
    order = torch.tensor([2, 0, 1])
    back = order.argsort()
    turned = windows._replace(
        features=windows.features[:, :, :, order], poses=windows.poses[:, :, :, order], seen=windows.seen[:, :, order],
        video=windows.video[:, order], place=back[windows.place][:, order],
        query_features=windows.query_features[:, :, order], query_poses=windows.query_poses[:, :, order],
        active=windows.active[:, order], slot=windows.slot[:, order], kind=windows.kind[:, order],
        focal=back[windows.focal], positions=windows.positions[:, :, order], still=windows.still[:, :, order],
    )  # fmt: skip
    found = []
    for one in (windows, turned):
        batch = learner.prepare(one)
        codes = encode(learner, batch)
        z_p = codes.z_p.unflatten(1, (3, -1))
        found.append((z_p, learner.predict(codes.z_s, codes.z_p, batch.u) * batch.y.active[:, None, :, None]))
    torch.testing.assert_close(found[1][0], found[0][0][:, order], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1][1], found[0][1][:, :, order], rtol=1e-4, atol=1e-5)
    for key, value in terms(learner, windows).items():
        torch.testing.assert_close(terms(learner, turned)[key], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_code_is_of_its_object_of_its_video(name: str):
    """P of a donor row's object is what `object_memory` says of the one that it names, and no other video counts."""
    learner, windows = made(name), object_windows(N, absent=True)
    z_p = encode(learner, learner.prepare(windows)).z_p.unflatten(1, (3, -1))
    for row in range(2 * N):
        for o in range(3):
            video, place = int(windows.video[row, o]), int(windows.place[row, o])
            if not windows.active[row, o]:
                assert not z_p[row, o].any()
                continue
            alone = learner.object_memory(
                windows.features[row, video][None], windows.poses[row, video][None], windows.seen[row, video][None]
            )
            torch.testing.assert_close(z_p[row, o], alone[0, place], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_donors_matter_to_cross_alone(name: str):
    learner, windows = made(name), object_windows(N)
    before = terms(learner, windows)
    other = windows._replace(features=torch.cat([windows.features[:N].flip(2), windows.features[N:]]))
    after = terms(learner, other)
    assert after["cross"] != before["cross"]
    assert all(torch.equal(after[key], before[key]) for key in before if key != "cross")


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", CONFIGS)
def test_cross_with_own_codes_is_the_self_loss_of_the_focal_object(name: str, mode: str):
    """Draws of the RSSM included; and a donor row's other objects count: Cross substitutes all of them."""
    learner, windows = made(name).train(mode == "train"), object_windows(N, absent=True)
    itself = take(windows, torch.arange(N, 2 * N).repeat(2))
    batch = learner.prepare(itself)
    codes = encode(learner, batch)
    prediction = learner.predict(codes.z_s[N:], codes.z_p[N:], take(batch.u, slice(N, None)))
    losses, _ = learner.object_losses(prediction, take(batch.y, slice(N, None)))
    expected = torch.stack([losses[i, :, windows.focal[N + i]].mean() for i in range(N)])
    if name == "object-cpc":
        slots = windows.slot[N:], windows.kind[N:]
        expected = torch.stack(
            [
                expected[i]
                for i in range(N)
                if sum(
                    bool(windows.active[N + j, o]) and all(of[j, o] == of[i, windows.focal[N + i]] for of in slots)
                    for j in range(N)
                    for o in range(3)
                )
                > 1
            ]
        )
    found = learner.cross_task_loss(
        learner.predict(codes.z_s[N:], codes.z_p[:N], take(batch.u, slice(N, None))), take(batch.y, slice(N, None))
    )
    torch.testing.assert_close(found.mean(), expected.mean(), rtol=1e-6, atol=1e-6)

    one = take(windows, slice(N, None))  # of the focal object alone: its own code, its neighbours' swapped
    z_p = codes.z_p[N:].unflatten(1, (3, -1))
    swapped = z_p.roll(1, 0)
    swapped[torch.arange(N), one.focal] = z_p[torch.arange(N), one.focal]
    mixed = learner.predict(codes.z_s[N:], swapped.flatten(1), take(batch.u, slice(N, None)))
    assert learner.cross_task_loss(mixed, take(batch.y, slice(N, None))).mean() != found.mean()


@pytest.mark.parametrize("name", CONFIGS)
def test_align_is_of_the_focal_objects_codes(name: str):
    learner, windows = made(name), object_windows(N)
    z_p = encode(learner, learner.prepare(windows)).z_p.unflatten(1, (3, -1))
    focal = torch.stack([z_p[i, windows.focal[i]] for i in range(2 * N)])
    found = terms(learner, windows, Objective(lambda_p=1.0))["align"]
    torch.testing.assert_close(found, align(focal[:N], focal[N:]).total.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "context"), BOTH)
def test_a_readers_state_is_what_predictions_start_from(name: str, context: str):
    learner, windows = made(name, context), recipients(object_windows(N, absent=True))
    codes = encode(learner, learner.prepare(windows))
    memory = learner.object_memory(windows.features[:, 0], windows.poses[:, 0], windows.seen[:, 0])
    query = learner.object_query(windows.query_features[:, :GIVEN], windows.query_poses[:, :GIVEN], windows.active)
    state = learner.object_state(memory, query)
    parts = [code.unflatten(1, (3, -1)) for code in (codes.z_p, codes.z_s)]
    torch.testing.assert_close(state, torch.cat(parts, dim=-1), rtol=1e-4, atol=1e-5)
    several = learner.object_state(memory[:, None].expand(-1, 2, -1, -1), query[:, None])
    torch.testing.assert_close(several[:, 1], state)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_native_learner_knows_its_video_and_its_query(name: str):
    learner, windows = made(name, "monolithic"), recipients(object_windows(N))
    code = encode(learner, learner.prepare(windows)).z_p
    for changed in (
        windows._replace(features=windows.features.flip(2)),
        windows._replace(query_features=windows.query_features.roll(1, 0)),
    ):
        assert not torch.allclose(encode(learner, learner.prepare(changed)).z_p, code)


@pytest.mark.parametrize(("name", "context"), BOTH)
def test_codes_never_read_what_is_to_be_predicted(name: str, context: str):
    learner, windows = made(name, context), object_windows(N)
    future = windows.query_features.clone()
    future[:, GIVEN:] += 1.0
    found = []
    for one in (windows, windows._replace(query_features=future)):
        batch = learner.prepare(one)
        codes = encode(learner, batch)
        found.append((codes.z_p, codes.z_s, learner.predict(codes.z_s, codes.z_p, batch.u)))
    for before, after in zip(*found, strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_query_that_donor_rows_repeat_is_read_once(name: str):
    """The donors' copies of it change neither codes nor losses, and float16 features are those of float32."""
    learner, windows = made(name), object_windows(N)
    half = windows._replace(features=windows.features.half(), query_features=windows.query_features.half())
    full = half._replace(features=half.features.float(), query_features=half.query_features.float())
    counts: list[int] = []
    learner.projection.register_forward_hook(lambda _m, args, _out: counts.append(args[0].shape[:-1].numel()))
    found = terms(learner, half)
    assert counts[-1] == N * 8 * 3
    own = full._replace(query_features=torch.cat([full.query_features[:N] + 1e-3, full.query_features[N:]]))
    again = terms(learner, own)
    assert counts[-1] == 2 * N * 8 * 3
    for key, value in found.items():
        torch.testing.assert_close(again[key], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "context"), BOTH)
def test_checkpoints(name: str, context: str, tmp_path):
    learner, windows = made(name, context), object_windows(N)
    save(learner, tmp_path / "model")
    loaded = cast(Any, load(tmp_path / "model")).eval()
    for key, value in terms(learner, windows).items():
        assert torch.equal(terms(loaded, windows)[key], value)


@pytest.mark.parametrize(("name", "context"), BOTH)
def test_half_precision(name: str, context: str):
    learner, windows = made(name, context), object_windows(N)
    exact = terms(learner, windows)
    with torch.autocast("cpu", torch.bfloat16):
        loss, rough = training_loss(learner, cast(Any, windows), CROSS)
    loss.backward()
    for key in ("self", "cross"):
        torch.testing.assert_close(rough[key].float(), exact[key], rtol=0.1, atol=0.05)


def test_configs_and_windows_say_what_is_legal():
    for config in CONFIGS.values():
        name = type(config).__name__
        with pytest.raises(ValueError, match=rf"{name}.width is 0; legal: an integer >= 1"):
            replace(config, width=0)
        with pytest.raises(ValueError, match=rf"{name}.context is 'supervised'; legal: split, monolithic"):
            replace(config, context="supervised")
    with pytest.raises(ValueError, match=r"ObjectCPCConfig.temperature is 0; legal: a finite number > 0"):
        ObjectCPCConfig(temperature=0)
    with pytest.raises(ValueError, match=r"ObjectRSSMConfig.kl_balance is 1.5; legal: a number in \[0, 1\]"):
        ObjectRSSMConfig(kl_balance=1.5)
    windows = object_windows(N, absent=True)
    check_windows(windows, features=6)
    elsewhere = windows.place.clone()
    elsewhere[N] = 2  # the first recipient's video has no third object
    broken: list[tuple[dict[str, Tensor], str]] = [
        ({"features": windows.features[0]}, r"features have shape \(3, 8, 3, 6\); legal: \(B, V, T, O, F\)"),
        ({"query_features": windows.query_features[:, :3]}, r"query_features have shape .* T at least 4"),
        ({"kind": windows.kind[:, :2]}, r"kind has shape \(8, 2\); legal: \(8, 3\)"),
        ({"seen": windows.seen.long()}, r"seen is of torch.int64; legal: torch.bool"),
        ({"slot": windows.slot.int()}, r"slot is of torch.int32; legal: torch.int64"),
        ({"video": windows.video + 2}, r"video are 2 to 4; legal: 0 to 2"),
        ({"focal": torch.full((8,), 2)}, r"focal names an object that is not active; legal: active ones"),
        ({"place": elsewhere}, r"an active object's code is of an object that is not in its video"),
    ]
    for change, message in broken:
        with pytest.raises(ValueError, match=message):
            check_windows(windows._replace(**change))
    with pytest.raises(ValueError, match=r"features have 6 numbers an object; legal: 784"):
        LEARNERS["object-jepa"][0](ObjectJEPAConfig()).prepare(windows)  # type: ignore[operator]
