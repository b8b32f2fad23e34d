"""What Minari's own collector needs where its heavy optional dependency is not installed."""

import importlib.util
import sys
import types


def tree_map(function, tree, *rest):
    """`jax.tree_util.tree_map` for what the collector maps over: dictionaries of leaves."""
    if isinstance(tree, dict):
        return {key: tree_map(function, part, *(other[key] for other in rest)) for key, part in tree.items()}
    return function(tree, *rest)


def let_collect(monkeypatch):
    """DataCollector maps over trees with jax, and imports nothing else of it."""
    if importlib.util.find_spec("jax") is None:
        tree_util = types.SimpleNamespace(tree_map=tree_map)
        monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(tree_util=tree_util))
        monkeypatch.setitem(sys.modules, "jax.tree_util", tree_util)
