"""Sources: trained once, measured often; donor graphs from a teacher; measures against plain computations."""

import fcntl
import importlib
import json
import math
import threading
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from knowing import knowing_source
from safetensors.numpy import load_file
from tiny_sources import TRAIN, cell_of, measuring, silent, source_of
from tiny_worlds import IMAGE, POKE_LEARNER, SPRING_LEARNER

import sprii_train.settings.base as settings
from sprii_envs.banks import Bank
from sprii_envs.relations import SAME_SYSTEM, WindowSampler
from sprii_envs.world import rollout
from sprii_train.analysis.formation import ratio_interval
from sprii_train.analysis.use.donor_choice import choose, one_factor_wrong
from sprii_train.analysis.use.simulated import donor_histories
from sprii_train.analysis.value.readers import fit_readers
from sprii_train.cases.encoding import encode_histories
from sprii_train.cases.windows import cases_of
from sprii_train.experiments.cells import folder_of
from sprii_train.experiments.factor_swaps import factor_swaps
from sprii_train.experiments.graphs import NEIGHBOURS, inferred_graph, random_graph
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.measures.formation import SEED
from sprii_train.experiments.measures.landscape import _encode
from sprii_train.experiments.measures.value import reader_config
from sprii_train.experiments.sources import ReaderBudget, Source, SourceCell, train_source
from sprii_train.experiments.state_decoder import fit_state_decoder
from sprii_train.identity import cell_code
from sprii_train.learners import JEPA
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.settings import POKE, SETTINGS, SPRING, Setting


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders in which something is trained from now on."""
    folders: list[Path] = []
    real = settings.fit

    def fit(learner, data, objective, config, folder, **kwargs):
        folders.append(folder)
        return real(learner, data, objective, config, folder, tensorboard=False, **kwargs)

    monkeypatch.setattr(settings, "fit", fit)
    return folders


# Cells


def test_a_cell_from_bank_to_row(poke_bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trained, seen = counted(monkeypatch), []
    cell = measuring(cell_of(poke_bank, "poke", "g2"), "direction")
    folder = folder_of(cell, tmp_path)
    row = cell.run(folder, lambda step, values: seen.append(step))
    assert seen == [1, 2, 3]
    assert {k: row[k] for k in ("world", "arm", "label", "seed", "steps")} == {
        "world": "poke", "arm": "g2", "label": "G₂", "seed": 0, "steps": 3,
    }  # fmt: skip
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert row["train_seconds"] >= 0
    source = train_source(cell, folder, silent)
    assert row["parameters"] == sum(p.numel() for p in JEPA(POKE_LEARNER).parameters())
    assert source.learner.config == POKE_LEARNER
    assert not source.learner.training
    assert (source.seed, source.setting, source.folder) == (0, POKE, folder)
    assert source.learner.observed.steps == 3
    assert (folder / cell.arrays).name == "direction.safetensors"
    again = cell.run(folder, silent)
    assert {k: v for k, v in again.items() if k != "train_seconds"} == {
        k: v for k, v in row.items() if k != "train_seconds"
    }
    assert trained == [folder]


@pytest.mark.parametrize("name", ["native", "supervised", "cross", "nce-0.1-1"])
def test_the_recipe_decides_context_and_terms(poke_bank: Bank, tmp_path: Path, name: str):
    source = source_of(cell_of(poke_bank, "poke", name), tmp_path)
    assert source.learner.config.context == EVERY_RECIPE[name].context
    assert source.learner.config.label_dim == (3 if name == "supervised" else 1)
    (line, *_) = (source.folder / "metrics.jsonl").read_text().splitlines()
    parts = set(json.loads(line))
    assert ("cross" in parts) == (name == "cross")
    assert ("info_nce" in parts) == (name == "nce-0.1-1")
    assert ("supervised" in parts) == (name == "supervised")


def test_spring_sources_learn_from_sweeps_of_still_windows(spring_source: Source):
    assert spring_source.learner.config == SPRING_LEARNER
    run = json.loads((spring_source.folder / "run.json").read_text())
    assert (run["data"]["image"], run["data"]["history"]) == (IMAGE, 96)
    assert run["data"]["still"]
    assert run["data"]["sweeps"]


def test_folders_are_by_what_the_weights_depend_on(poke_bank: Bank, tmp_path: Path):
    base = cell_of(poke_bank, "poke", "align")
    told = {
        "measure": measuring(base, "direction"),
        "readers": replace(base, readers=ReaderBudget(1, 2, 3)),
        "bank": replace(base, bank="elsewhere"),  # its fingerprint says what it is
        "checkpoints": replace(base, train=replace(TRAIN, checkpoint_every=7, log_every=3)),
    }
    assert {folder_of(cell, tmp_path) for cell in told.values()} == {folder_of(base, tmp_path)}
    others = {
        "recipe": replace(base, recipe=EVERY_RECIPE["cross"]),
        "world": replace(base, setting=SETTINGS["poke-r8"]),
        "learner": replace(base, learner=replace(POKE_LEARNER, width=16)),
        "seed": replace(base, train=replace(TRAIN, seed=1)),
        "fingerprint": replace(base, fingerprint="other"),
        "teacher": replace(base, teacher=base),
        "other teacher": replace(base, teacher=replace(base, recipe=EVERY_RECIPE["cross"])),
    }
    assert len({folder_of(cell, tmp_path) for cell in (base, *others.values())}) == 1 + len(others)
    assert (base.title, others["seed"].title, others["world"].title) == (
        "poke-align-seed0", "poke-align-seed1", "poke-r8-align-seed0",
    )  # fmt: skip
    assert base.steps == 3


def test_results_are_by_measure_and_by_the_readers_that_it_fits(poke_bank: Bank):
    base = cell_of(poke_bank, "poke", "align")
    fits = replace(base, measure=MEASURES["value"], readers=ReaderBudget(3, 100, 10))
    assert base.result == "trained.json"
    formed = measuring(base, "formation")
    assert (formed.result, formed.arrays) == ("formation.json", "formation.safetensors")
    assert (fits.result, fits.arrays) == ("value-3x100-10.json", "value-3x100-10.safetensors")
    readerless = {name for name, measure in MEASURES.items() if not measure.readers}
    assert readerless == {
        "adaptive",
        "atlas",
        "context-control",
        "control",
        "cost",
        "decoded",
        "development",
        "direction",
        "evidence",
        "fhn",
        "formation",
        "gradients",
        "held-out",
        "native-decoder",
        "operator",
        "own-head",
        "partners",
        "push",
        "selection",
        "sight",
        "tactile",
        "scenes",
        "untrained",
        "validation",
        "windows",
    }
    for name in readerless:
        stem = f"{name}-test" if MEASURES[name].population else name
        assert replace(measuring(base, name), readers=ReaderBudget(9, 9, 9)).result == f"{stem}.json"


def test_folders_and_results_are_by_code(
    poke_bank: Bank, spring_bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of what trains, of what measures, of a setting's cases, and of the graph that only an inferred relation has."""

    def said() -> dict[SourceCell, tuple[Path, object]]:
        cell_code.cache_clear()
        return {cell: (folder_of(cell, tmp_path), cell.measurement()) for cell in everything}

    align = measuring(cell_of(poke_bank, "poke", "align"), "formation")
    inferred = replace(align, recipe=EVERY_RECIPE["inferred"], teacher=align)
    student = replace(inferred, recipe=align.recipe)
    queries = measuring(cell_of(spring_bank, "spring"), "value")
    windows = measuring(cell_of(poke_bank, "poke"), "value")
    everything = {align, inferred, student, queries, windows}
    before = said()
    for module, name, value, other_folders, other_measures in (
        ("objectives", "_BLOCK", 1, everything, set()),
        ("experiments.graphs", "NEIGHBOURS", 4, {inferred}, set()),
        ("experiments.measures.formation", "SEED", 5, set(), {align, inferred, student}),
        ("cases.queries", "DONOR_SEED", 5, {queries}, {queries}),  # on which its references are trained
        ("cases.windows", "SEED", 5, set(), {queries, windows}),
        ("analysis.formation.evidence", "_MOMENTS", None, set(), everything - {queries}),
        ("experiments.cells", "KEPT", "held", set(), set()),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(importlib.import_module(f"sprii_train.{module}"), name, value)
            after = said()
        assert {cell for cell in before if after[cell][0] != before[cell][0]} == other_folders, name
        assert {cell for cell in before if after[cell][1] != before[cell][1]} == other_measures, name
    cell_code.cache_clear()


# Donor graphs


def codes_of(teacher: Source, bank: Bank) -> np.ndarray:
    learner = teacher.learner
    return encode_histories(learner, POKE.reader(bank, learner.config), POKE.episodes(bank, "train"), 24)


def test_inferred_donors_are_the_nearest_in_the_teachers_standardised_codes(poke_source: Source, poke_bank: Bank):
    """Histories of the last anchor; every distance computed."""
    graph = inferred_graph(POKE, poke_bank, poke_source.learner)
    codes = codes_of(poke_source, poke_bank)
    scaled = (codes - codes.mean(0)) / codes.std(0)
    distance = np.square(scaled[:, None] - scaled).sum(-1)
    np.fill_diagonal(distance, np.inf)
    assert NEIGHBOURS == 3
    assert (graph.episodes == np.arange(128)).all()
    for episode in range(128):
        donors = graph.indices[graph.indptr[episode] : graph.indptr[episode + 1]]
        assert set(donors) == set(np.argsort(distance[episode])[:3])
    assert graph.weights is None


def test_random_donors_ignore_codes_and_labels(poke_bank: Bank):
    table = POKE.episodes(poke_bank, "train")
    graph = random_graph(table, seed=3)
    donors = graph.indices.reshape(128, 3)
    assert (donors != np.arange(128)[:, None]).all()
    assert all(len(set(row)) == 3 for row in donors)
    assert random_graph(table.select(np.arange(128)[::-1]), seed=3) == graph  # of the episodes' ids alone
    assert random_graph(table, seed=4) != graph
    apart = np.concatenate([random_graph(table, seed=s).indices.reshape(128, 3) // 4 for s in range(20)])
    own = (apart == np.tile(np.arange(128) // 4, 20)[:, None]).mean()
    assert abs(own - 3 / 127) < 5 * math.sqrt(3 / 127 / apart.size)


def test_a_teacher_is_trained_once(poke_bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trained = counted(monkeypatch)
    teacher = cell_of(poke_bank, "poke", "structure")
    student = cell_of(poke_bank, "poke", "inferred", teacher=teacher)
    source = source_of(student, tmp_path)
    assert trained == [folder_of(teacher, tmp_path), folder_of(student, tmp_path)]
    graph = inferred_graph(POKE, poke_bank, source_of(teacher, tmp_path).learner)
    run = json.loads((source.folder / "run.json").read_text())
    linked = replace(EVERY_RECIPE["inferred"], kernel=graph)
    wanted = POKE.data(poke_bank, POKE_LEARNER, linked, pairs=6, seed=0)
    assert run["data"] == json.loads(json.dumps(wanted.identity()))
    source_of(replace(student, train=replace(TRAIN, seed=1)), tmp_path)
    source_of(cell_of(poke_bank, "poke", "random-history"), tmp_path)
    assert [folder.name.rsplit("-", 1)[0] for folder in trained] == [
        "poke-structure-seed0", "poke-inferred-seed0", "poke-inferred-seed1", "poke-random-history-seed0",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="the recipe 'inferred' needs a teacher"):
        source_of(replace(student, teacher=None), tmp_path)


def test_a_teacher_that_another_worker_trains_is_waited_for(poke_bank: Bank, tmp_path: Path):
    teacher = cell_of(poke_bank, "poke", "structure")
    student = cell_of(poke_bank, "poke", "inferred", teacher=teacher)
    shared = folder_of(teacher, tmp_path)
    shared.mkdir(parents=True)
    failed: list[BaseException] = []

    def train() -> None:
        try:
            source_of(student, tmp_path)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=train)
    with open(shared / ".lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        thread.start()
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            assert not (shared / "run.json").exists()
            time.sleep(0.02)
        assert thread.is_alive()
    thread.join()
    assert not failed
    assert (shared / "model").exists()
    assert (folder_of(student, tmp_path) / "model").exists()


# Measures of PokeWorld


def test_formation_by_hand(poke_source: Source, poke_bank: Bank, poke_row: dict[str, Any]):
    """Geometry of rollout means in plain NumPy, and R² from the squared errors that were kept."""
    learner = poke_source.learner
    reader = POKE.reader(poke_bank, learner.config)

    def rollouts(split: str) -> np.ndarray:
        table = POKE.episodes(poke_bank, split, unseal=True)
        return np.mean([encode_histories(learner, reader, table, start) for start in (1, 9, 17, 24)], axis=0)

    train = rollouts("train")
    for split, systems in (("validation", 12), ("confirmation", 8)):
        scaled = (rollouts(split) - train.mean(0)) / train.std(0)
        scaled, row = scaled.reshape(systems, 4, -1), poke_row[split]
        pairs = [(i, j) for i in range(4) for j in range(i)]
        within = np.mean([[((s[i] - s[j]) ** 2).sum() for i, j in pairs] for s in scaled])
        means = scaled.mean(1)
        between = np.mean([((means[i] - means[j]) ** 2).sum() for i in range(systems) for j in range(i)])
        assert row["within"] == pytest.approx(within, rel=1e-5)
        assert row["between"] == pytest.approx(between, rel=1e-5)
        assert row["ratio"] == pytest.approx(between / within, rel=1e-5)
        ends = ratio_interval(scaled.reshape(systems * 4, -1), np.repeat(np.arange(systems), 4), seed=SEED)
        assert ends is not None
        assert row["intervals"]["ratio"] == pytest.approx([ends.low, ends.high], rel=1e-4)
        assert set(row["intervals"]) == {"ratio", "rho_mass", "rho_drag", "rho_stiffness"}
        kept = load_file(poke_row["arrays"]["formation"])
        drag = poke_bank.split(split, unseal=True)["drag"][::4]
        for kind in ("ridge", "mlp"):
            errors = kept[f"{split}|centroid_{kind}_drag"]
            assert errors.shape == (systems,)
            assert row[f"centroid_{kind}_drag"] == pytest.approx(1 - errors.mean() / drag.var(), rel=1e-6)
        assert {f"rho_{f}" for f in ("mass", "drag", "stiffness")} <= row.keys()
        assert {f"window_ridge_{f}" for f in ("mass", "drag", "stiffness")} <= row.keys()


def test_native_errors_and_their_targets_variance(poke_source: Source, poke_bank: Bank, poke_row: dict[str, Any]):
    learner, table = poke_source.learner, poke_bank.split("validation")
    starts = WindowSampler(table, 24, 16).starts(np.arange(48), seed=SEED)
    with torch.no_grad():
        batch = learner.prepare(POKE.reader(poke_bank, learner.config).read(table["episode"], starts))
        z_s, z_p = learner.encode_current(batch.current), learner.encode_history(batch.history)
        errors = (learner.predict(z_s, z_p, batch.u) - batch.y).double().square().mean((0, 2))
    row = poke_row["validation"]
    for i, h in enumerate((1, 4, 16)):
        assert row[f"self_h{h}"] == pytest.approx(float(errors[i]), rel=1e-5)
        assert row[f"variance_h{h}"] == pytest.approx(float(batch.y[:, i].double().var(0).mean()), rel=1e-5)
        assert row[f"correct_h{h}"] > 0
        assert row[f"shuffled_h{h}"] > 0


def test_direction_by_simulation(poke_source: Source, poke_bank: Bank, poke_row: dict[str, Any]):
    """P(f) of every system's three queries: each counterfactual rolled out alone, drawn and embedded."""
    learner, world, table = poke_source.learner, poke_bank.world, poke_bank.split("validation")
    names = poke_bank.properties.names
    recipients = np.flatnonzero(table["rollout"] < 3)
    matched = choose(table, SAME_SYSTEM, recipients, seed=SEED)
    anchor = np.array([32, 40, 47, 32])[table["rollout"]]
    kept = load_file(poke_row["arrays"]["direction"])
    reader = POKE.reader(poke_bank, learner.config)

    def codes(row: int) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            b = learner.prepare(reader.read(table["episode"][[row]], anchor[[row]] - 23))
            return learner.encode_current(b.current), learner.encode_history(b.history), b.u, b.y[0, -1].double()

    def embedded(row: int, system: np.ndarray) -> np.ndarray:
        """The embedding 16 steps on, the recipient's own past and actions kept."""
        episode, now = table["episode"][row], anchor[row]
        values = np.array([table[name][row] for name in names])
        actions = poke_bank["actions"][episode]
        start = poke_bank["states"][episode, 0].astype(np.float64)
        past = rollout(world, values, start, actions[:now]).states[0, -1]
        last = rollout(world, system, past, actions[now : now + 16]).states[0, -2:].astype(np.float32)
        drawn = torch.from_numpy(world.draw(last.astype(np.float64), IMAGE))[None]
        with torch.no_grad():
            return learner.embed(drawn, drawn.new_empty(1, 0, 2, IMAGE, IMAGE))[0, 0].double().numpy()

    for factor in ("mass", "drag"):
        wrong = choose(table, one_factor_wrong(factor, POKE.properties), recipients, seed=SEED)
        assert len(wrong.without) == poke_row[f"without_{factor}"] == 0
        top, bottom, changes = (np.zeros(12) for _ in range(3))
        for i, row in enumerate(wrong.recipient):
            z_s, _, u, y = codes(row)
            with torch.no_grad():
                own, other = (
                    learner.predict(z_s, codes(donor)[1], u)[0, -1].double().numpy()
                    for donor in (matched.donor[i], wrong.donor[i])
                )
            system = np.array([table[name][row] for name in names])
            turned = system.copy()
            turned[names.index(factor)] = table[factor][wrong.donor[i]]
            moved = embedded(row, turned) - embedded(row, system)
            np.testing.assert_allclose(embedded(row, system), y.numpy(), atol=1e-4)  # the recorded future
            s = table["system"][row] - table["system"].min()
            top[s] += (other - own) @ moved
            bottom[s] += moved @ moved
            changes[s] += (((other - y.numpy()) ** 2).mean() - ((own - y.numpy()) ** 2).mean()) / 3
        np.testing.assert_allclose(kept[f"{factor}|denominators"], bottom, rtol=1e-3)
        np.testing.assert_allclose(kept[f"{factor}|numerators"], top, rtol=1e-2, atol=1e-6)
        np.testing.assert_allclose(kept[f"{factor}|difference"], changes, rtol=1e-2, atol=1e-6)
        assert poke_row[f"P_{factor}"] == pytest.approx(top.sum() / bottom.sum(), rel=1e-2)
        parts = poke_row[f"sensitivity_{factor}"] + poke_row[f"cross_{factor}"]
        assert poke_row[f"wrong_minus_matched_{factor}"] == pytest.approx(parts, rel=1e-6)
    assert poke_row["systems"] == 12


def test_wrong_factors_in_state_coordinates(poke_source: Source, poke_bank: Bank, poke_row: dict[str, Any]):
    """The decoder is a ridge regression of training futures; its assay is of confirmation systems."""
    decoder = fit_state_decoder(poke_source)
    train = poke_bank.split("train")["episode"]
    objects = poke_bank["states"][train][:, (48, 56, 63), 4:].astype(np.float64).reshape(-1, 4)
    np.testing.assert_allclose(decoder.standardiser.mean, objects.mean(0))
    np.testing.assert_allclose(decoder.standardiser.scale, objects.std(0))
    kept = load_file(poke_row["arrays"]["direction"])
    swaps = factor_swaps(poke_source, "confirmation", ("mass", "drag"), unseal=True)
    states = poke_bank["states"]
    for factor, swap in swaps.items():
        # The own level repeats the recorded future, by which a row's own state is the target.
        ends = states[:, (48, 56, 63), 4:].reshape(-1, 4)
        own = swap.states[:, 0, 1, 4:]
        assert all(np.any(np.all(ends == each, axis=1)) for each in own)
        assert not np.array_equal(swap.states[:, 0, 1], swap.states[:, 1, 1])
        by_hand = []
        for system in np.unique(swap.systems):
            rows = swap.systems == system
            truth = (own[rows].astype(np.float64) - decoder.standardiser.mean) / decoder.standardiser.scale
            risks = [np.mean((decoder(p[rows]) - truth) ** 2) for p in (swap.matched, swap.wrong)]
            by_hand.append(risks[1] - risks[0])
        np.testing.assert_allclose(kept[f"object|{factor}|difference"], by_hand, rtol=1e-6, atol=1e-12)
        told = poke_row[f"object_wrong_minus_matched_{factor}"]
        assert told == pytest.approx(np.mean(by_hand))
        parts = poke_row[f"object_sensitivity_{factor}"] + poke_row[f"object_cross_{factor}"]
        assert told == pytest.approx(parts, rel=1e-6)
    assert poke_row["object_systems"] == 8  # of 96 at most

    for factor, swap in factor_swaps(poke_source, "validation", ("mass", "drag")).items():
        wanted = (swap.states[:, 1, 1, 4:].astype(np.float64) - swap.states[:, 0, 1, 4:]) / decoder.standardiser.scale
        moved = decoder(swap.wrong) - decoder(swap.matched)
        expected = (moved * wanted).sum() / (wanted**2).sum()
        assert poke_row[f"P_state_{factor}"] == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_a_decoder_of_embeddings_that_are_states_is_exact(poke_bank: Bank, tmp_path: Path):
    source = knowing_source(poke_bank, "poke", tmp_path, readers=ReaderBudget(1, 5, 5))
    decoder = fit_state_decoder(source)
    states = poke_bank["states"][poke_bank.split("validation")["episode"], 60].astype(np.float64)
    np.testing.assert_allclose(decoder(states), decoder.standardise(states), atol=1e-3)


# Measures of SpringWorld


def test_landscape_depths(spring_row: dict[str, Any]):
    """Mean of the 20 cells off the diagonal minus mean of the 5 on it, over the continuous systems."""
    kept = load_file(spring_row["arrays"]["landscape"])
    for factor in ("mass", "drag", "stiffness"):
        grids = kept[f"{factor}|grids"]
        assert grids.shape == (3, 5, 5)
        off = [grids[:, i, j] for i in range(5) for j in range(5) if i != j]
        on = [grids[:, i, i] for i in range(5)]
        assert spring_row[f"depth_{factor}"] == pytest.approx(np.mean(off) - np.mean(on), rel=1e-9)
        assert spring_row[f"ended_{factor}"] == 0
    assert kept["drag|levels"][[0, -1]].tolist() == [0.25, 1.5]
    assert len(spring_row["systems"]) == 10  # the last measure's: value


def test_a_donor_simulated_at_its_own_level_has_its_own_code(spring_source: Source, spring_bank: Bank):
    table = SPRING.episodes(spring_bank, "validation").select(np.arange(0, 12, 4))
    levels = table["mass"][:, None]
    found = _encode(spring_source, donor_histories(spring_bank, table["episode"], "mass", levels, length=96))
    reader = SPRING.reader(spring_bank, spring_source.learner.config)
    recorded = encode_histories(spring_source.learner, reader, table, 0)
    np.testing.assert_allclose(found[:, 0], recorded, atol=1e-5)
    other = _encode(spring_source, donor_histories(spring_bank, table["episode"], "mass", levels * 1.3, length=96))
    assert np.abs(other[:, 0] - recorded).max() > 1e-5


def test_value_by_hand(spring_source: Source, spring_row: dict[str, Any], cells_root: Path):
    """Readers fitted once more: their mean squared errors, case by case, then by system."""
    kept = load_file(spring_row["arrays"]["value"])
    cell: SourceCell = measuring(spring_source.cell, "value")
    cases = cases_of(spring_source)
    for arm in ("null", "oracle"):
        readers = fit_readers(cases.train, arm, reader_config(replace(spring_source, cell=cell)), (0, 1))
        cold = cases.development.take(cases.panels["cold"])
        panels = {
            "full": cases.development,
            "cold": cold,
            "moving_kind": cases.development.take(cases.panels["moving_kind"]),
        }
        for panel, held_out in panels.items():
            grid = kept[f"{arm}|{panel}"]
            systems = np.unique(held_out.systems)
            assert grid.shape == (2, len(systems), 5)
            for r, reader in enumerate(readers):
                errors = ((reader.predict(held_out).astype(np.float64) - held_out.targets) ** 2).mean(-1)
                of = [held_out.systems == s for s in systems]
                by_hand = np.array([np.average(errors[rows], axis=0, weights=held_out.weights[rows]) for rows in of])
                np.testing.assert_allclose(grid[r], by_hand, rtol=1e-5)
        assert spring_row[f"full_{arm}"] == pytest.approx(kept[f"{arm}|full"].mean())
        assert spring_row[f"cold_{arm}"] == pytest.approx(kept[f"{arm}|cold"][..., -1].mean())
    for name in ("persistent", "decode", "r0", "m1", "m2", "m2-mismatched"):
        assert kept[f"{name}|full"].shape == (2, 10, 5)
        assert kept[f"{name}|cold"].shape == (2, 5, 5)
        assert kept[f"{name}|cold_kind"].shape == kept[f"{name}|moving_kind"].shape == (2, 10, 5)
    assert spring_row["zero_context_gap"] < 1e-5
    assert spring_row["own_s0"] == spring_row["cross_s0"] == pytest.approx(spring_row["full_r0"])
    assert spring_row["own_s1"] == pytest.approx(spring_row["full_m2"])
    assert (
        spring_row["strata"] == ["continuous"] * 3 + ["combination"] * 2 + ["interpolated"] * 3 + ["extrapolated"] * 2
    )
    config = reader_config(replace(spring_source, cell=cell))
    assert config.fit.updates == cell.readers.updates == 5
    assert (config.query, config.slot, config.horizon, config.fit.learning_rate) == (128, 64, 16, 3e-4)
    assert spring_row["reader0_cold_persistent"] == pytest.approx(kept["persistent|cold"][0, :, -1].mean())
    assert spring_row["reader0_full_persistent"] == pytest.approx(kept["persistent|full"][0].mean())


@dataclass(frozen=True)
class Shared(Setting):
    share: float = 1.0
    __hash__ = Setting.__hash__


def test_a_settings_own_fields_are_part_of_a_source(bank: Bank):
    """A share of the data under the same name is another source, wherever its weights lie."""
    usual = SETTINGS["d-clean"]
    told = {f.name: getattr(usual, f.name) for f in fields(usual)}
    whole, half, again = (cell_of(bank, "d-clean", setting=Shared(**told, share=share)) for share in (1.0, 0.5, 0.5))
    assert whole.identity() != half.identity()
    assert half.identity() == again.identity()
    assert "own" not in cell_of(bank, "d-clean").identity()
