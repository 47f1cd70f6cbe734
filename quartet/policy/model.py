"""Model of a new small policy: Qwen3 from `transformers`, in a size that can be trained on one core."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

EMBEDDING_STD = 0.06
ATTENTION_BIAS_STD = 1.0
QUERY_NORM = 2.0


def make_model(
    vocab_size: int,
    *,
    hidden_size: int = 128,
    num_layers: int = 4,
    num_heads: int = 4,
    num_kv_heads: int | None = None,
    intermediate_size: int | None = None,
    max_position: int = 2048,
    eos_token_id: int | None = None,
    pad_token_id: int | None = None,
    seed: int = 0,
) -> Qwen3ForCausalLM:
    """Return a Qwen3 decoder with random weights and tied embeddings.

    With the default sizes and a vocabulary of 2048 it has 1.1 M parameters. `num_kv_heads` defaults to `num_heads`,
    `intermediate_size` to three times `hidden_size`. The same seed gives the same weights; torch's global random state
    does not change.
    """
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads or num_heads,
        head_dim=hidden_size // num_heads,
        intermediate_size=intermediate_size or 3 * hidden_size,
        max_position_embeddings=max_position,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        attention_bias=True,
        initializer_range=0.02,
        bos_token_id=None,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        _start_for_copying(model)
    return model.float().eval()


@torch.no_grad()
def _start_for_copying(model: Qwen3ForCausalLM) -> None:
    """Initialise the weights so that the model learns to copy in a fraction of the usual steps.

    Biases of queries and keys are rotated by position, so that a head can attend by distance, independently of the
    content. Larger norms of queries let a head select one token among many. Larger embeddings make tokens distinct.
    """
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=EMBEDDING_STD)
    for name, parameter in model.named_parameters():
        if name.endswith(("q_proj.bias", "k_proj.bias")):
            torch.nn.init.normal_(parameter, std=ATTENTION_BIAS_STD)
        elif name.endswith("q_norm.weight"):
            parameter.fill_(QUERY_NORM)
