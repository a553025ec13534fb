"""Position-keyed noise: one exponential variate per (seed, position, token), on every machine.

Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
as a pure function: key = the 64-bit seed, low word first; counter = (token >> 2, position, 0, 0);
a token takes output word ``token & 3``, so one call serves four tokens.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

NOISE_VERSION = "philox4x32-10/1"
"""Part of every model fingerprint; to be raised whenever a change here moves a bit of noise."""

Ids = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]

_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], dtype=np.uint64)
_WEYL = np.array([[0x9E3779B9], [0xBB67AE85]], dtype=np.uint64)
_ROUNDS = np.arange(10, dtype=np.uint64)[:, None, None]
_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_DENSE_FROM = 4  # from 1 / this of its span on, a subset is cut from the noise of the whole span


def philox4x32(counters: npt.NDArray[np.uint64], seed: int) -> Words:
    """Philox4x32-10 of many counters under one key.

    ``counters`` is ``[4, n]``, values below 2**32; ``seed`` is the key, low word first. Returns
    ``[n, 4]``. Raises OverflowError for a seed outside 0 .. 2**64 - 1.
    """
    even, odd = counters[0::2].copy(), counters[1::2].copy()
    product, spare = np.empty_like(even), np.empty_like(even)
    for key in _round_keys(seed):
        np.multiply(even, _MULTIPLIERS, out=product)
        crossed = product[::-1]
        np.right_shift(crossed, _HALF, out=even)
        np.bitwise_xor(odd, key, out=odd)
        np.bitwise_xor(even, odd, out=even)
        np.bitwise_and(even, _MASK, out=even)
        odd, product, spare = crossed, spare, odd  # odd's high halves are garbage, masked above
    words = np.empty((counters.shape[1], 4), dtype=np.uint32)
    words[:, 0::2] = even.T
    words[:, 1::2] = odd.T
    return words


def _round_keys(seed: int) -> npt.NDArray[np.uint64]:
    """``[10, 2, 1]``."""
    key = np.frombuffer(seed.to_bytes(8, "little"), dtype="<u4").astype(np.uint64)[:, None]
    keys: npt.NDArray[np.uint64] = (key + _ROUNDS * _WEYL) & _MASK
    return keys


def noise_words(seed: int, position: int, token_ids: Ids) -> Words:
    """The 32-bit integer k behind each token's noise: ``[len(token_ids)]``.

    ``token_ids`` are in any order; ``position`` is below 2**32. Every counter is computed once.
    """
    if not len(token_ids):
        return np.empty(0, dtype=np.uint32)
    span = int(token_ids.max()) + 1
    if len(token_ids) * _DENSE_FROM >= span:
        return _words_of(np.arange((span + 3) >> 2), seed, position)[token_ids]
    counters, row = np.unique(token_ids >> 2, return_inverse=True)
    words: Words = _words_of(counters, seed, position)[(row << 2) | (token_ids & 3)]
    return words


def _words_of(quads: Ids, seed: int, position: int) -> Words:
    """Four words per quad of tokens, in token order: ``[4 * len(quads)]``."""
    counters = np.zeros((4, len(quads)), dtype=np.uint64)
    counters[0] = quads
    counters[1] = position
    return philox4x32(counters, seed).ravel()


def exponentials(words: Words) -> Floats:
    """E = -log1p(-u) with u = (k + 1/2) 2**-32, always in (0, inf)."""
    return -np.log1p((words.astype(np.float64) + 0.5) * -(2.0**-32))


def exponential_noise(seed: int, position: int, token_ids: Ids) -> Floats:
    """Standard exponential variates of these tokens at one position: ``[len(token_ids)]``."""
    return exponentials(noise_words(seed, position, token_ids))


def choice_seed(seed: int, choice: int) -> int:
    """Seed of one of a request's ``n`` choices: the first has the request's own.

    The others take eight bytes of blake2b, personalised ``starsd.choice``, over both numbers as
    little-endian u64, read as little-endian.
    """
    if choice == 0:
        return seed
    data = seed.to_bytes(8, "little") + choice.to_bytes(8, "little")
    digest = hashlib.blake2b(data, digest_size=8, person=b"starsd.choice").digest()
    return int.from_bytes(digest, "little")
