"""What a field or an argument may be, and the sentence that refuses the rest."""

import json
from argparse import ArgumentParser
from dataclasses import dataclass

import numpy as np
import pytest

from sprii_envs.arguments import check, check_seed, choice, flag, instance, integer, integers, number, numbers, option


@dataclass(frozen=True)
class Toy:
    steps: object = 1
    rate: object = 0.5
    widths: object = (1, 2)
    note: object = None

    def __post_init__(self) -> None:
        check(self, integer, "steps", least=1)
        check(self, number, "rate", above=0)
        check(self, integers, "widths", least=1)
        check(self, number, "note", optional=True)


NO_NUMBERS = [True, np.True_, "1", b"1", None, float("nan"), float("inf"), 10**40, 10**5000, 1j, [1], {}, object()]
NO_NUMBERS += [
    np.array(1),
    np.array([1]),
    np.datetime64("2020-01-01"),
    np.timedelta64(1, "s"),
    np.complex64(1),
    np.ma.masked,
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("field", ["steps", "rate"])
def test_coercion_what_is_no_number_is_refused(field: str, value: object):
    with pytest.raises(ValueError, match=rf"^Toy\.{field} is .{{1,80}}; legal: (an integer >= 1|a finite number > 0)"):
        Toy(**{field: value})


def test_coercion_numbers_of_numpy_become_pythons():
    ours = Toy(np.int64(3), np.float32(0.25), [np.uint8(4), 5], np.int8(-1))
    assert ours == Toy(3, 0.25, (4, 5), -1)
    assert json.dumps(vars(ours)) == json.dumps({"steps": 3, "rate": 0.25, "widths": [4, 5], "note": -1})
    assert isinstance(ours.widths, tuple)
    assert type(Toy(rate=2).rate) is int  # left as it is: what was written before reads the same


@pytest.mark.parametrize("value", [3.0, np.float64(3.0), -1, 0, 2**31])
def test_integers_are_whole_numbers_within_bounds(value: object):
    with pytest.raises(ValueError, match="legal: an integer >= 1, at most 2147483647"):
        integer("steps", value, least=1)


def test_bounds_are_said_as_they_are():
    for legal, text in (
        ({"least": 0}, "a finite number >= 0"),
        ({}, "a finite number"),
        ({"least": 0, "below": 1}, r"a number in \[0, 1\)"),
        ({"above": 0, "most": 1}, r"a number in \(0, 1\]"),
    ):
        with pytest.raises(ValueError, match=f"^rate is nan; legal: {text}$"):
            number("rate", float("nan"), **legal)
    assert (number("x", 0, least=0), number("x", 1, above=0, most=1)) == (0, 1)
    for edge in ({"above": 0}, {"below": 0}):
        with pytest.raises(ValueError, match=r"^x is 0; legal"):
            number("x", 0, **edge)


def test_sequences_name_the_entry():
    with pytest.raises(ValueError, match=r"^widths\[1\] is 0; legal: an integer >= 1"):
        integers("widths", (1, 0), least=1)
    for value in ("12", 5, {1: 2}, np.ones(2, int)):
        with pytest.raises(ValueError, match="legal: a tuple of integers"):
            integers("widths", value)
    with pytest.raises(ValueError, match=r"^shares is \(\); legal: a tuple of numbers, at least one"):
        numbers("shares", (), some=True)


def test_words_flags_and_types():
    assert (choice("mode", np.str_("a"), legal=("a", "b")), flag("on", np.False_)) == ("a", False)
    for value in ("c", 1, ["a"], np.ones(3)):
        with pytest.raises(ValueError, match=r"^mode is .*; legal: a, b$"):
            choice("mode", value, legal=("a", "b"))
    for value in (0, 1, "yes", None):
        with pytest.raises(ValueError, match=r"; legal: True, False$"):
            flag("on", value)
    with pytest.raises(ValueError, match=r"^game is 3; legal: str or dict$"):
        instance("game", 3, of=(str, dict))


def test_a_long_value_is_cut():
    with pytest.raises(ValueError, match="…; legal") as caught:
        number("x", np.arange(10_000).reshape(100, 100))
    assert len(str(caught.value)) < 150
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["4294967296", "0", "-1", "1.5", "abc", ""])
def test_options_of_scripts_have_a_range(text: str, capsys: pytest.CaptureFixture[str]):
    parser = ArgumentParser()
    parser.add_argument("--steps", type=option())
    with pytest.raises(SystemExit):
        parser.parse_args(["--steps", text])
    assert "error: argument --steps: " in capsys.readouterr().err
    assert parser.parse_args(["--steps", "7"]).steps == 7


def test_seeds_of_environments_have_at_most_128_bits():
    assert check_seed(None) is None
    assert (check_seed(np.int64(3)), check_seed(2**128 - 1)) == (3, 2**128 - 1)
    for seed in (1.5, "12", True, np.array([1]), np.timedelta64(1), -1, 2**128):
        with pytest.raises(ValueError, match=r"^seed\[2\] is .*; legal: an integer >= 0, at most 3402"):
            check_seed(seed, "seed[2]")
