"""Hooks of the documentation's site (mkdocs.yml): the documents at the top of the repository become pages of
it, links that lead out of docs/ lead to them, and links to code become words.

Contract: changes only what is built; the Markdown in the repository is what is read there.
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
"""Of the site, for the documents of the top."""
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents of the top."""
    from mkdocs.structure.files import File

    for name in TOP:
        text = (ROOT / name).read_text()
        files.append(File.generated(config, f"{FOLDER}/{name.lower()}", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links led to where they are in the site."""
    return relinked(markdown, page.file.src_uri)


def relinked(markdown: str, page: str) -> str:
    """Links of a page, outside of code, led to where they are in the site; `page`: its path in docs/."""
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
