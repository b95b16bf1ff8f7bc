"""Serves the packaged models with vLLM on this machine's CPU, and runs `simlab crosscheck` against it.

``python crosscheck_vllm.py VLLM OUT``: the ``vllm`` command, and a folder. Three servers, one after the other: as
released, with the plugin of ``mend``, and with the plugin and a block of 4. Traces are recorded first, each of its own
block; what is there is taken up. The last step writes the page docs/measurements/crosscheck.md.
"""

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from places import REPOSITORY

from simlab.real_runner.networks.drafter import PACKAGED, find_drafter
from simlab.real_runner.targets.builtin import NAME, builtin_target_dir
from simlab.traces.format.files import write_beside

PROMPTS, LONGEST, STARTS_S = 8, 96, 900.0
_MEND = Path(__file__).parent / "mend"


@dataclass(frozen=True, slots=True)
class Trial:
    """One server.

    Attributes:
        name: of its folder.
        title: in the table.
        block: slots of the drafter's block, the root's counted.
        is_mended: whether the plugin is loaded.
    """

    name: str
    title: str
    block: int
    is_mended: bool


TRIALS = (
    Trial("released", "as released", 8, is_mended=False),
    Trial("mended", "mended", 8, is_mended=True),
    Trial("block4", "mended, block 4", 4, is_mended=True),
)


def main(vllm: Path, out: Path) -> int:
    """Run all trials; 1: one came to another verdict than is expected."""
    simlab = [sys.executable, "-m", "simlab"]
    prompts = str(files("simlab") / "data" / "demo_dev_prompts.jsonl")
    results = {}
    for trial in TRIALS:
        trace = out / f"block{trial.block}"
        if not (trace / "manifest.json").is_file():
            options = ["--limit", str(PROMPTS), "--max-new-tokens", str(LONGEST), "--block", str(trial.block)]
            kept = ["--min-width", "2", "--exact-budget", "2", "--resume"]
            subprocess.run([*simlab, "record", "--prompts", prompts, *options, *kept, "--out", str(trace)], check=True)
        print(f"serving: vLLM, {trial.title} ...", flush=True)
        with _Server(vllm, trial, out / f"{trial.name}.log") as address:
            asked = ["crosscheck", "--endpoint", address, "--trace", str(trace), "--concurrency", "4"]
            told = ["--exact-counters", "--json", "--out", str(out / trial.name)]
            # 1 is a verdict, which is what is looked for.
            run = subprocess.run([*simlab, *asked, *told], stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode not in (0, 1):
            return run.returncode
        results[trial.name] = json.loads(run.stdout)
        print(f"{trial.title}: {results[trial.name]['verdict'].upper()}: {results[trial.name]['reason']}.", flush=True)
    page = REPOSITORY / "docs" / "measurements" / "crosscheck.md"
    write_beside(page, lambda file: file.write(page_text(results).encode()))
    print(f"Written: {page}")
    expected = {"released": "rounds differ", "mended": "confirmed", "block4": "confirmed"}
    return int(any(results[name]["verdict"] != verdict for name, verdict in expected.items()))


class _Server:
    """vLLM on a free port of this machine, until the block ends."""

    def __init__(self, vllm: Path, trial: Trial, log: Path) -> None:
        drafter = find_drafter(PACKAGED).folder
        speculative = {"method": "dflash", "model": str(drafter), "num_speculative_tokens": trial.block - 1}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self._log = log
        self._command = [
            str(vllm), "serve", str(builtin_target_dir()), "--served-model-name", NAME, "--host", "127.0.0.1",
            "--port", str(port), "--dtype", "float32", "--enforce-eager", "--max-model-len", "1024",
            "--max-num-seqs", "8", "--no-enable-prefix-caching", "--speculative-config", json.dumps(speculative),
            "--per-request-spec-decode-metrics", "detailed",
        ]  # fmt: skip
        settings = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 2)),
        }
        self._environment = os.environ | settings | ({"PYTHONPATH": str(_MEND)} if trial.is_mended else {})

    def __enter__(self) -> str:
        log = self._log.open("wb")
        self._process = subprocess.Popen(
            self._command, stdout=log, stderr=subprocess.STDOUT, env=self._environment, start_new_session=True
        )
        begun = time.monotonic()
        try:
            while not self._is_up():
                if self._process.poll() is not None:
                    raise SystemExit(f"vLLM ended while it started; its log is {self._log}")
                if time.monotonic() - begun > STARTS_S:
                    raise SystemExit(f"vLLM did not start within {STARTS_S:g} seconds; its log is {self._log}")
                time.sleep(2)
        except BaseException:
            self.__exit__()
            raise
        print(f"  it answers after {time.monotonic() - begun:.0f} s", flush=True)
        return self.address

    def _is_up(self) -> bool:
        try:
            with urlopen(f"{self.address}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def __exit__(self, *_: object) -> None:
        group = os.getpgid(self._process.pid) if self._process.poll() is None else None
        for how in (signal.SIGTERM, signal.SIGKILL):
            if group is None:
                return
            try:
                os.killpg(group, how)
                self._process.wait(30)
                return
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                return


def page_text(results: dict[str, Any]) -> str:
    """The page of the measurement."""
    first = next(iter(results.values()))
    lines = [
        f"""# Crosscheck against a live vLLM

Made by `make crosscheck`: the packaged target and drafter served by vLLM's CPU build over HTTP, four requests at a
time, the first {PROMPTS} prompts that `simlab demo` tunes on, at most {LONGEST} new tokens, float32, greedy; each
server against a trace that was recorded with its own block.

vLLM {first["engine_version"]}; {platform.machine()}, {os.cpu_count()} cores.

| Server | Verdict | Texts equal | Rounds equal | Acceptance length, engine | predicted |
|---|---|---|---|---|---|"""
    ]
    for trial in TRIALS:
        found = results[trial.name]
        length = found["acceptance_length"]
        lines.append(
            f"| {trial.title} | {found['verdict']} | {found['texts_equal']} of {found['num_texts']} | "
            f"{found['rounds_equal']} of {found['rounds_compared']} | {length['engine']:.4f} | {length['trace']:.4f} |"
        )
    for trial in TRIALS:
        found = results[trial.name]
        if found["verdict"] == "confirmed":
            continue  # all counters are equal
        counted, predicted = found["counters"], found["counters_foretold"]
        lines += ["", f"## Counters, {trial.title}", ""]
        if counted is None:
            lines.append(found["why_no_counters"])
            continue
        lines += ["| | Engine | Predicted |", "|---|---|---|"]
        for key in ("requests", "tokens", "rounds", "drafted", "accepted"):
            lines.append(f"| {key} | {counted[key]:,} | {predicted[key]:,} |")
        at = zip(counted["accepted_at_position"], predicted["accepted_at_position"], strict=True)
        lines += [f"| kept at position {index} | {one} | {other} |" for index, (one, other) in enumerate(at, 1)]
    lines.append(
        """
As released the engine normalises the context keys of all draft layers with the first layer's weights
([how a user sees it](../how_to/crosscheck.md)). Texts stay right; single rounds show it.
"""
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
