"""A plugin for vLLM 0.32 on CPUs that gives each layer of a DFlash drafter its own norm of the context's keys.

vLLM normalises the keys of all draft layers in one call, with a row of weights for each layer. Its kernel for CPUs
reads the first row for all of them. Texts stay right, since the target verifies; drafts are worse in every layer but
the first. With this folder on ``PYTHONPATH`` vLLM loads the plugin by its entry point, in each of its processes.
"""

from importlib import import_module
from typing import Any


def register() -> None:
    """Put one call for each layer in the place of the one for all."""
    module: Any = import_module("vllm.model_executor.models.qwen3_dflash")
    torch: Any = import_module("torch")

    def normalised(self: Any, all_k: Any) -> Any:  # noqa: ANN401 - vLLM's own
        found = torch.empty_like(all_k)
        for layer, keys in enumerate(all_k):
            module.ops.rms_norm(found[layer], keys, self._k_norm_weights[layer], self._rms_norm_eps)
        return found

    for kind in vars(module).values():
        if isinstance(kind, type) and "_normalize_context_k" in vars(kind):
            kind._normalize_context_k = normalised  # type: ignore[attr-defined]
