"""`recipes/pixels`: experts that see nothing of the policy's solve the pages, a policy imitates them, and blind
evaluations show other pictures."""

import asyncio
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from quartet.actions.format.location_tokens import location_tokens, middle_of_part
from quartet.env import make_environment, suite_families
from quartet.env.base import Env
from quartet.env.miniwob.env import MiniWobSession
from quartet.env.miniwob.suite import family
from quartet.policy.load import load_policy
from quartet.policy.make_vision import make_vision_policy
from quartet.recipe.file import load_recipe
from quartet.rollout.blind_env import BlindEnv
from quartet.runtime.run import evaluate_policy
from quartet.types import Observation, Picture, StepResult, Task
from quartet.types.frame import Unit
from recipes.pixels.demonstrate import RECIPE, Demonstration, demonstrate, read_demonstrations, write_demonstrations
from recipes.pixels.guide import Guide
from recipes.pixels.imitate import imitate, near_entropy
from recipes.pixels.lessons import answered, prepare, start_from_white
from recipes.pixels.make_policy import main as make_policy
from recipes.pixels.make_policy import make_untrained

COLOURS = {"red": "click <loc0><loc9>", "blue": "click <loc12><loc3>"}
SEEDS = range(3)


def square(colour: str) -> bytes:
    file = BytesIO()
    Image.new("RGB", (32, 64), colour).save(file, "PNG")
    return file.getvalue()


def coloured() -> list[Demonstration]:
    """Demonstrations whose responses only the picture tells."""
    return [Demonstration("colour", 0, "Click.", square(name), text) for name, text in COLOURS.items()] * 4


@pytest.mark.slow
def test_a_policy_learns_from_pictures_what_the_texts_do_not_tell(tmp_path: Path) -> None:
    policy = make_vision_policy(["Click."] * 2, tmp_path / "p", ordered_tokens=location_tokens(16), hidden_size=32)
    steps = list(imitate(policy, prepare(policy, coloured()), parts=16, steps=120, batch_size=8, learning_rate=5e-3))
    assert steps[-1].loss < steps[0].loss / 2
    assert steps[-1].accuracy == 1, "a blind policy guesses the first location: 7 tokens of 8"


def test_attention_is_guided_to_the_cell_of_the_place(tmp_path: Path) -> None:
    """A picture of 64 x 96 pixels has 2 x 3 placeholders of 32 x 32 pixels, and locations are 16ths of its sides."""
    file = BytesIO()
    Image.new("RGB", (64, 96), "white").save(file, "PNG")
    policy = make_vision_policy(
        ["Click."] * 2, tmp_path / "p", ordered_tokens=location_tokens(16), hidden_size=32, patch_size=16
    )
    lesson = Demonstration("click-color", 0, "Click.", file.getvalue(), "click <loc9><loc5>")
    lessons = prepare(policy, [lesson])
    example, (media,) = lessons.examples[0], lessons.media
    first = example.learned.index(True)
    guide = Guide(policy, 16)
    targets = guide.targets(example, media)
    assert targets.queries == [first, first + 1], "the places of the tokens before the two locations"
    assert targets.keys == [media.offset + 2 * 1 + 1] * 2, "x = 9.5 / 16 is in the second column, y = 5.5 / 16 in row 1"
    losses = list(imitate(policy, lessons, parts=16, steps=30, batch_size=1, learning_rate=5e-3))
    assert losses[-1].guidance < losses[0].guidance / 2
    guide.close()


def test_attention_is_guided_in_first_turns_that_show_the_place(tmp_path: Path) -> None:
    policy = make_vision_policy(["Click."] * 2, tmp_path / "p", ordered_tokens=location_tokens(16), hidden_size=32)
    turns = [("click-color", 0), ("click-color", 1), ("find-midpoint", 0)]
    lessons = [Demonstration(family, turn, "Click.", square("red"), "click <loc0><loc9>") for family, turn in turns]
    assert prepare(policy, lessons).guided == [True, False, False]


def test_the_command_makes_a_policy_of_demonstrations(tmp_path: Path) -> None:
    file = BytesIO()
    Image.new("RGB", (160, 210), "white").save(file, "PNG")
    turns = [Demonstration("click-color", 0, "Click.", file.getvalue(), "click <loc9><loc5>")] * 2
    write_demonstrations(tmp_path / "turns.msgpack", turns)
    options = ["--demonstrations", str(tmp_path / "turns.msgpack"), "--output", str(tmp_path / "policy")]
    result = CliRunner().invoke(make_policy, [*options, "--steps", "2"])
    assert result.exit_code == 0, result.output
    assert load_policy(tmp_path / "policy").pictures is not None


def test_the_loss_of_a_location_is_least_at_a_normal_distribution_around_it() -> None:
    locations, targets_N = range(3, 19), torch.tensor([10, 1])
    offsets = torch.arange(16) - 7
    logits_NV = torch.full((2, 20), -1e4)
    logits_NV[0, 3:19], logits_NV[1, 1] = -offsets.square() / 2, 0.0
    normal = torch.softmax(-offsets.square() / 2, dim=0)
    entropy = -(normal * normal.log()).sum().item()
    assert near_entropy(logits_NV, targets_N, locations).item() == pytest.approx(entropy / 2, abs=1e-5)
    logits_NV[0, 10] += 1
    assert near_entropy(logits_NV, targets_N, locations).item() > entropy / 2


def test_white_patches_begin_as_nothing(tmp_path: Path) -> None:
    policy = make_vision_policy(["Click."] * 2, tmp_path / "p", ordered_tokens=location_tokens(16), hidden_size=32)
    lessons = prepare(policy, [Demonstration("colour", 0, "Click.", square("white"), "click <loc0><loc9>")])
    start_from_white(policy, lessons)
    model: Any = policy.model
    patches = model.model.visual.patch_embed(lessons.patches_NPD[0].float())
    torch.testing.assert_close(patches, torch.zeros_like(patches), atol=1e-3, rtol=0)
    assert answered(policy, lessons, [0])[0].isfinite().all()


def test_neighbouring_positions_of_patches_begin_alike(tmp_path: Path) -> None:
    policy = make_vision_policy(["Click."] * 2, tmp_path / "p", ordered_tokens=location_tokens(16), hidden_size=32)
    model: Any = policy.model
    grid_RCD = model.model.visual.pos_embed.weight.detach().unflatten(0, (16, 16))
    beside = (grid_RCD[:, 1:] - grid_RCD[:, :-1]).norm(dim=-1)
    below = (grid_RCD[1:] - grid_RCD[:-1]).norm(dim=-1)
    assert torch.allclose(beside, below.T, atol=1e-5), "columns and rows are alike"
    assert (grid_RCD[0, 0] - grid_RCD[8, 8]).norm() > max(beside.max(), below.max())


def test_neighbouring_ordered_tokens_begin_alike(tmp_path: Path) -> None:
    tokens = location_tokens(16)
    policy = make_vision_policy(["Click."] * 2, tmp_path / "p", ordered_tokens=tokens, hidden_size=32)
    ids = [policy.tokenizer.get_vocab()[token] for token in tokens]
    embeddings: Any = policy.model.get_input_embeddings()
    rows = embeddings.weight[ids].detach()
    near, far = (rows[1:-1] @ rows[1:-1].T).diagonal(offset=1), (rows @ rows.T).diagonal(offset=8)
    assert near.min() > far.max()
    assert policy.tokenizer.decode(ids) == "".join(tokens)


@pytest.mark.parametrize("x, y", [(0, 0), (159.9, 209.9), (80, 105)])
def test_the_middle_of_a_part_is_at_most_half_a_part_away(x: float, y: float) -> None:
    point = middle_of_part(x, y, 160, 210, 64)
    assert point.frame == Unit(64)
    assert abs(point.x - x * 64 / 160) <= 0.5 and abs(point.y - y * 64 / 210) <= 0.5


@pytest.mark.slow
def test_the_experts_solve_every_family_and_a_policy_plays(tmp_path: Path) -> None:
    """Demonstrations in the real browser are written, read and made into a policy, which is then evaluated."""
    recipe = load_recipe(RECIPE, ["evaluation.episodes_per_family=1", 'model.path="/"'])
    families = suite_families(recipe.env)
    attempts = asyncio.run(demonstrate(recipe, families, SEEDS))
    failed = [families[index % len(families)] for index, attempt in enumerate(attempts) if not attempt]
    assert not failed
    turns = [turn for attempt in attempts for turn in attempt]
    assert not any("[" in turn.text for turn in turns), "no elements are listed"
    write_demonstrations(tmp_path / "turns.msgpack", turns)
    read = read_demonstrations(tmp_path / "turns.msgpack")
    assert read == turns
    make_untrained(read, tmp_path / "policy")
    summary = evaluate_policy(recipe, tmp_path / "policy", tmp_path / "run", quiet=True)
    assert summary["evaluations"]["greedy"]["episodes"] == len(families)
    assert summary["success_blind"] is not None


@pytest.mark.slow
async def test_a_graded_page_is_solved_near_its_best_place_only() -> None:
    """The best click on the centre of a circle gets nearly 1, and one at its edge a small reward."""
    recipe = load_recipe(RECIPE)
    assert family("miniwob-pixels", "circle-center").success_reward == 0.7
    pool = make_environment(recipe.env).pool(recipe.env)
    session = await pool.acquire()
    assert isinstance(session, MiniWobSession)
    try:
        for off, solved in ((0, True), (0.8, False)):
            await session.reset(Task(env="miniwob", family="circle-center", seed=3))
            x, y, radius = await session.page.ask(
                "(({cx, cy, r}) => [cx, cy, r].map((one) => one.baseVal.value))"
                "(document.querySelector('.black-circle'))"
            )
            await session.step(f"click ({round(x + off * radius)},{round(y + 50)})")
            result = await session.step("click (60,198)")
            assert (result.terminated, result.info["success"]) == (True, solved)
            assert 0 < result.reward < 1
    finally:
        await pool.release(session, healthy=False)
        await pool.close()


class Numbers:
    """Session that shows the seed of its task as a picture."""

    async def reset(self, task: Task) -> Observation:
        self._seed = task.seed
        return self._shown()

    async def step(self, action: str) -> StepResult:
        return StepResult(observation=self._shown(), reward=float(action == str(self._seed)), terminated=True)

    async def close(self) -> None: ...

    def _shown(self) -> Observation:
        return Observation(goal="Name the number.", text="", pictures=[Picture(data=str(self._seed).encode())])


async def test_a_blind_session_shows_another_task_and_rewards_its_own() -> None:
    session: Env = BlindEnv(Numbers())
    seen = await session.reset(Task(env="numbers", family="one", seed=7))
    assert seen.pictures == [Picture(data=b"8")]
    result = await session.step(seen.pictures[0].data.decode())
    assert (result.reward, result.observation.pictures) == (0.0, seen.pictures)
    await session.reset(Task(env="numbers", family="one", seed=7))
    assert (await session.step("7")).reward == 1.0
