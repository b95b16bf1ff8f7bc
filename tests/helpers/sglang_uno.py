"""SGLang's own builder of UNO trees, run on a CPU by Triton's interpreter; a process of its own, out of its wheels.

    python tests/helpers/sglang_uno.py FOLDER IN.npz OUT.npz

FOLDER holds what the wheels of sglang and triton have; IN ``ids`` and ``log_probs`` ``[N, D, K]`` and ``num_nodes``,
the root counted; OUT ``tokens`` and ``edges`` ``[N, num_nodes - 1]``: of each node its token, and its parent's number
times K and its rank.
"""

import importlib.util
import os
import sys
import types
from pathlib import Path

_BUILDER = "sglang/kernels/ops/speculative/uno_tree.py"
_AT_ONCE = 50


def main(folder: str, given: str, out: str) -> None:
    """Build the tree of each round."""
    # Before Triton is there.
    os.environ["TRITON_INTERPRET"] = "1"
    sys.path.insert(0, folder)
    # It takes the first logits of a row by a kernel of another package, which runs on a GPU alone; not called here.
    stub = types.ModuleType("flashinfer")
    stub.top_k = None  # type: ignore[attr-defined]
    sys.modules["flashinfer"] = stub
    import numpy as np
    import torch
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]

    spec = importlib.util.spec_from_file_location("uno_tree", Path(folder) / _BUILDER)
    assert spec is not None
    assert spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    sys.modules["uno_tree"] = builder
    spec.loader.exec_module(builder)
    rounds = np.load(given)
    all_ids, all_log_probs, num = rounds["ids"], rounds["log_probs"], int(rounds["num_nodes"])
    depth, top_k = all_ids.shape[1:]
    tokens, edges = [], []
    for first in range(0, len(all_ids), _AT_ONCE):
        ids = torch.from_numpy(all_ids[first : first + _AT_ONCE].astype(np.int64))
        log_probs = torch.from_numpy(all_log_probs[first : first + _AT_ONCE].astype(np.float32))
        count = len(ids)
        chosen, taken = (torch.zeros(count, num - 1, dtype=torch.int64) for _ in range(2))
        parents = torch.zeros(count, top_k * (depth - 1) + 1, dtype=torch.int64)
        depths, masses = torch.zeros(count, num, dtype=torch.int32), torch.zeros(count, num)
        strides = {
            f"{name}_{axis}_STRIDE": tensor.stride(place)
            for name, tensor in (("TOKEN", ids), ("PROB", log_probs))
            for place, axis in enumerate(("BATCH", "DEPTH", "RANK"))
        }
        builder._build_tree_kernel[(count,)](
            *(ids, log_probs, chosen, taken, parents, depths, masses),
            **strides,
            PARENT_BATCH_STRIDE=parents.stride(0),
            NUM_DEPTHS=depth,
            K=top_k,
            Q=num,
            BLOCK_CANDIDATES=triton.next_power_of_2(num * top_k),
        )
        tokens.append(chosen.numpy())
        edges.append(taken.numpy())
    np.savez(out, tokens=np.concatenate(tokens), edges=np.concatenate(edges))


if __name__ == "__main__":
    main(*sys.argv[1:])
