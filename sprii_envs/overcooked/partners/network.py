"""The recurrent actor of a neural partner as pure functions of its parameters."""

import jax
import jax.numpy as jnp

Parameters = dict[str, jax.Array]
"""Arrays by name, float32, as they lie in a safetensors file; any leading axes, of partners say, under `vmap`."""


def shapes(inputs: int, width: int, actions: int) -> dict[str, tuple[int, ...]]:
    """Of every parameter: an embedding, a gated recurrent unit, and heads of actions and value."""
    return {
        "embed.w": (inputs, width),
        "embed.b": (width,),
        "gru.x": (width, 3 * width),
        "gru.h": (width, 3 * width),
        "gru.b": (3 * width,),
        "policy.w": (width, actions),
        "policy.b": (actions,),
        "value.w": (width, 1),
        "value.b": (1,),
    }


def features(parameters: Parameters, observation: jax.Array) -> jax.Array:
    """Observations (…, H, W, C) → what the recurrent unit reads (…, 3 × width)."""
    flat = observation.reshape(*observation.shape[:-3], -1).astype(jnp.float32)
    embedded = jax.nn.relu(flat @ parameters["embed.w"] + parameters["embed.b"])
    return embedded @ parameters["gru.x"] + parameters["gru.b"]


def recur(parameters: Parameters, carry: jax.Array, read: jax.Array) -> jax.Array:
    """One step of the gated recurrent unit (Cho et al. 2014): carry (…, width), `read` from `features`."""
    width = carry.shape[-1]
    hidden = carry @ parameters["gru.h"]
    gates = jax.nn.sigmoid(read[..., : 2 * width] + hidden[..., : 2 * width])
    reset, update = gates[..., :width], gates[..., width:]
    proposed = jnp.tanh(read[..., 2 * width :] + reset * hidden[..., 2 * width :])
    return (1.0 - update) * proposed + update * carry


def heads(parameters: Parameters, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Logits (…, actions) and value (…,)."""
    logits = carry @ parameters["policy.w"] + parameters["policy.b"]
    return logits, (carry @ parameters["value.w"] + parameters["value.b"])[..., 0]
