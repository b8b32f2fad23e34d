"""Further labels: of the paper, to a table or to a figure which its report draws; of a setting whose report it is."""

OTHER_LABELS: dict[str, str] = {
    alias: label
    for label, others in {
        "tab:dclean-full": ("dclean",),
        "fig:v3-poke-formation-use": (
            "fig:poke-common-use-full",
            "fig:relation-confirmation",
            "fig:factorial-confirmation",
        ),
        "tab:v3-poke-input-diversity": ("app:matched-control",),
        "app:records-poke-followup": ("app:records-followup",),
        "tab:v3-spring-sealed": ("tab:spring-sealed-primary", "tab:spring-sealed-populations"),
        "tab:v3-spring-components": ("tab:spring-cold-replication", "tab:spring-source-geometry"),
        "tab:spring-complete": ("tab:spring-probe",),
        "tab:spring-functional-landscape": (
            "tab:spring-factorial-pooled",
            "fig:functional-landscape",
            "fig:v3-spring-use",
            "fig:spring-functional-cases",
        ),
        "tab:v3-bottleneck-endpoints": (
            "tab:ctp-horizon",
            "tab:dclean-same-donor",
            "tab:dclean-fixed-wrong",
            "tab:dclean-gamma-validation",
            "fig:v3-dclean-readers",
        ),
        "tab:spring-same-donor": ("tab:spring-frozen-probes",),
        "tab:frozen-head": ("tab:frozen-head-components", "fig:v3-poke-components"),
        "tab:realization-complete-grid": ("tab:realization-routes", "fig:v3-m1m2"),
        "tab:reader-capacity-errors": ("fig:reader-capacity-contrasts",),
        "tab:external-alpha": ("tab:external-alpha-records",),
        "tab:overcooked-complete": ("tab:v3-overcooked", "setting:overcooked"),
        "tab:v3-nod-native": ("tab:nod-protocol-record", "tab:external-burgers-control", "setting:burgers"),
        "tab:nod-mechanism": ("tab:nod-donor-use", "tab:nod-donor-controls", "tab:external-burgers-probes"),
        "tab:fhn-breadth": ("fig:visual-fhn-history", "setting:fhn"),
        "tab:coda-host-results": (
            "tab:coda-host-design",
            "tab:coda-host-contrasts-0",
            "tab:coda-host-contrasts-50",
            "tab:coda-host-probes",
            "tab:coda-host-cost",
            "setting:burgers-adaptive",
        ),
        "tab:v3-collision": (
            "tab:cophy-collision-test-grid",
            "tab:cophy-collision-test-contrasts",
            "tab:jepa-collision-followup",
            "fig:visual-collision-pairs",
        ),
        "tab:cophy-complete": ("fig:v3-cophy-breadth", "fig:cophy-interface"),
        "tab:ctp-replication-complete": ("tab:rssm-collision-replication",),
        "tab:cophy-new5-summary": ("tab:cophy-three-seed-contrasts",),
        "tab:cophy-new5-probes": ("tab:cophy-physical-assays", "tab:balls-existing-factor-pairs"),
        "tab:v3-cophy-reader": ("tab:cophy-reader",),
        "tab:v3-swimmer": ("tab:ctp-fixed-weight", "setting:swimmer"),
        "fig:baxter-selectivity": ("fig:v3-baxter", "fig:baxter-interface", "app:baxter", "setting:baxter"),
        "tab:rh20t-complete-self": (
            "tab:rh20t-complete-correct",
            "fig:v3-rh20t",
            "fig:rh20t-interface",
            "fig:app-rh20t-observation",
            "fig:rh20t-utility-specificity",
            "app:rh20t",
            "setting:rh20t",
        ),
        "tab:v3-rh-risk": ("tab:rh20t-hard-negative", "tab:rh20t-absolute-hard", "tab:rh20t-absolute-contrast"),
        "tab:v3-rh-validation": ("tab:rh-closure-25", "tab:rh-multidonor-closure"),
    }.items()
    for alias in others
}
"""Label → the label of the target that carries it."""
