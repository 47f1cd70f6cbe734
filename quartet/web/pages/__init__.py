"""Pages of the dashboard, one file with a function `routes()` each. A run's addresses begin with `/runs/{run}/`."""

NAVIGATION = {
    "run": "Run",
    "now": "Now",
    "displays": "Displays",
    "tasks": "Tasks",
    "rollouts": "Rollouts",
    "timeline": "Timeline",
}
"""Titles of the pages in the navigation, from left to right, by the name in the address `/runs/{run}/NAME`."""

MODULES = ("runs", *NAVIGATION, "rollout", "beside")
"""Names of all pages' files in this folder."""
