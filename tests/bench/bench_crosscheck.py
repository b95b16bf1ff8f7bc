"""What a crosscheck adds to the server's own time: 20 requests, one after the other, to a server that takes its time.

Printed is the share that is not the server's, which is to stay below 2 %. The server here answers after half a second,
as one does that writes some hundred tokens; a real one takes longer, so that the share is smaller there.
"""

import time
from dataclasses import dataclass

from engine_server import FakeEngine, Rounds, serving

from simlab.analysis.crosscheck.foretold import ForetoldText
from simlab.studies.engines.crosscheck import crosscheck
from simlab.studies.engines.foretelling import foretold_texts
from simlab.studies.inputs.trace import sample_trace

PROMPTS, ANSWER_S, MOST_SHARE = 20, 0.5, 0.02


@dataclass
class SlowEngine(FakeEngine):
    """A server that takes its time for each text."""

    spent_s: float = 0.0

    def rounds_of(self, text: ForetoldText, num_tokens: int) -> Rounds:
        """As a fast one, and later."""
        begun = time.perf_counter()
        time.sleep(ANSWER_S)
        found = super().rounds_of(text, num_tokens)
        self.spent_s += time.perf_counter() - begun
        return found


def main() -> None:
    """Measure, print, and fail above the limit."""
    trace = sample_trace()
    texts = foretold_texts(trace, trace.draft_name(None), 7, PROMPTS)
    engine = SlowEngine(texts)
    with serving(engine):
        table = crosscheck(engine.address, trace, limit=PROMPTS)
        warm_up = ANSWER_S
    own = table.collected.seconds / (engine.spent_s - warm_up) - 1
    print(f"crosscheck of {len(texts)} texts: {100 * own:.2f} % beside the server's own {engine.spent_s:.1f} s")
    assert table.verdict.name == "confirmed"
    assert own < MOST_SHARE


if __name__ == "__main__":
    main()
