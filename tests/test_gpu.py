"""On a GPU, in float32: recording gives what it gives on a CPU, and every policy gives the same text."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tiny_models import make_pair, write_prompts  # noqa: E402

from simlab.draft import Prompt  # noqa: E402
from simlab.policies.spec import parse_policies  # noqa: E402
from simlab.real_runner.decode import decode  # noqa: E402
from simlab.real_runner.models import load_models  # noqa: E402
from simlab.real_runner.options import RecordOptions  # noqa: E402
from simlab.real_runner.own_rows import first_unequal  # noqa: E402
from simlab.real_runner.record import record  # noqa: E402
from simlab.real_runner.timer import clock_of  # noqa: E402
from simlab.sampling import Sampling  # noqa: E402
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


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_every_policy_writes_the_same_text_on_a_gpu(tmp_path: Path, family: str, temperature: float) -> None:
    target, drafter = make_pair(tmp_path, family)
    texts = []
    for device in ("cpu", "cuda"):
        models = load_models(str(target), str(drafter), "float32", device)
        prompt = Prompt("p", "made-up", 0, 0, np.arange(5, 25, dtype=np.int32))
        for one in parse_policies(["ar", "chain", "ddtree:budget=1/8/32"]):
            sampling = Sampling(temperature, 0, 1.0, 7)
            found = decode(models, one.policy, prompt, sampling, 48, clock_of(models.target.device))
            assert first_unequal(one.policy, found) is None
            texts.append(found.text.tolist())
    assert all(text == texts[0] for text in texts)
