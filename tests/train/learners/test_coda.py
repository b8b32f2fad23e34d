"""CoDA and its amortised form: weights by hand, one network without W, adaptation, and a decoder that stays."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sprii_envs.banks import Store
from sprii_train.checkpoints import load, save
from sprii_train.fields.environments import Donors, EnvironmentFields
from sprii_train.fields.windows import FieldWindows, PairedFields
from sprii_train.fit import TrainConfig, fit
from sprii_train.learners import GEPS, AmortisedCoDA, AmortisedCoDAConfig, CoDA, CoDAConfig, GEPSConfig
from sprii_train.protocol import Objective, check_learner, encode, training_loss

SMALL = AmortisedCoDAConfig(points=17, frames=9, width=6, adapt_steps=3, widths=(4, 8), pool=2, hidden=8)
TRAIN = TrainConfig(steps=6, pairs=4, weight_decay=0.0, rates=((0, 1e-3),), precision="fp32", checkpoint_every=3)


def coda(config: CoDAConfig = SMALL.coda) -> CoDA:
    torch.manual_seed(5)
    return CoDA(config)


def amortised() -> AmortisedCoDA:
    torch.manual_seed(5)
    return AmortisedCoDA(SMALL)


def rings(n: int) -> Tensor:
    """Trajectories whose last point is the first."""
    fields = torch.randn(n, 9, 17)
    fields[..., -1] = fields[..., 0]
    return fields


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def data(bank: Store, donors: Donors = "matched") -> EnvironmentFields:
    return EnvironmentFields(
        PairedFields(bank, bank.split("train"), pairs=4, seed=1, condition="self"), donors
    )  # fmt: skip


def test_the_papers_encoder_has_as_many_parameters():
    learner = AmortisedCoDA(AmortisedCoDAConfig())
    assert sum(p.numel() for p in learner.encoder.parameters()) == 89_282
    assert sum(p.numel() for p in learner.parameters() if p.requires_grad) == 89_282
    network = (64 * 3 + 64) + 2 * (64 * 64 * 3 + 64) + (64 * 3 + 1) + 3  # kernels, biases, slopes
    assert learner.decoder.theta.numel() == network
    assert learner.decoder.moves.weight.shape == (network, 2)
    assert learner.decoder.moves.bias is None


def test_forecasts_of_all_environments_at_once_are_those_of_each_alone():
    learner, fields = coda(), torch.randn(5, 9, 17)
    codes, starts = torch.randn(5, 2), torch.tensor([0, 3, 4])
    for given in (None, starts):
        whole = learner.forecast(fields, codes, given)
        alone = torch.cat([learner.forecast(fields[i : i + 1], codes[i : i + 1], given) for i in range(5)])
        torch.testing.assert_close(whole, alone)
        assert torch.equal(whole[..., 0], whole[..., -1])  # both ends of the ring


def test_a_code_moves_every_weight_and_without_moves_there_is_one_network():
    learner, first = coda(), torch.randn(4, 1, 17)
    codes = torch.randn(4, 2)
    expected = learner.decoder.theta + codes @ learner.decoder.moves.weight.T
    found = learner.decoder.weights(codes)
    parts = [p.flatten(1) for pair in zip(found.kernels, found.biases, strict=True) for p in pair]
    torch.testing.assert_close(torch.cat([*parts, found.slopes], 1), expected)
    apart = learner.forecast(first[:1].expand(4, -1, -1), codes)
    assert (apart - apart[:1]).abs().max() > 1e-4
    nn.init.zeros_(learner.decoder.moves.weight)
    same = learner.forecast(first[:1].expand(4, -1, -1), codes)
    assert torch.equal(same, same[:1].expand_as(same))


def test_the_loss_and_its_penalties_by_hand(field_bank: Store):
    learner, windows = coda().train(), data(field_bank)(0)
    learner.codes.data.normal_()
    learner.at_step(2, 40)
    loss, parts = training_loss(learner, windows, Objective(native_on="recipients"))  # type: ignore[arg-type]
    batch = learner.prepare(windows)
    starts = batch.u[1][0].nonzero().flatten()
    codes = learner.codes[windows.systems[4:]]
    error = (learner.forecast(windows.fields[4:], codes, starts) - windows.fields[4:]).square().mean()
    rows = learner.decoder.moves.weight.norm(dim=1).sum()
    torch.testing.assert_close(loss, error + 1e-6 * rows + 1e-4 * codes.square().sum(1).mean())
    torch.testing.assert_close(parts["self"], error.detach())


def test_forcing_falls_by_a_hundredth_every_thirty_updates(field_bank: Store):
    learner, windows = coda(replace(SMALL.coda, forcing=1.0)).train(), data(field_bank)(0)
    learner.at_step(0, 0)
    assert learner.prepare(windows).u[1].sum(1).tolist() == [8] * 8
    late = []
    for step in range(6_900, 7_000):  # 0.99²³⁰ = 0.1
        learner.at_step(0, step)
        late.append(float(learner.prepare(windows).u[1][0].sum()) - 1)
    assert 0.03 < sum(late) / len(late) / 7 < 0.2


def test_the_operations_are_those_of_a_learner(field_bank: Store):
    windows = data(field_bank)(0)
    for learner in (coda(), amortised()):
        check_learner(learner, windows)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"CoDA was made for trajectories of shape \(9, 17\) .*, got \(8, 17\)"):
            learner.prepare(windows._replace(fields=windows.fields[:, 1:]))
    with pytest.raises(ValueError, match="CoDA learns a code per system; legal in training: EnvironmentWindows"):
        coda().train().prepare(FieldWindows(windows.fields, windows.fields))


@pytest.mark.parametrize("make", [coda, amortised, lambda: GEPS(GEPSConfig(points=17, frames=9, width=6))])
def test_fields_of_another_ring_are_refused(make: Callable[[], Any]):
    learner, fields = make().eval(), rings(3)
    codes, apart, holed = torch.zeros(3, learner.config.code), fields.clone(), fields.clone()
    apart[1, 4, -1] += 1.0
    holed[2, 3, 5] = torch.nan
    for history, said in (
        (fields[..., 1:], r"histories of shape \(9, 17\) \(frames, points\), got \(9, 16\)"),
        (fields[:, 1:], r"got \(8, 17\)"),
        (apart, "ends of histories differ by up to 1;"),
        (holed, "histories are not finite"),
    ):
        with pytest.raises(ValueError, match=said):
            learner.encode_history(history)
        with pytest.raises(ValueError, match=said.replace("histories", "trajectories")):
            learner.prepare(FieldWindows(history, history))
    for first, said in (
        (fields[:, 0, 1:], r"first frames of shape \(17,\) \(points,\), got \(16,\)"),
        (apart[:, 4], "ends of first frames differ"),
        (holed[:, 3], "first frames are not finite"),
    ):
        with pytest.raises(ValueError, match=said):
            learner.predict(first, codes, None)
    for wrong in (codes[:2], codes[:, 1:]):
        with pytest.raises(ValueError, match=f"codes of shape .*; legal: .3, {learner.config.code}"):
            learner.predict(fields[:, 0], wrong, None)
    assert learner.predict(fields[:, 0], codes, None).shape == fields.shape


def test_systems_without_a_code_are_refused():
    for systems in (torch.tensor([0, 9]), torch.tensor([-1])):
        with pytest.raises(ValueError, match="CoDA has codes of the systems 0 to 8"):
            coda().encode_history(systems)


@pytest.mark.usefixtures("double")
def test_adaptation_finds_the_code_that_trajectories_were_made_with():
    """A planted system: its trajectories are the decoder's own under a code; the decoder stays as it is."""
    config = replace(SMALL.coda, adapt_steps=200, adapt_rate=0.01, adapt_forcing=0.95, code_weight=0.0)
    learner = coda(config).eval()
    planted = torch.tensor([[0.1, -0.05], [-0.1, 0.15], [0.0, 0.1]])
    first = torch.randn(3, 1, 17)
    first[..., -1] = first[..., 0]
    fields = learner.forecast(first, planted).detach()
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    with torch.no_grad():
        found = learner.encode_history(fields)
        start = (learner.forecast(first, torch.zeros(3, 2)) - fields).square().mean((1, 2))
        end = (learner.forecast(first, found) - fields).square().mean((1, 2))
    assert (end < 1e-3 * start).all(), (start, end)
    assert ((found - planted).norm(dim=1) < 0.3 * planted.norm(dim=1)).all()
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())
    assert all(p.grad is None for p in learner.parameters())
    alone = torch.cat([learner.adapt(fields[i : i + 1], torch.zeros(1, 2)) for i in range(3)])
    torch.testing.assert_close(alone, found)  # rows do not meet
    assert torch.equal(learner.adapt(fields, planted, steps=0), planted)


def test_more_rows_than_are_adapted_at_once_are_the_same():
    learner, fields = coda().eval(), rings(19)
    whole = learner.encode_history(fields)
    torch.testing.assert_close(whole[11:], learner.encode_history(fields[11:]))


# Amortised


def test_cross_is_of_the_partners_code_and_own_donors_repeat_the_self_loss(field_bank: Store):
    learner = amortised().train()
    for donors in ("matched", "random", "own"):
        windows = data(field_bank, donors)(0)
        _, parts = training_loss(learner, windows, Objective(lambda_x=1.0))  # type: ignore[arg-type]
        codes = encode(learner, learner.prepare(windows)).z_p  # type: ignore[arg-type]
        given = windows.support.roll(4, 0)
        other = learner.forecast(windows.fields[:, :1], learner.encoder(given))
        torch.testing.assert_close(parts["cross"], (other - windows.fields).square().mean((1, 2)).mean().detach())
        own = learner.forecast(windows.fields[:, :1], codes)
        torch.testing.assert_close(parts["self"], (own - windows.fields).square().mean((1, 2)).mean().detach())
        assert (donors == "own") == torch.allclose(parts["cross"], parts["self"])


def weights(
    bank: Store, objective: Objective, folder: Path, donors: Donors = "matched", **changes: int
) -> dict[str, Tensor]:
    learner = fit(amortised(), data(bank, donors), objective, replace(TRAIN, **changes), folder, tensorboard=False)  # type: ignore[arg-type]
    return learner.state_dict()


def test_the_decoder_stays_to_the_bit_and_no_weight_of_cross_is_plain(field_bank: Store, tmp_path: Path):
    first = amortised().state_dict()
    plain = weights(field_bank, Objective(), tmp_path / "plain")
    zero = weights(field_bank, Objective(lambda_x=0.0), tmp_path / "zero")
    crossed = {d: weights(field_bank, Objective(lambda_x=1.0), tmp_path / d, d) for d in ("matched", "random", "own")}
    for name, value in first.items():
        assert torch.equal(plain[name], zero[name])
        if name.startswith("decoder."):
            assert all(torch.equal(end[name], value) for end in (plain, *crossed.values())), name
    last = "encoder.head.2.weight"
    ends = [first[last], plain[last], *(end[last] for end in crossed.values())]
    assert all(not torch.equal(a, b) for i, a in enumerate(ends) for b in ends[:i])


def test_a_run_that_was_stopped_ends_in_the_same_weights(field_bank: Store, tmp_path: Path):
    class Stop(Exception):
        pass

    def stop(done: int, _: dict[str, float]) -> None:
        if done == 4:
            raise Stop

    for kind, given in ((coda, Objective(native_on="recipients")), (amortised, Objective(lambda_x=1.0))):
        whole = fit(kind(), data(field_bank), given, TRAIN, tmp_path / f"{kind.__name__}-a", tensorboard=False)  # type: ignore[arg-type]
        with pytest.raises(Stop):
            fit(kind(), data(field_bank), given, TRAIN, tmp_path / kind.__name__, tensorboard=False, progress=stop)  # type: ignore[arg-type]
        again = fit(kind(), data(field_bank), given, TRAIN, tmp_path / kind.__name__, tensorboard=False)  # type: ignore[arg-type]
        for name, value in whole.state_dict().items():
            assert torch.equal(again.state_dict()[name], value), name


def test_a_saved_learner_predicts_the_same(tmp_path: Path):
    fields = rings(3)
    for learner in (coda().eval(), amortised().eval()):
        save(learner, tmp_path / type(learner).__name__)
        held = load(tmp_path / type(learner).__name__)
        assert isinstance(held, CoDA | AmortisedCoDA)
        assert torch.equal(held.encode_history(fields), learner.encode_history(fields))


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"kernel": 4}, "CoDAConfig.kernel is 4; legal: odd"), ({"layers": 1}, "CoDAConfig.layers is 1"),
     ({"forcing": 1.5}, "CoDAConfig.forcing is 1.5"), ({"code_weight": -1.0}, "CoDAConfig.code_weight is -1.0")],
)  # fmt: skip
def test_refused(changed: dict, message: str):
    with pytest.raises(ValueError, match=message):
        CoDAConfig(**changed)
    with pytest.raises(ValueError, match=r"AmortisedCoDAConfig.widths is \(\)"):
        AmortisedCoDAConfig(widths=())
