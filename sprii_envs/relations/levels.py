"""Which column tells the level of a property."""

from sprii_envs.relations.table import EpisodeTable, few


def level_column(name: str, table: EpisodeTable) -> str:
    """The column of a property's level, or else of its value; ValueError for neither or for levels of −1."""
    column = f"{name}_level"
    if column not in table:
        if name not in table:
            raise ValueError(
                f"the episode table has neither {column!r} nor {name!r}; columns: {few(table.columns, 99)}"
            )
        return name
    check_levels(column, table)
    return column


def check_levels(column: str, table: EpisodeTable) -> None:
    """ValueError if a column of levels, NAME_level, is −1 for some episodes: off the levels, and not alike."""
    off = table[column] == -1
    if column.endswith("_level") and off.any():
        raise ValueError(
            f"{int(off.sum())} of {len(table)} episodes are off the levels of {column.removesuffix('_level')!r} "
            f"({column!r} is -1): episodes {few(table['episode'][off])}; select the others, or name the columns in a "
            "Relation"
        )
