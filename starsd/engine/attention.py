"""Attention over the slot cache, as transformers' attention interface calls it.

``register`` makes it available to ``from_pretrained(attn_implementation=NAME)``; the batch
travels through the model's forward as the keyword ``BATCH``. transformers builds no mask for an
implementation it has no mask function for, so ours is the only one.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface

from starsd.engine.batch import Batch, Group
from starsd.engine.invariant import blockwise_attention
from starsd.engine.kv_cache import LayerCache
from starsd.errors import UnsupportedModelError

NAME = "starsd"
BATCH = "starsd_batch"

_REFUSED = ("softcap", "s_aux", "position_bias", "indexer_mask")


def register() -> None:
    AttentionInterface.register(NAME, slot_attention)


def slot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Store ``key, value [1, kv_heads, T, d]``; attend ``query [1, heads, T, d]``.

    Returns ``[1, T, heads, d]``, as transformers expects it, and no weights.

    Raises:
        UnsupportedModelError: the model asks for a kind of attention we do not compute.
    """
    _refuse_unknown(module, attention_mask, kwargs)
    batch: Batch = kwargs[BATCH]
    real = len(batch.slots)
    layer = batch.cache.write(
        int(module.layer_idx),  # type: ignore[arg-type]
        key[0, :, :real],
        value[0, :, :real],
        batch.slots,
        batch.places,
    )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    heads, tokens = query.shape[1:3]
    output = query.new_zeros((tokens, heads, value.shape[-1]))
    for group in batch.groups:
        result = _attend(group, query[0], layer, scale, invariant=batch.invariant)
        output.index_copy_(0, group.tokens, result.index_select(0, group.places))
    return output[None], None


def _attend(
    group: Group, query: Tensor, layer: LayerCache, scale: float, *, invariant: bool
) -> Tensor:
    """``query [heads, T, d]``; the group's results, ``[slots * queries, heads, d]``.

    The query heads that share a KV head become more queries of it, so no key is repeated.
    """
    keys = layer.keys[group.low : group.high, :, : group.length]
    values = layer.values[group.low : group.high, :, : group.length]
    slots, kv_heads = keys.shape[:2]
    share = query.shape[0] // kv_heads
    folded = (
        query.index_select(1, group.gather)
        .view(kv_heads, share, slots, group.queries, -1)
        .permute(2, 0, 1, 3, 4)
        .reshape(slots, kv_heads, share * group.queries, -1)
    )
    mask = group.folded_mask(share)
    if invariant:
        found = blockwise_attention(folded, keys, values, mask, scale)
    else:
        found = functional.scaled_dot_product_attention(
            folded, keys, values, attn_mask=mask, scale=scale
        )
    return (
        found.view(slots, kv_heads, share, group.queries, -1)
        .permute(0, 3, 1, 2, 4)
        .reshape(slots * group.queries, kv_heads * share, -1)
    )


def _refuse_unknown(module: nn.Module, mask: Tensor | None, kwargs: dict[str, Any]) -> None:
    asked = [name for name in _REFUSED if kwargs.get(name) is not None]
    if mask is not None:
        asked.append("attention_mask")
    if not kwargs.get("is_causal", getattr(module, "is_causal", True)):
        asked.append("is_causal=False")
    if asked:
        raise UnsupportedModelError(
            f"{type(module).__name__} needs attention with {', '.join(asked)}, which the engine "
            "does not compute"
        )
