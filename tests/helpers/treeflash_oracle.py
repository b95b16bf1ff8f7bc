"""A first-order head in plain numpy, one row after the other, float64: what the batched one must say."""

from collections.abc import Mapping

import numpy as np

from simlab.arrays import Doubles

Row = tuple[list[int], list[float], float]
"""Tokens of a row, their log-probabilities, and the log of the mass outside."""


def rms(x: Doubles, weight: Doubles, eps: float) -> Doubles:
    """Root-mean-square norm of one vector."""
    normed: Doubles = weight * x / np.sqrt(np.mean(x * x) + eps)
    return normed


def corrected(weights: Mapping[str, Doubles], before: Doubles, after: Doubles, embedded: Doubles) -> Doubles:
    """g' of one slot below one token; the names of the weights are those of the released class."""
    z = np.concatenate([rms(embedded, weights["norm.weight"], 1e-6), after])
    inner = len(weights["ug.weight"]) // 2
    up = weights["ug.weight"][:inner] @ z + weights["ug.bias"][:inner]
    gate = weights["ug.weight"][inner:] @ z + weights["ug.bias"][inner:]
    out: Doubles = before + weights["d.weight"] @ (gate / (1 + np.exp(-gate)) * up)
    return out


def row_of(logits: Doubles, ids: list[int], log_mass: float, top_k: int) -> Row:
    """The best of some tokens by log-probability on the grid, then id; all of them share a mass."""
    log_probs = logits - logits.max()
    log_probs = log_probs - np.log(np.exp(log_probs).sum()) + log_mass
    steps = np.rint(log_probs * 65536)
    order = sorted(range(len(ids)), key=lambda i: (-steps[i], ids[i]))[:top_k]
    outside = 1 - sum(float(np.exp(log_probs[i])) for i in order)
    said = float(np.log(outside)) if outside > 1e-100 else -255.0
    return [ids[i] for i in order], [float(steps[i] / 65536) for i in order], said
