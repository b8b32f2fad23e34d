"""Every registered learner under every recipe: the five operations hold, and the loss of the recipe can be learned."""

from dataclasses import replace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from tiny_objects import object_windows
from tiny_worlds import POKE_LEARNER

from sprii_envs.banks import Bank
from sprii_envs.relations import SAME_SYSTEM, Relation
from sprii_train.experiments.graphs import random_graph
from sprii_train.fields.environments import EnvironmentWindows
from sprii_train.fields.windows import FieldWindows
from sprii_train.learners import (
    LEARNERS,
    ADConfig,
    AmortisedCoDAConfig,
    CaDMConfig,
    CoDAConfig,
    ContextualConfig,
    CoPhyNetConfig,
    CPCConfig,
    DALIConfig,
    FCRLConfig,
    GEPSConfig,
    MaskedGRUConfig,
    MultimodalConfig,
    NODConfig,
    NODHierConfig,
    NODStatesConfig,
    ObjectCPCConfig,
    ObjectJEPAConfig,
    ObjectRSSMConfig,
    PersistentJEPAConfig,
    PooledConfig,
    ReferenceConfig,
    RegressionConfig,
    RSSMConfig,
    SupervisedJEPAConfig,
    TactileConfig,
    TDSConfig,
    TemporalFCRLConfig,
    learner_of,
    register_learner,
)
from sprii_train.learners.ad import QUERY, SUPPORT, PlayWindows
from sprii_train.learners.nod_hier import ChainWindows
from sprii_train.learners.reference import ContextQueries
from sprii_train.learners.segments import SegmentConfig
from sprii_train.protocol import Windows, check_learner, training_loss
from sprii_train.recipes import EVERY_RECIPE, GRASP_RECIPES, LINKED, SHIFTED, Recipe
from sprii_train.settings import POKE
from sprii_train.swimmer.rows import windows as segment_windows

CONFIGS: dict[str, Any] = {
    "jepa": replace(POKE_LEARNER, image=0, observation_dim=8),
    "tds": TDSConfig.like(replace(POKE_LEARNER, image=0, observation_dim=8), 4, "increments"),
    "cpc": CPCConfig.like(replace(POKE_LEARNER, image=0, observation_dim=8)),
    "rssm": replace(
        RSSMConfig.like(replace(POKE_LEARNER, image=0, observation_dim=8)), state=8, latent=3, decoder=8
    ),
    "reference": ReferenceConfig(
        image=8, stem=(4,), history=5, horizons=(1, 3), embedding=8, width=8, heads=2, query=4, future=4, hidden=(8,)
    ),
    "cadm": CaDMConfig(
        observation_dim=8, action_dim=2, history=3, window=4, context=2, encoder=(7, 6, 5), dynamics=(8, 7, 6, 5)
    ),
    "pooled": PooledConfig(history=3, window=4, persistent=2, encoder=(7,), dynamics=(8, 7)),
    "jepa-regression": RegressionConfig.like(replace(POKE_LEARNER, image=0, observation_dim=8)),
    "jepa-supervised": SupervisedJEPAConfig.like(replace(POKE_LEARNER, image=0, observation_dim=8)),
    "contextual": ContextualConfig(
        observation_dim=8, action_dim=2, contexts="encoded", context=2, history=3, window=4, hidden=(8, 7), encoder=(6,)
    ),
    "dali": DALIConfig(observation_dim=8, width=8, forward_width=6, persistent=3),
    "fcrl": FCRLConfig(observation_dim=8, width=7, persistent=4, projection=5),
    "fcrl-temporal": TemporalFCRLConfig.like(replace(POKE_LEARNER, image=0, observation_dim=8)),
    "nod-states": NODStatesConfig(observation_dim=8, condition=5, width=6),
    "ad": ADConfig(inputs=12, steps=7, width=16, layers=1, heads=2),
    "nod": NODConfig(points=9, frames=5, widths=(4, 4), head=4, branch=8, trunk=8, rank=4, queries=16),
    "nod-hier": NODHierConfig(width=6, layers=2, modes=3, condition_width=5),
    "coda": CoDAConfig(points=9, frames=5, width=4, adapt_steps=2),
    "coda-amortised": AmortisedCoDAConfig(points=9, frames=5, width=4, widths=(4,), pool=2, hidden=4),
    "geps": GEPSConfig(points=9, frames=5, width=4, kernel=3, adapt_steps=2),
    "cophynet": CoPhyNetConfig(width=8, persistent=3),
    "object-jepa": ObjectJEPAConfig(features=6, projection=8, width=8, persistent=4, current=4, sigreg_slices=8),
    "object-cpc": ObjectCPCConfig(features=6, projection=8, width=8, persistent=4, current=4, sigreg_slices=8),
    "object-rssm": ObjectRSSMConfig(features=6, projection=8, width=8, persistent=4, latent=3, decoder=8),
    "persistent-jepa": PersistentJEPAConfig(width=8, embedding=6, latent=4),
    "masked-gru": MaskedGRUConfig(width=8, embedding=6, latent=4, state=5),
    "tactile": TactileConfig(
        history=6,
        horizons=(1, 3),
        embedding=8,
        persistent=4,
        current=4,
        horizon_feature=3,
        observation_width=8,
        width=8,
        layers=2,
        heads=2,
        head_width=8,
        predictor_width=8,
        sigreg_slices=16,
    ),
    "multimodal": MultimodalConfig(
        image=8, stem=(4, 4), history=4, horizons=(1, 3), embedding=8, persistent=4, current=4, action_feature=3,
        horizon_feature=3, sensor_width=8, fusion_width=8, width=8, layers=1, heads=2, trunk_width=8, sigreg_slices=16,
    ),
}  # fmt: skip
OF_OBJECTS = CoPhyNetConfig | ObjectJEPAConfig | ObjectCPCConfig | ObjectRSSMConfig
WITHOUT_CONTEXTS = tuple(
    name
    for name, config in CONFIGS.items()
    if name not in ("jepa", "tds", "cpc", "rssm", "pooled", "fcrl-temporal", "jepa-supervised", "jepa-regression")
    and not isinstance(config, OF_OBJECTS | MultimodalConfig)
)
PAIRS = 6
CHECKED: set[Any] = set()
"""Configs whose operations have held."""


def windows_of(config: Any, recipe: Recipe, bank: Bank) -> Any:
    """A batch of the recipe; AD's episodes of play, fields, grasps and manipulation lie in no bank of bodies."""
    if isinstance(config, MultimodalConfig):
        rng, (t, k) = np.random.default_rng(0), (config.history, len(config.horizons))

        def numbers(*shape: int) -> torch.Tensor:
            return torch.from_numpy(rng.standard_normal((2 * PAIRS, *shape), dtype=np.float32))

        side = (config.image, config.image)
        seen, ahead = (
            torch.from_numpy(rng.integers(0, 256, (2 * PAIRS, *shape, *side), np.uint8)) for shape in ((t + 1,), (k, 2))
        )
        return Windows(
            {"sensors": numbers(t, config.sensors), "frames": seen}, numbers(t - 1, 1),
            {"sensors": numbers(k, config.sensors), "frames": ahead}, numbers(config.horizons[-1], 1),
        )  # fmt: skip
    if isinstance(config, CoDAConfig | GEPSConfig):
        fields = torch.from_numpy(
            np.random.default_rng(0).normal(size=(2 * PAIRS, config.frames, config.points)).astype(np.float32)
        )
        fields[..., -1] = fields[..., 0]
        return EnvironmentWindows(fields, torch.arange(PAIRS).repeat(2), fields)
    if isinstance(config, NODConfig):
        fields = np.random.default_rng(0).normal(size=(2, 2 * PAIRS, config.frames, config.points))
        return FieldWindows(*torch.from_numpy(fields.astype(np.float32)))
    if isinstance(config, NODHierConfig):
        rng = np.random.default_rng(0)
        context, start, targets = (
            torch.from_numpy(rng.standard_normal((2 * PAIRS, *shape, 2, 8, 8), dtype=np.float32))
            for shape in ((config.frames,), (), (4,))
        )
        return ChainWindows(context, start, torch.from_numpy(rng.integers(0, 4, (2 * PAIRS, 4))), targets)
    if isinstance(config, ReferenceConfig):
        rng = np.random.default_rng(0)
        frames = (rng.integers(0, 256, (2 * PAIRS, *shape, 8, 8), np.uint8) for shape in ((2, 6), (3,)))
        drawn = (rng.standard_normal((2 * PAIRS, *s), np.float32) for s in ((2, 4, 2), (3, 2), (2, 8)))
        (histories, shown), (led, u, y) = map(torch.from_numpy, frames), map(torch.from_numpy, drawn)
        return ContextQueries(histories, led, shown, u, y)
    if isinstance(config, ADConfig):
        rng, shape = np.random.default_rng(0), (2 * PAIRS, SUPPORT + QUERY, config.steps)
        observations = rng.integers(0, 4, (*shape, config.inputs), dtype=np.uint8)
        actions, rewards = rng.integers(0, 6, shape, dtype=np.uint8), rng.standard_normal(shape, dtype=np.float32)
        return PlayWindows(*map(torch.from_numpy, (observations, actions, rewards)))
    if isinstance(config, OF_OBJECTS):
        return object_windows(PAIRS, features=getattr(config, "features", 6))
    if isinstance(config, SegmentConfig):
        rng = np.random.default_rng(0)
        drawn = {"segments": (2, 48), "query": (16,), "target": (32,)}
        made = {k: torch.from_numpy(rng.standard_normal((2 * PAIRS, *shape), np.float32)) for k, shape in drawn.items()}
        target = made.pop("target")
        return segment_windows(made | {"mask": torch.ones(2 * PAIRS, 2)}, target)
    if isinstance(config, TactileConfig):
        draw = torch.Generator().manual_seed(0)
        seen, ahead = (
            torch.randn(2 * PAIRS, t, config.taxels, generator=draw) for t in (config.history, len(config.horizons))
        )
        return Windows(seen, seen[:, 1:, :0], ahead, seen[:, : config.horizons[-1], :0])
    named = {*recipe.relation.shared, *recipe.relation.differ} if isinstance(recipe.relation, Relation) else set()
    if recipe.name in GRASP_RECIPES or not named <= set(bank.table.columns):  # a bank of bodies has no such pairs
        recipe = replace(recipe, relation=SAME_SYSTEM)
    if recipe.kernel == LINKED:
        recipe = replace(recipe, kernel=random_graph(POKE.episodes(bank, "train"), seed=0))
    windows = POKE.data(bank, config, recipe, pairs=PAIRS, seed=0)(0)
    if isinstance(
        config, RegressionConfig
    ):  # increments of the present state to each target, as its setting reads them
        increments = windows.future_observations - windows.observations[:, -1:]
        return windows._replace(labels=increments.flatten(1))
    return windows


def test_every_registered_learner_is_tested_here():
    assert CONFIGS.keys() == LEARNERS.keys()
    for name, config in CONFIGS.items():
        assert learner_of(config) == (name, LEARNERS[name][0])


@pytest.mark.parametrize("arm", [name for name, recipe in EVERY_RECIPE.items() if recipe.kernel != SHIFTED])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_learner_under_a_recipe(poke_bank: Bank, name: str, arm: str):
    recipe = EVERY_RECIPE[arm]
    if name in WITHOUT_CONTEXTS and recipe.context != "split":
        with pytest.raises(
            ValueError, match=rf"the arm '{arm}' is of the context '{recipe.context}', but .*Config has"
        ):
            POKE.learner_config(CONFIGS[name], recipe)
        return
    if isinstance(CONFIGS[name], OF_OBJECTS | MultimodalConfig) and recipe.context == "supervised":
        with pytest.raises(
            ValueError,
            match=r"of the context 'supervised', but (Object.*|CoPhyNet|Multimodal)Config has no field 'label_dim'",
        ):
            POKE.learner_config(CONFIGS[name], recipe)
        return
    if isinstance(CONFIGS[name], TDSConfig | RSSMConfig | TemporalFCRLConfig | SupervisedJEPAConfig) and (
        recipe.context != "split"
    ):
        with pytest.raises(
            ValueError, match=rf"(TDS|RSSM|FCRL|JEPA)Config\.context is '{recipe.context}'; legal: split"
        ):
            POKE.learner_config(CONFIGS[name], recipe)
        return
    if isinstance(CONFIGS[name], RegressionConfig) and recipe.context == "supervised":
        with pytest.raises(ValueError, match=r"RegressionConfig\.context is 'supervised'; legal: split, monolithic"):
            POKE.learner_config(CONFIGS[name], recipe)
        return
    if isinstance(CONFIGS[name], PooledConfig) and recipe.context == "monolithic":
        with pytest.raises(ValueError, match=r"PooledConfig\.context is 'monolithic'; legal: split, supervised"):
            POKE.learner_config(CONFIGS[name], recipe)
        return
    config = POKE.learner_config(CONFIGS[name], recipe)
    learner: Any = LEARNERS[name][0](config)
    windows = windows_of(config, recipe, poke_bank)
    if isinstance(config, ObjectRSSMConfig):
        learner.fit_statistics(windows.query_features)
    elif callable(fit_statistics := getattr(learner, "fit_statistics", None)):
        fit_statistics(windows)
    if config not in CHECKED:  # a recipe changes a learner by its context alone
        check_learner(learner, windows)
        CHECKED.add(config)
    if name in ("fcrl", "fcrl-temporal", "tds", "nod-states") and recipe.objective.native_on == "recipients":
        with pytest.raises(ValueError, match=r"(TDS|NODStates|FCRL)'s native loss is of pairs"):
            training_loss(learner, windows, recipe.objective)
        return
    if name in ("fcrl", "fcrl-temporal", "tds", "nod-states") and recipe.objective.lambda_x:
        with pytest.raises(
            ValueError, match=r"lambda_x is [\d.]+, but (.*FCRL predicts nothing|.* other window already)"
        ):
            training_loss(learner, windows, recipe.objective)
        return
    loss, parts = training_loss(learner.train(), windows, recipe.objective)
    loss.backward()
    assert torch.isfinite(loss)
    assert ("align" in parts, "cross" in parts) == (bool(recipe.objective.lambda_p), bool(recipe.objective.lambda_x))
    gradients = [p.grad for p in learner.parameters() if p.grad is not None]
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_learners_have_names_and_configs_of_their_own():
    ad, config = LEARNERS["ad"]
    register_learner("ad", ad, config)  # the same again is nothing new
    with pytest.raises(ValueError, match="the learner 'ad' is registered as AD; choose another name"):
        register_learner("ad", LEARNERS["jepa"][0], config)
    with pytest.raises(ValueError, match="ADConfig is the config of the learner 'ad'; give yours its own"):
        register_learner("mine", ad, config)
    legal = ", ".join(cls.__name__ for _, cls in LEARNERS.values())
    with pytest.raises(ValueError, match=f"^dict is no registered learner's config; legal: {legal}"):
        learner_of({})


def test_windows_of_two_kinds_have_two_names():
    """So that an error or a page that names them can be followed."""
    classes: list[Any] = [cls for cls, _ in LEARNERS.values()]
    unions = [get_type_hints(cls.prepare)["windows"] for cls in classes]
    taken = {kind for union in unions for kind in get_args(union) or (union,)}
    names = [kind.__name__ for kind in taken]
    assert len(names) == len(set(names))
    assert {"FieldWindows", "ChainWindows"} <= set(names)
