"""What a table of results needs is loaded quickly: no scipy.stats, no optimiser, no figures, no graphs."""

import subprocess
import sys

import pytest

SLOW = ("scipy.stats", "scipy.optimize", "plotly", "networkx")


@pytest.mark.parametrize("package", ["statistics", "table"])
def test_no_slow_package_is_loaded(package: str) -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        f"package = importlib.import_module('simlab.analysis.{package}')\n"
        "for module in pkgutil.iter_modules(package.__path__, package.__name__ + '.'):\n"
        "    importlib.import_module(module.name)\n"
        f"print(sorted(set({SLOW!r}) & set(sys.modules)))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
