"""Checks of the models that a recipe names, by their files alone."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.policy.download import DOWNLOADS
from quartet.registry import build
from quartet.shipped import named_policies

if TYPE_CHECKING:
    from quartet.engine.backend.base import Backend


def check_models(recipe: Recipe) -> None:
    """Check that the initial weights of every policy exist, and that the engine can serve them as the recipe has it.

    Raises `ConfigError`.
    """
    for place, folder in first_weights(recipe).items():
        check_model_folder(folder, place)
        _check_positions(recipe, folder, place)
        _check_pictures(recipe, folder, place)


def first_weights(recipe: Recipe) -> dict[str, Path]:
    """Return the folder of each policy's initial weights, by the setting that names the folder."""
    folders = {f"policies.{name}.source": Path(one.source) for name, one in recipe.policies.items() if one.source}
    needs_model = not recipe.policies or len(folders) < len(recipe.policies)
    return folders | ({"model.path": Path(recipe.model.path)} if needs_model else {})


def check_model_folder(path: Path, place: str = "model.path") -> None:
    """Raise `ConfigError` if a folder has no config.json, which every model in Hugging Face format has. The advice for
    a model that `quartet model get` knows is this command."""
    if not (path / "config.json").is_file():
        if path.name in DOWNLOADS:
            raise ConfigError(f"{place}: {path.name} is not downloaded yet", f"quartet model get {path.name}")
        raise ConfigError(
            f"{place}: no model at {path} (there is no {path.resolve() / 'config.json'})",
            f"give the name of a policy ({', '.join(named_policies())}), or the folder of a causal language model in "
            "Hugging Face format; a relative path is resolved against the recipe's folder, with --set against the "
            f"current folder. Download a model first: `quartet model get {min(DOWNLOADS)}`, or one of the Hugging Face "
            "Hub: `hf download NAME --local-dir FOLDER`",
        )


def model_positions(folder: Path) -> int | None:
    """Return the maximum number of tokens of the model in `folder`; None if its config.json does not state it.

    Raises `ConfigError` if that file is not a JSON object.
    """
    file = folder / "config.json"
    try:
        described = json.loads(file.read_text())
        text_model = described.get("text_config") or described  # vision-language models nest it
        positions = text_model.get("max_position_embeddings")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", "copy the model again from its source") from error
    return positions if isinstance(positions, int) else None


def _check_positions(recipe: Recipe, folder: Path, place: str) -> None:
    """Raise `ConfigError` if the context is longer than the model supports."""
    positions = model_positions(folder)
    if positions is not None and recipe.engine.max_context_tokens > positions:
        raise ConfigError(
            f"engine.max_context_tokens = {recipe.engine.max_context_tokens} is more than the model's {positions} "
            f"positions (max_position_embeddings in {folder}/config.json, {place})",
            f"set engine.max_context_tokens={positions} or less, or use a model with more positions",
        )


def _check_pictures(recipe: Recipe, folder: Path, place: str) -> None:
    """Raise `ConfigError` if the engine cannot show pictures to a model that reads them, or if a vision tower shall be
    frozen and the model has none."""
    from quartet.policy.kind.find import kind_of

    backend: Backend = build(recipe.engine)
    reads_pictures = kind_of(folder).reads_pictures
    if recipe.model.freeze_vision and not reads_pictures:
        raise ConfigError(
            f"model.freeze_vision is set, but the model in {folder} ({place}) has no vision tower",
            "remove model.freeze_vision",
        )
    if reads_pictures and not backend.reads_pictures:
        raise ConfigError(
            f"the model in {folder} ({place}) reads pictures, but engine.name = {recipe.engine.name!r} cannot show any",
            "set engine.name='torch', 'transformers' or 'vllm'",
        )
