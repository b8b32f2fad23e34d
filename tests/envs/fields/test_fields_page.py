"""docs/envs/fields.md: its blocks run, its tables name what the protocols hold, and its pictures are there."""

import re
from pathlib import Path

import numpy as np

from sprii_envs.fields import BurgersProtocol, FHNProtocol, fhn

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
    assert (names["u"].shape, names["drawn"].shape, names["kept"].shape) == ((1, 11, 400), (2, 400), (2, 11, 101))
    assert (names["start"].shape, names["w"].shape) == ((2, 2, 32, 32), (2, 11, 2, 32, 32))
    wave = np.zeros((8, 8))
    wave[0, 0] = 12.0 / 8**2  # the stencil that the page tells of, read off a point
    row = fhn.laplacian(wave)[0]
    np.testing.assert_allclose(row, [-60, 16, -1, 0, 0, 0, -1, 16], atol=1e-12)  # -30 of each axis
    assert "(−1, 16, −30, 16, −1)/12" in PAGE


def test_the_tables_are_those_of_the_protocols():
    burgers, square = BurgersProtocol(), FHNProtocol()
    for values in (burgers.viscosities, burgers.outer):
        told = ", ".join(f"{value:.0e}".replace("e-0", "e-") for value in values)
        assert f"ν = {told}" in PAGE
    assert f"{burgers.cells:,} cells" in PAGE
    assert f"({burgers.points},) float32" in PAGE
    assert f"{square.shape} float32" in PAGE
    assert f"{square.train_cases[0]}–{square.train_cases[-1]}; 5; {', '.join(map(str, square.test_cases))} |" in PAGE
    for picture in re.findall(r"\]\((\.\./\S+\.gif)\)", PAGE):
        assert (ROOT / "docs" / "envs" / picture).stat().st_size < 1_500_000
