"""Parts of the simulator's benchmark: registry, resumed commands, calibration, and the tables from raw results."""

import json
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from msgspec.structs import asdict, replace

from benchmarks import raw_results, scale, tables
from benchmarks.published import NAMES, april, dart, find, rollart
from benchmarks.published.base import Length, Outcome, at_least, single
from benchmarks.published.rows import finished_rows, report, rows
from benchmarks.published.simulated import Simulated, Simulator
from benchmarks.raw_results import RawResults
from benchmarks.virtual.figures import Figures
from benchmarks.virtual.scenario import Scenario
from benchmarks.virtual.simulation import recipe_of

FIGURES = Figures(
    **dict.fromkeys(Figures.__struct_fields__, 1.0)
    | {"trained_actions_per_minute": 22.6, "environment_utilisation": 0.122, "trainer_utilisation": 0.5}
    | {"train_step_period_seconds": 2039.0}
)
LENGTH = Length(warm_steps=0, train_steps=1)


def figures(**changed: float) -> Figures:
    return replace(FIGURES, **changed)


class Small(april.Main):
    """APRIL's part with a batch of one group, and one variation."""

    variations = ({"variation": 0.5},)

    def scenario(self, assumed: april.Assumed, system: str) -> Scenario:
        made = super().scenario(assumed, system)
        return replace(made, sessions=16, recipe=made.recipe | {"train": {"groups_per_batch": 1}})


class Stopped(Small):
    """The same, ended by a signal before the last system."""

    def scenario(self, assumed: april.Assumed, system: str) -> Scenario:
        if system == "april" and assumed.variation == 0.5:
            raise KeyboardInterrupt
        return super().scenario(assumed, system)


@pytest.mark.parametrize("name", NAMES)
def test_every_part_has_a_recipe_for_each_of_its_systems_under_each_variation(name):
    part = find(name)
    for changes in ({}, *part.variations):
        assumed = replace(part.assumed, **changes)
        assert assumed != part.assumed or not changes, f"{changes} changes nothing"
        for system in part.systems:
            assert recipe_of(part.scenario(assumed, system)).train.groups_per_batch > 0


@pytest.mark.parametrize(
    ("published", "simulated", "reproduced"),
    [
        (single(2.0), 1.71, True),
        (single(2.0), 2.31, False),
        (at_least(2.0), 1.99, False),
        (at_least(2.0), 5.0, True),
        ((1.1, 1.4), 1.09, False),
        ((1.1, 1.4), 1.4, True),
        (None, 1.0, None),
    ],
)
def test_a_single_value_has_a_tolerance_and_a_range_has_none(published, simulated, reproduced):
    assert Outcome(meaning="", published=published, simulated=simulated).reproduced is reproduced


@pytest.mark.slow
def test_a_command_that_was_stopped_keeps_its_systems_and_continues(tmp_path):
    file, said = tmp_path / "scale_april.jsonl", list[str]()
    with pytest.raises(KeyboardInterrupt):
        list(rows(Stopped(), Simulator(Stopped(), file, LENGTH, None, said.append)))
    assert len(said) == len(file.read_text().splitlines()) == 3
    assert [row.changes for row in finished_rows(Small(), Simulated(file))] == [{}]
    first, varied = rows(Small(), Simulator(Small(), file, LENGTH, None, said.append))
    assert len(said) == len(file.read_text().splitlines()) == 4
    again = list(rows(Small(), Simulator(Small(), file, LENGTH, None, said.append)))
    assert again == [first, varied]
    assert len(said) == 4, "a second command simulates nothing"
    assert report(again)["variations"] == {
        "variation = 0.5": {name: round(one.simulated, 3) for name, one in varied.outcomes.items()}
    }


def test_results_of_another_length_are_refused(tmp_path):
    raw = RawResults(tmp_path / "scale_rollart.jsonl", Figures)
    raw.add({"system": "rollart", "assumed": asdict(rollart.Assumed())} | asdict(LENGTH), FIGURES)
    with pytest.raises(click.ClickException, match="--anew"):
        Simulator(rollart.Main(), raw.file, Length(warm_steps=0, train_steps=2), None, click.echo)


def test_published_results_need_a_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(raw_results, "FOLDER", tmp_path)
    monkeypatch.setattr(raw_results, "current_commit", lambda: "abc-dirty")
    simulator = Simulator(Small(), tmp_path / "scale_april.jsonl", LENGTH, None, click.echo)
    with pytest.raises(click.ClickException, match="commit first"):
        simulator(april.Assumed(), "plain")


def simulated_rollart(file: Path) -> None:
    """Write the results of the part's own assumptions and of one variation, of which another one is unfinished."""
    raw, length = RawResults(file, Figures), rollart.Main.length
    periods = {"rollart": 100.0, "synchronous": 180.0, "one_step_off": 160.0}
    for assumed, factor, systems in (
        (rollart.Assumed(), 1.0, rollart.Main.systems),
        (rollart.Assumed(trainer_gpus=16), 1.5, rollart.Main.systems),
        (rollart.Assumed(trainer_gpus=64), 1.0, rollart.Main.systems[:2]),
    ):
        for system in systems:
            seconds = periods[system] * (1.0 if system == "rollart" else factor)
            key = {"system": system, "assumed": asdict(assumed)} | asdict(length)
            raw.add(key, figures(train_step_period_seconds=seconds))


def views(file: Path) -> Mapping[str, tables.View]:
    return tables.views_of(file.stem)


def test_tables_are_made_from_the_raw_results_of_finished_rows(tmp_path):
    file = tmp_path / "scale_rollart.jsonl"
    simulated_rollart(file)
    assert views(file)["outcomes"](file).splitlines()[2:] == [
        "| synchronous (veRL+) | 2.05 | 1.80 | yes |",
        "| one step off (StreamRL) | 1.35 | 1.60 | no |",
    ]
    assert views(file)["variations"](file).splitlines()[2:] == [
        "| as stated | 1.80 | 1.60 |",
        "| `trainer_gpus` 16 | 2.70 | 2.40 |",
    ]
    assert views(file)["finished"](file) == f"1 of {len(rollart.Main.variations)}"
    assert views(file)["assumed"](file).startswith("`h800` 16, `h20` 16, `trainer_gpus` 32,")
    length = rollart.Main.length
    assert f"--parts rollart --warm-steps {length.warm_steps} --train-steps {length.train_steps} " in (
        views(file)["command"](file)
    )


def test_a_table_needs_the_parts_own_assumptions(tmp_path):
    raw = RawResults(tmp_path / "scale_rollart.jsonl", Figures)
    raw.add({"system": "rollart", "assumed": asdict(rollart.Assumed())} | asdict(LENGTH), FIGURES)
    with pytest.raises(click.ClickException, match="lacks systems"):
        views(raw.file)["outcomes"](raw.file)


def test_the_command_reports_what_the_raw_results_have(tmp_path):
    """With all systems in the raw results nothing is simulated, and the headline is also at the top."""
    part = find("large")
    raw = RawResults(tmp_path / "scale_large.jsonl", Figures)
    for system, share in zip(part.systems, (0.75, 0.5, 0.25), strict=True):
        key = {"system": system, "assumed": asdict(part.assumed)} | asdict(part.length)
        raw.add(key, figures(engine_utilisation=share))
    before = raw.file.read_bytes()
    arguments = ["--parts", "large", "--results", str(tmp_path), "--json"]
    outcome = CliRunner().invoke(scale.main, arguments)
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(outcome.stdout)
    assert result["engine_utilisation_1000_engines"] == 0.75
    assert result["large"]["engine_utilisation_10_engines"]["simulated"] == 0.25
    assert raw.file.read_bytes() == before


def test_an_unknown_part_is_refused():
    outcome = CliRunner().invoke(scale.main, ["--parts", "dart,dartt"])
    assert outcome.exit_code == 2
    assert "'dartt'" in outcome.output and "rollart" in outcome.output


def test_the_calibration_of_dart_is_at_rest_at_the_published_figures():
    assert dart.is_calibrated(FIGURES)
    assert asdict(dart.calibrated(dart.Assumed(), FIGURES)) == pytest.approx(asdict(dart.Assumed()))


def test_the_calibration_of_dart_meets_a_system_that_is_linear(tmp_path):
    """A system of 64 rollouts of 20 turns: generation takes as long as a rollout, then the trainer trains 768 turns."""
    work = 100.0

    def coupled(assumed: dart.Assumed, system: str) -> Figures:
        assert system == "coupled"
        held = 120.0 + assumed.turns * assumed.step_seconds
        train_seconds = work / assumed.trainer_efficiency
        period = held + train_seconds
        return figures(
            train_step_period_seconds=period,
            trained_actions_per_minute=60 * 768 / period,
            rollouts_per_hour=3600 * 64 / period,
            environment_utilisation=64 * held / (dart.SESSIONS * period),
            trainer_utilisation=train_seconds / period,
        )

    found = dart.Main().prepared(dart.Assumed(), coupled)
    period = 60 * 768 / dart.COUPLED_ACTIONS_PER_MINUTE
    held = dart.COUPLED_ENVIRONMENT_UTILISATION * dart.SESSIONS * period / 64
    assert found.step_seconds == pytest.approx((held - 120.0) / 20, rel=0.05)
    assert found.trainer_efficiency == pytest.approx(work / (period - held), rel=0.05)
