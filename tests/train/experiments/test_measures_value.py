"""Measures of Value on sources that know the factors, or nothing of them, and against plain computations."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from knowing import knowing_source
from safetensors.numpy import load_file
from sklearn.metrics import roc_auc_score
from tiny_sources import cell_of, measuring, source_of
from tiny_worlds import D_CLEAN_SMALL, POKE_FRESH_SMALL, SPRING_SEALED_SMALL

from sprii_envs.banks import Bank, build
from sprii_envs.world import sensitivity
from sprii_train.analysis.formation import Factor, fit_ridge, score
from sprii_train.analysis.populations import PopulationError, Sample, Sealed
from sprii_train.analysis.value.fitting import FitConfig
from sprii_train.analysis.value.readers import ReaderConfig, fit_readers
from sprii_train.cases.queries import donors_of
from sprii_train.cases.windows import SEED, cases_of, draw_windows, windows_elsewhere
from sprii_train.experiments.donor_probes import (
    donor_networks,
    donor_probes,
    donor_transients,
    named_factors,
    network_samples,
)
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.measures.bottleneck import bottleneck, state_scale
from sprii_train.experiments.measures.realization import physical_weights
from sprii_train.experiments.measures.routes import object_only, route_errors
from sprii_train.experiments.measures.targeted import mass_dominance
from sprii_train.experiments.measures.value import reader_config
from sprii_train.experiments.sources import ReaderBudget, Source
from sprii_train.settings import POKE, SPRING, Built
from sprii_train.settings.spring import SPRING_CASES

BUDGET = ReaderBudget(2, 5, 10)


# D-Clean's bottleneck


@pytest.fixture(scope="module")
def d_clean(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    protocol = D_CLEAN_SMALL.replace(systems={"train": 60, "validation": 24, "test": 4})
    return build(protocol, tmp_path_factory.mktemp("bottleneck") / "bank")


@pytest.fixture(scope="module")
def bottlenecks(d_clean: Bank, tmp_path_factory: pytest.TempPathFactory):
    """Rows and arrays of a source whose code is the drag, and of one whose code is noise."""
    fit = FitConfig(updates=300, batch=64, learning_rate=5e-3, schedule="cosine")
    config, found = ReaderConfig(slot=4, horizon=4, width=32, fit=fit), {}
    for name, knows in (("knowing", True), ("noise", False)):
        folder = tmp_path_factory.mktemp(name)
        source = knowing_source(d_clean, "d-clean", folder, knows=knows, readers=ReaderBudget(1, 500, 10))
        row = bottleneck(source, horizons=(2, 8), config=config)
        found[name] = row, load_file(folder / source.cell.arrays)
    return found


def test_a_code_that_is_the_drag_is_worth_what_the_drag_is_worth(bottlenecks):
    row = bottlenecks["knowing"][0]
    assert row["persistent_h8"] == pytest.approx(row["oracle_h8"], rel=0.15)
    assert row["decode_h8"] == pytest.approx(row["oracle_h8"], rel=0.15)
    assert row["persistent_h8"] < 0.5 * row["null_h8"]
    assert row["wrong_h8"] > 1.3 * row["null_h8"]
    assert row["decoder_r2"] > 0.999
    assert row["decoder_mse"] < 1e-3


def test_a_code_of_noise_is_worth_nothing(bottlenecks, d_clean: Bank):
    row = bottlenecks["noise"][0]
    assert row["persistent_h8"] == pytest.approx(row["null_h8"], rel=0.1)
    assert row["wrong_h8"] == pytest.approx(row["persistent_h8"], rel=0.1)
    assert row["oracle_h8"] == pytest.approx(bottlenecks["knowing"][0]["oracle_h8"], rel=1e-6)
    train, held_out = (d_clean.split(split)["drag"] for split in ("train", "validation"))
    constant = 1 - np.mean((held_out - train.mean()) ** 2) / held_out.var()
    assert row["decoder_r2"] == pytest.approx(constant, abs=0.02)


def test_bottleneck_arrays(bottlenecks, d_clean: Bank):
    row, kept = bottlenecks["knowing"]
    for arm in ("null", "persistent", "decode", "oracle", "wrong"):
        assert kept[arm].shape == (1, 24, 2)
        for k, h in enumerate((2, 8)):
            assert row[f"{arm}_h{h}"] == pytest.approx(kept[arm][..., k].mean())
    assert kept["decoder"].shape == (24,)
    assert row["decoder_mse"] == pytest.approx(kept["decoder"].mean())
    drag = d_clean.split("validation")["drag"][::4]
    assert bottlenecks["noise"][0]["decoder_r2"] == pytest.approx(
        1 - bottlenecks["noise"][1]["decoder"].mean() / drag.var(), rel=1e-6
    )


def test_the_units_of_the_bottleneck(bottlenecks, d_clean: Bank, tmp_path: Path):
    """Errors in SDs of training states and raw ones, their ratio within those of the coordinates."""
    source = knowing_source(d_clean, "d-clean", tmp_path, knows=True, readers=ReaderBudget(1, 500, 10))
    states = d_clean["states"][np.isin(d_clean.table["split"], "train")].astype(np.float64)
    sd = np.stack([states[..., i].std() for i in range(4)])
    np.testing.assert_allclose(state_scale(source), sd, rtol=1e-6)
    for row, _ in bottlenecks.values():
        for arm in ("null", "oracle", "wrong"):
            shares = row[f"{arm}_h8"] / row[f"raw_{arm}_h8"]
            assert 1 / max(sd) ** 2 < shares < 1 / min(sd) ** 2


# PokeWorld


@pytest.fixture(scope="module")
def knowing_poke(poke_bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> Source:
    return knowing_source(poke_bank, "poke", tmp_path_factory.mktemp("poke"), readers=BUDGET)


def test_component_errors_by_hand(poke_source: Source):
    """Finger position, finger velocity, object position, object velocity; readers fitted once more."""
    source = replace(poke_source, cell=measuring(poke_source.cell, "components"))
    row = MEASURES["components"](source)
    kept = load_file(source.folder / source.cell.arrays)
    cases = cases_of(source)
    readers = fit_readers(cases.train, "persistent", reader_config(source), (0, 1))
    held_out, systems = cases.development, np.unique(cases.development.systems)
    for r, reader in enumerate(readers):
        errors = ((reader.predict(held_out).astype(np.float64) - held_out.targets) ** 2)[:, -1]
        for i, columns in enumerate(([0, 1], [2, 3], [4, 5], [6, 7])):
            by_hand = [errors[held_out.systems == s][:, columns].mean() for s in systems]
            np.testing.assert_allclose(kept["persistent"][r, :, i], by_hand, rtol=1e-5)
    for arm in ("null", "persistent", "shuffled", "oracle"):
        assert kept[arm].shape == (2, 12, 4)
        assert row[f"{arm}_h16"] == pytest.approx(kept[arm].mean())
        assert row[f"{arm}_object_velocity_h16"] == pytest.approx(kept[arm][..., 3].mean())


def test_donor_probes_read_what_the_codes_know(knowing_poke: Source, poke_source: Source):
    known, learned = (donor_probes(cases_of(source), POKE.donor_factors) for source in (knowing_poke, poke_source))
    assert set(known) == {"mass", "drag", "stiffness", "stiffness_over_mass"}
    for factor in ("mass", "drag"):  # the log of a factor, read from the factor
        assert np.corrcoef(known[factor].prediction, known[factor].truth)[0, 1] > 0.95
    assert np.corrcoef(learned["mass"].prediction, learned["mass"].truth)[0, 1] < 0.8

    samples = []
    for cases, drawn in cases_of(knowing_poke).populations:
        once = {}
        for i, window in enumerate(zip(drawn.donors.tolist(), drawn.starts.tolist(), strict=True)):
            once.setdefault(window, i)
        rows = np.array(list(once.values()))
        factors = {name: column[rows] for name, column in cases.factors.items()}
        samples.append(Sample(cases.population, cases.context[rows], cases.systems[rows], factors))
    assert len(samples[1]) < 12 * 16  # some windows were drawn twice
    expected = score(fit_ridge(samples[0], Factor("drag", log=True), penalties=(1.0,)), samples[1])
    assert known["drag"].r2 == pytest.approx(expected.r2, rel=1e-9)
    np.testing.assert_allclose(
        known["stiffness_over_mass"].prediction, known["stiffness"].prediction - known["mass"].prediction
    )


def test_networks_read_donor_windows_of_a_few_systems(knowing_poke: Source):
    cases = cases_of(knowing_poke)
    drag = named_factors(POKE, "drag")
    train, held_out = network_samples(cases, systems=24)
    found = donor_networks(cases, drag, systems=24)["drag"]
    assert set(np.random.default_rng(20_260_903).permutation(32)[:24]) == set(train.systems)
    assert len(held_out) == len(cases.drawn["validation"].distinct_donors())
    ridge = donor_probes(cases, drag)["drag"]
    assert found.r2 > 0.9 > ridge.r2  # a logarithm is not linear in the factor


def test_contact_is_that_of_the_last_step_of_a_donor(poke_source: Source, poke_bank: Bank):
    cases = cases_of(poke_source)
    found = donor_transients(poke_source, cases)["contact"]
    donors, starts = cases.drawn["validation"].donors, cases.drawn["validation"].starts
    windows = sorted({(int(e), int(s)) for e, s in zip(donors, starts, strict=True)})
    touched = [bool(poke_bank["contact"][e, s + 22]) for e, s in windows]  # from state s + 22 to the last, s + 23
    assert found.truth.tolist() == touched
    weights = [1 / np.sum(found.systems == s) for s in found.systems]
    assert found.auroc == pytest.approx(roc_auc_score(touched, found.score, sample_weight=weights))


def test_codes_that_hold_a_transient_give_it_away(knowing_poke: Source, poke_source: Source):
    """The true factors say nothing of the moment; a code that is the distance of the discs does."""
    cases, bank = cases_of(poke_source), poke_source.bank
    told = {}
    for name, each in (("train", cases.train), ("validation", cases.development)):
        drawn = cases.drawn[name]
        last = bank.windows("states", drawn.donors, drawn.starts + 23, 1)[:, 0].astype(np.float64)
        gap = np.linalg.norm(last[:, :2] - last[:, 4:6], axis=1)
        told[name] = replace(each, context=gap[:, None])
    known = replace(cases, train=told["train"], development=told["validation"])
    assert donor_transients(poke_source, known)["contact"].auroc > 0.9
    assert donor_transients(knowing_poke, cases_of(knowing_poke))["contact"].auroc < 0.7


def test_dominance_by_one_simulation_at_a_time(knowing_poke: Source, poke_bank: Bank):
    cases, world, table = cases_of(knowing_poke), poke_bank.world, poke_bank.table

    def by_hand(split: str) -> np.ndarray:
        drawn, rows = cases.drawn[split], []
        for e, a in zip(drawn.episodes.tolist(), drawn.anchors.tolist(), strict=True):
            values = [table[name][e] for name in ("mass", "drag", "stiffness")]
            now, actions = poke_bank["states"][e, a].astype(np.float64), poke_bank["actions"][e, a : a + 16]
            last = [sensitivity(world, values, f, now, actions)[16] for f in ("mass", "drag")]
            rows.append([np.sqrt(np.mean((x / cases.standardiser.scale) ** 2)) for x in last])
        logs = [np.log(poke_bank.split("train")[name]).std() for name in ("mass", "drag")]
        return np.array(rows) * logs

    train, held_out = by_hand("train"), by_hand("validation")
    z = (held_out - train.mean(0)) / train.std(0)
    expected = [
        (z[:, 0] - z[:, 1])[cases.development.systems == s].mean() for s in np.unique(cases.development.systems)
    ]
    found = mass_dominance(knowing_poke, cases)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert found.std() > 0.01


def test_targeted_row_and_arrays(knowing_poke: Source):
    source = replace(knowing_poke, cell=measuring(knowing_poke.cell, "targeted"))
    row = MEASURES["targeted"](source)
    kept = load_file(source.folder / source.cell.arrays)
    assert kept["null"].shape == kept["persistent"].shape == (2, 12)
    assert kept["dominance"].shape == (12,)
    assert row["persistent_h16"] == pytest.approx(kept["persistent"].mean())
    probes = donor_probes(cases_of(source), POKE.donor_factors)
    assert {f"donor_{name}": scored.r2 for name, scored in probes.items()}.items() <= row.items()


def test_new_systems_are_read_by_readers_of_training_cases(poke_source: Source, poke_bank: Bank, tmp_path: Path):
    setting = replace(POKE, sealed=Built(POKE_FRESH_SMALL))
    source = replace(poke_source, setting=setting, cell=measuring(poke_source.cell, "followup"), folder=tmp_path)
    row = MEASURES["followup"](source)
    kept = load_file(tmp_path / source.cell.arrays)
    bank = setting.open_sealed(poke_bank.path.parent)
    assert (row["sealed_bank"], row["new_systems"]) == (bank.fingerprint, 12)

    cases, table = cases_of(source), bank.split("fresh", unseal=True)
    drawn = draw_windows(table, 24, 16, source.learner.config.horizons[-1], 16, seed=SEED)
    now, later = (bank.windows("states", drawn.episodes, drawn.anchors + h, 1)[:, 0] for h in (0, 16))
    targets = cases.standardiser((later - now)[:, None].astype(np.float64))[:, 0]
    held_out, again = windows_elsewhere(replace(source, store=bank), "fresh", Sealed, cases.standardiser)
    assert all(np.array_equal(a, b) for a, b in zip(drawn, again, strict=True))
    np.testing.assert_allclose(held_out.targets[:, -1], targets, atol=1e-6)
    owners = table["system"][np.searchsorted(table["episode"], drawn.episodes)]
    donors = table["system"][np.searchsorted(table["episode"], drawn.donors)]
    assert (owners == donors).all()
    assert (drawn.episodes != drawn.donors).all()
    for arm in ("null", "persistent"):
        readers = fit_readers(cases.train, arm, reader_config(source), (0, 1))
        by_hand = [
            [np.square(reader.predict(held_out)[:, -1] - targets)[owners == s].mean() for s in np.unique(owners)]
            for reader in readers
        ]
        np.testing.assert_allclose(kept[arm], by_hand, rtol=1e-4)
        assert row[f"new_{arm}_h16"] == pytest.approx(kept[arm].mean())
    assert kept["dominance"].shape == (12,)
    own = (source.bank, cases.development, cases.drawn["validation"])
    assert np.array_equal(mass_dominance(source, cases, own), mass_dominance(source, cases))


def test_routes_at_two_budgets(knowing_poke: Source):
    source = replace(knowing_poke, cell=measuring(knowing_poke.cell, "routes"))
    row = MEASURES["routes"](source)
    kept = load_file(source.folder / source.cell.arrays)
    assert (row["updates_short"], row["updates_long"]) == (10, 50)
    for name in ("short", "long"):
        for route in ("r0", "m1", "m2", "m2-wrong"):
            assert kept[f"{route}|{name}"].shape == (2, 12)
            assert row[f"{route}_{name}"] == pytest.approx(kept[f"{route}|{name}"].mean())
        assert row[f"gain_{name}"] == pytest.approx(row[f"m1_{name}"] - row[f"m2_{name}"])
        assert row[f"wrong_minus_matched_{name}"] == pytest.approx(row[f"m2-wrong_{name}"] - row[f"m2_{name}"])
        assert (kept[f"m2|{name}"] != kept[f"m2-wrong|{name}"]).any()
    assert row["r0_long"] < row["r0_short"]
    np.testing.assert_array_equal(kept["m1|short"], route_errors(cases_of(source), 10, 2)["m1"])


def test_routes_of_the_object_alone(knowing_poke: Source):
    source = replace(knowing_poke, cell=measuring(knowing_poke.cell, "object-routes"))
    whole = cases_of(source)
    cases = object_only(whole, POKE)
    np.testing.assert_array_equal(cases.development.targets, whole.development.targets[..., 4:])
    assert cases.standardiser.scale.tolist() == whole.standardiser.scale[4:].tolist()
    row = MEASURES["object-routes"](source)
    kept = load_file(source.folder / source.cell.arrays)
    assert set(kept) == {"r0", "m1", "m2", "m2-wrong"}
    assert row["m2_h16"] == pytest.approx(kept["m2"].mean())


# Realization


def test_physical_weights_by_one_simulation_at_a_time(spring_source: Source, spring_bank: Bank):
    cases, world, names = cases_of(spring_source), spring_bank.world, ("mass", "drag", "stiffness")
    drawn, queries = cases.drawn["train"], cases.train.factors
    rows = np.arange(0, len(cases.train), 7)
    found = physical_weights(
        spring_bank, drawn.episodes[rows], drawn.anchors[rows], cases.train.take(rows), cases.standardiser
    )
    total = np.zeros(cases.train.targets.shape[-1])
    for row in rows.tolist():
        episode, anchor = int(drawn.episodes[row]), int(drawn.anchors[row])
        now = spring_bank["states"][episode, anchor].astype(np.float64)
        actions = spring_bank["actions"][episode, anchor : anchor + 16]
        for factor in names:
            values = [float(queries[name][row]) for name in names]
            change = sensitivity(world, values, factor, now, actions)[[1, 2, 4, 8, 16]]
            total += np.abs(change / cases.standardiser.scale).sum(0)
    np.testing.assert_allclose(found, total / total.mean(), rtol=1e-4)
    assert found.mean() == pytest.approx(1.0)
    assert found.max() > 1.2 * found.min()


@pytest.mark.parametrize("name", ["spring_source", "knowing_poke"])
def test_realization_of_either_world(name: str, request: pytest.FixtureRequest):
    found: Source = request.getfixturevalue(name)
    source = replace(found, cell=measuring(found.cell, "realization"))
    row = MEASURES["realization"](source)
    kept = load_file(source.folder / source.cell.arrays)
    assert set(kept) == {"m1", "m2", "m1-phys", "m2-phys"}
    for route, errors in kept.items():
        assert errors.shape == (2,)
        assert row[f"mean_{route}"] == pytest.approx(errors.mean())
    assert (kept["m2"] != kept["m2-phys"]).all()
    for variant in ("", "-phys"):
        assert row[f"own{variant}_s0"] == row[f"cross{variant}_s0"]  # no context, no donor
        assert row[f"own{variant}_s1"] == pytest.approx(row[f"mean_m2{variant}"], rel=1e-6)
        assert row[f"own{variant}_s1"] != row[f"cross{variant}_s1"]
        total, sensitivity, rest = (row[f"spec_{part}{variant}"] for part in ("total", "sensitivity", "cross"))
        assert sensitivity > 0
        assert total == pytest.approx(sensitivity + rest, abs=1e-9)
        # Systems have equally many cases, so that their mean is that of the cases.
        assert total == pytest.approx(row[f"cross{variant}_s1"] - row[f"own{variant}_s1"], abs=1e-7)
    assert row["own_s0"] == pytest.approx(row["own-phys_s0"])  # the recipient-only base of both


# SpringWorld's recipient prefixes


def test_prefix_rows_are_those_of_readers_of_each_prefix(spring_source: Source):
    source = replace(spring_source, cell=measuring(spring_source.cell, "prefix"))
    row = MEASURES["prefix"](source)
    kept = load_file(source.folder / source.cell.arrays)
    train, moving = SPRING_CASES.prefixes(source, 8)
    for i, r in ((0, 0), (2, 2)):
        readers = fit_readers(train, "persistent", replace(reader_config(source), prefix=r), (0, 1))
        errors = [((reader.predict(moving) - moving.targets) ** 2).mean(-1)[:, -1] for reader in readers]
        by_hand = [[e[moving.systems == s].mean() for s in np.unique(moving.systems)] for e in errors]
        np.testing.assert_allclose(kept["persistent"][i, ..., -1], by_hand, rtol=1e-4)
        assert row[f"persistent_r{r}"] == pytest.approx(np.mean(by_hand), rel=1e-5)
    assert {arm: grid.shape for arm, grid in kept.items()} == dict.fromkeys(
        ("null", "persistent", "oracle"), (5, 2, 5, 5)
    )
    assert row["prefix_strata"] == ["continuous"] * 3 + ["combination"] * 2


# SpringWorld's sealed systems


@pytest.fixture(scope="module")
def native(spring_bank: Bank, cells_root: Path) -> Source:
    source = source_of(measuring(cell_of(spring_bank, "spring", "native"), "sealed"), cells_root)
    return replace(source, setting=replace(SPRING, sealed=Built(SPRING_SEALED_SMALL)))


def test_sealed_errors_by_hand(native: Source, spring_bank: Bank):
    """Native's context of 7 dimensions reaches the slot of 64; readers of training queries, cold sealed queries."""
    row = MEASURES["sealed"](native)
    kept = load_file(native.folder / native.cell.arrays)["persistent"]
    bank = native.setting.open_sealed(spring_bank.path.parent)
    assert row["sealed_bank"] == bank.fingerprint
    assert row["strata"] == ["continuous"] * 4 + ["combination"] * 2
    train, standardiser = SPRING_CASES.training(native)
    cold = SPRING_CASES.sealed(native, bank, standardiser)
    assert len(cold) == 6 * 6
    assert set(cold.kinds.tolist()) == {"cold"}
    readers = fit_readers(train, "persistent", reader_config(native), (0, 1))
    assert readers[0].network.slot.weight.shape == (1, 7, 64)
    for r, reader in enumerate(readers):
        errors = ((reader.predict(cold).astype(np.float64) - cold.targets) ** 2).mean(-1)[:, -1]
        by_hand = [errors[cold.systems == s].mean() for s in np.unique(cold.systems)]
        np.testing.assert_allclose(kept[r], by_hand, rtol=1e-5)
    assert row["primary"] == pytest.approx(kept[:, :4].mean())
    assert row["secondary"] == pytest.approx(kept[:, 4:].mean())
    assert row["pooled"] == pytest.approx(kept.mean())


def test_sealed_donors_are_forced_episodes_of_the_same_sealed_system(native: Source, spring_bank: Bank):
    bank = native.setting.open_sealed(spring_bank.path.parent)
    table = bank.split("sealed", unseal=True)
    donors = native.setting.episodes(bank, "sealed", unseal=True)
    assert set(donors["kind"].tolist()) == {"forced"}
    cold = table.select(table["kind"] == "cold")
    rows = donors_of(cold, donors, 0)
    assert donors["system"][rows].tolist() == cold["system"].tolist()


def test_nothing_is_fitted_on_sealed_systems(native: Source, spring_bank: Bank):
    bank = native.setting.open_sealed(spring_bank.path.parent)
    cold = SPRING_CASES.sealed(native, bank, SPRING_CASES.training(native)[1])
    with pytest.raises(PopulationError, match="sealed"):
        fit_readers(cold, "persistent", reader_config(native), (0,))  # type: ignore[arg-type]
