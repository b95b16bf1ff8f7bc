"""Pools of a beam, node by node: what follows each path of the beam, and which paths are looked behind next."""

from collections.abc import Callable, Mapping

Path = tuple[int, ...]


def first(law: Mapping[int, float], top_k: int) -> list[int]:
    return sorted(law, key=lambda token: (-law[token], token))[:top_k]


def plain_pool(
    law: Callable[[Path], Mapping[int, float]], beam: int, top_k: int, steps: int
) -> dict[Path, tuple[float, bool]]:
    """Path to score and whether it was looked behind, in the order of the pool.

    Of equal scores the node that stands first is kept: by its parent's place, then by its own in the row.
    """
    pool: dict[Path, tuple[float, bool]] = {}
    scores: dict[Path, float] = {(): 0.0}
    kept: list[Path] = [()]
    for number in range(steps + 1):
        places: dict[Path, int] = {}
        for path in kept:
            following = law(path)
            for token in first(following, top_k):
                child = (*path, token)
                pool[child], scores[child] = (following[token], False), scores[path] + following[token]
                places[child] = len(places)
        if number < steps:
            kept = sorted(places, key=lambda path: (-scores[path], places[path]))[:beam]
            kept.sort(key=places.__getitem__)
            pool |= {path: (pool[path][0], True) for path in kept}
    return pool
