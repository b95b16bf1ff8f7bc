"""The files: traces and results; their format, writer, reader, and synthetic ones for tests."""
