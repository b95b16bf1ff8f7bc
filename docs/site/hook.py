"""What the site changes in a page: links to files outside docs/ become plain text, since the site holds docs/ alone."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

# The tests read this file without mkdocs.
if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FENCE = re.compile(r"^```.*?^```[ ]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Give mkdocs the text of a page.

    Raises:
        ValueError: a link leads to a file that the repository does not have.
    """
    folder, docs = Path(page.file.abs_src_path).parent, Path(config.docs_dir)
    pieces, end = [], 0
    for fence in FENCE.finditer(markdown):
        pieces += [_without_links_out(markdown[end : fence.start()], folder, docs)]
        # The word marks examples that are shown and not run; the highlighter does not know it.
        pieces += [fence[0].replace("```python fragment", "```python", 1)]
        end = fence.end()
    return "".join([*pieces, _without_links_out(markdown[end:], folder, docs)])


def _without_links_out(text: str, folder: Path, docs: Path) -> str:
    def shown(link: re.Match[str]) -> str:
        target = link[2].partition("#")[0]
        if not target or "://" in target:
            return link[0]
        path = (folder / target).resolve()
        if path.is_relative_to(docs):
            return link[0]
        if not path.exists():
            raise ValueError(f"{folder}: {link[0]} leads to no file of the repository")
        return link[1]

    return LINK.sub(shown, text)
