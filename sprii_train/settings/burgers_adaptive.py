"""Burgers' equation with a code per viscosity, adapted to a case or inferred from it (`app:coda-sprii`)."""

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sprii_envs.arguments import check, integer, number
from sprii_envs.banks import Store
from sprii_envs.fields.bank import BurgersProtocol
from sprii_envs.files import lock, read_json, write_json
from sprii_envs.relations.streams import WINDOWS, below, stream
from sprii_train import distributed
from sprii_train.checkpoints import CheckpointError, read_tensors, write_tensors
from sprii_train.fields.environments import EnvironmentFields
from sprii_train.fields.windows import PairedFields, read_fields
from sprii_train.fit import ENGINE, TrainConfig, fit, resolve_precision, what_matters
from sprii_train.identity import code_of
from sprii_train.learners import (
    GEPS,
    AmortisedCoDA,
    AmortisedCoDAConfig,
    CoDA,
    CoDAConfig,
    GEPSConfig,
)
from sprii_train.protocol import Objective
from sprii_train.recipes import Recipe
from sprii_train.records import Report, later, training_seconds
from sprii_train.settings.base import SMOKE_NOTE, Budget, listed, with_context
from sprii_train.settings.burgers import STAGES, FieldSetting
from sprii_train.settings.solved import Solved

ONE_EACH = Objective(native_on="recipients")
"""Of decoders: the recipients of a batch are one trajectory of each system."""


@dataclass(frozen=True)
class AdaptiveTraining(TrainConfig):
    """Of the encoder's arms, with the stages before it; the defaults are the paper's, but for the encoder's batch.

    Attributes:
        steps, pairs, learning_rate: of an arm of the encoder.
        decoder_steps, decoder_rate: of CoDA, on one trajectory of each system an update.
        geps_steps, geps_rate, geps_pairs: of GEPS, on so many trajectories an update.
        teacher_steps, teacher_rate, teacher_batch: of the encoder's fit to the codes adapted to training histories.
    """

    steps: int = 1_000
    pairs: int = 4
    learning_rate: float = 1e-4
    weight_decay: float = 0.0
    warmup: int = 0
    precision: str = "fp32"
    checkpoint_every: int = 100
    log_every: int = 20
    decoder_steps: int = 5_000
    decoder_rate: float = 1e-3
    geps_steps: int = 5_000
    geps_rate: float = 1e-2
    geps_pairs: int = 4
    teacher_steps: int = 500
    teacher_rate: float = 3e-4
    teacher_batch: int = 32

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, integer, "decoder_steps", "geps_steps", "teacher_steps", "teacher_batch", least=1)
        check(self, integer, "geps_pairs", least=2)
        check(self, number, "decoder_rate", "geps_rate", "teacher_rate", above=0)

    def stage(self, steps: int, pairs: int, rate: float) -> TrainConfig:
        """A stage at a constant rate."""
        given: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(TrainConfig)}
        return TrainConfig(**given | {"steps": steps, "pairs": pairs, "learning_rate": rate, "rates": ((0, rate),)})


@dataclass(frozen=True)
class AdaptiveSetting(FieldSetting):
    """Learners of a code per system; arms of the encoder share decoder, codes and first weights."""

    __hash__ = FieldSetting.__hash__

    def learner_config(self, config: AmortisedCoDAConfig, recipe: Recipe) -> Any:
        """The config of the learner of a recipe: all have the sizes of one network."""
        kind = _kind(recipe)
        if kind == "amortised":
            return with_context(config, recipe, len(self.properties))
        if kind == "coda":
            return config.coda
        same = ("points", "frames", "environments", "width", "layers", "forcing", "forcing_every", "adapt_steps")
        return GEPSConfig(**{name: getattr(config, name) for name in same})

    def data(self, store: Store, config: Any, recipe: Recipe, *, pairs: int, seed: int) -> Callable[[int], Any]:
        """Training batches of a recipe: the same trajectories in all of them."""
        table = store.split("train")
        relation, kernel = recipe.pairing(table)
        drawn = PairedFields(
            store, table, relation=relation, kernel=kernel, pairs=pairs, seed=seed, condition="self"
        )  # fmt: skip
        return EnvironmentFields(drawn, getattr(recipe, "donors", "matched"))

    def train(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        store: Store,
        recipe: Recipe,
        config: Any,
        train: AdaptiveTraining,
        folder: Path,
        *,
        identity: dict[str, Any],
        progress: Report,
    ) -> nn.Module:
        """GEPS; or CoDA's decoder, in a folder that the arms of a seed share; or an encoder before that decoder."""
        learner: nn.Module
        if isinstance(config, GEPSConfig):
            spent = train.stage(train.geps_steps, train.geps_pairs, train.geps_rate)
            learner = self._fitted(GEPS, config, store, recipe, spent, folder / "fit", progress)
            told = {"seconds": training_seconds(folder / "fit", spent.steps)}
        else:
            coda = config.coda if isinstance(config, AmortisedCoDAConfig) else config
            decoder, shared, told = self._decoder(store, recipe, coda, train, folder.parent, progress)
            learner = decoder
            if isinstance(config, AmortisedCoDAConfig):
                learner = self._encoder(store, recipe, config, train, folder, decoder, shared, told, progress)
        distributed.first(lambda: write_json(folder / STAGES, told))
        return learner.eval()

    def _fitted(
        self, cls: type[Any], config: Any, store: Store, recipe: Recipe, spent: TrainConfig, folder: Path,
        progress: Report,
    ) -> Any:  # fmt: skip
        data: Any = self.data(store, config, recipe, pairs=spent.pairs, seed=spent.seed)
        torch.manual_seed(spent.seed)
        return fit(cls(config), data, ONE_EACH, spent, folder, progress=progress)

    def _decoder(
        self, store: Store, recipe: Recipe, config: CoDAConfig, train: AdaptiveTraining, root: Path, progress: Report
    ) -> tuple[CoDA, Path, dict[str, Any]]:
        """CoDA of a seed, where it lies, and what it took; trained by whichever arm comes first."""
        spent = train.stage(train.decoder_steps, config.environments, train.decoder_rate)
        plain = replace(recipe, learner="coda", donors="matched", objective=ONE_EACH)  # type: ignore[call-arg]
        told = [store.fingerprint, repr(config), what_matters(spent), code_of(*ENGINE, *_DATA, CoDA)]
        name = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:10]
        shared = root / f"{self.name}-decoder-seed{spent.seed}-{name}"
        with _held(shared):
            learner = self._fitted(CoDA, config, store, plain, spent, shared, progress)
        return learner, shared, {"decoder": name, "seconds": training_seconds(shared, spent.steps)}

    def _encoder(
        self, store: Store, recipe: Recipe, config: AmortisedCoDAConfig, train: AdaptiveTraining, folder: Path,
        coda: CoDA, shared: Path, told: dict[str, Any], progress: Report,
    ) -> AmortisedCoDA:  # fmt: skip
        """An arm: the encoder fitted to the teacher's codes, then trained before the decoder as it is."""
        learner = amortised(config, coda, train.seed)
        told |= {"decoder_seconds": told["seconds"]} | self._teach(store, learner, coda, train, shared)
        spent = train.stage(train.steps, train.pairs, train.learning_rate)
        data: Any = self.data(store, config, recipe, pairs=spent.pairs, seed=spent.seed)
        before = train.decoder_steps + train.teacher_steps
        fit(learner, data, recipe.objective, spent, folder / "fit", progress=later(progress, before))
        told |= {"histories": data.histories(spent.steps), "shared": shared.name}
        told |= {"encoder_seconds": (own := training_seconds(folder / "fit", spent.steps))}
        told["seconds"] += told["teacher_seconds"] + told["teacher_fit_seconds"] + own
        return learner

    def _teach(
        self, store: Store, learner: AmortisedCoDA, coda: CoDA, train: AdaptiveTraining, shared: Path
    ) -> dict[str, float]:
        """Bring a fresh encoder to the codes that CoDA adapts to training histories; kept beside the decoder.

        Returns:
            Seconds of adaptation and of the fit.
        """
        own = [repr(learner.config), train.teacher_steps, train.teacher_rate, train.teacher_batch, train.seed]
        name = hashlib.sha256(json.dumps([*own, code_of(AmortisedCoDA, teacher_codes, _fit)]).encode()).hexdigest()[:10]
        path, log = shared / f"teacher-{name}.safetensors", shared / f"teacher-{name}.json"
        remedy = f"remove the folder {shared}"
        with _held(shared):
            if distributed.first(lambda: not log.exists()):
                begun = time.perf_counter()
                fields, codes = teacher_codes(coda, store)
                adapted = time.perf_counter()
                _fit(learner.encoder, fields, codes, train)
                spent = {"teacher_seconds": adapted - begun, "teacher_fit_seconds": time.perf_counter() - adapted}
                held = {f"encoder|{k}": v for k, v in learner.encoder.state_dict().items()} | {"codes": codes}
                distributed.first(lambda: (write_tensors(path, held), write_json(log, spent)))
            kept = read_tensors(path, remedy)
            weights = {k.removeprefix("encoder|"): v for k, v in kept.items() if k.startswith("encoder|")}
            learner.encoder.load_state_dict(weights)
            return {k: round(v, 2) for k, v in read_json(log, CheckpointError, remedy).items()}

    def seconds(self, folder: Path, train: Any) -> float:
        """Of all stages of an arm; arms that share one count it each."""
        return round(self.stages(folder)["seconds"], 1)

    def updates(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, recipe: Recipe, train: AdaptiveTraining
    ) -> int:
        """Of all stages of an arm; arms that share one count it each."""
        encoder = train.decoder_steps + train.teacher_steps + train.steps
        return {"geps": train.geps_steps, "coda": train.decoder_steps}.get(_kind(recipe), encoder)

    def code(self) -> tuple[Any, ...]:
        """Functions and classes that a source's weights depend on, besides its learner and recipe."""
        own = type(self)
        stages = (own._fitted, own._decoder, own._encoder, own._teach, amortised, teacher_codes, _fit)
        return (*ENGINE, *_DATA, CoDA, GEPS, own.data, own.learner_config, own.train, *stages)

    def facts(self, budget: Budget) -> dict[str, str]:
        """What a report says of a budget."""
        train, seeds = budget.train, ", ".join(map(str, budget.sources))
        made = self.store if budget.store is None else budget.store
        assert isinstance(made, Solved)
        return {
            "Budget": f"CoDA {train.decoder_steps:,} updates of {budget.learner.environments} trajectories, GEPS "
            f"{train.geps_steps:,} of {train.geps_pairs}, encoders {train.teacher_steps:,} on teacher codes and "
            f"{train.steps:,} of {2 * train.pairs} trajectories; seeds of sources: {seeds}; {budget.note}",
            "Learner": listed(budget.learner),
            "Training": f"{listed(train, but=('seed', 'warmup', 'rates'))} ({resolve_precision(train)})",
            "Fields": listed(made.protocol),
        }


_DATA = (PairedFields, EnvironmentFields)


def _kind(recipe: Recipe) -> str:
    return getattr(recipe, "learner", "amortised")


def amortised(config: AmortisedCoDAConfig, coda: CoDA, seed: int) -> AmortisedCoDA:
    """A fresh encoder of a seed before the decoder of a trained CoDA."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        learner = AmortisedCoDA(config)
    learner.decoder.load_state_dict(coda.decoder.state_dict())
    return learner


def teacher_codes(coda: CoDA, store: Store) -> tuple[Tensor, Tensor]:
    """Training trajectories (n, T, X) and the codes (n, code) adapted to each, of no other split."""
    episodes = store.split("train")["episode"]
    fields = read_fields(store, episodes, episodes).fields
    return fields, coda.eval().encode_history(fields.to(coda.codes.device)).cpu()


def _fit(encoder: nn.Module, fields: Tensor, codes: Tensor, train: AdaptiveTraining) -> None:
    """Adam on the squared error of codes; batches are a function of (seed, step)."""
    optimizer = torch.optim.Adam(encoder.parameters(), lr=train.teacher_rate)
    for step in range(train.teacher_steps):
        rows = torch.from_numpy(below(stream(train.seed, step, WINDOWS), np.full(train.teacher_batch, len(fields))))
        loss = (encoder(fields[rows]) - codes[rows]).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def _held(folder: Path) -> ExitStack:
    """The lock of a folder that arms share: another worker may be training it."""
    stack = ExitStack()
    distributed.first(lambda: stack.enter_context(lock(folder / ".lock", error=CheckpointError)))
    return stack


QUICK = BurgersProtocol(
    cells=400, points=101, frames=26, train=20, validation=2, id_test=5, viscous_ood=10, inviscid_ood=20
)
SMOKE = BurgersProtocol(
    cells=64, points=17, frames=9, train=3, validation=1, id_test=2, viscous_ood=2, inviscid_ood=3, duration=1.0
)

ADAPTIVE_BUDGETS = {
    "smoke": Budget(
        AmortisedCoDAConfig(points=17, frames=9, width=4, forcing_every=1, adapt_steps=2, widths=(4, 8), hidden=8),
        AdaptiveTraining(
            steps=4, checkpoint_every=2, log_every=2, decoder_steps=6, geps_steps=6, teacher_steps=5, teacher_batch=8
        ),
        (1234,), 1, 20, SMOKE_NOTE, judged=False, step_seconds=0.02, store=Solved(SMOKE),
    ),
    "quick": Budget(
        AmortisedCoDAConfig(points=101, frames=26, width=16, forcing_every=9),
        AdaptiveTraining(steps=200, decoder_steps=1_500, geps_steps=1_500, teacher_steps=500),
        (1234, 5678, 9012), 1, None,
        "a width of 16 in place of 64 on 101 points and 26 frames, where a wave crosses as many points a frame as in "
        "the paper's; 1,500 updates of decoders in place of 5,000, forcing falling as much in them, 200 of encoders in "
        "place of 1,000; 20 training cases of a viscosity in place of 40; 45 ID, 50 viscous and 20 inviscid cases in "
        "place of 45, 500 and 100", step_seconds=0.03, store=Solved(QUICK),
    ),
    "paper": Budget(
        AmortisedCoDAConfig(), AdaptiveTraining(), (1234, 5678, 9012), 1, None,
        "the published sizes and budgets on fields that are ours; encoders see 8 trajectories an update, which the "
        "paper does not say", step_seconds=4.0,
    ),
}  # fmt: skip

BURGERS_ADAPTIVE = AdaptiveSetting(
    "burgers-adaptive",
    Solved(BurgersProtocol()),
    properties=("viscosity",),
    history=101,
    anchors=(100,),
    budgets=ADAPTIVE_BUDGETS,
    observation="field",
    action=None,
    arms=("coda", "geps", "coda-plain", "coda-cross"),
)
