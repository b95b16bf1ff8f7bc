"""Published figures beside ours. Begin with `reproduce`.

Figures of traces are in of_traces, those of files that others released in of_releases.
"""
