"""What one history holds and what learners take from it, on PokeWorld's original bank (`app:dclean-acquisition`)."""

from collections.abc import Sequence

from sprii_train.analysis.statistics import reduction
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, spread_of, spread_table, value_of
from sprii_train.experiments.targets.geometry import LEAST
from sprii_train.experiments.targets.poke import r2_lead
from sprii_train.experiments.targets.within import by_system
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.page import Table, number, spread

ARMS = ("native", "align-cross")
TOLD = "supervised-drag"
DRAG = "window_ridge_drag"
RAW = (("one_ridge_drag", "ridge"), ("one_mlp_drag", "MLP"))
LABELS = {"native": "Monolithic JEPA", "align-cross": "Align + Cross", TOLD: "Supervised drag"}
SPLITS = ("validation", "test")


def _tables(rows: Sequence[Row]) -> list[Table]:
    groups = arms_of(rows)
    raw = [
        [f"Raw 24-step estimator, {kind}", number(value), "–"]
        for key, kind in RAW
        if (value := next((value_of(row, key) for row in groups.get("native", ())), None)) is not None
    ]
    learned = [
        [LABELS[arm], *(spread(spread_of(group, f"{split}.{DRAG}")) for split in SPLITS)]
        for arm, group in groups.items()
    ]
    return [
        Table(
            "Drag R² of one history of 24 observations",
            ["Read from", "Validation systems", "Test systems"],
            [*raw, *learned],
            "The estimator is a probe of least-squares features of numerical states; the others are ridge probes of "
            "the context. All are fitted on 400 training systems. The last learner was told the drag in training; "
            "the paper has no row of it.",
        ),
        spread_table(
            rows,
            "Object state at h16",
            {f"MSE, {split}": f"object_{split}" for split in SPLITS},
            first="Learner",
            note="Read from the predicted embedding by a frozen ridge decoder of each source, in training SDs of the "
            "object's position and velocity; the context is the window's own.",
        ),
    ]


def _raw(arms: Arms) -> float:
    return max(float(arms["native"][key]) for key, _ in RAW)


_ERRORS = {arm: (arm, "validation") for arm in ARMS}
_LOWER = reduction("align-cross", denominator="native")

CLAIMS = (
    Claim(
        "A history holds far more of drag than either learner takes from it",
        ARMS,
        lambda a: _raw(a) - max(a[arm]["validation"][DRAG] for arm in ARMS),
        "R² of the raw estimator minus the higher of the two",
        above=0.1,
        paper=0.44,
        null="holds too: it asks what learners leave",
    ),
    Claim(
        "Align + Cross makes drag more accessible than the monolithic JEPA",
        ARMS,
        **r2_lead("align-cross", "native", DRAG),
        what="difference in R², one history",
        above=LEAST,
        paper=0.161,
        null=0.0,
    ),
    Claim(
        "Align + Cross predicts the object's state better than the monolithic JEPA",
        ARMS,
        lambda a: _LOWER({arm: a[arm]["object_validation"] for arm in ARMS}),
        "reduction of the h16 object-state error in percent",
        above=1,
        paper=7.1,
        null=0.0,
        interval=by_system("decoded", _LOWER, _ERRORS),
    ),
)

POKE_ACQUISITION_TARGETS = (
    Target(
        "app:poke-acquisition",
        "PokeWorld: acquisition on the original bank",
        (Group("poke-r4", (*ARMS, TOLD), ("formation", "decoded")), Group("poke-r4", ("native",), ("evidence",))),
        _tables,
        CLAIMS,
        note="The paper does not say how the object's state is read from a prediction: here by the decoder of "
        "fig:v3-poke-semantics.",
    ),
)
