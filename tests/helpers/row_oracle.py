"""What every read of a trace's rows must refuse, one number after the other; it shares no code with what it checks."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from simlab.arrays import Floats, Ints
from simlab.channels import PoolRows
from simlab.traces.format.frames import DraftColumns, SequenceRecord, TokenRows
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import DraftSet

TOLERANCE = np.float32(1e-4)


def text_is_broken(record: SequenceRecord, manifest: Manifest) -> bool:
    """The ids of a text and its prompt, and how it ends."""
    ids, stops = record.text.tolist(), [token in manifest.stop_token_ids for token in record.text.tolist()]
    inside = all(0 <= one < manifest.vocab_size for one in [*ids, *record.prompt.token_ids.tolist()])
    too_long = manifest.gt_mode == "generated" and len(ids) > manifest.max_new_tokens
    return not inside or any(stops[:-1]) or stops[-1] != (record.stop_reason == "stop") or too_long


def candidates_are_broken(ids: Sequence[int], log_probs: Floats, vocab_size: int) -> bool:
    """Candidates that stand side by side: ids, the grid of 2**-16, their order, none twice."""
    keys = [(-float(value), one) for value, one in zip(log_probs, ids, strict=True)]
    on_grid = all(-255 <= float(value) <= 0 and (float(value) * 65536).is_integer() for value in log_probs)
    inside = all(0 <= one < vocab_size for one in ids)
    return not (on_grid and inside and keys == sorted(keys) and len(set(ids)) == len(ids))


def draft_is_broken(record: SequenceRecord, draft: DraftColumns, kept: DraftSet) -> bool:
    """The rows of a drafter: their candidates, and the ranks of the true tokens."""
    proposable = kept.draft_vocab_size or kept.vocab_size
    text, start = record.text.tolist(), 0
    for root, depth in np.ndindex(draft.counts.shape):
        count = int(draft.counts[root, depth])
        ids, log_probs = draft.ids[start : start + count].tolist(), draft.log_probs[start : start + count]
        start += count
        if not min(kept.min_width, proposable) <= count <= proposable:
            return True
        entropy = float(draft.entropy[root, depth])
        if candidates_are_broken(ids, log_probs, kept.vocab_size) or not -1e-3 <= entropy < math.inf:
            return True
        is_there = root + depth + 1 < len(text)
        if bool(draft.valid[root, depth]) != is_there:
            return True
        rank, truth = int(draft.true_rank[root, depth]), text[min(root + depth + 1, len(text) - 1)]
        if is_there and rank_is_wrong(rank, truth, ids, kept, proposable):
            return True
    return False


def rank_is_wrong(rank: int, truth: int, ids: list[int], kept: DraftSet, proposable: int) -> bool:
    """Whether a true token is not where its rank says."""
    place = ids.index(truth) if truth in ids else None
    if (rank if 0 <= rank < len(ids) else None) != place or not -1 <= rank < proposable:
        return True
    is_inside = truth < kept.vocab_size
    return rank >= 0 and not is_inside if kept.draft_vocab_size else (rank >= 0) != is_inside


def tokens_are_broken(tokens: TokenRows, text: Ints, vocab_size: int) -> bool:
    """The rows of the target."""
    for row, token in enumerate(text.tolist()):
        ids, law, log_prob = tokens.top_ids[row].tolist(), tokens.top_log_probs[row], tokens.log_prob[row]
        numbers = [*law, log_prob, tokens.entropy[row], tokens.log_normaliser[row], tokens.decision_gap[row]]
        if not np.isfinite(numbers).all() or tokens.decision_gap[row] < 0:
            return True
        if len(set(ids)) < len(ids) or not all(0 <= one < vocab_size for one in ids):
            return True
        if law[0] > TOLERANCE or any(low < high for low, high in pairwise(law)):
            return True
        listed = law[ids.index(token)] if token in ids else None
        wrong = log_prob > law[-1] + TOLERANCE if listed is None else abs(listed - log_prob) > TOLERANCE
        if wrong:
            return True
    return False


def pool_is_broken(rows: PoolRows, depth: int, top_k: int, vocab_size: int) -> bool:
    """Pools: each node behind its parent, siblings side by side, children of expanded nodes alone, none too deep."""
    start = 0
    for size in rows.sizes.tolist():
        parents, expanded = (getattr(rows, name)[start : start + size].tolist() for name in ("parents", "expanded"))
        tokens, log_probs = rows.tokens[start : start + size].tolist(), rows.log_probs[start : start + size]
        start += size
        if parents != sorted(parents) or any(not 0 <= parent <= node for node, parent in enumerate(parents)):
            return True
        depths: list[int] = []
        for parent in parents:
            depths.append(1 if parent == 0 else depths[parent - 1] + 1)
        if any(one > depth or (one == depth and more) for one, more in zip(depths, expanded, strict=True)):
            return True
        for parent in range(size + 1):
            own = [node for node, above in enumerate(parents) if above == parent]
            opened = parent == 0 or expanded[parent - 1]
            if (own and not opened) or (top_k and opened and len(own) != top_k):
                return True
            if candidates_are_broken([tokens[node] for node in own], log_probs[own], vocab_size):
                return True
    return False


def changed(array: np.ndarray, place: int, value: object) -> np.ndarray:
    """One element set to a value, to its neighbour's, turned over, or, of counts, moved to the neighbour."""
    flat = array.copy().ravel()
    at, after = place % flat.size, (place + 1) % flat.size
    if value == "moved":
        moved = min(1, int(flat[at]) - 1)
        flat[at] -= moved
        flat[after] += moved
    else:
        flat[at] = flat[after] if value == "next" else not flat[at] if value == "turned" else value
    return flat.reshape(array.shape)
