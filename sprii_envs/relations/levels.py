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
    off = table[column] == -1
    if off.any():
        raise ValueError(
            f"{int(off.sum())} of {len(table)} episodes are off the levels of {name!r} ({column!r} is -1): episodes "
            f"{few(table['episode'][off])}; select the others, or name the columns in a Relation"
        )
    return column
