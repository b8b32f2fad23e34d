"""docs/envs/fields.md: its blocks run, its tables name what the protocols hold, and its pictures are there."""

import re
from pathlib import Path

from sprii_envs.fields import BurgersProtocol, FHNProtocol

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "envs" / "fields.md").read_text(encoding="utf-8")


def test_the_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "fields.md", "exec"), names)
    assert names["windows"].shape == names["recipients"].shape == names["donors"].shape == (8, 24, 21)
    system = names["train"]["system"]
    assert (system[names["pairs"].recipient] == system[names["pairs"].donor]).all()
    assert (names["pairs"].recipient != names["pairs"].donor).all()
    assert str(names["bank"].splits) in PAGE


def test_the_tables_are_those_of_the_protocols():
    burgers, fhn = BurgersProtocol(), FHNProtocol()
    for values in (burgers.viscosities, burgers.outer):
        told = ", ".join(f"{value:.0e}".replace("e-0", "e-") for value in values)
        assert f"ν = {told}" in PAGE
    assert f"{burgers.cells:,} cells" in PAGE
    assert f"({burgers.points},) float32" in PAGE
    assert f"{fhn.shape} float32" in PAGE
    assert f"{fhn.train_cases[0]}–{fhn.train_cases[-1]}; 5; {', '.join(map(str, fhn.test_cases))} |" in PAGE
    for picture in re.findall(r"\]\((\.\./\S+\.gif)\)", PAGE):
        assert (ROOT / "docs" / "envs" / picture).stat().st_size < 1_500_000
