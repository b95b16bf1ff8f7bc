"""Files, texts and code that others wrote.

Files are read within limits (`json_text`), texts are shown so that they steer nothing (`visible`), and policy files of
a user are run and blamed by line (`user_code`).
"""
