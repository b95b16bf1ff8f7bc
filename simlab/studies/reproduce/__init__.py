"""Published figures beside ours. Begin with `reproduce`, the table of studies; `published` holds what was printed.

Files that others released are read through `released`; a module a study. None of their files comes with simlab but the
rounds of DDTree++.
"""
