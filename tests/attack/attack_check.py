"""Whether the campaign itself is sound: every command ends well with undamaged inputs, twice with the same figures."""

import multiprocessing
import time
from multiprocessing.queues import Queue

from attack_judge import first_difference
from attack_run import run_here
from attack_worker import Worker


def unsound(worker: Worker) -> list[str]:
    """A sentence for each command that does not end well with undamaged inputs, or not twice alike."""
    context = multiprocessing.get_context("fork")
    told: Queue[str | None] = context.Queue()
    process = context.Process(target=_check, args=(worker, told))
    process.start()
    found = list(iter(told.get, None))
    process.join()
    return found


def _check(worker: Worker, told: "Queue[str | None]") -> None:
    try:
        for kind in worker.kinds.values():
            address = worker.serve_folder() if kind.serves else ""
            for command in kind.commands:
                typed = f"{kind.name}: simlab {' '.join(command.words)}"
                begun = time.monotonic()
                first, second = (
                    run_here(worker.main, command, worker.place.fresh(kind.inputs), address) for _ in range(2)
                )
                if first.code not in command.codes:
                    told.put(f"{typed}: exit code {first.code}: {first.err[-500:]}")
                elif command.figured and first.figures != second.figures:
                    told.put(f"{typed}: other figures: {first_difference(first.figures, second.figures)}")
                print(f"{time.monotonic() - begun:6.2f} s, then {second.seconds:5.2f} s: {typed}", flush=True)
    finally:
        told.put(None)
