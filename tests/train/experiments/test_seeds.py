import pytest

from sprii_train.experiments.seeds import chosen, parse_seeds


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", 3), ("0,4,7", (0, 4, 7)), ("5,", (5,)), (" 2, 1 ", (2, 1)), ("1", 1)]
)
def test_counts_and_lists(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("asked", "own", "seeds"),
    [
        (3, (), (0, 1, 2)),
        (1, (0, 1, 2), (0,)),
        (4, (0, 1), (0, 1, 2, 3)),
        (2, (4200, 4201, 4202), (4200, 4201)),
        (5, (1234, 5678, 9012), (1234, 5678, 9012, 9013, 9014)),
        ((7, 0), (4200,), (7, 0)),
    ],
)
def test_a_count_is_of_the_sources_that_there_are(asked, own, seeds):
    assert chosen(asked, own) == seeds


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("0,1,1", "names seed 1 twice"),
        ("0", "trains nothing"),
        ("-2", "trains nothing"),
        ("", "trains nothing"),
        ("two", "not a list of integers"),
        (",", "no seed"),
        ("0,-1", "outside"),
        (f"0,{2**31}", "outside"),
    ],
)
def test_refused_with_what_is_legal(text, named):
    with pytest.raises(ValueError, match=named) as error:
        parse_seeds(text)
    assert "legal:" in str(error.value)
