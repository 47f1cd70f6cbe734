"""Does DigiRL's doubly robust advantage of steps select better steps to imitate than the outcome of the rollout?

A wrong press leads back, and one right press in five slips, so successful rollouts contain many wrong presses. Filtered
cloning imitates all of them. DigiRL imitates the steps with an advantage above 1 / (number of turns). The first quarter
of the budget is a fixed data set of the initial policy, trained several times; then rollouts are sampled anew.
"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.chain import Chain
from benchmarks.learning_experiments.turns import EVALUATION_ROLLOUTS, GROUPS, ROLLOUTS_PER_GROUP, higher, learn
from benchmarks.learning_experiments.world import WorldPolicy

TURNS = 12
OFFLINE_SHARE, OFFLINE_PASSES = 0.25, 4


def _digirl(threshold: float, trace: float) -> list[str]:
    value = "{name = 'value', clip = 1e9}"
    return [
        "credit.name=recipes.digirl.doubly_robust:DoublyRobust",
        f"credit.trace={trace}",
        f"loss.terms=[{{name = 'filtered_nll', threshold = {threshold}}}, {value}]",
        "critic.learning_rate=0.05",
    ]


class Main(Experiment):
    """Success after the offline stage, at the end, and of the rollouts sampled online."""

    arms: ClassVar = {
        "filtered cloning": ["credit.name=dr_grpo", "loss.terms=['filtered_nll']"],
        "doubly robust": _digirl(1 / TURNS, 0.5),
        "outcome only": _digirl(1 / TURNS, 1.0),
        "grpo": ["credit.name=grpo"],
    }
    # The data set grows old, and is trained all the same.
    common: ClassVar = ["train.learning_rate=0.05", "admission.max_lag=1000"]
    figures: ClassVar = {
        "offline": Figure("success after the offline stage, %", 1, 100),
        "end": Figure("success at the end, %", 1, 100),
        "mean": Figure("success of online rollouts, %", 1, 100),
    }
    claims = (
        *(
            Claim(
                text=f"doubly robust above filtered cloning, {when}",
                arm="doubly robust",
                against="filtered cloning",
                figure=figure,
                above=0,
            )
            for when, figure in (("offline", "offline"), ("at the end", "end"), ("online rollouts", "mean"))
        ),
        higher("the value matters: doubly robust above outcome only", "doubly robust", "outcome only"),
    )
    budget_tokens = 24_000

    def run(self, settings: Settings, seed: int) -> Measured:
        world = Chain(pages=4, turns=TURNS, buttons=3, wrong="back", slip=0.2)
        policy = WorldPolicy(world, settings, seed, delay_train_steps=0)
        stored = []
        while policy.tokens < OFFLINE_SHARE * self.budget_tokens:
            stored.append(policy.roll_out([0] * GROUPS, ROLLOUTS_PER_GROUP))
        for groups in stored * OFFLINE_PASSES:
            policy.train_now(groups)
        offline = policy.success([0], EVALUATION_ROLLOUTS)
        online = learn(policy, self.budget_tokens)
        return Measured(figures={"offline": offline, **online.figures}, tokens=online.tokens)
