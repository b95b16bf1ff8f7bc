"""The files: traces and results, their format, reader and writer.

Begin with `simlab.traces.reader`: open_trace. `format` has the columns and the manifest, `results` the rows that a
replay writes, `artefacts` the files beside a trace, such as cost files. A package imports only from those before it:
format, then results and artefacts, then reader, writer, inspect and texts.
"""
