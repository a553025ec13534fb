"""Attention over the slot cache, as transformers' attention interface calls it.

``register`` makes it available to ``from_pretrained(attn_implementation=NAME)``; the batch
travels through the model's forward as the keyword ``BATCH``. transformers builds no mask for an
implementation it has no mask function for, so ours is the only one.
"""

from __future__ import annotations

from math import inf
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface

from starsd.engine.batch import Batch, Group
from starsd.engine.invariant import ScoreForm, blockwise_attention
from starsd.engine.kv_cache import LayerCache
from starsd.errors import UnsupportedModelError

NAME = "starsd"
BATCH = "starsd_batch"

_REFUSED = ("position_bias", "indexer_mask")


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
    index, batch = int(module.layer_idx), kwargs[BATCH]  # type: ignore[arg-type]
    _refuse_unknown(module, attention_mask, kwargs)
    _refuse_other_window(module, batch, index, kwargs.get("sliding_window"))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    form = ScoreForm(scale, kwargs.get("softcap"), kwargs.get("s_aux"))
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))
    return attend(index, query, key, value, batch, form)[None], None


def attend(
    index: int, query: Tensor, key: Tensor, value: Tensor, batch: Batch, form: ScoreForm
) -> Tensor:
    """Store ``key, value [T, kv_heads, d]`` in layer ``index``; attend ``query [T, heads, d]``
    within the layer's window.

    Returns ``[T, heads, d]``.
    """
    layer, window = batch.write(index, key, value), batch.window(index)
    if batch.aligned:
        return _attend(batch.groups[0], query, layer, window, form, invariant=batch.invariant)
    output = query.new_zeros((*query.shape[:2], value.shape[-1]))
    for group in batch.groups:
        asked = query.index_select(0, group.gather)
        found = _attend(group, asked, layer, window, form, invariant=batch.invariant)
        output.index_copy_(0, group.tokens, found.index_select(0, group.places))
    return output


def _attend(
    group: Group,
    query: Tensor,
    layer: LayerCache,
    window: int | None,
    form: ScoreForm,
    *,
    invariant: bool,
) -> Tensor:
    """``query [slots * queries, heads, d]``; the group's results, shaped likewise.

    The query heads that share a KV head become more queries of it, so no key is repeated.
    """
    sight = None if window is None else group.sights.get(window)
    first = 0 if sight is None else sight.first
    keys, values = (_seen(store, group, first) for store in (layer.keys, layer.values))
    slots, kv_heads = keys.shape[:2]
    share = query.shape[1] // kv_heads
    folded = (
        query.view(slots, group.queries, kv_heads, share, -1)
        .permute(0, 2, 3, 1, 4)
        .reshape(slots, kv_heads, share * group.queries, -1)
    )
    mask = (sight or group).folded_mask(share)
    if invariant:
        found = blockwise_attention(folded, keys, values, mask, form)
    elif form.plain:
        found = functional.scaled_dot_product_attention(
            folded, keys, values, attn_mask=mask, scale=form.scale
        )
    else:
        found = blockwise_attention(folded, keys, values, mask, form, keys.shape[2])
    apart = found.reshape(slots, kv_heads, share, group.queries, -1).permute(0, 3, 1, 2, 4)
    return apart.reshape(slots * group.queries, kv_heads * share, -1)


def _seen(store: Tensor, group: Group, first: int) -> Tensor:
    """Keys or values of a group from ``first`` on: ``[slots, kv_heads, length - first, d]``."""
    if group.order is None:
        return store[group.low : group.high, :, first : group.length]
    return store[group.low][:, group.order[:, first:]].transpose(0, 1)


def _refuse_other_window(module: nn.Module, batch: Batch, index: int, told: int | None) -> None:
    """transformers may slide where the configuration does not say so, or the other way round."""
    window = batch.window(index)
    if told != window and min(told or inf, window or inf) < batch.cache.length:
        raise UnsupportedModelError(
            f"{type(module).__name__} {index} asks for a sliding window of {told}, its "
            f"configuration for {window}; the engine cannot tell which is meant"
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
