"""Target models: loading them, their files, what a target must support. Begin with model.

model is the target and its passes; loading makes one of a name or a folder, partial one without its layers; hub_files
and builtin fetch the files; dumped_states reads what a serving engine wrote; support says what cannot be run.
"""
