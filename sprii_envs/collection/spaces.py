"""Observations and actions as arrays of their space."""

import math
import reprlib
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from sprii_envs.checks import reals


def in_space(value: Any, space: gym.Space[Any], name: str, batch: int | None = None) -> NDArray[Any]:
    """A value, or `batch` of them, in the shape and type of its space; floats are rounded to the space's.

    ValueError naming it for another shape, for what is not numeric, and for fractions where the space has integers.
    """
    shape = (*(() if batch is None else (batch,)), *(space.shape or ()))
    dtype = np.dtype(space.dtype)
    try:
        with np.errstate(over="ignore"):
            array = reals(value, dtype) if dtype.kind == "f" else np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor that requires gradients
        array = None
    if array is None or array.shape != shape or array.dtype.kind not in "biuf" or isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"{name} must be numbers of shape {shape}, as their space {space} says, got {_few(value)}")
    if array.dtype == dtype:
        return array
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(dtype)
    if (cast != array).any():
        raise ValueError(f"{name} must be integers, as their space {space} says, got {_few(value)}")
    return cast


def legal_action(
    action: Any, space: gym.Space[Any], batch: int | None = None, whose: str = "the policy's action"
) -> Any:
    """What a policy did in the type of its space, one or `batch` of them; ValueError where that does not hold it."""
    actions = in_space(action, space, "actions", batch)
    if isinstance(space, gym.spaces.Box):
        legal = bool(((actions >= space.low) & (actions <= space.high)).all())
    else:
        legal = all(space.contains(one) for one in (actions[None] if batch is None else actions))
    if not legal:
        raise ValueError(f"{whose} {_few(action)} is not in {space}: clip it to the space's bounds")
    return actions[()]  # one of Discrete as a scalar: an array cannot be the key of a table


def _few(value: Any) -> str:
    shape = getattr(value, "shape", ())
    return reprlib.repr(value) if math.prod(shape) <= 8 else f"an array of shape {tuple(shape)} and {value.dtype}"
