"""No module imports itself through others, whether at its top, inside of a function or for types only."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def modules_in_order(imports: dict[str, set[str]]) -> list[str]:
    try:
        return list(TopologicalSorter(imports).static_order())
    except CycleError as error:
        return pytest.fail(f"a cycle of imports: {' -> '.join(reversed(error.args[1]))}")


def test_no_cycle_of_imports():
    graph = grimp.build_graph("sprii_envs", "sprii_train", cache_dir=None)
    imports = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    order = modules_in_order(imports)
    assert {"sprii_envs.relations.table", "sprii_train.experiments.grid"} <= set(order)


def test_a_cycle_is_named():
    with pytest.raises(pytest.fail.Exception, match=r"a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c"):
        modules_in_order({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
