"""A JEPA plans the swing-up in its embedding space: no observation is predicted, and mass and length are never told.

    python examples/plan_jepa.py                    # 1 CPU minute of training
    sprii pendulum evaluate jepa-model              # the same model again, beside the paper's rows

Trained offline on pendulums of ID alone, by the JEPA's own loss, optionally with Align and Cross; then, on the frozen
embeddings, a head regresses rewards, and a transition is fitted to chains of 16 steps under z_p of the last 23
transitions, because the JEPA's own one-step predictions, chained, go astray within ten.
"""

import argparse
import tempfile
from pathlib import Path

import torch

from sprii_envs.arguments import option
from sprii_envs.banks import ArrayStore
from sprii_envs.envs.pendulum import GROUPS
from sprii_train.checkpoints import save
from sprii_train.control import pendulum
from sprii_train.control.controllers import named_controller
from sprii_train.control.latent import LatentConfig, LatentModel, ShortHistories, fit_reward, fit_transition
from sprii_train.control.models import MODELS
from sprii_train.control.offline import excited
from sprii_train.control.pendulum_agents import ENV_ID, known, learned, nominal
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.evaluation import Evaluation, RandomAgent, evaluate_agent
from sprii_train.fit import TrainConfig, device_name, fit
from sprii_train.learners import JEPA, JEPAConfig
from sprii_train.protocol import Objective

CONFIG = JEPAConfig(  # few embeddings: a wide one that SIGReg fills is hard to predict
    observation_dim=3, action_dim=1, embedding=8, persistent=16, current=32, width=48, layers=1, heads=4,
    head_width=48, observation_width=96, predictor_width=160, action_feature=8, horizon_feature=8, dropout=0.0,
    sigreg_slices=16, sigreg_samples="pooled", sigreg_weight=0.002,
)  # fmt: skip


def train(steps: int, each: int, objective: Objective, chains: int, seed: int = 0, device: str = "cpu") -> LatentModel:
    """Of `each` episodes of each of the 121 systems of ID; with 0 `chains` the JEPA's own predictor is chained."""
    systems = GROUPS["ID"].combinations()
    experience = excited(systems, len(systems) * each, each, seed=seed)
    store = ArrayStore(experience.table(), {"states": experience.observations, "actions": experience.actions})
    data = ShortHistories(PairedWindows(WindowReader(store, CONFIG.history, CONFIG.horizons), pairs=32, seed=seed))
    training = TrainConfig(
        steps=steps, pairs=32, learning_rate=2e-3, warmup=50, clip=10.0, weight_decay=0.0, precision="fp32", seed=seed,
        device=device,
    )  # fmt: skip
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        learner = fit(JEPA(CONFIG), data, objective, training, folder, tensorboard=False)
    assert isinstance(learner, JEPA)
    model = LatentModel(LatentConfig(CONFIG, transition_width=128 if chains else 0), learner).to(device)
    before, action, _ = (torch.from_numpy(each).to(device) for each in experience.transitions())
    error = fit_reward(model, before, action, pendulum.reward(before, action), steps=min(steps, 800), seed=seed)
    print(f"reward head, squared error / variance: {error:.2g}")
    if chains:
        error = fit_transition(model, experience, steps=chains, seed=seed)
        print(f"transition, squared error / variance over 16 steps: {error:.2g}")
    return model.cpu().eval()


def main(arguments: list[str] | None = None) -> Evaluation:
    """Train, save, evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=option(), default=1_500, help="updates")
    parser.add_argument("--chains", type=option(least=0), default=3_000, help="updates of the transition; 0 has none")
    parser.add_argument("--each", type=option(least=2), default=4, help="episodes of each system")
    parser.add_argument("--align", type=float, default=0.0, help="its weight, λ_p")
    parser.add_argument("--cross", type=float, default=0.0, help="its weight, λ_x")
    parser.add_argument("--episodes", type=option(), default=10, help="of each group, for evaluation")
    parser.add_argument("--horizon", type=option(), default=20, help="of the planner")
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--out", type=Path, default=Path("jepa-model"))
    parser.add_argument("--device", type=device_name, default="cpu", help="a torch device to train on")
    told = parser.parse_args(arguments)
    controller = named_controller("icem", horizon=told.horizon)
    objective = Objective(lambda_p=told.align, lambda_x=told.cross)
    model = train(told.steps, told.each, objective, told.chains, device=told.device)
    save(model, told.out, also=MODELS)
    beside = {"random": RandomAgent(), "nominal": nominal(controller, seed=0), "oracle": known(controller, seed=0)}
    found = evaluate_agent(
        learned(model, controller, seed=0), ENV_ID,
        groups=told.groups.split(","), episodes=told.episodes, name="JEPA", references=beside,
    )  # fmt: skip
    found.show()
    return found


if __name__ == "__main__":
    main()
