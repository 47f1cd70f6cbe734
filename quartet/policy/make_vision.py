"""Making of a new small policy that reads pictures: Qwen3-VL or Qwen2.5-VL from `transformers`, with random weights."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from quartet.policy.kind.qwen_vl import PictureTokens, QwenPictures
from quartet.policy.load import LoadedPolicy
from quartet.policy.save import save_policy
from quartet.policy.tokenizer import ASSISTANT, END, PAD, USER, train_tokenizer

ORDERED_STD = 0.06
"""Standard deviation of the embeddings of ordered tokens."""
HIGHEST_WAVES = 32
"""Number of half waves, over all ordered tokens, of the fastest component of their embeddings."""
PLACES_STD = 0.5
"""Standard deviation of the vision tower's embeddings of positions, if there are ordered tokens."""
HIGHEST_PLACE_WAVES = 8
"""Number of half waves, over the width of a picture, of the fastest component of those embeddings."""
PICTURE_TOKENS = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>")


def make_vision_policy(
    texts: Iterable[str],
    folder: str | Path,
    *,
    kind: str = "qwen3_vl",
    vocab_size: int = 1024,
    ordered_tokens: Sequence[str] = (),
    hidden_size: int = 64,
    num_layers: int = 2,
    num_heads: int = 2,
    vision_hidden_size: int | None = None,
    vision_layers: int = 2,
    patch_size: int = 8,
    max_pixels: int = 2**16,
    initial_std: float = 0.02,
    seed: int = 0,
) -> LoadedPolicy:
    """Write an untrained policy to `folder`, and return it. A placeholder token stands for 2 x 2 patches of a picture.

    The tokenizer gets its words from `texts`, and four tokens for pictures. `ordered_tokens` are added to it, such as
    one token per coordinate; neighbours begin with similar embeddings, and then so do the positions of neighbouring
    patches. `vision_hidden_size` defaults to `hidden_size`. The same texts and seed give the same files.
    """
    tokenizer = vision_tokenizer(texts, vocab_size)
    tokenizer.add_tokens(list(ordered_tokens))
    tokens = picture_tokens(tokenizer)
    vocabulary = tokenizer.get_vocab()
    head_size = hidden_size // num_heads
    text: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden_size,
        "intermediate_size": 3 * hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_heads,
        "head_dim": head_size,
        "max_position_embeddings": 2048,
        "initializer_range": initial_std,
        # `mrope_section`: how many rotary frequencies of a head are for time, height and width.
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_section": [head_size // 2 - 2 * (head_size // 6), head_size // 6, head_size // 6],
        },
        "pad_token_id": vocabulary[PAD],
        "eos_token_id": vocabulary[END],
    }
    vision: dict[str, Any] = {
        "depth": vision_layers,
        "hidden_size": vision_hidden_size or hidden_size,
        "intermediate_size": 2 * (vision_hidden_size or hidden_size),
        "num_heads": num_heads,
        "patch_size": patch_size,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": hidden_size,
        "initializer_range": initial_std,
    }
    named: dict[str, Any] = {name: getattr(tokens, name) for name in PictureTokens.__struct_fields__}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MODELS[kind](text, vision, named).float().eval()
    if ordered_tokens:
        embeddings: Any = model.get_input_embeddings()
        _start_in_order(embeddings.weight, [vocabulary[token] for token in ordered_tokens])
        positions: Any = getattr(model.model.visual, "pos_embed", None)
        if positions is not None:
            _start_in_places(positions.weight)
    processor = make_processor(patch_size, max_pixels)
    pictures = QwenPictures(processor, tokens)
    save_policy(model, tokenizer, folder, pictures=pictures)
    return LoadedPolicy(model, tokenizer, pictures)


def _qwen3_vl(text: dict[str, Any], vision: dict[str, Any], named: dict[str, Any]) -> PreTrainedModel:
    text["rope_parameters"] |= {"mrope_interleaved": True}
    vision |= {"num_position_embeddings": 256, "deepstack_visual_indexes": [0]}
    config = Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **named)
    return Qwen3VLForConditionalGeneration(config)


def _qwen2_5_vl(text: dict[str, Any], vision: dict[str, Any], named: dict[str, Any]) -> PreTrainedModel:
    """The tower's first layer attends within windows of 2 x 2 placeholders, its second one to the whole picture."""
    vision |= {"spatial_patch_size": vision["patch_size"], "window_size": 4 * vision["patch_size"]}
    vision |= {"fullatt_block_indexes": [1]}
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **named)
    return Qwen2_5_VLForConditionalGeneration(config)


MODELS = {"qwen3_vl": _qwen3_vl, "qwen2_5_vl": _qwen2_5_vl}
"""Makers of the models, by the names of their architectures."""


@torch.no_grad()
def _start_in_order(embeddings_VD: torch.Tensor, ids_N: Sequence[int]) -> None:
    """Begin the embeddings of a row of tokens with waves of their index, so that near tokens are similar.

    A policy then learns a place from a few examples of places near it.
    """
    embeddings_VD[list(ids_N)] = ORDERED_STD * _waves(len(ids_N), embeddings_VD.shape[1], HIGHEST_WAVES)


@torch.no_grad()
def _start_in_places(positions_PD: torch.Tensor) -> None:
    """Begin the embeddings of a square of positions, row by row, with waves of column and row, half of them each."""
    side, half = math.isqrt(len(positions_PD)), positions_PD.shape[1] // 2
    waves_SH = _waves(side, half, HIGHEST_PLACE_WAVES)
    columns_PH, rows_PH = waves_SH.repeat(side, 1), waves_SH.repeat_interleave(side, dim=0)
    positions_PD.copy_(PLACES_STD * torch.cat([columns_PH, rows_PH], dim=1))


def _waves(count: int, size: int, highest: int) -> torch.Tensor:
    """Return waves of the indices 0 to `count` - 1 `[count, size]` with a mean square of 1, half of them sines, with up
    to `highest` half waves over all indices. Source: arXiv 1706.03762, 3.5."""
    places_N1 = torch.arange(count).unsqueeze(1) / count
    angles_NH = math.pi * places_N1 * torch.logspace(0, math.log10(highest), size // 2)
    return math.sqrt(2) * torch.cat([angles_NH.sin(), angles_NH.cos()], dim=1)


def vision_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer with the words of `texts` and the tokens that stand for pictures."""
    tokenizer = train_tokenizer(texts, vocab_size)
    tokenizer.add_special_tokens({"additional_special_tokens": [USER, ASSISTANT, *PICTURE_TOKENS]})
    return tokenizer


def picture_tokens(tokenizer: PreTrainedTokenizerFast) -> PictureTokens:
    """Return the ids of the tokens that stand for pictures."""
    start, image, end, video = (tokenizer.get_vocab()[name] for name in PICTURE_TOKENS)
    return PictureTokens(
        vision_start_token_id=start, image_token_id=image, vision_end_token_id=end, video_token_id=video
    )


def make_processor(patch_size: int, max_pixels: int) -> Qwen2VLImageProcessorPil:
    """Return transformers' image processor. It enlarges small pictures, so that each has at least one placeholder."""
    size = {"shortest_edge": (2 * patch_size) ** 2, "longest_edge": max_pixels}
    return Qwen2VLImageProcessorPil(patch_size=patch_size, merge_size=2, temporal_patch_size=2, size=size)
