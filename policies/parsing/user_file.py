"""A user's own policy: a class in a file of theirs."""

import hashlib
import re
import sys
from collections.abc import Callable, Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from simlab.errors import USER_CODE, PolicyError, describe_error
from simlab.policy import AnyPolicy, Needs
from simlab.untrusted.json_text import file_bytes, typed_path


def split_user_file(text: str) -> tuple[Path, str, str] | None:
    """File, class and settings of ``path/to/mine.py:MyPolicy:key=value``; None for anything else.

    >>> split_user_file("mine.py:Mine:width=2")[1:]
    ('Mine', 'width=2')
    """
    match = re.fullmatch(r"(.+?\.py)(?::([^:=]*)(?::(.*))?)?", text)
    if match is None:
        return None
    if not match[2]:
        raise PolicyError(f"`{text}` names a file but no class in it; write {match[1]}:MyPolicy")
    return typed_path(match[1]), match[2], match[3] or ""


def names_code(text: str) -> bool:
    """Whether the text of a policy may name a file of code, as the policy itself or as one of its routes.

    >>> names_code('router:routes="evil.py:Mine"'), names_code("ddtree:budget=16")
    (True, False)
    """
    return ".py" in text


def check_names_no_code(texts: Iterable[str], typed: Iterable[str], file: str) -> None:
    """Refuse policies of a file that would run code which nobody named on this command line.

    Args:
        texts: policies as the file has them.
        typed: policies that were typed; one of these may stand in the file too.
        file: where the texts are from.

    Raises:
        PolicyError: one names a file of code and was not typed.
    """
    named = set(typed)
    for text in texts:
        if names_code(text) and text not in named:
            raise PolicyError(
                f"{file} names `{text}`, which is a file of code, and code runs only if you name it yourself: look at "
                f"it, then add -p '{text}'"
            )


def load_policy_class(path: Path, class_name: str) -> tuple[Callable[..., AnyPolicy], str]:
    """A policy class from a file, and the digest of the file.

    Raises:
        PolicyError: the file cannot be read or run, or holds no such class.
    """
    try:
        source = file_bytes(path)
    except OSError as error:
        raise PolicyError(f"the policy file {path} cannot be read: {error.strerror}") from error
    digest = hashlib.sha256(source).hexdigest()
    policy = getattr(_module(path, digest), class_name, None)
    if not isinstance(policy, type) or not hasattr(policy, "select"):
        raise PolicyError(f"{path} holds no class {class_name} with a `select` method")
    return policy, digest


def checked_policy(label: str, policy: AnyPolicy) -> AnyPolicy:
    """The policy, if it has what every policy has."""
    budget, needs = (getattr(policy, name, None) for name in ("budget", "needs"))
    if type(budget) is not int or budget < 0:
        raise PolicyError(
            f"`{label}`: `budget`, the most tokens that it drafts in a round, should be a whole number, at least 0; "
            f"got {budget!r}"
        )
    if not isinstance(needs, Needs):
        raise PolicyError(f"`{label}`: `needs` should be a simlab.Needs, which says what it reads; got {needs!r}")
    missing = [name for name in ("start", "select", "update") if not callable(getattr(policy, name, None))]
    if missing:
        raise PolicyError(f"`{label}` has no method {missing[0]}; mix in simlab.Stateless if it remembers nothing")
    return policy


def _module(path: Path, digest: str) -> object:
    name = f"{USER_CODE}{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PolicyError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module  # a dataclass looks its module up while it is being made
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too
        del sys.modules[name]
        raise PolicyError(f"the policy file {path} does not run: {describe_error(error)}") from error
    return module
