"""Recording on a GPU gives what recording on a CPU gives, in float32."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tiny_models import make_pair, write_prompts  # noqa: E402

from simlab.real_runner.options import RecordOptions  # noqa: E402
from simlab.real_runner.record import record  # noqa: E402
from simlab.traces.reader import open_trace  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_gpu_records_the_same_rows(tmp_path: Path, temperature: float) -> None:
    target, drafter = make_pair(tmp_path)
    prompts = write_prompts(tmp_path / "prompts.jsonl", 4)
    traces = []
    for device in ("cpu", "cuda"):
        options = RecordOptions(
            str(target),
            str(drafter),
            tmp_path / device,
            prompts=prompts,
            temperature=temperature,
            max_new_tokens=24,
            device=device,
        )
        traces.append(open_trace(record(options)))
    for ours, theirs in zip(*(trace.records(["dflash"]) for trace in traces), strict=True):
        np.testing.assert_array_equal(ours.text, theirs.text)
        cpu, gpu = ours.drafts["dflash"], theirs.drafts["dflash"]
        np.testing.assert_allclose(cpu.entropy, gpu.entropy, atol=1e-4)
        known = cpu.has_true_log_prob
        np.testing.assert_allclose(cpu.true_log_prob[known], gpu.true_log_prob[known], atol=1e-4)
