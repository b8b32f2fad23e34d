"""`sprii benchmark`: speed, beside the peers'."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from sprii_envs.arguments import integer, number
from sprii_train.cli.options import check_file


@dataclass
class Benchmark:
    """Measure speed, ours beside the peers', in one run."""

    what: Positional[Literal["envs"]]
    """envs: environment steps and frames per second, beside Gymnasium and whichever peers are installed."""
    seconds: float = 0.5
    """Length of one timing."""
    repeats: int = 5
    """Timings a row."""
    n: int | None = None
    """Only rows of this many environments; 1: one at a time, by CPU time."""
    json: Path | None = None
    """Also write the numbers to this file."""

    def run(self) -> None:
        """Measure and print."""
        from sprii_envs.files import write_json
        from sprii_train.benchmarks.envs import COUNTS, benchmark, report

        number("--seconds", self.seconds, above=0, most=3600)
        integer("--repeats", self.repeats, least=1, most=1_000)
        check_file("--json", self.json)
        if self.n is not None and self.n not in COUNTS:
            raise ValueError(f"--n is {self.n}; legal: {', '.join(map(str, COUNTS))}")
        result = benchmark(self.seconds, self.repeats, self.n)
        print(report(result))
        if self.json is not None:
            write_json(self.json, result)
