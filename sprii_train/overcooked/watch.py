"""One episode as a picture that moves."""

import functools
import io
from pathlib import Path

import jax
import jax.numpy as jnp
from PIL import Image

from sprii_envs.files import write_whole
from sprii_envs.overcooked.game import Game, check_process, reset, step
from sprii_envs.overcooked.partners.partner import Partner, actor
from sprii_envs.overcooked.rendering import picture


def episode_gif(
    ego: Partner, partner: Partner, out: Path, *, seed: int = 0, seat: int = 0, game: Game | None = None
) -> float:
    """Write a GIF of one episode, five steps a second, and return what the team earned.

    Args:
        seat: of the ego; the partner takes the other.
        game: by default that of the shipped partners.
    """
    check_process()
    game = game or Game()
    seats = [ego, partner] if seat == 0 else [partner, ego]
    acts = [actor(game, i, each.family) for i, each in enumerate(seats)]
    for each in seats:
        each.fits(game)

    @jax.jit
    def turn(weights, carries, state, seen, time, key):
        *choosing, stepping = jax.random.split(key, 3)
        moves, after = [], []
        for i in range(2):
            move, carry = acts[i](weights[i], carries[i], state, seen[i], time, choosing[i])
            moves.append(move)
            after.append(carry)
        seen, state, reward, _ = step(game, stepping, state, jnp.stack(moves))
        return after, state, seen, reward

    start, *keys = jax.random.split(jax.random.PRNGKey(seed), game.max_steps + 1)
    seen, state = jax.jit(functools.partial(reset, game))(start)
    weights, carries = [each.reads for each in seats], [each.initial() for each in seats]
    frames, total = [Image.fromarray(picture(game, state))], 0.0
    for t, key in enumerate(keys):
        carries, state, seen, reward = turn(weights, carries, state, seen, jnp.int32(t), key)
        frames.append(Image.fromarray(picture(game, state)))
        total += float(reward)
    data = io.BytesIO()
    frames[0].save(data, "GIF", save_all=True, append_images=frames[1:], duration=200, loop=0)
    write_whole(out, data.getvalue())
    return total
