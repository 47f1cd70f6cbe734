"""The pages. Each is a file with a function `routes()`; addresses of a run begin with `/runs/{run}/`."""

NAVIGATION = {
    "run": "Run",
    "now": "Now",
    "tasks": "Tasks",
    "rollouts": "Rollouts",
    "timeline": "Timeline",
}
"""Pages that every page links to, by name: `/runs/{run}/NAME`, from left to right."""

MODULES = ("runs", *NAVIGATION, "rollout", "beside")
"""All pages: the files of this folder."""
