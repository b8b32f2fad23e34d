"""Tables `tab:burgers-adaptation-cost` and `tab:coda-host-results`: adapted codes, and an encoder of a frozen CoDA."""

from collections.abc import Callable, Sequence

from sprii_train.analysis.statistics import Spread, paired_source_interval
from sprii_train.experiments.targets import burgers
from sprii_train.experiments.targets.base import Group, Row, Target, arms_of, spread_of, value_of
from sprii_train.experiments.targets.burgers import NOD, NOTE, SPLITS, SPRII, thousandths
from sprii_train.experiments.targets.within import number_of
from sprii_train.recipes import ADAPTED_RECIPES, FIELD_RECIPES
from sprii_train.reports.claims import Arms, Claim
from sprii_train.reports.page import Table, interval, number, spread

GEPS, CODA, PLAIN, CROSS, RANDOM, DUPLICATE = ADAPTED_RECIPES
HOSTED = (PLAIN, CROSS, RANDOM, DUPLICATE)
OPERATORS = (NOD, SPRII)
CODES = {"code0": "code-0", "code50": "code-50"}
LABELS = {arm: recipe.label for arm, recipe in (ADAPTED_RECIPES | FIELD_RECIPES).items()}
MEASURE = "adaptive"

PAPER = {  # mean squared errors, thousandths
    "code0": {
        PLAIN: (3.4834, 6.3900, 5.8833), CROSS: (3.2500, 6.0598, 5.5006), RANDOM: (3.3076, 6.0832, 5.5822),
        DUPLICATE: (3.4203, 6.4976, 5.9394),
    },
    "code50": {
        PLAIN: (3.5123, 7.1890, 6.7663), CROSS: (3.5566, 7.0845, 6.8105), RANDOM: (3.5164, 7.0310, 6.8046),
        DUPLICATE: (3.5899, 7.4010, 7.0893), CODA: (3.38, 6.48, 5.89), GEPS: (5.60, 12.37, 13.84),
        **{arm: burgers.PAPER[arm] for arm in OPERATORS},
    },
}  # fmt: skip
INCLUDES = ", its own interval of the difference includes 0"


def _times(split: str, code: str, arm: str, than: str) -> Callable[[Arms], float]:
    paths = [f"native.{split}.{'own' if name in OPERATORS else code}" for name in (arm, than)]
    return lambda a: number_of(a[arm], paths[0]) / number_of(a[than], paths[1])


def _lower(code: str, split: str, arm: str, than: str, said: str = INCLUDES) -> Claim:
    place = list(SPLITS).index(split)
    at = f" at {CODES[code]}" if than in HOSTED else ""
    return Claim(
        f"{SPLITS[split]}{at}: {LABELS[arm]} has a lower error than {LABELS[than]}",
        (arm, than),
        _times(split, code, arm, than),
        "ratio of mean squared errors",
        below=1.0,
        paper=f"{PAPER[code][arm][place] / PAPER[code][than][place]:.3f}{said}",
        null=1.0 if than in HOSTED else "any number, the networks differ",
        ratio=True,
    )


def _rises(arm: str) -> Claim:
    found = [PAPER["code50"][arm][i] / PAPER["code0"][arm][i] for i in range(len(SPLITS))]
    return Claim(
        f"{LABELS[arm]}: fifty steps on the support raise the error of the query in every distribution",
        (arm,),
        lambda a: min(number_of(a[arm], f"native.{s}.code50") / number_of(a[arm], f"native.{s}.code0") for s in SPLITS),
        "least ratio of mean squared errors, code-50 to code-0",
        above=1.0,
        paper=f"{min(found):.3f}",
        null=1.0,
        ratio=True,
    )


def _most_accessible(code: str, paper: float) -> Claim:
    others = [arm for arm in HOSTED if arm != CROSS]
    return Claim(
        f"Viscosity is most accessible in Matched Cross's codes, {CODES[code]}",
        HOSTED,
        lambda a: number_of(a[CROSS], f"probe.{code}") - max(number_of(a[arm], f"probe.{code}") for arm in others),
        "difference of R² to the best of the other arms",
        above=0.0,
        paper=paper,
        null=0.0,
    )


def _unchanged(arm: str) -> Claim:
    return Claim(
        f"{LABELS[arm]}: the decoder stays as it is",
        (arm,),
        lambda a: number_of(a[arm], "decoder_change"),
        "largest absolute change of a weight",
        below=1e-12,
        paper="0",
        null="holds too",
        exact=True,
    )


ADAPTED_CLAIMS = (
    *(_lower("code50", split, CODA, GEPS, "") for split in SPLITS),
    *(_lower("code50", split, CODA, than, "") for than in OPERATORS for split in SPLITS),
    _lower("code50", "id_test", GEPS, NOD, ""),
    *(_lower("code50", split, NOD, GEPS, "") for split in ("viscous_ood", "inviscid_ood")),
)
HOST_CLAIMS = (
    *(_lower("code0", split, CROSS, than) for split in SPLITS for than in (PLAIN, DUPLICATE, RANDOM)),
    *(_lower("code50", split, CROSS, DUPLICATE) for split in SPLITS),
    _lower("code50", "viscous_ood", CROSS, PLAIN),
    *(_lower("code50", split, PLAIN, CROSS) for split in ("id_test", "inviscid_ood")),
    *(_lower("code50", split, RANDOM, CROSS) for split in SPLITS),
    *map(_rises, HOSTED),
    _most_accessible("code0", 0.0225),
    _most_accessible("code50", 0.0132),
    *map(_unchanged, HOSTED),
)


def _errors(own: Sequence[Row], kind: str) -> list[str]:
    return [thousandths(spread_of(own, f"native.{split}.{kind}")) for split in SPLITS]


def _beside(own: Sequence[Row], kinds: dict[str, str]) -> list[list[str]]:
    return [["No learner" if k in ("still", "mean") else "", what, *_errors(own, k)] for k, what in kinds.items()]


ADAPTED = {"code50": "50", "zero": "0"}
ENCODED = {"own": "0", "constant": "0, the mean training code"}
NOTHING = {"still": "the first frame stays", "mean": "the mean training trajectory"}
ERROR_NOTE = (
    "Mean squared error of whole trajectories, × 10⁻³, mean ± SD over sources: unweighted mean of batches of eight, "
    "the first frame included. Case i is predicted from its first frame and a code of case i + 1 of its system."
)


def _adapted_tables(rows: Sequence[Row]) -> list[Table]:
    lines: list[list[str]] = []
    arms = arms_of(rows)
    for own in arms.values():
        kinds = ENCODED if own[0]["arm"] in OPERATORS else ADAPTED
        lines += [[str(own[0]["label"]), what, *_errors(own, kind)] for kind, what in kinds.items()]
    costs = [
        [str(own[0]["label"]), str(own[0]["parameters"]), _fit_seconds(spread_of(own, "train_seconds")),
         *("–" if own[0]["arm"] in OPERATORS else spread(spread_of(own, path))
           for path in ("seconds.adapt", "seconds.forecast"))]
        for own in arms.values()
    ]  # fmt: skip
    return [
        Table(
            "Prediction with test-time adaptation",
            ["Method", "Code steps", *SPLITS.values()],
            lines + _beside(next(iter(arms.values())), NOTHING),
            f"{ERROR_NOTE} Without steps the code is zero (CoDA) or the training codes' mean (GEPS); NOD and SPRII "
            "encode that case and take none. All are trained and tested on the same fields.",
        ),
        Table(
            "Cost, seconds",
            ["Method", "Parameters", "Fitting", "Adaptation a query", "Forecast a query"],
            costs,
            "Measured on one thread of a machine that may have had other work; fits to a tenth of a second.",
        ),
    ]


def _host_tables(rows: Sequence[Row]) -> list[Table]:
    arms = arms_of(rows)
    results = [
        [SPLITS[split], str(own[0]["label"]), *(
            thousandths(spread_of(own, f"native.{split}.{code}")) for code in CODES
        )]
        for split in SPLITS for own in arms.values()
    ]  # fmt: skip
    other = {"untrained": "the encoder's first weights", "wrong": "another system's history", "zero": "a code of zero"}
    beside: list[list[str]] = []
    for own in arms.values():
        beside.append([str(own[0]["label"]), "its own system's history", *_errors(own, "code0")])
        beside += _beside(own, other)
    beside += _beside(next(iter(arms.values())), NOTHING)
    return [
        _design(arms),
        Table("Amortised prediction with a frozen decoder", ["Distribution", "Arm", "Code-0", "Code-50"], results,
              f"{ERROR_NOTE} Code-0 is the encoder's, code-50 has gone fifty steps on the support from there."),
        Table("Code-0 and what stands beside it", ["Arm", "Code of", *SPLITS.values()], beside,
              "Where another system's history or no code predicts as well, the prediction does not rest on the code."),
        *(table for code in CODES if (table := _contrasts(arms, code)) is not None),
        _probes(arms),
        _costs(arms),
    ]  # fmt: skip


def _design(arms: dict[str, list[Row]]) -> Table:
    added = {
        PLAIN: ("self prediction and the codes' penalty", "baseline of a history encoder"),
        CROSS: ("a second prediction with the related donor's code", "relation-supervised arm"),
        RANDOM: ("the same with a donor of another system", "every history serves as often"),
        DUPLICATE: ("a second self prediction", "as many passes, as much reconstruction"),
    }
    lines = [
        [str(own[0]["label"]), *added[arm], ", ".join(str(value_of(row, "stages.histories"))[:8] for row in own)]
        for arm, own in arms.items()
    ]
    return Table(
        "Objectives on the frozen decoder",
        ["Arm", "Objective", "Role", "Sampled histories"],
        lines,
        "Digests of the episodes of every update, by source: equal in all arms. So are first weights and decoder.",
    )


def _contrasts(arms: dict[str, list[Row]], code: str) -> Table | None:
    lines = []
    for split in SPLITS:
        for than in (PLAIN, RANDOM, DUPLICATE):
            others = {row["seed"]: row for row in arms.get(than, [])}
            both = [(row, others[row["seed"]]) for row in arms.get(CROSS, []) if row["seed"] in others]
            if len(both) < 2:
                continue
            own, control = ([1e3 * value_of(pair[i], f"native.{split}.{code}") for pair in both] for i in (0, 1))
            change = [b - a for a, b in zip(own, control, strict=True)]
            found = interval(paired_source_interval(control, own))
            lines.append(
                [SPLITS[split], LABELS[than], ", ".join(map(number, change)), found, str(sum(c > 0 for c in change))]
            )
    if not lines:
        return None
    return Table(
        f"Paired contrasts at {CODES[code]}, × 10⁻³",
        ["Distribution", "Comparator", "By source", "Mean [95 % t interval]", "n₊"],
        lines,
        "Comparator − Matched Cross: positive favours Matched Cross; n₊ counts such sources. All nine of the paper's "
        "intervals include 0: it resolves none of these.",
    )


def _probes(arms: dict[str, list[Row]]) -> Table:
    lines = [
        [str(own[0]["label"]), *(spread(spread_of(own, f"probe.{code}")) for code in CODES),
         f"{max(float(value_of(row, 'decoder_change')) for row in own):g}"]
        for own in arms.values()
    ]  # fmt: skip
    first = next(iter(arms.values()))
    for what, name in (("Labels shuffled", "shuffled"), ("Viscosity itself", "oracle")):
        lines.append([what, spread(spread_of(first, f"probe.{name}")), "–", "–"])
    return Table(
        "Viscosity in the codes, R² on ID histories, and the decoder",
        ["Arm", "Code-0", "Code-50", "Largest change of the decoder"],
        lines,
        "Ridge on raw viscosity, fitted on training histories, its penalty chosen in five folds that no case is split "
        "by.",
    )


def _fit_seconds(value: Spread | None) -> str:
    """Of a fit: runs keep them to a tenth, so less is not known."""
    if value is None or value.mean >= 10:
        return spread(value)
    if value.mean < 0.1:
        return "< 0.1"
    return f"{value.mean:.1f}" + (f" ± {value.sd:.1f}" if value.sd == value.sd else "")


def _costs(arms: dict[str, list[Row]]) -> Table:
    rows = {
        "Trainable parameters of the encoder": lambda own: str(own[0]["encoder_parameters"]),
        "Encoder fitting": lambda own: _fit_seconds(spread_of(own, "stages.encoder_seconds")),
        "Code-0: encoder": lambda own: spread(spread_of(own, "seconds.encode")),
        "Forecast": lambda own: spread(spread_of(own, "seconds.forecast")),
        "Code-50: adaptation": lambda own: spread(spread_of(own, "seconds.adapt")),
        "Shared: decoder fitting": lambda own: _fit_seconds(spread_of(own, "stages.decoder_seconds")),
        "Shared: teacher codes": lambda own: _fit_seconds(spread_of(own, "stages.teacher_seconds")),
        "Shared: fit to them": lambda own: _fit_seconds(spread_of(own, "stages.teacher_fit_seconds")),
    }
    return Table(
        "Cost, seconds: a fit, or a query",
        ["Quantity", *(str(own[0]["label"]) for own in arms.values())],
        [[name, *(cell(own) for own in arms.values())] for name, cell in rows.items()],
        "Measured on one thread of a machine that may have had other work; fits to a tenth. Queries are encoded, "
        "adapted and predicted many at a time; seconds are divided by their number. What is shared is trained once a "
        "source.",
    )


BURGERS_ADAPTIVE_TARGETS = (
    Target(
        "tab:burgers-adaptation-cost",
        "Burgers: prediction with a code adapted at test time",
        (Group("burgers-adaptive", (GEPS, CODA), (MEASURE,)), Group("burgers", OPERATORS, (burgers.MEASURE,))),
        _adapted_tables,
        ADAPTED_CLAIMS,
        note=NOTE,
    ),
    Target(
        "tab:coda-host-results",
        "Burgers: a history encoder before a frozen CoDA decoder, four objectives",
        (Group("burgers-adaptive", HOSTED, (MEASURE,)),),
        _host_tables,
        HOST_CLAIMS,
        note=f"{NOTE} All nine of the paper's paired contrasts include 0, at code-0 and at code-50.",
    ),
)
