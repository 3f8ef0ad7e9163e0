"""Counts the words of each sentence in Markdown prose: median and 90th percentile per file.

Headings, tables, fenced code and comments do not count. An inline code span is one word; a link is its text.
`--long N` also prints the sentences of more than N words.
"""

from __future__ import annotations

import argparse
import re
import statistics
from pathlib import Path

_DROPPED = (
    (r"^```.*?^```", ""),  # fenced code
    (r"<!--.*?-->", ""),
    (r"^ *(\||#).*$", "\n"),  # tables and headings
    (r"!\[[^\]]*\]\([^)]*\)", ""),  # pictures
    (r"\[([^\]]*)\]\([^)]*\)", r"\1"),  # links
    (r"`[^`]*`", "Code"),
    (r"^ *([-*]|[0-9]+\.) +", "\n\n"),  # a list item begins a sentence
    (r"\b(e\.g|i\.e|al|vs)\.", r"\1"),
)


def sentences(text: str) -> list[str]:
    """Sentences of a document's prose."""
    for pattern, put in _DROPPED:
        text = re.sub(pattern, put, text, flags=re.MULTILINE | (re.DOTALL if "```" in pattern else 0))
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        found += re.split(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z0-9*(\"'])", " ".join(paragraph.split()))
    return [sentence for sentence in found if len(words(sentence)) > 1]


def words(sentence: str) -> list[str]:
    """Words of a sentence: anything with a letter or digit between spaces."""
    return [word for word in sentence.split() if re.search(r"\w", word)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--long", type=int)
    options = parser.parse_args()
    for path in options.files:
        found = sentences(path.read_text())
        counts = sorted(len(words(sentence)) for sentence in found)
        ninetieth = counts[int(0.9 * (len(counts) - 1))]
        median = statistics.median(counts)
        print(f"{path}: {len(counts)} sentences, median {median:g}, 90th percentile {ninetieth}")
        for sentence in found:
            if options.long and len(words(sentence)) > options.long:
                print(f"  {len(words(sentence))}: {sentence}")


if __name__ == "__main__":
    main()
