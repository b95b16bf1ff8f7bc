"""Files that are fetched: from an address, checked against a digest, and kept in the user's cache.

Begin with `fetched`, a file of a trace at an address as a file here. `addresses` says where it is asked for and who may
answer, `web` asks. `cache` is where files are kept, and how they are checked again; the built-in target is there too.
"""
