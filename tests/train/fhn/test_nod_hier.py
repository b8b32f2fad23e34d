"""NOD-Hier against transforms of all waves, written out; rollouts one jump at a time; symmetries; the protocol."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from field_banks import LEARNER, store_of

from sprii_train.fhn.windows import PairedChains
from sprii_train.learners.nod_hier import FourierLayer, NODHier, NODHierConfig
from sprii_train.protocol import check_learner, encode, training_loss
from sprii_train.recipes import FHN_RECIPES


def learner_of(**changes: Any) -> Any:
    torch.manual_seed(0)
    return NODHier(replace(LEARNER, **changes))


@pytest.mark.parametrize(("side", "modes"), [(8, 4), (12, 3), (16, 8)])
def test_a_fourier_layer_is_that_of_fast_transforms(side: int, modes: int):
    torch.manual_seed(0)
    layer, x = FourierLayer(3, modes, 3), torch.randn(2, 3, side, side)
    waves = torch.fft.rfft2(x, norm="ortho")
    mixed, weight = torch.zeros_like(waves), torch.complex(layer.weight[0], layer.weight[1])
    for i, wave in enumerate(range(-modes, modes)):
        for j in range(modes):
            mixed[:, :, wave % side, j] = torch.einsum("bi,io->bo", waves[:, :, wave % side, j], weight[i, j])
    expected = torch.fft.irfft2(mixed, s=(side, side), norm="ortho") + layer.local(x)
    torch.testing.assert_close(layer(x), expected, atol=2e-6, rtol=1e-5)


def test_a_chain_is_its_jumps_and_a_head_is_seen():
    learner, (start, code) = learner_of(), (torch.randn(3, 2, 8, 8), torch.randn(3, 2))
    heads = torch.tensor([[0, 1], [3, 0], [2, 2]])
    chain = learner.predict(learner.encode_current(start), code, heads)
    first = learner.jump(start, code, heads[:, 0])
    torch.testing.assert_close(chain[:, 0], first)
    torch.testing.assert_close(chain[:, 1], learner.jump(first, code, heads[:, 1]))
    # Were its one-hot not read, the head of 27 frames would change a frame by 27 times what that of 1 does.
    one, far = (learner.jump(start, code, torch.full((3,), h)) - start for h in (0, 3))
    assert not torch.allclose(27.0 * one, far, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"heads": torch.tensor([[0], [4]])}, r"heads are \[0, 4\]; legal: 0 to 3"),
        ({"heads": torch.tensor([[-1], [0]])}, r"heads are \[-1, 0\]"),
        ({"heads": torch.tensor([0, 1])}, r"heads have shape \(2,\); legal: \(B, L\)"),
        ({"heads": torch.zeros(3, 1, dtype=torch.int64)}, r"heads have shape \(3,\)"),
        ({"code": torch.zeros(2, 3)}, r"codes have shape \(2, 3\); legal: \(2, 2\)"),
        ({"code": torch.zeros(1, 2)}, r"codes have shape \(1, 2\)"),
        ({"start": torch.zeros(2, 3, 8, 8)}, r"a frame has shape \(2, 3, 8, 8\)"),
    ],
)
def test_what_no_rollout_is_made_of_is_refused(change: dict[str, torch.Tensor], said: str):
    given = {"start": torch.zeros(2, 2, 8, 8), "code": torch.zeros(2, 2), "heads": torch.tensor([[0], [3]])}
    assert learner_of().rollout(**given).shape == (2, 1, 2, 8, 8)
    with pytest.raises(ValueError, match=said):
        learner_of().rollout(**given | change)


def test_other_histories_and_starts_are_refused():
    with pytest.raises(ValueError, match=r"history has shape \(1, 4, 2, 8, 8\); legal: \(B, 5, 2, side, side\)"):
        learner_of().encode_history(torch.zeros(1, 4, 2, 8, 8))
    with pytest.raises(ValueError, match=r"z_s has shape \(1, 127\)"):
        learner_of().predict(torch.zeros(1, 127), torch.zeros(1, 2), torch.tensor([[0]]))


def test_first_weights_leave_a_frame_nearly_as_it_is():
    learner, start = learner_of(), torch.randn(4, 2, 8, 8)
    change = learner.jump(start, torch.randn(4, 2), torch.full((4,), 3)) - start
    assert 0.0 < change.abs().max() < 0.2


@pytest.mark.parametrize("far", [1, 3, 4])
def test_without_coordinates_predictions_move_with_their_start(far: int):
    start, code, heads = torch.randn(2, 2, 8, 8), torch.randn(2, 2), torch.tensor([[0, 2], [1, 3]])
    for coordinates in (False, True):
        learner = learner_of(coordinates=coordinates)
        moved = learner.rollout(start.roll((far, far), (-2, -1)), code, heads)
        same = torch.allclose(moved, learner.rollout(start, code, heads).roll((far, far), (-2, -1)), atol=1e-6)
        assert same != coordinates


def test_codes_without_coordinates_are_those_of_histories_rolled_by_whole_strides():
    history = torch.randn(3, 5, 2, 16, 16)
    learner = learner_of(coordinates=False)
    torch.testing.assert_close(learner.encode_history(history.roll(8, -1)), learner.encode_history(history))
    assert not torch.allclose(
        learner.encode_history(history[:, :, :, :, :8]), learner.encode_history(history[..., :8, :])
    )


@pytest.mark.parametrize("arm", FHN_RECIPES)
def test_the_learner_under_its_recipes(arm: str):
    store, recipe = store_of(), FHN_RECIPES[arm]
    windows: Any = PairedChains(store, store.split("train"), kernel=recipe.kernel, pairs=6)(0)
    learner = learner_of()
    check_learner(learner, windows)
    loss, parts = training_loss(learner, windows, recipe.objective)
    assert ("align" in parts) == (arm != "fhn-nod")
    batch = learner.prepare(windows)
    code = encode(learner, batch).z_p
    predicted = learner.rollout(windows.start[6:], code[6:], windows.actions[6:])
    self_error = (predicted - windows.targets[6:]).square().mean()
    torch.testing.assert_close(parts["self"], self_error)  # of the recipients alone, equal over the four outputs
    assert loss >= parts["self"]


def test_sizes_of_the_paper_and_what_is_refused():
    paper = NODHier(NODHierConfig())
    assert (paper.lift.in_channels, paper.lift.out_channels) == (2 + 2 + 4 + 2, 64)
    assert [layer.out_channels for layer in paper.condition] == [128] * 3
    assert paper.code.out_features == 2
    with pytest.raises(ValueError, match=r"NODHierConfig\.kernel is 2; legal: odd numbers"):
        NODHierConfig(kernel=2)
    with pytest.raises(ValueError, match=r"NODHierConfig\.heads are \(3, 1\); legal: increasing"):
        NODHierConfig(heads=(3, 1))
    with pytest.raises(ValueError, match="a field of side 8 has fewer than 5 waves along an axis; legal: modes <= 4"):
        learner_of(modes=5).rollout(torch.zeros(1, 2, 8, 8), torch.zeros(1, 2), torch.zeros(1, 1, dtype=torch.long))


def test_coordinates_are_those_of_the_release():
    placed = learner_of().placed(torch.zeros(1, 1, 8, 8))[0, 1:]
    line = np.linspace(0.0, 1.0, 9)[1:]
    np.testing.assert_allclose(placed.numpy(), np.stack(np.meshgrid(line, line, indexing="ij")), atol=1e-7)
