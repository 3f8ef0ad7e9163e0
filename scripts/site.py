"""MkDocs hooks (mkdocs.yml): add the repository's top-level documents as pages and rewrite links.

Links out of docs/ lead to those pages; links to code become plain text.

Contract: changes only the build; the Markdown in the repository is unchanged.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
FOLDER = "project"
"""Folder of the site for the top-level documents."""
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the top-level documents."""
    from mkdocs.structure.files import File

    for name in TOP:
        text = (ROOT / name).read_text()
        files.append(File.generated(config, f"{FOLDER}/{name.lower()}", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites a page's links for the site."""
    return relinked(markdown, page.file.src_uri)


def relinked(markdown: str, page: str) -> str:
    """Rewrites links outside code; `page`: its path in docs/."""
    top = page.startswith(f"{FOLDER}/")
    here = "" if top else posixpath.dirname(f"docs/{page}")

    def led(match: re.Match[str]) -> str:
        picture, words, link = match.groups()
        if re.match(r"[a-z]+:|#", link):
            return match[0]
        path, _, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(here, path))
        if target in TOP:
            place = f"{FOLDER}/{target.lower()}"
        elif target.startswith("docs/") and (ROOT / target).is_file():
            place = target.removeprefix("docs/")
        else:
            return words  # code, or a folder: it is in the repository, not in the site
        shown = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"{picture}[{words}]({shown}{'#' + anchor if anchor else ''})"

    parts = re.split(r"(^```.*?^```|`[^`\n]*`)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("`") else _LINK.sub(led, part) for part in parts)
