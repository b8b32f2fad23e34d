"""The training recipes of the paper's tables: which context, which relation and donors, which terms."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from sprii_envs.arguments import check, choice, flag, instance, integer, number
from sprii_envs.properties import unknown_name
from sprii_envs.relations import (
    SAME_ROLLOUT,
    SAME_SYSTEM,
    Derangement,
    EpisodeTable,
    Kernel,
    Relation,
    Uniform,
    named_kernel,
    named_relation,
)
from sprii_train.cophy.pairs import Groups
from sprii_train.learners.jepa import Context
from sprii_train.protocol import Objective

ALIGN = Objective(lambda_p=1.0)
CROSS = Objective(lambda_x=0.1, cross_directions="one")
JOINT = Objective(lambda_p=1.0, lambda_x=0.1, cross_directions="one")
"""The controlled learners' recipient half is predicted with the donor half's context, and not the other way round."""
LINKED = "linked"
"""The kernel of recipes whose donors come from a graph over training episodes; see `experiments.graphs`."""
SHIFTED = "shifted"
"""The kernel of recipes whose related donors are each given to the next recipient; see `control.relations`."""


@dataclass(frozen=True)
class Recipe:
    """One arm of a comparison.

    Attributes:
        name: key on the command line and in `results.json`.
        label: as the paper's tables print it.
        objective: loss weights.
        context: interface of the learner (`split`, `monolithic`, `supervised`).
        relation, kernel: who may be whose donor, and which one is drawn; names are those of `sprii relations list`,
            looked up on the table of the bank.
        alpha: share of related pairs; the others are drawn by the kernel. None: all.
    """

    name: str
    label: str
    objective: Objective
    context: Context = "split"
    relation: Relation | str = SAME_SYSTEM
    kernel: Kernel | str = Uniform()  # noqa: RUF009 (a frozen dataclass without state)
    alpha: float | None = None

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, instance, "name", "label", of=str)
        check(self, instance, "objective", of=Objective)
        check(self, choice, "context", legal=get_args(Context))
        check(self, instance, "relation", of=(Relation, str))
        check(self, number, "alpha", least=0, most=1, optional=True)

    def pairing(self, table: EpisodeTable) -> tuple[Relation, Kernel]:
        """The pairing law over the episodes of a table.

        Raises:
            ValueError: for a name that the table's columns do not support.
        """
        relation = named_relation(self.relation, table) if isinstance(self.relation, str) else self.relation
        if isinstance(self.kernel, str):
            return relation, named_kernel(self.kernel, table, relation, alpha=self.alpha)
        return relation, self.kernel


@dataclass(frozen=True)
class Continued(Recipe):
    """An arm whose selected checkpoint is trained further by prediction alone, in a setting with such a stage."""


@dataclass(frozen=True)
class Spaced(Recipe):
    """An arm whose recipients' windows begin so many observations after their donors', whichever episode these are of.

    Attributes:
        apart: see `WindowSampler`.
    """

    apart: int = 12

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, integer, "apart", least=1)


@dataclass(frozen=True)
class Compared(Recipe):
    """An arm of another learner than the setting's.

    Attributes:
        learner: name among the `others` of a budget, which has its config and its updates.
    """

    learner: str = ""

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, instance, "learner", of=str)
        if not self.learner:
            raise ValueError("Compared.learner is ''; legal: a name among a budget's others, such as 'cadm'")


@dataclass(frozen=True)
class Reference(Compared):
    """An arm that is trained on a setting's queries, with true increments of the state, and on no pairs."""

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        if self.objective != Objective():
            raise ValueError(f"Reference.objective is {self.objective}; legal: {Objective()}, no term of pairs")


@dataclass(frozen=True)
class Endpoint(Compared):
    """An arm whose learner another arm's training has kept on its way.

    Attributes:
        of: name of the other arm, of the same learner and objective.
        share: of its updates, one of `TrainConfig.endpoints`.
    """

    of: str = ""
    share: float = 0.5

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, instance, "of", of=str)
        check(self, number, "share", above=0, below=1)
        if not self.of:
            raise ValueError("Endpoint.of is ''; legal: the name of an arm, such as 'dali'")


@dataclass(frozen=True)
class Adapted(Recipe):
    """An arm of a setting with several learners.

    Attributes:
        learner: `geps`, `coda` or `amortised`.
        donors: who is whose donor among the histories of a batch, see `fields.environments`.
    """

    learner: str = "amortised"
    donors: str = "matched"

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, choice, "learner", legal=("geps", "coda", "amortised"))
        check(self, choice, "donors", legal=("matched", "random", "own"))


@dataclass(frozen=True)
class ObjectRecipe(Recipe):
    """An arm of CoPhy's scenes, which have several learners.

    Attributes:
        learner: `jepa`, `cpc`, `rssm` or `cophynet`.
        donors: `related`, `random`, or `none` where nothing of the objective is of pairs, see `cophy.pairs`.
        share: of the updates that the budget has for this learner.
        groups: of donors whose mean code several recipients get; None is one donor for each object.
        selected: whether the weights are those of the epoch with the least validation error.
        judges: arms whose validation errors say whether this one's training is extended, where a budget has a rule.
    """

    learner: str = "jepa"
    donors: str = "none"
    share: float = 1.0
    groups: Groups | None = None
    selected: bool = False
    judges: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, choice, "learner", legal=("jepa", "cpc", "rssm", "cophynet"))
        check(self, choice, "donors", legal=("none", "related", "random"))
        check(self, number, "share", above=0, most=1)
        check(self, instance, "groups", of=Groups, optional=True)
        check(self, flag, "selected")
        check(self, instance, "judges", of=tuple)
        for name in ("selected", "judges", "groups"):
            if getattr(self, name) and self.learner != "cophynet":
                raise ValueError(f"ObjectRecipe.{name} is of the learner {self.learner!r}; legal: of cophynet")
        if self.groups is not None and self.donors != "related":
            raise ValueError(f"ObjectRecipe.donors is {self.donors!r} with groups; legal: related")
        paired = self.objective.lambda_p > 0 or self.objective.lambda_x > 0
        if paired != (self.donors != "none"):
            raise ValueError(
                f"ObjectRecipe.donors is {self.donors!r} with λp {self.objective.lambda_p}, "
                f"λx {self.objective.lambda_x}; legal: none if both are 0, related or random otherwise"
            )


@dataclass(frozen=True)
class SegmentRecipe(Recipe):
    """A base of Swimmer's segments, trained by its own loss alone.

    Attributes:
        learner: `persistent-jepa` or `masked-gru`.
        first: seed of the base of source 0.
        resampling: seed of the resamples of systems.
        halved: whether its checkpoint is selected on half of the selection systems, and its adapters on the others.
    """

    learner: str = "persistent-jepa"
    first: int = 0
    resampling: int = 0
    halved: bool = False

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, choice, "learner", legal=("persistent-jepa", "masked-gru"))
        check(self, integer, "first", "resampling")
        check(self, flag, "halved")
        if self.objective != Objective():
            raise ValueError(f"SegmentRecipe.objective is {self.objective}; legal: {Objective()}, no term of pairs")


@dataclass(frozen=True)
class SceneRecipe(Recipe):
    """An arm of recorded manipulation.

    Attributes:
        donors: of a query, `matched`, `own` or `random`, see `robots.scene_pairs`.
        pictures: whether observations have them, or sensors alone.
        joint: whether one Transformer reads the donor's history and the query's; its context is then neither.
    """

    donors: str = "matched"
    pictures: bool = True
    joint: bool = False

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, choice, "donors", legal=("matched", "own", "random"))
        check(self, flag, "pictures", "joint")
        if self.joint and (self.context != "monolithic" or self.objective.lambda_p or self.objective.lambda_x):
            raise ValueError(
                f"SceneRecipe.joint is True with the context {self.context!r}, λp {self.objective.lambda_p} and λx "
                f"{self.objective.lambda_x}; legal: the monolithic context without either"
            )


def _named(*recipes: Recipe) -> dict[str, Recipe]:
    return {recipe.name: recipe for recipe in recipes}


RECIPES: dict[str, Recipe] = _named(
    Recipe("native", "Native", Objective(), context="monolithic"),
    Recipe("structure", "Structure", Objective()),
    Recipe("same-rollout", "Same-rollout alignment", ALIGN, relation=SAME_ROLLOUT),
    Recipe("align", "Align", ALIGN),
    Recipe("cross", "Cross", CROSS),
    Recipe("align-cross", "Align + Cross", JOINT),
    Recipe("align-random", "Align–Random", ALIGN, kernel=Derangement()),
    Recipe("supervised", "Supervised γ", Objective(), context="supervised"),
)
"""Table `tab:dclean-full`, and the objective components of every world."""

POKE_RECIPES: dict[str, Recipe] = _named(
    *(Recipe(f"alpha-{a:g}", f"α = {a:g}", ALIGN, kernel="derangement", alpha=a) for a in (0.0, 0.5, 1.0)),
    Recipe("g1", "G₁", ALIGN, relation="G1", kernel="candidates"),
    Recipe("g2", "G₂", ALIGN, relation="G2", kernel="candidates"),
    Recipe("g3", "G₃", ALIGN, relation="G3", kernel="uniform"),
    Recipe("mismatch-random", "Random mismatch", ALIGN, relation="G3", kernel="derangement", alpha=0.5),
    Recipe("mismatch-drag", "Drag-only mismatch", ALIGN, relation="G3", kernel="mismatch:drag", alpha=0.5),
    Recipe("mismatch-mass", "Mass-only mismatch", ALIGN, relation="G3", kernel="mismatch:mass", alpha=0.5),
    Compared("supervised-drag", "Supervised drag", Objective(), learner="supervised-drag"),
    Spaced("spaced-rollout", "Same-rollout donors", JOINT, relation=SAME_ROLLOUT),
    Spaced("spaced-system", "Independent donors", JOINT),
    Recipe("inferred", "Inferred", ALIGN, kernel=LINKED),
    Recipe("random-history", "RandomHistory", ALIGN, kernel=LINKED),
    *(
        Recipe(f"nce-{t:g}-{w:g}", f"Rel-InfoNCE τ {t:g}, λ {w:g}", Objective(lambda_nce=w, temperature=t))
        for t in (0.07, 0.1, 0.2)
        for w in (0.1, 1.0)
    ),
)
"""Relation design on PokeWorld (`app:poke-formation`, `app:matched-control`, `app:structured-mismatch`,
`app:inferred-relations`)."""

SPRING_RECIPES: dict[str, Recipe] = _named(
    *(
        Recipe(f"weights-{p:g}-{x:g}", f"λp {p:g}, λx {x:g}", Objective(lambda_p=p, lambda_x=x, cross_directions="one"))
        for p, x in ((0.25, 0.1), (4.0, 0.1), (1.0, 0.025), (1.0, 0.4))
    ),
    Compared("supervised-split", "Supervised split", Objective(), learner="supervised-split"),
)
"""Sensitivity to the relation weights (`app:spring-lambda`), whose default is `align-cross`; the supervised split of
`tab:spring-complete`."""

_DALI = Compared("dali", "DALI", Objective(), learner="dali")
STATE_RECIPES: dict[str, Recipe] = _named(
    Compared("cadm-offline", "CaDM, offline", Objective(), learner="cadm"),
    Compared("cadm-align-cross", "CaDM, Align + Cross", JOINT, learner="cadm"),
    Compared("fcrl", "FCRL", Objective(), learner="fcrl"),
    Compared("fcrl-align", "FCRL, Align", ALIGN, learner="fcrl"),
    Compared("nod-states", "NOD on states", Objective(), learner="nod-states"),
    Compared("nod-states-align", "NOD on states, Align", ALIGN, learner="nod-states"),
    _DALI,
    *(
        Endpoint(
            f"dali-{word}", f"DALI, {sign} of its updates", Objective(), learner="dali", of=_DALI.name, share=share
        )
        for word, sign, share in (("eighth", "⅛", 0.125), ("quarter", "¼", 0.25), ("half", "½", 0.5))
    ),
    Compared("dali-align-cross", "DALI, Align + Cross", JOINT, learner="dali"),
)
"""Other learners of states (`app:dclean-official`). DALI's endpoints are 20,000, 40,000 and 80,000 of 160,000 updates.
NOD predicts with related codes by itself, and FCRL predicts nothing: neither has an arm of Cross."""

_R7 = Objective(lambda_p=0.003, target_std=0.1)
CONTEXT_RECIPES: dict[str, Recipe] = _named(
    Compared("context-labelled", "Properties given", Objective(), learner="labelled"),
    Compared("context-fitted", "Linear in a fitted context", Objective(), learner="fitted"),
    Compared("context-encoded", "Linear in an encoder's context", Objective(), learner="encoded"),
    Compared("context-encoded-align-cross", "Linear, encoder, Align + Cross", JOINT, learner="encoded"),
)
"""Dynamics for control: told what persists, or linear in what is fitted or encoded (`ext:pendulum-context`)."""

CONTROL_RECIPES: dict[str, Recipe] = _named(
    Recipe("cadm", "CaDM", Objective(target_std=0.1)),
    Recipe("random", "Random relation", _R7, kernel=SHIFTED),
    Recipe("r7", "SPRII (R7)", _R7),
)
"""Which contexts are aligned while CaDM, whose own loss has weight 1, trains online (`app:pendulum-control`)."""

_OTHER_RUN = Relation(("system",), ("run",), name="same partner, another run")
PARTNER_RECIPES: dict[str, Recipe] = _named(
    Recipe("h", "H", Objective(), relation=SAME_ROLLOUT),
    Recipe("h-vc", "H+VC", Objective(lambda_p=0.001, invariance=0.0), relation=SAME_ROLLOUT),
    Recipe("h-sprii", "H+SPRII, one run", Objective(lambda_p=0.001), relation=SAME_ROLLOUT),
    Recipe("h-sprii-runs", "H+SPRII, across runs", Objective(lambda_p=0.001), relation=_OTHER_RUN),
    Recipe("h-random", "H+Random", Objective(lambda_p=0.001), kernel=Derangement()),
)
"""Histories with partners (`app:overcooked`): 0.001·(25V + C), 0.001·(25I + 25V + C), and the latter with histories of
other partners. Pairs are of one history of one ego, as published, or of two egos that learnt with the same partner."""

_NOD = Objective(lambda_p=0.03)
FIELD_RECIPES: dict[str, Recipe] = _named(
    Recipe("nod", "NOD, released default", Objective()),
    Continued("nod-sprii", "SPRII, continued", _NOD),
    Continued("nod-continued", "Continued NOD", Objective()),
    Continued("nod-random", "Random, continued", _NOD, kernel=Derangement()),
)
"""Which conditions of an operator are aligned before it is trained on by prediction alone (`app:external-nod`)."""

_FIELDS = Objective(lambda_p=0.01, native_on="recipients")
FHN_RECIPES: dict[str, Recipe] = _named(
    Recipe("fhn-nod", "NOD", Objective(native_on="recipients")),
    Recipe("fhn-sprii", "SPRII", _FIELDS),
    Recipe("fhn-random", "Random pairs", _FIELDS, kernel=Derangement()),
)
"""Fields of FitzHugh–Nagumo (`app:nod-fhn-profile`): prediction only; codes of two trajectories of a system aligned
first; codes of two systems. Align's schedule is of the training, `fhn.schedule`."""

_ONE_EACH, _CROSS = Objective(native_on="recipients"), Objective(lambda_x=1.0)
ADAPTED_RECIPES: dict[str, Recipe] = _named(
    Adapted("geps", "GEPS", _ONE_EACH, learner="geps"),
    Adapted("coda", "CoDA", _ONE_EACH, learner="coda"),
    Adapted("coda-plain", "Plain", Objective()),
    Adapted("coda-cross", "Matched Cross", _CROSS),
    Adapted("coda-random", "Random Cross", _CROSS, donors="random"),
    Adapted("coda-duplicate", "Duplicate Self", _CROSS, donors="own"),
)
"""Codes adapted to a case, and a history encoder before CoDA's frozen decoder with a second prediction from the
partner's history, from another system's or from its own (`app:coda-sprii`)."""

_COPHY_ARMS = {"native": "Native", "structure": "Structure", "sprii": "SPRII", "random": "Random"}


def _objects(
    name: str, learner: str, words: str, sprii: Objective, share: float = 1.0, judges: tuple[str, ...] = ()
) -> list[ObjectRecipe]:
    """Native, Structure, SPRII and Random of a learner, extended where one of the judges still gains."""
    donors = {"native": "none", "structure": "none", "sprii": "related", "random": "random"}
    return [
        ObjectRecipe(
            f"cophy-{name}-{arm}", f"{words}, {label}", Objective() if donors[arm] == "none" else sprii,
            "monolithic" if arm == "native" else "split", learner=learner, donors=donors[arm], share=share,
            judges=tuple(f"cophy-{name}-{judge}" for judge in judges),
        )
        for arm, label in _COPHY_ARMS.items()
    ]  # fmt: skip


def _one_way(align: float, cross: float) -> Objective:
    return Objective(lambda_p=align, lambda_x=cross, native_on="recipients", cross_directions="one")


_NET = _one_way(1.0, 0.1)
COPHY_RECIPES: dict[str, Recipe] = _named(
    *_objects("jepa", "jepa", "JEPA", _one_way(0.0, 1.0)),
    *_objects("j2", "jepa", "JEPA J2", _one_way(0.0, 0.3), share=0.5),
    *_objects("cpc", "cpc", "CPC", _one_way(0.0, 1.0)),
    ObjectRecipe("cophy-cpc-align", "CPC, Align", _one_way(1.0, 0.0), learner="cpc", donors="related"),
    *_objects("rssm", "rssm", "RSSM", _one_way(0.0, 1.0)),
    *_objects("net", "cophynet", "CoPhyNet", _NET),
    ObjectRecipe("cophy-net-cross", "CoPhyNet, Cross", _one_way(0.0, 0.1), learner="cophynet", donors="related"),
    ObjectRecipe(
        "cophy-net-s1",
        "CoPhyNet, SPRII S1",
        _one_way(0.1, 1.0),
        learner="cophynet",
        donors="related",
        groups=Groups(),
        selected=True,
    ),
    *_objects("net50", "cophynet", "CoPhyNet, half", _NET, share=0.5, judges=("native", "sprii")),
)
"""Objects of CoPhy (`app:cophy-profile`): four arms of each learner; CoPhyNet's relation is Align + Cross, the others'
Cross. J2 is the JEPA with half the updates and a weight of Cross of 0.3. S1 is CoPhyNet with λx 1 and λp 0.1, codes of
five supports averaged, and the best epoch; net50 has half the updates, or what a budget's `Extension` decides."""

SWIMMER_RECIPES: dict[str, Recipe] = _named(
    SegmentRecipe("swimmer-jepa", "Persistent-JEPA", Objective(), first=66113, resampling=89201),
    *(
        SegmentRecipe(
            f"swimmer-gru-{seed}", f"Masked-GRU ({seed})", Objective(), learner="masked-gru", first=seed,
            resampling=89211, halved=True,
        )
        for seed in (64101, 64103)
    ),
)  # fmt: skip
"""Bases of Swimmer's segments, which stay as they are while updates of their contexts are measured
(`app:fixed-weight`)."""
_GRASPS = Objective(lambda_p=1.0, lambda_x=0.1, native_on="recipients", cross_directions="one")
GRASP_RECIPES: dict[str, Recipe] = _named(
    Recipe("baxter-hardness", "R_H: same hardness", _GRASPS, relation=Relation(("level",), ("shape",), name="R_H")),
    Recipe("baxter-shape", "R_S: same shape", _GRASPS, relation=Relation(("shape",), ("level",), name="R_S")),
    Recipe("baxter-random", "Random configuration", _GRASPS, relation=Relation((), ("system",)), kernel=Derangement()),
)
"""Whose grasp is whose donor (`app:baxter-profile`): Align and Cross in all three, and a loss of the queries alone."""
_WEIGHTS = {"": (0.0, 0.0), "align": (1.0, 0.0), "cross": (0.0, 0.1), "ac": (1.0, 0.1)}
_TERMS = {"align": "Align", "cross": "Cross", "ac": "A+C"}
_DONORS = {"sameep": ("own", "SameEp"), "indep": ("matched", "Indep"), "random": ("random", "Random")}


def _scenes(arm: str, *, pictures: bool = True) -> SceneRecipe:
    """An arm by its name, such as `ac-sameep`."""
    term, _, donors = arm.partition("-")
    kind, word = _DONORS.get(donors, ("matched", ""))
    align, cross = _WEIGHTS.get(term, (0.0, 0.0))
    objective = Objective(lambda_p=align, lambda_x=cross, native_on="recipients", cross_directions="one")
    label = f"{_TERMS[term]}–{word}" if word else arm.capitalize()
    label = f"RH20T, {label}" if pictures else f"RH20T, LD–{label}"
    return SceneRecipe(
        f"rh20t-{arm}" if pictures else f"rh20t-ld-{arm}", label, objective,
        "monolithic" if arm == "native" else "split", donors=kind, pictures=pictures,
    )  # fmt: skip


SCENE_RECIPES: dict[str, Recipe] = _named(
    *map(
        _scenes,
        (
            "native", "structure", "align-indep", "align-random", "cross-sameep", "cross-indep", "cross-random",
            "ac-sameep", "ac-indep", "ac-random",
        ),
    ),
    *(_scenes(arm, pictures=False) for arm in ("native", "cross-indep", "ac-sameep", "ac-random")),
    SceneRecipe("rh20t-mono-qd", "RH20T, Monolithic Q+D", Objective(), "monolithic", joint=True),
)  # fmt: skip
"""Recorded manipulation (`app:rh-profile`): 14 conditions, the last four without pictures, and the monolithic reader of
query and donor. The loss is of the queries alone, whose donors lie before them."""

TDS_RECIPES: dict[str, Recipe] = _named(
    Compared("tds", "TDS", Objective(), learner="tds"),
    *(Compared(f"tds-{d}", f"TDS, d = {d}", Objective(), learner=f"tds-{d}") for d in range(7)),
)
"""Trajectory-decoupled prediction: as wide as SPRII's code, and with codes that are selected among. Its native loss
takes the donor's code, so that no term is added."""

LATENT_RECIPES: dict[str, Recipe] = _named(
    *(
        Compared(f"spring-{name}{arm}", f"{name.upper()}{term}", objective, learner=name)
        for name in ("cpc", "rssm")
        for arm, term, objective in (("", "", Objective()), ("-align-cross", ", Align + Cross", JOINT))
    )
)
"""The controlled learner with the losses of CPC and of an RSSM (`tab:spring-complete`), which have no relation there,
and with Align and Cross."""

REFERENCE_RECIPES: dict[str, Recipe] = _named(
    *(
        Reference(f"reference-{kind}", label, Objective(), learner=f"reference-{kind}")
        for kind, label in (("gru", "GRU"), ("transformer", "Transformer"), ("tcn", "TCN"), ("deepsets", "DeepSets"))
    )
)
"""Supervised references of SpringWorld, which are told the task (`app:spring-development`)."""

FROZEN_RECIPES: dict[str, Recipe] = _named(
    *(
        Compared(f"alpha-1-{name}", f"α = 1, {label}", ALIGN, kernel="derangement", alpha=1.0, learner=name)
        for name, label in (("frozen", "few updates, frozen stem"), ("end-to-end", "few updates, end to end"))
    )
)
"""Twins of a short budget: both begin with a source's stem of pixels, and one moves it (`ext:poke-frozen-pixels`)."""

EVERY_RECIPE: dict[str, Recipe] = (
    RECIPES
    | POKE_RECIPES
    | SPRING_RECIPES
    | STATE_RECIPES
    | CONTROL_RECIPES
    | CONTEXT_RECIPES
    | PARTNER_RECIPES
    | FIELD_RECIPES
    | FHN_RECIPES
    | ADAPTED_RECIPES
    | COPHY_RECIPES
    | SWIMMER_RECIPES
    | GRASP_RECIPES
    | SCENE_RECIPES
    | TDS_RECIPES
    | LATENT_RECIPES
    | REFERENCE_RECIPES
    | FROZEN_RECIPES
)


def recipe(name: str, among: Mapping[str, Recipe] = RECIPES) -> Recipe:
    """The recipe of that name.

    Raises:
        ValueError: naming the legal ones.
    """
    if instance("arm", name, of=str) not in among:
        raise unknown_name("arm", name, among)
    return among[name]
