"""What a package index shows of README.md.

An index serves no files of the project, and takes pictures from public addresses only: one within
the text (``data:``) is dropped too. Until the project has an address, pictures are left out there,
and links to files keep their words.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def without_files(text: str) -> str:
    """Markdown without pictures from files and links to them; addresses on the web stay."""
    text = re.sub(r"!\[[^]]*\]\((?!https?:)[^)]*\)\n*", "", text)
    return re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


class IndexDescription(MetadataHookInterface):
    """The long description in the metadata of wheel and sdist."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Put it there."""
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_files(readme)}
