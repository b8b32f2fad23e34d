"""The environments under the namespace `sprii`, registered when `sprii_envs` is imported."""

import gymnasium as gym

_ROWS = (
    ("D-Clean-v0", "sprii_envs.envs.d_clean", "DClean", 63),
    ("SpringWorld-v0", "sprii_envs.envs.spring_world", "SpringWorld", 95),
    ("PokeWorld-v0", "sprii_envs.envs.poke_world", "PokeWorld", 63),
    ("Swimmer-v0", "sprii_envs.envs.swimmer", "Swimmer", 1000),
    ("Pendulum-v0", "sprii_envs.envs.pendulum", "Pendulum", 200),
    ("HalfCheetah-v0", "sprii_envs.mujoco.half_cheetah", "HalfCheetah", 1000),
    ("Hopper-v0", "sprii_envs.mujoco.hopper", "Hopper", 1000),
    ("Walker2d-v0", "sprii_envs.mujoco.walker2d", "Walker2d", 1000),
    ("Ant-v0", "sprii_envs.mujoco.ant", "Ant", 1000),
)
"""(id, module, class stem, transitions of an episode: one fewer than the states in it)."""


def register_all() -> None:
    """Register every environment once; nothing but strings is stored, so no environment is imported yet."""
    for name, module, stem, max_episode_steps in _ROWS:
        if f"sprii/{name}" not in gym.registry:
            gym.register(
                id=f"sprii/{name}",
                entry_point=f"{module}:{stem}Env",
                vector_entry_point=f"{module}:{stem}VectorEnv",
                max_episode_steps=max_episode_steps,
            )
    if "sprii/Overcooked-v0" not in gym.registry:  # it truncates its own episodes, of as many steps as it is told
        gym.register(id="sprii/Overcooked-v0", entry_point="sprii_envs.overcooked.env:OvercookedEnv")
