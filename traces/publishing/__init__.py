"""Publishing a trace: its own files and a card, to a repository on the Hugging Face Hub, a bucket or a folder.

Begin with `publication`: what would be sent, and where. `card` describes the trace; `hub` and `storage` send.
"""
