"""The suites: `miniwob-24` was fixed before the first training run, `miniwob-all` has every page that can be solved."""

import re
from pathlib import Path

import pytest

from quartet import config
from quartet.env import make_environment, suite_families
from quartet.env.check.run import check_environment
from quartet.env.miniwob.experts import EXPERTS, PLANS
from quartet.env.miniwob.html import html_folder
from quartet.env.miniwob.suite import SUITES, UNSUPPORTED, family
from quartet.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "miniwob.md"
ROW = re.compile(r"^\| `([\w-]+)` \| (text|picture) \| (\d+) to (\d+) \| (yes|no) \|")


def test_the_suite_is_what_was_promised() -> None:
    names = [family.name for family in SUITES["miniwob-24"]]
    demonstrated = [family.name for family in SUITES["miniwob-24"] if family.demonstrated]
    assert (len(names), len(set(names)), len(demonstrated)) == (24, 24, 16)
    assert sum(family.min_actions >= 3 for family in SUITES["miniwob-24"]) >= 10
    assert all(family.max_turns > family.min_actions for family in SUITES["miniwob-24"])
    assert suite_families(config.Env(name="miniwob")) == names


def test_every_page_of_the_package_is_in_the_suite_or_has_a_reason() -> None:
    pages = {path.stem for path in html_folder().glob("*.html")}
    names = {family.name for family in SUITES["miniwob-all"]}
    assert names | UNSUPPORTED.keys() == pages and not names & UNSUPPORTED.keys()
    assert len(names) >= 120
    for suite in SUITES.values():
        assert names >= {family.name for family in suite}


def test_experts_are_of_pages_that_text_shows() -> None:
    shown = {family.name for family in SUITES["miniwob-all"] if family.sees == "text"}
    assert not EXPERTS.keys() & PLANS.keys()
    assert EXPERTS.keys() | PLANS.keys() <= shown
    assert len(EXPERTS) + len(PLANS) >= 40


def test_the_page_lists_what_the_suite_is() -> None:
    listed = {match[1]: match.groups()[1:] for line in PAGE.read_text().splitlines() if (match := ROW.match(line))}
    experts = EXPERTS.keys() | PLANS.keys()
    assert listed == {
        one.name: (one.sees, str(one.min_actions), str(one.max_turns), "yes" if one.name in experts else "no")
        for one in SUITES["miniwob-all"]
    }
    for name, reason in UNSUPPORTED.items():
        assert f"| `{name}` | {reason} |" in PAGE.read_text()


def test_an_unknown_family_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="click-button"):
        family("miniwob-24", "click-buton")


def test_without_elements_there_is_no_expert_that_reads_them() -> None:
    for elements, there in ((True, True), (False, False)):
        env = config.Env.model_validate({"name": "miniwob", "suite": "miniwob-all", "elements": elements})
        assert (make_environment(env).expert("click-test", 0) is not None) is there


@pytest.mark.browser
@pytest.mark.parametrize(
    "families",
    [
        ["terminal", "click-pie", "book-flight", "use-slider"],
        pytest.param([one.name for one in SUITES["miniwob-all"]], marks=pytest.mark.campaign, id="all"),
    ],
)
async def test_families_pass_their_check(families: list[str]) -> None:
    given = {"families": families, "sessions": 2, "screenshots": False, "step_timeout_seconds": 60}
    env = config.Env.model_validate({"name": "miniwob", "suite": "miniwob-all", **given})
    (result,) = await check_environment(env, range(1), lambda _: None, ["families"])
    # The price on the page `stock-market` changes ten times a second.
    assert {finding.what.split(",")[0] for finding in result.findings} <= {"stock-market"}
    assert result.measured == f"{len(families)} of {len(families)} families pass"
