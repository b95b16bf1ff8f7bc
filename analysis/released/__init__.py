"""What others released, worked out again: their files by digest, their figures where they stand, and ours beside them.

Begin with files: a release is some files of a public repository at one commit. `compared` holds a figure of theirs
beside ours; the packages and the other modules are studies. None of their files comes with simlab.
"""
