"""Tokens that stand in place of masks, where a target drafts for itself without masks of its own.

UNO (arXiv 2609.04010) puts any tokens, its noise, behind the last committed one; what they are says ifm-ai/uno at
9018a5d, ``nano_vllm_uno/engine/noise.py``. Nothing here needs torch.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simlab.arrays import Ints, Keys, Longs
from simlab.errors import TraceError, named_or_listed
from simlab.limits import MOST_SEED, finite_number, shown, whole_number

MASK, DETERMINISTIC, RANDOM = "mask", "deterministic", "random"

_SETTINGS = {MASK: ("token",), DETERMINISTIC: ("below", "salt"), RANDOM: ("below", "seed")}
_TEMPERATURE, _MOST_TEMPERATURE = "temperature", 100
_LARGEST = 1 << 24
_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Noise:
    """Which tokens stand behind a committed one.

    Attributes:
        mode: ``mask``: one token everywhere. ``deterministic``: drawn by a hash of the prompt, of the committed token,
            of where it stands, and of a salt. ``random``: the same draws, in place of those of a server, which nobody
            can repeat: they have the server's law.
        below: tokens are drawn from 1 to ``below`` - 1; of ``mask`` the one token. 0: not known yet.
        salt: of the hash; of ``random`` its seed.
        temperature: by which logits are divided before a law is made of them: UNO takes that of sampling.
    """

    mode: str = DETERMINISTIC
    below: int = 0
    salt: int = 0
    temperature: float = 1.0

    def within(self, vocab_size: int) -> "Noise":
        """This noise with a target of so many tokens; what is not in its vocabulary is refused."""
        most, name = vocab_size - 1 if self.mode == MASK else vocab_size, _SETTINGS[self.mode][0]
        if not 1 < self.below <= most:
            raise ValueError(
                f"{name} of noise is from 2 to {most:,} with this target of {vocab_size:,} tokens; got {self.below:,}; "
                f"give --noise {self.mode},{name}=N"
            )
        return self

    def behind(self, prompt_ids: Iterable[int]) -> "TextNoise":
        """The noise of one text."""
        ids, hashed = list(map(int, prompt_ids)), 0xD6E8FEB86659FD93
        for token in ids:
            hashed = _mixed(hashed ^ token)
        return TextNoise(self, hashed, len(ids))

    def text(self) -> str:
        """As it is typed; `parse_noise` reads it."""
        first, *rest = _SETTINGS[self.mode]
        own = [f"{first}={self.below}", *(f"{name}={self.salt}" for name in rest)]
        return ",".join([self.mode, *own, *([] if self.temperature == 1 else [f"{_TEMPERATURE}={self.temperature!r}"])])


@dataclass(frozen=True, slots=True)
class TextNoise:
    """The noise of one text.

    Attributes:
        noise: of what kind.
        prompt: hash of the prompt's tokens.
        prompt_length: P.
    """

    noise: Noise
    prompt: int
    prompt_length: int

    def tokens(self, committed: Ints | Longs, positions: Ints | Longs, num: int) -> Longs:
        """Tokens behind some committed ones.

        Args:
            committed: ``[N]``.
            positions: ``[N]``, absolute, where these stand.
            num: k, of tokens behind each.

        Returns:
            int64 ``[N, k]``.
        """
        noise = self.noise
        if noise.mode == MASK:
            return np.full((len(committed), num), noise.below, np.int64)
        length = positions.astype(np.uint64) + np.uint64(1)
        first = self.prompt * 0x9E3779B185EBCA87 + noise.salt * 0xD1B54A32D192ED03
        # Tokens that the target has written, the committed one counted; behind the prompt's last token: none.
        written = length - np.uint64(self.prompt_length)
        base = (
            np.uint64(first & _BITS)
            + written * np.uint64(0xC2B2AE3D27D4EB4F)
            + committed.astype(np.uint64) * np.uint64(0x165667B19E3779F9)
            + length * np.uint64(0x85EBCA77C2B2AE63)
        )
        slots = np.arange(num, dtype=np.uint64) * np.uint64(0x27D4EB2F165667C5)
        drawn: Longs = (1 + _mixed_all(base[:, None] + slots) % np.uint64(noise.below - 1)).astype(np.int64)
        return drawn


def parse_noise(text: str) -> Noise:
    """The noise that was typed: ``mask,token=N``, ``deterministic,below=N,salt=N`` or ``random,below=N,seed=N``."""
    mode, *typed = text.split(",")
    if mode not in _SETTINGS:
        raise ValueError(f"expected noise of {', '.join(_SETTINGS)}; got {shown(mode)}")
    settings, temperature = dict.fromkeys(_SETTINGS[mode], 0), 1.0
    for setting in typed:
        key, _, value = setting.partition("=")
        if key == _TEMPERATURE:
            temperature = finite_number(value)
            if not 0 < temperature <= _MOST_TEMPERATURE:
                raise ValueError(f"expected a temperature above 0, at most {_MOST_TEMPERATURE}; got {shown(value)}")
            continue
        if key not in settings:
            known = (*settings, _TEMPERATURE)
            asked = named_or_listed(key, known, f"expected {', '.join(known)}")
            raise ValueError(f"noise of {mode} has no setting {shown(key)}{asked}")
        settings[key] = whole_number(value, *((0, MOST_SEED) if key in ("salt", "seed") else (2, _LARGEST)))
    below, salt = (*settings.values(), 0)[:2]
    return Noise(mode, below, salt, temperature)


def noise_of(text: str) -> Noise | None:
    """The noise of a manifest, which is empty where there is none."""
    try:
        return parse_noise(text) if text else None
    except ValueError as error:
        raise TraceError(f"the manifest's noise cannot be read ({error}); record the trace again") from error


def _mixed(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _BITS
    return value ^ (value >> 31)


def _mixed_all(values: Keys) -> Keys:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Keys = values ^ (values >> np.uint64(31))
    return mixed
