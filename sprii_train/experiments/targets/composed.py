"""Figures and tables of the paper that are made of parts: each collects what other targets compute."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Composed:
    """A label whose panels are targets of their own.

    Attributes:
        label, title: as of a target.
        parts: labels of targets, in the order of the panels.
        lacking: what else the paper's has, each with the reason that it is not here.
        aliases: further labels of the same.
    """

    label: str
    title: str
    parts: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The label as a folder's name."""
        return self.label.replace(":", "-")


COMPOSED: dict[str, Composed] = {
    one.label: one
    for one in (
        Composed(
            "fig:relation-mechanism",
            "PokeWorld: reliability and shared factors of relations",
            ("tab:fidelity-full", "tab:refinement-full", "tab:v3-poke-accessibility"),
        ),
        Composed(
            "app:dclean-acquisition",
            "Acquisition: PokeWorld's original bank, and D-Clean's one-shot sealed systems",
            ("app:poke-acquisition", "tab:dclean-full"),
            aliases=("app:acquisition", "app:dclean"),
        ),
        Composed(
            "fig:information-use",
            "When context is worth something: horizon, route and readout",
            (
                "tab:v3-horizon",
                "tab:realization-replacements",
                "tab:reader-capacity-errors",
                "tab:v3-bottleneck-endpoints",
                "tab:spring-same-donor",
            ),
        ),
        Composed(
            "tab:main-task",
            "Predictive performance: SpringWorld and CoPhy",
            ("tab:v3-spring-sealed", "tab:v3-collision", "tab:balls-heldout"),
            (),
            ("tab:application-overview",),
        ),
        Composed(
            "tab:extended-validation",
            "Predictive comparisons: Burgers and D-Clean",
            ("tab:v3-nod-native", "tab:burgers-adaptation-cost", "tab:dclean-all-budgets"),
        ),
        Composed(
            "fig:predictive-gains",
            "Task and property gains at a glance",
            ("tab:v3-spring-components", "tab:frozen-head", "tab:dclean-full", "tab:overcooked-complete"),
            ("gains of CoPhy, Burgers, FitzHugh–Nagumo, Baxter and RH20T, which labels of their own have",),
            ("fig:paired-gain-sources",),
        ),
    )
}
