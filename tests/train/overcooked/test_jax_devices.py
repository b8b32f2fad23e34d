"""`--device` of the Overcooked commands: where JAX computes, and one clear error where it cannot."""

import sys
from pathlib import Path

import pytest

from sprii_train.cli import main

jax = pytest.importorskip("jax")
pytest.importorskip("jaxmarl")

from sprii_train.overcooked.devices import on_device  # noqa: E402 (it imports jax)


@pytest.mark.parametrize("name", ["cpu", "cpu:0"])
def test_what_is_made_in_the_block_lies_on_the_device(name: str):
    with on_device(name):
        made = jax.jit(lambda key: jax.random.normal(key, (3,)))(jax.random.PRNGKey(0))
    assert made.devices() == {jax.devices("cpu")[0]}


@pytest.mark.parametrize("command", [("train", "--iterations", "1"), ("measure", "--episodes", "1")])
@pytest.mark.parametrize("device", ["abacus", "cpu:99", "cuda:99", "cpu:x", "cpu:-1", ""])
def test_a_device_that_is_not_there_is_refused(
    command: tuple[str, ...],
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sprii", "overcooked", "partners", *command, "--device", device])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert f"device is {device!r}, which cannot be used here; legal: cpu" in said
    assert not list(tmp_path.iterdir())
