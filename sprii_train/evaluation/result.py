"""What an evaluation found: rows by group and by system with intervals, contrasts over the same episodes, JSON."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sprii_envs.arguments import flag, instance, integer, number, shown
from sprii_envs.files import FileError, read_json, write_json
from sprii_envs.properties import unknown_name
from sprii_envs.world import Array
from sprii_train.analysis.statistics import Interval, check_level, paired_source_interval
from sprii_train.identity import digest
from sprii_train.terminal import console

SCHEMA, VERSION = "sprii evaluation", 2
Row = dict[str, Any]


@dataclass(frozen=True)
class GroupEpisodes:
    """E episodes of one group, those of one system in a row.

    Attributes:
        ids: of the systems, (E,).
        values: of the persistent properties, (E, F) float64.
        each: episodes of a system in a row; E / `each` are independent.
        starts: SHA-256 (hex) of systems and starting states.
        returns: sums of rewards, (E,) float64.
        lengths: transitions, (E,) int64.
        success: (E,) bool, or None where nothing says what success is.
        states, actions: (E, T + 1, S) float64 and (E, T, A) float32, where they were recorded: after an end the last
            state again, and zeros. They are not kept in files.
    """

    ids: NDArray[np.str_]
    values: Array
    each: int
    starts: str
    returns: Array
    lengths: NDArray[np.int64]
    success: NDArray[np.bool_] | None = None
    states: Array | None = None
    actions: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Published:
    """Numbers from elsewhere, printed beside and never compared with.

    Attributes:
        rows: group → "return", and what else there is of "sd" and "success".
        note: where they are from, and what the SD is of.
    """

    rows: Mapping[str, Mapping[str, float]]
    note: str = ""

    def __post_init__(self) -> None:
        """ValueError for other names, a row without "return", or a rate that is none."""
        instance("note", self.note, of=str)
        for group, row in instance("rows", self.rows, of=Mapping).items():
            at = f"rows[{group!r}]"
            for name in instance(at, row, of=Mapping):
                if name not in ("return", "sd", "success"):
                    raise unknown_name(f"number of {at}", name, ("return", "sd", "success"))
            if "return" not in row:
                raise ValueError(f'{at} is {shown(row)}; legal: with "return"')
            number(f"{at}['return']", row["return"])
            number(f"{at}['sd']", row.get("sd", 0.0), least=0)
            number(f"{at}['success']", row.get("success", 0.0), least=0, most=1)

    def by_group(self) -> list[Row]:
        """As of `Evaluation`, for the groups that there are."""
        empty = dict.fromkeys(("success", "sd"))
        return [{"group": group} | empty | dict(row) for group, row in self.rows.items()]


@dataclass(frozen=True)
class Met:
    """What agents have to meet alike for their returns to be compared, episode by episode.

    Attributes:
        env_id, constants, steps, properties: see `Evaluation`.
        starts: group → `GroupEpisodes.starts`.
    """

    env_id: str
    constants: Mapping[str, Any]
    steps: int
    properties: tuple[str, ...]
    starts: Mapping[str, str]

    def check(self, agent: str, other: "Met", who: str) -> None:
        """ValueError unless `who` met the same as `agent`, whose this is."""
        for name in ("env_id", "steps", "properties"):
            here, there = getattr(self, name), getattr(other, name)
            if here != there:
                raise ValueError(f"{who} was evaluated with {name} {there!r}; legal: {here!r}, as {agent}")
        here, there = ({k: v for k, v in each.constants.items() if k != "obs_type"} for each in (self, other))
        if here != there:
            apart = [key for key in {**here, **there} if key not in here or key not in there or here[key] != there[key]]
            told = [", ".join(f"{key}={each.get(key)!r}" for key in apart) for each in (there, here)]
            raise ValueError(f"{who} was evaluated with the constants {told[0]}; legal: {told[1]}, as {agent}")
        if list(self.starts) != list(other.starts):
            raise ValueError(
                f"{who} was evaluated in {', '.join(other.starts)}; legal: {', '.join(self.starts)}, as {agent}"
            )
        for name, starts in self.starts.items():
            if other.starts[name] != starts:
                raise ValueError(
                    f"{who} met other systems or starts in {name} than {agent}; legal: the same seed and numbers of "
                    "episodes and systems"
                )


@dataclass(frozen=True)
class Evaluation:
    """Episodes of one agent.

    Attributes:
        agent: its name.
        env_id, constants: the environment and the constants of its world.
        steps: T, after which an episode is cut.
        seed: of systems and starts.
        told: whether the agent knew the systems.
        properties: names of the persistent properties.
        groups: name → episodes.
        references: name → what is printed beside: evaluations over the same episodes, or published numbers.
        level: of the intervals.
        criterion: what success is: "world", "is_success", or a function's name and the digest of its code.
    """

    agent: str
    env_id: str
    constants: Mapping[str, Any]
    steps: int
    seed: int
    told: bool
    properties: tuple[str, ...]
    groups: Mapping[str, GroupEpisodes]
    references: "Mapping[str, Evaluation | Published]" = field(default_factory=dict)
    level: float = 0.95
    criterion: str | None = None

    def __post_init__(self) -> None:
        """ValueError for a reference that is called as the agent."""
        if self.agent in self.references:
            raise ValueError(f"references names {self.agent!r}, as the agent is called; legal: another name")

    def rows(self) -> list[Row]:
        """`by_group`, then `by_system`."""
        return self.by_group() + self.by_system()

    def by_group(self) -> list[Row]:
        """A row a group: means over its episodes, and intervals over its independent systems.

        `return_low` and `return_high` are Student's t interval of the mean over systems, `success_low` and
        `success_high` Wilson's with as many trials as systems, which is cautious where a system has several episodes.
        None where there is nothing to say: one system, or no success.
        """
        return [
            {"group": name, "system": None, "values": None, "systems": len(set(own.ids.tolist()))}
            | _summary(own.returns, own.success, own.lengths, own.each, self.level)
            for name, own in self.groups.items()
        ]

    def by_system(self) -> list[Row]:
        """A row a system of each group, in order of the values; intervals are over the episodes of that system."""
        rows = []
        for name, own in self.groups.items():
            first = {id: i for i, id in reversed(list(enumerate(own.ids.tolist())))}
            for id, i in sorted(first.items(), key=lambda item: own.values[item[1]].tolist()):
                at = own.ids == id
                success = None if own.success is None else own.success[at]
                values = dict(zip(self.properties, own.values[i].tolist(), strict=True))
                rows.append(
                    {"group": name, "system": id, "values": values, "systems": 1}
                    | _summary(own.returns[at], success, own.lengths[at], 1, self.level)
                )
        return rows

    def contrast(self, other: "Evaluation") -> list[Row]:
        """This minus the other by group, paired over the same systems and starts.

        Returns:
            A row a group: the difference of mean returns with Student's t interval over systems, and `verdict`:
            "higher", "lower", or "not resolved" where the interval holds zero or there is none. `success` is the
            difference of the rates, without an interval; None where the two have other criteria.

        Raises:
            ValueError: unless both are of one environment, its constants and the same systems and starts. What was
                observed (`obs_type`) may differ.
        """
        instance("other", other, of=Evaluation)
        self.check_paired(other)
        rows = []
        for name, own in self.groups.items():
            theirs = other.groups[name]
            found = _interval(own.returns - theirs.returns, own.each, self.level)
            both = own.success is not None and theirs.success is not None and self.criterion == other.criterion
            verdict = "not resolved"
            if found is not None and not found.low <= 0.0 <= found.high:
                verdict = "higher" if found.estimate > 0 else "lower"
            rows.append(
                {"group": name, "episodes": len(own.returns)}
                | {"return": float((own.returns - theirs.returns).mean())}
                | {"return_low": None if found is None else found.low}
                | {"return_high": None if found is None else found.high}
                | {"success": float(own.success.mean() - theirs.success.mean()) if both else None}  # type: ignore[union-attr]
                | {"verdict": verdict}
            )
        return rows

    def check_paired(self, other: "Evaluation") -> None:
        """ValueError unless the other is of the same episodes."""
        self.met.check(self.agent, other.met, other.agent)

    @property
    def met(self) -> Met:
        """What other agents have to have met too."""
        starts = {name: own.starts for name, own in self.groups.items()}
        return Met(self.env_id, self.constants, self.steps, self.properties, starts)

    # The terminal

    def show(self, *, by_system: bool = False) -> None:
        """Print the rows, with the references' beside, as a table."""
        from rich.table import Table

        out = console()
        level = f"{100 * self.level:g} % interval"
        table = Table("group", "agent", "episodes", "return", level, "success", level, box=None, pad_edge=False)
        beside = {name: {row["group"]: row for row in each.by_group()} for name, each in self.references.items()}
        mine = {row["group"]: row for row in self.by_group()}
        lines = [(self.agent + _star(self), mine)]
        lines += [(name + _star(self.references[name]), rows) for name, rows in beside.items()]
        for group in self.groups:
            for i, (name, rows) in enumerate(lines):
                if group in rows:
                    table.add_row(group if i == 0 else "", name, *_cells(rows[group]))
        out.print(table)
        every = [self, *self.references.values()]
        if any(_star(each) for each in every):
            out.print("* is told the systems")
        for group, own in self.groups.items():
            if (found := mine[group]["systems"]) < (draws := len(own.ids) // own.each):
                out.print(f"{group}: {found} different systems in {draws} draws")
        for name, each in self.references.items():
            if isinstance(each, Evaluation) and None is not each.criterion != self.criterion is not None:
                out.print(
                    f"success of {name} is by {each.criterion}, of {self.agent} by {self.criterion}: not comparable"
                )
        for note in dict.fromkeys(each.note for each in every if isinstance(each, Published) and each.note):
            out.print(note)
        if by_system:
            table = Table("group", *self.properties, *("episodes", "return", level, "success", level),
                          box=None, pad_edge=False)  # fmt: skip
            for row in self.by_system():
                table.add_row(row["group"], *(f"{v:g}" for v in row["values"].values()), *_cells(row))
            out.print()
            out.print(table)

    # Files

    def to_json(self, path: str | Path) -> None:
        """Write episodes, rows and references, whole or not at all; OSError if that cannot be."""
        described = json.loads(json.dumps(self._described()))
        write_json(path, {"schema": SCHEMA, "version": VERSION, "sha256": _checksum(described)} | described)

    def _described(self) -> dict[str, Any]:
        plain = ("agent", "env_id", "constants", "steps", "seed", "told", "level", "criterion")
        return {name: getattr(self, name) for name in plain} | {
            "properties": list(self.properties),
            "groups": {name: _written(own) for name, own in self.groups.items()},
            "rows": self.rows(),
            "references": {
                name: {"rows": each.rows, "note": each.note} if isinstance(each, Published) else each._described()
                for name, each in self.references.items()
            },
        }

    @classmethod
    def from_json(cls, path: str | Path) -> "Evaluation":
        """Read what `to_json` wrote; checksum, rows, ranges, and the references' starts are checked.

        Raises:
            FileError: naming the file, for what is no evaluation, one of another version, or one that was edited.
        """
        found = read_json(path)
        if found.get("schema") != SCHEMA or found.get("version") != VERSION:
            raise FileError(
                f"{path} has schema {found.get('schema')!r}, version {found.get('version')!r}; legal: {SCHEMA!r}, "
                f"{VERSION}"
            )
        described = {name: value for name, value in found.items() if name not in ("schema", "version", "sha256")}
        try:
            made = cls._read(described)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(f"{path} is damaged: {type(error).__name__}: {error}") from error
        if found.get("sha256") != _checksum(described):
            raise FileError(f"{path} is damaged: its checksum is another; evaluate anew")
        return made

    @classmethod
    def _read(cls, found: Mapping[str, Any]) -> "Evaluation":
        level, properties = found["level"], tuple(instance("properties", found["properties"], of=list))
        check_level(level)
        steps = integer("steps", found["steps"], least=1)
        made = cls(
            agent=instance("agent", found["agent"], of=str),
            env_id=instance("env_id", found["env_id"], of=str),
            constants=instance("constants", found["constants"], of=dict),
            steps=steps,
            seed=integer("seed", found["seed"]),
            told=flag("told", found["told"]),
            properties=properties,
            groups={name: _episodes(name, each, len(properties), steps) for name, each in found["groups"].items()},
            references={
                name: cls._read(each) if "groups" in each else Published(each["rows"], each["note"])
                for name, each in found["references"].items()
            },
            level=level,
            criterion=instance("criterion", found["criterion"], of=(str, type(None))),
        )
        for each in made.references.values():
            if isinstance(each, Evaluation):
                made.check_paired(each)
        if not _close(made.rows(), found["rows"]):
            raise ValueError("its rows are not those of its episodes")
        return made


def _checksum(described: Mapping[str, Any]) -> str:
    return digest(json.dumps(described, sort_keys=True))


def _close(one: Any, two: Any) -> bool:
    """Whether two values of JSON are alike, numbers but for rounding."""
    if isinstance(one, float) and isinstance(two, float | int):
        return math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_close(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_close, one, two))
    return one == two


def _written(own: GroupEpisodes) -> dict[str, Any]:
    return {
        "starts": own.starts,
        "each": own.each,
        "systems": own.ids.tolist(),
        "values": own.values.tolist(),
        "returns": own.returns.tolist(),
        "lengths": own.lengths.tolist(),
        "success": None if own.success is None else own.success.tolist(),
    }


def _episodes(name: str, found: Mapping[str, Any], properties: int, steps: int) -> GroupEpisodes:
    for i, length in enumerate(found["lengths"]):
        integer(f"lengths[{i}] of {name}", length, least=1, most=steps)
    for i, each in enumerate(found["success"] or ()):
        flag(f"success[{i}] of {name}", each)
    if not re.fullmatch(r"[0-9a-f]{64}", found["starts"]):
        raise ValueError(f"starts of {name} is {shown(found['starts'])}; legal: SHA-256, 64 hex digits")
    returns = np.array(found["returns"], np.float64)
    success = None if found["success"] is None else np.array(found["success"], np.bool_)
    made = GroupEpisodes(
        ids=np.array(found["systems"], np.str_),
        values=np.array(found["values"], np.float64).reshape(-1, properties),
        each=integer(f"each of {name}", found["each"], least=1),
        starts=instance("starts", found["starts"], of=str),
        returns=returns,
        lengths=np.array(found["lengths"], np.int64),
        success=success,
    )
    columns = (made.ids, made.values, made.lengths, *(() if success is None else (success,)))
    if not len(returns) or len(returns) % made.each or {len(c) for c in columns} != {len(returns)}:
        raise ValueError(f"the columns of {name} differ in length")
    if not (np.isfinite(returns).all() and np.isfinite(made.values).all()):
        raise ValueError(f"returns or values of {name} are not finite")
    first = np.arange(len(returns)) // made.each * made.each
    if (made.ids != made.ids[first]).any() or (made.values != made.values[first]).any():
        raise ValueError(f"systems of {name} do not have {made.each} episodes in a row each")
    return made


def _summary(
    returns: Array, success: NDArray[np.bool_] | None, lengths: NDArray[np.int64], each: int, level: float
) -> Row:
    found = _interval(returns, each, level)
    rate = None if success is None else float(success.mean())
    low, high = (None, None) if rate is None else wilson(rate, len(returns) // each, level)
    return {
        "episodes": len(returns),
        "steps": float(lengths.mean()),
        "return": float(returns.mean()),
        "return_low": None if found is None else found.low,
        "return_high": None if found is None else found.high,
        "success": rate,
        "success_low": low,
        "success_high": high,
    }


def _interval(values: Array, each: int, level: float) -> Interval | None:
    """Student's t interval of the mean over systems, each of `each` values in a row; None for one system."""
    means = values.reshape(-1, each).mean(1)
    if len(means) < 2:
        return None
    return paired_source_interval(means, np.zeros_like(means), level=level)._replace(unit="system")


def wilson(rate: float, trials: int, level: float) -> tuple[float, float]:
    """Wilson's score interval of a rate.

    With the mean of `trials` numbers in [0, 1] for the rate it is cautious: none of them varies as much as a coin.
    """
    z = float(stats.norm.ppf((1 + level) / 2))
    spread = z * math.sqrt(rate * (1 - rate) / trials + (z / (2 * trials)) ** 2)
    middle, scale = rate + z * z / (2 * trials), 1 + z * z / trials
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def _star(each: Evaluation | Published) -> str:
    return "*" if isinstance(each, Evaluation) and each.told else ""


def _cells(row: Mapping[str, Any]) -> Sequence[str]:
    """Episodes, return and success as text, with what there is of intervals or of an SD."""

    def between(name: str, form: str, by: float = 1.0) -> str:
        low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
        return "" if low is None or high is None else f"[{by * low:{form}}, {by * high:{form}}]"

    spread = between("return", ".1f") if row.get("sd") is None else f"SD {row['sd']:.1f}"
    rate = "" if row["success"] is None else f"{100 * row['success']:.1f} %"
    return str(row.get("episodes", "")), f"{row['return']:.1f}", spread, rate, between("success", ".0f", 100.0)
