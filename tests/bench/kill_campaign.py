"""Recordings and replays by workers of Ray of which one after the other is killed; each must have one process's bytes.

    PYTHONPATH=tests/helpers python tests/bench/kill_campaign.py --kills 50

Workers are killed by signal 9, at random, until there were so many kills; of every third run the driver is killed too,
and resumed. Tiny models of random weights, and the packaged trace.
"""

import argparse
import multiprocessing
import random
import shutil
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import tiny_models
import torch

from simlab.cli.main import main

NUM_PROMPTS, BATCH = 240, 4
POLICIES = ("ddtree:budget=1..64", "presto:budget=4/8/16", "caddtree:budget=32", "calibrated:budget=8/16")


def record_command(folder: Path, out: Path, *more: str) -> list[str]:
    """60 shards of tiny models, some decided by noise."""
    models = ["--target", str(folder / "target"), "--draft", str(folder / "drafter")]
    text = ["--prompts", str(folder / "prompts.jsonl"), "--max-new-tokens", "96", "--temperature", "0.8"]
    return ["record", *models, *text, "--out", str(out), "--batch-size", str(BATCH), "--resume", *more]


def replay_command(out: Path, *more: str) -> list[str]:
    """70 policies on the packaged trace."""
    policies = [part for one in POLICIES for part in ("-p", one)]
    return ["replay", *policies, "--out", str(out), "--resume", "--no-progress", *more]


def bytes_of(place: Path) -> dict[str, bytes]:
    """The files of a trace but the one that says how long it took, or a result file."""
    if place.is_file():
        return {"": place.read_bytes()}
    files = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    return {name: data for name, data in files.items() if name != "recording.json" and not name.endswith(".lock")}


def quietly(arguments: list[str], said: Path) -> None:
    """The command line, with one thread; a file gets its output."""
    torch.set_num_threads(1)
    with said.open("w") as file, redirect_stdout(file), redirect_stderr(file):
        raise SystemExit(main(arguments))


def run(arguments: list[str], said: Path) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=quietly, args=(arguments, said))
    process.start()
    return process


def workers_of(driver: BaseProcess) -> list[psutil.Process]:
    """Workers that have begun."""
    found = []
    try:
        children = psutil.Process(driver.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    for one in children:
        try:
            if one.name().startswith("ray::RayWorker"):
                found.append(one)
        except psutil.NoSuchProcess:
            continue
    return found


def killed_run(
    arguments: list[str], chance: random.Random, seconds: float, kill_driver: bool, said: Path
) -> tuple[int, int]:
    """Run a command whose workers are killed, and whose driver once is; how often each was."""
    kills = drivers = 0
    process = run(arguments, said)
    begun = time.monotonic()
    driver_at = begun + (5 + 25 * chance.random() if kill_driver else float("inf"))
    next_at = 0.0
    while process.is_alive():
        now, there = time.monotonic(), workers_of(process)
        if now > driver_at and there:
            process.kill()
            process.join()
            drivers, driver_at, next_at = drivers + 1, float("inf"), 0.0
            time.sleep(3.0)
            process = run(arguments, said)
        elif there and next_at == 0.0:
            next_at = now + seconds * (0.3 + 1.4 * chance.random())
        elif there and now > next_at:
            try:
                chance.choice(there).kill()
                kills += 1
            except psutil.NoSuchProcess:
                pass
            next_at = now + seconds * (0.3 + 1.4 * chance.random())
        time.sleep(0.02)
    process.join()
    if process.exitcode != 0:
        raise SystemExit(f"a run ended with exit code {process.exitcode}: {said.read_text()[-2000:]}")
    return kills, drivers


def campaign(folder: Path, most: int, seconds: float, seed: int) -> None:
    """Run after run, until there were so many kills; the first difference ends it."""
    tiny_models.make_pair(folder)
    tiny_models.write_prompts(folder / "prompts.jsonl", NUM_PROMPTS)
    alone = {"record": folder / "one", "replay": folder / "one.parquet"}
    for typed in (record_command(folder, alone["record"]), replay_command(alone["replay"])):
        run(typed, folder / "said").join()
    expected = {kind: bytes_of(place) for kind, place in alone.items()}
    chance = random.Random(seed)
    kills = drivers = runs = 0
    while kills < most:
        kind = ("record", "replay")[runs % 2]
        out = folder / ("killed" if kind == "record" else "killed.parquet")
        ray = ("--ray", "local", "--workers", str(chance.choice((2, 3))))
        typed = record_command(folder, out, *ray) if kind == "record" else replay_command(out, *ray)
        more, ended = killed_run(typed, chance, seconds, runs % 3 == 2, folder / "said")
        kills, drivers, runs = kills + more, drivers + ended, runs + 1
        if bytes_of(out) != expected[kind]:
            raise SystemExit(f"{kind} {runs} has other bytes than one process's; its files are in {out}")
        print(f"{runs} runs, {kills} workers and {drivers} drivers killed: the same bytes", flush=True)
        shutil.rmtree(out) if out.is_dir() else out.unlink()


def ask() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5.0, help="between kills, in the mean, once a worker is there")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="simlab-kills-") as folder:
        campaign(Path(folder), options.kills, options.seconds, options.seed)


if __name__ == "__main__":
    ask()
