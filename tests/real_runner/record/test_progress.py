"""The bar of a recording moves from the first token on, and ends at the number of texts."""

import pytest

from simlab.real_runner.record.answers import RecordingProgress


def test_decoded_tokens_count_in_part(capsys: pytest.CaptureFixture[str]) -> None:
    with RecordingProgress("recording", 4, num_done=1, token_worth=0.5 / 10) as progress:
        seen = [progress.done]
        for _ in range(8):
            progress.decoded(3)
            seen.append(progress.done)
        for length in (10, 6, 8):
            progress.recorded(length)
            seen.append(progress.done)
    assert seen[0] == 1
    assert seen[8] == pytest.approx(1 + 24 * 0.05)
    assert seen == sorted(seen)
    assert (seen[-1], progress.positions) == (4, 24)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("recording: 100%|")
    assert "4/4 texts, " in last
