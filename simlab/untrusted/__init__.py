"""What others wrote.

Files are read within limits (`json_text`), texts are shown so that they steer nothing (`visible`), and a user's policy
files are run and blamed by line (`user_code`).
"""
