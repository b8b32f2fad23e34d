"""A GRU over observations and torques plans the swing-up of pendulums whose mass and length it is never told.

    python examples/plan_gru.py                     # 2 CPU minutes of training
    sprii pendulum evaluate gru-model               # the same model again, beside the paper's rows

Trained offline on pendulums of ID alone; evaluated on every group by a planner that carries on from its hidden state.
"""

import argparse
from pathlib import Path

import torch

from sprii_envs.arguments import option
from sprii_envs.envs.pendulum import GROUPS
from sprii_train.checkpoints import save
from sprii_train.control.controllers import named_controller
from sprii_train.control.models import MODELS
from sprii_train.control.offline import excited
from sprii_train.control.pendulum_agents import ENV_ID, known, learned, nominal
from sprii_train.control.recurrent import RecurrentConfig, RecurrentModel, fit_recurrent
from sprii_train.evaluation import Evaluation, RandomAgent, evaluate_agent


def train(steps: int, each: int, seed: int = 0) -> RecurrentModel:
    """Of `each` episodes of each of the 121 systems of ID."""
    systems = GROUPS["ID"].combinations()
    torch.manual_seed(seed)
    model = RecurrentModel(RecurrentConfig())
    error = fit_recurrent(model, excited(systems, len(systems) * each, each, seed=seed), steps=steps, seed=seed)
    print(f"one-step squared error / variance of changes: {error:.2g}")
    return model.eval()


def main(arguments: list[str] | None = None) -> Evaluation:
    """Train, save, evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=option(), default=3_000, help="updates")
    parser.add_argument("--each", type=option(), default=4, help="episodes of each system")
    parser.add_argument("--episodes", type=option(), default=10, help="of each group, for evaluation")
    parser.add_argument("--horizon", type=option(), default=20, help="of the planner")
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--out", type=Path, default=Path("gru-model"))
    told = parser.parse_args(arguments)
    model, controller = train(told.steps, told.each), named_controller("icem", horizon=told.horizon)
    save(model, told.out, also=MODELS)
    beside = {"random": RandomAgent(), "nominal": nominal(controller, seed=0), "oracle": known(controller, seed=0)}
    found = evaluate_agent(
        learned(model, controller, seed=0), ENV_ID,
        groups=told.groups.split(","), episodes=told.episodes, name="GRU", references=beside,
    )  # fmt: skip
    found.show()
    return found


if __name__ == "__main__":
    main()
