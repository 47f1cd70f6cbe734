"""Upgrade recipes of older config versions, to resume runs of an older Quartet and to give hints in errors."""

from collections.abc import Callable, Mapping
from typing import Any

_RENAMED = {
    "engine.old_cache": "engine.kv_cache_on_weight_update",
    "evaluation.control": "evaluation.supervised_control",
    "sft.copy_steps": "sft.exercise_steps",
    "sft.copy_learning_rate": "sft.exercise_learning_rate",
    "runtime.ledger_patience_seconds": "runtime.ledger_timeout_seconds",
    "train.spare_replayed_turns": "train.exempt_replayed_turns",
}
MOVED = {
    "control.vade": "control.sampler",
    "control.dynamic_rollouts": "control.allocator",
    "control.longest_success": "control.horizon",
    "control.staged": "control.horizon",
    "filter.names": "filters",
    "filter.broken": "filters",
    "filter.overlong": "filters",
    "filter.accuracy_band": "filters",
    "stragglers.rule": "straggler",
    "stragglers.redundancy": "straggler",
    "stragglers.early_stop": "straggler",
    "stragglers.april": "straggler",
    "filter": "filters",
    "engine.kind": "engine.name",
    "observe.prometheus_port": "observe.sinks",
    "engine.vllm": "engine",
    "engine.openai": "engine",
    "stragglers": "straggler",
    "advantage": "credit",
    "train.value_learning_rate": "critic.learning_rate",
    "loss.name": "loss.terms",
    "loss.kl_coefficient": "loss.terms.kl.weight",
    "loss.entropy_coefficient": "loss.terms.entropy.weight",
    **_RENAMED,
    **{
        f"loss.{key}": f"loss.terms.ppo_clip.{key}"
        for key in ("clip_low", "clip_high", "dual_clip", "importance", "importance_cap")
    },
}
"""Key of an older config version -> current key."""

_OF_POOL = ("rule", "mode", "choice", "max_replays", "max_lag")
_DEFAULT_SUITES = {"miniwob": "miniwob-24", "locks": "locks"}
"""Meaning of an empty `env.suite`."""
_OF_TORCH = ("kv_cache_megabytes", "step_timeout_seconds", "load_timeout_seconds")
_TERM_OF = {"entropy_coefficient": "entropy", "kl_coefficient": "kl"}
_SECTION_OF = {"dynamic": "dynamic_rollouts"}
"""Part -> name of its section in config version 1, if the two differed."""


def upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe of an older version in the current form; any other recipe unchanged.

    Settings of parts that the recipe did not choose are dropped: they had no effect.
    """
    for version, steps in _STEPS.items():
        if data.get("config_version") == version:
            for step in steps:
                data = step(data)
            data = data | {"config_version": version + 1}
    return data


def _parts_of_control_and_curation(data: dict[str, Any]) -> dict[str, Any]:
    data = dict(data)
    control = dict(data.get("control", {}))
    sections = {name: control.pop(name, {}) for name in ("vade", "dynamic_rollouts", "longest_success", "staged")}
    for key in ("sampler", "allocator"):
        if key in control:
            control[key] = _with_own(control[key], sections)
    if "horizon" in control:
        names = control["horizon"]
        control["horizon"] = [_with_own(name, sections) for name in ([names] if isinstance(names, str) else names)]
    filters, stragglers = data.pop("filter", None), data.pop("stragglers", None)
    if filters is not None:
        data["filters"] = [_with_own(name, filters) for name in filters.get("names", ["mixed_outcome"])]
    if stragglers is not None:
        choice = _with_own(stragglers.get("rule", "continue"), stragglers)
        data["straggler"] = choice | {"name": "none"} if choice["name"] == "continue" else choice
    replay = data.get("replay", {})
    if replay.get("name", "none") == "none":
        data["replay"] = {key: value for key, value in replay.items() if key not in _OF_POOL}
    return data | {"control": control}


def _with_own(name: str, sections: dict[str, Any]) -> dict[str, Any]:
    return {"name": name} | sections.get(_SECTION_OF.get(name, name), {})


def _environment(data: dict[str, Any]) -> dict[str, Any]:
    """Move the suite into the settings of environments that have suites."""
    env = dict(data.get("env", {}))
    suite, name = env.pop("suite", ""), env.get("name", "")
    if suite := suite or _DEFAULT_SUITES.get(name):
        env["suite"] = suite
    return data | {"env": env}


def _engine(data: dict[str, Any]) -> dict[str, Any]:
    """Convert `engine.kind` to the engine's name, and move the engine's own settings beside it."""
    engine = dict(data.get("engine", {}))
    name = engine.pop("kind", "torch")
    tables = {other: engine.pop(other, {}) for other in ("vllm", "openai")}
    if name != "torch":
        engine = {key: value for key, value in engine.items() if key not in _OF_TORCH}
    return data | {"engine": {"name": name} | engine | tables.get(name, {})}


def _sinks(data: dict[str, Any]) -> dict[str, Any]:
    """Move the Prometheus port into the settings of the sink `prometheus`."""
    observe = dict(data.get("observe", {}))
    port, chosen = observe.pop("prometheus_port", None), observe.get("sinks", [])
    if port is not None and "prometheus" in chosen:
        names = [chosen] if isinstance(chosen, str) else chosen
        observe["sinks"] = [{"name": name} | ({"port": port} if name == "prometheus" else {}) for name in names]
    return data | {"observe": observe}


def _credit(data: dict[str, Any]) -> dict[str, Any]:
    """Rename the kind `advantage` to `credit`; its parts are the same."""
    return {"credit" if key == "advantage" else key: value for key, value in data.items()}


def _loss(data: dict[str, Any]) -> dict[str, Any]:
    """Convert the loss to a list of terms, `ppo_clip` first; terms with coefficient 0 are dropped."""
    loss = data.get("loss", {})
    if not loss or "terms" in loss:
        return data
    policy = {key: value for key, value in loss.items() if key not in ("aggregation", *_TERM_OF)}
    terms = [{"name": "ppo_clip"} | policy]
    terms += [{"name": name, "weight": loss[key]} for key, name in _TERM_OF.items() if loss.get(key)]
    return data | {"loss": {key: loss[key] for key in ("aggregation",) if key in loss} | {"terms": terms}}


def _names(data: dict[str, Any]) -> dict[str, Any]:
    """Rename settings that stay in their section."""
    new = {old: key.partition(".")[2] for old, key in _RENAMED.items()}
    return {
        section: {new.get(f"{section}.{key}", key): value for key, value in table.items()}
        if isinstance(table, dict)
        else table
        for section, table in data.items()
    }


def _exercises(data: dict[str, Any]) -> dict[str, Any]:
    """Name the class of the exercises, which older versions had built in."""
    sft = data.get("sft", {})
    if not (sft.get("exercise_steps") or sft.get("steps_per_rehearsal")):
        return data
    return data | {"sft": {"exercises": "recipes.miniwob.copying:CopyingExercises"} | sft}


_STEPS: Mapping[int, tuple[Callable[[dict[str, Any]], dict[str, Any]], ...]] = {
    1: (_parts_of_control_and_curation,),
    2: (_environment, _engine, _sinks, _credit, _loss),
    3: (_names, _exercises),
}
"""Config version -> the steps that lead to the next version, in order."""

CONFIG_VERSION = max(_STEPS) + 1
"""Config version that this version of Quartet writes."""
