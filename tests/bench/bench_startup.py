"""How long one starts: `simlab replay` on the packaged trace beside the bare imports it rests on, and `import simlab`.

Wall seconds are what a person waits; seconds of the processor, in all threads, are steadier on a machine with other
work. To load the first compiled function, numba reads all that it can compile and scipy's linear algebra; what that
takes is beyond simlab, and shown too.
"""

from in_turn import asked_for, compared, program

BARE = "import numpy, numba, polars"
COMPILED = f"{BARE}; from simlab.grid import weight_scalar; weight_scalar(-1.0)"


def main() -> None:
    runs = asked_for(__doc__, runs=7).runs
    replay = {"simlab replay": program("-m", "simlab", "replay")}
    for code in (BARE, COMPILED):
        compared({code[:60]: program("-c", code), **replay}, runs, wanted="at most 1.5")
    compared({code: program("-c", code) for code in ("import numpy", "import simlab")}, runs, wanted="at most 1")


if __name__ == "__main__":
    main()
