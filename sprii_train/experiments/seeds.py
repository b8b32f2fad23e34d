"""Which sources to train, as written on the command line."""

from sprii_envs.arguments import MOST

SOURCES = 10_000
"""Sources of one command."""

Asked = int | tuple[int, ...]
"""How many sources, or which."""


def parse_seeds(text: str) -> Asked:
    """`"3"` is a count, `"0,4,7"` is those, `"5,"` is source 5 alone.

    Raises:
        ValueError: for anything else, a negative seed or one named twice.
    """
    legal = "legal: a count such as 3, or distinct seeds >= 0 such as 0,4,7 (a single one: 5,)"
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ValueError(f"--seeds {text!r} is not a list of integers; {legal}") from None
    if "," not in text:
        if len(numbers) != 1 or numbers[0] < 1:
            raise ValueError(f"--seeds {text!r} trains nothing; {legal}")
        if numbers[0] > SOURCES:
            raise ValueError(f"--seeds {text} is a count of more than {SOURCES:,} sources; {legal}")
        return numbers[0]
    if not numbers or min(numbers) < 0 or max(numbers) > MOST:
        raise ValueError(f"--seeds {text!r} has no seed, or one outside 0 … 2³¹−1; {legal}")
    if repeated := sorted({n for n in numbers if numbers.count(n) > 1}):
        raise ValueError(f"--seeds {text!r} names seed {repeated[0]} twice: it would count as two sources; {legal}")
    return tuple(numbers)


def chosen(asked: Asked, own: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The sources of a list; of a count the first of `own`, and after them the numbers after their largest."""
    if not isinstance(asked, int):
        return asked
    after = max(own, default=-1) + 1
    return (*own, *range(after, after + asked))[:asked]
