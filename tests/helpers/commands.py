"""Commands as they are typed: what they print, and the sentence with which they are refused."""

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from simlab.cli.main import main


def ran(*typed: object) -> tuple[int, str, str]:
    """The exit code of a command, and what it says on standard output and standard error."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main([*map(str, typed)])
    return code, out.getvalue(), err.getvalue()


def output_of(*typed: object, code: int = 0) -> str:
    """What a command prints that ends with an exit code."""
    found, out, err = ran(*typed)
    assert found == code, err
    return out


def json_of(*typed: object, code: int = 0) -> dict[str, Any]:
    """The object that a command prints, whose words have a ``--json`` among them."""
    found: dict[str, Any] = json.loads(output_of(*typed, code=code))
    return found


def refusal_of(*typed: object) -> str:
    """The one sentence of a refusal before which nothing was printed."""
    code, out, err = ran(*typed)
    assert (code, out) == (2, "")
    assert err.startswith("simlab: ")
    assert err.count("\n") == 1
    return err


def failure_of(*typed: object) -> str:
    """The sentence with which a command ends that had begun its work, and said so."""
    code, _, err = ran(*typed)
    assert code == 2
    return [line for line in err.splitlines() if line.startswith("simlab: ")][-1]
