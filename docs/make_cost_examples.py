"""The example cost files of GPUs that come with simlab, out of the published timings: traces/data/costs/examples.

python docs/make_cost_examples.py
"""

from simlab.traces.artefacts.cost_import import write_examples

if __name__ == "__main__":
    write_examples()
