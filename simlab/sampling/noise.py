"""The one source of chance: a Gumbel number for each (text, absolute position, token).

The number depends on nothing else: not on the batch, the policy, or what was drawn before. So
plain decoding, the recorder and tree verification meet the same numbers, and emit the same text.

Bits come from a counter, mixed by two rounds of the finaliser of SplitMix64 (Steele, Lea and
Flood 2014, with Stafford's constants, variant 13). The logarithm is fdlibm's ``e_log`` (Sun
Microsystems 1993), written out here because the system's own differs in the last bit from one
machine to the next; this one is made of correctly rounded operations alone, so the noise has the
same bits everywhere.
"""

import hashlib
import json

import numpy as np

from simlab.arrays import Doubles
from simlab.jit import inlined_kernel, kernel

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_S11, _S27, _S30, _S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)

_SQRT_HALF_BITS = 0x3FE6A09E00000000
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_L1, _L2, _L3 = 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01
_L4, _L5, _L6 = 2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01
_L7 = 1.479819860511658591e-01


def noise_key(seed: int, prompt_id: str, turn: int, sample: int) -> int:
    """The key of one text's noise: the first 8 bytes of a hash of what names the text.

    Args:
        seed: the seed of the sampling settings.
        prompt_id: names the prompt within its trace.
        turn: 0 for the first answer of a conversation.
        sample: 0 for the first answer to the same prompt.

    Returns:
        An integer below ``2**64``: SHA-256 of the canonical JSON ``[seed,prompt_id,turn,sample]``,
        its first 8 bytes, the highest first.
    """
    text = json.dumps([seed, prompt_id, turn, sample], separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


@inlined_kernel
def _mixed(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> _S30)) * _FIRST_FACTOR
    state = (state ^ (state >> _S27)) * _SECOND_FACTOR
    return state ^ (state >> _S31)


@inlined_kernel
def _log(value: float) -> float:
    """The natural logarithm of a positive, normal float64, within one unit in the last place."""
    bits = np.float64(value).view(np.int64)
    exponent = (bits - _SQRT_HALF_BITS) >> 52
    f = np.int64(bits - (exponent << 52)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    tail = z * (_L1 + w * (_L3 + w * (_L5 + w * _L7))) + w * (_L2 + w * (_L4 + w * _L6))
    half_square = 0.5 * f * f
    low = s * (half_square + tail) + exponent * _LN2_LOW
    return float(exponent * _LN2_HIGH - ((half_square - low) - f))


@kernel
def position_state(key: np.uint64, position: int) -> np.uint64:
    """What `gumbel_scalar` needs to know of a text's key and an absolute position in it."""
    return _mixed(_mixed(key + _GOLDEN) + _GOLDEN * np.uint64(position + 1))


@inlined_kernel
def gumbel_scalar(state: np.uint64, token: int) -> float:
    """The Gumbel number of one token; ``state`` comes from `position_state`."""
    mixed = _mixed(_mixed(state + _GOLDEN * np.uint64(token + 1)) ^ state)
    uniform = max(np.float64(np.int64(mixed >> _S11)), 0.5) * 2.0**-53
    return -_log(-_log(uniform))


@kernel
def fill_gumbel(state: np.uint64, noise: Doubles) -> None:
    """Write the Gumbel number of every token into ``noise``, float64 ``[V]``."""
    for token in range(noise.size):
        noise[token] = gumbel_scalar(state, token)


def gumbel(key: int, position: int, vocab_size: int) -> Doubles:
    """One Gumbel number for each token at one absolute position of one text.

    Each is -log(-log(u)), u of 53 bits from the open interval (0, 1): from about -3.6 to 36.7.

    Args:
        key: from `noise_key`.
        position: absolute, prompt tokens counted, from 0.
        vocab_size: ``V``.

    Returns:
        float64 ``[V]``. A shorter vocabulary gives a prefix of the same vector.
    """
    if not 0 <= key < 1 << 64 or position < 0 or vocab_size < 0:
        raise ValueError(f"expected a 64-bit key, position >= 0, size >= 0; got {key}, {position}, {vocab_size}")
    noise = np.empty(vocab_size, np.float64)
    state = np.uint64(position_state(np.uint64(key), position))  # numba hands back a Python int
    fill_gumbel(state, noise)
    return noise
