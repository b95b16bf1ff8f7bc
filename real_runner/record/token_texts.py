"""The text of a finished trace's tokens, stored beside it: `add_token_texts`."""

from dataclasses import replace
from pathlib import Path

from simlab.real_runner.targets.token_text import bytes_of_tokens
from simlab.traces.format.files import MANIFEST, file_sha256, write_beside, write_frame
from simlab.traces.format.manifest import FileInfo
from simlab.traces.format.token_texts import TOKEN_TEXTS, token_texts_frame
from simlab.traces.reader import open_trace


def add_token_texts(folder: Path) -> int:
    """Store the text of each prompt's, text's and candidate's token beside a trace; how many there are.

    No id of the trace changes. Reports then show words where the target's tokenizer is not at hand.

    Raises:
        TraceError: there is no finished trace in the folder, or it cannot be written.
        ModelError: the target's tokenizer is not on this machine, or its tokens are not those of bytes.
    """
    trace = open_trace(folder)
    target = trace.manifest.target
    texts = bytes_of_tokens(target.name, target.revision, trace.tokens())
    write_frame(folder / TOKEN_TEXTS, token_texts_frame(texts))
    contents = trace.manifest.held()
    path = folder / TOKEN_TEXTS
    files = {**contents.files, TOKEN_TEXTS: FileInfo(path.stat().st_size, file_sha256(path))}
    finished = replace(trace.manifest, contents=replace(contents, files=files))
    write_beside(folder / MANIFEST, lambda file: file.write(finished.to_bytes()))
    return len(texts)
