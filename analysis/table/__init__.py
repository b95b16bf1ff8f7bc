"""Result rows summed up by policy: acceptance lengths, speeds, and their table as text and as HTML.

Begin with summaries. `text` turns them into the table that `simlab replay` prints, `html` into that of a notebook;
`estimates` has a figure with its interval; `trees` draws one draft tree as text or as a picture.
"""
