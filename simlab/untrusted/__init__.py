"""Files, texts and code that others wrote.

Files are read within limits (`json_text`); texts are shown so that they steer nothing, and policy files of a user are
blamed by line (`visible`).
"""
