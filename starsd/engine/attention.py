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
    index = int(module.layer_idx)  # type: ignore[arg-type]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))
    return attend(index, query, key, value, kwargs[BATCH], scale)[None], None


def attend(
    index: int, query: Tensor, key: Tensor, value: Tensor, batch: Batch, scale: float
) -> Tensor:
    """Store ``key, value [T, kv_heads, d]`` in layer ``index``; attend ``query [T, heads, d]``.

    Returns ``[T, heads, d]``.
    """
    layer = batch.write(index, key, value)
    if batch.aligned:
        return _attend(batch.groups[0], query, layer, scale, invariant=batch.invariant)
    output = query.new_zeros((*query.shape[:2], value.shape[-1]))
    for group in batch.groups:
        asked = query.index_select(0, group.gather)
        found = _attend(group, asked, layer, scale, invariant=batch.invariant)
        output.index_copy_(0, group.tokens, found.index_select(0, group.places))
    return output


def _attend(
    group: Group, query: Tensor, layer: LayerCache, scale: float, *, invariant: bool
) -> Tensor:
    """``query [slots * queries, heads, d]``; the group's results, shaped likewise.

    The query heads that share a KV head become more queries of it, so no key is repeated.
    """
    keys = layer.keys[group.low : group.high, :, : group.length]
    values = layer.values[group.low : group.high, :, : group.length]
    slots, kv_heads = keys.shape[:2]
    share = query.shape[1] // kv_heads
    folded = (
        query.view(slots, group.queries, kv_heads, share, -1)
        .permute(0, 2, 3, 1, 4)
        .reshape(slots, kv_heads, share * group.queries, -1)
    )
    mask = group.folded_mask(share)
    if invariant:
        found = blockwise_attention(folded, keys, values, mask, scale)
    else:
        found = functional.scaled_dot_product_attention(
            folded, keys, values, attn_mask=mask, scale=scale
        )
    apart = found.reshape(slots, kv_heads, share, group.queries, -1).permute(0, 3, 1, 2, 4)
    return apart.reshape(slots * group.queries, kv_heads * share, -1)


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
