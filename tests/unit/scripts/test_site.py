"""The site's links: from where they are in the repository to where they are in the site."""

from __future__ import annotations

import pytest

from scripts.site import relinked


@pytest.mark.parametrize(
    ("page", "written", "led"),
    [
        ("README.md", "[a](../README.md)", "[a](project/readme.md)"),
        ("tutorials/developer.md", "[a](../../CONTRIBUTING.md)", "[a](../project/contributing.md)"),
        ("tutorials/developer.md", "[a](../threats.md#x)", "[a](../threats.md#x)"),
        ("project/readme.md", "[a](docs/threats.md)", "[a](../threats.md)"),
        ("project/readme.md", "![a](docs/pictures/dispute.svg)", "![a](../pictures/dispute.svg)"),
        ("project/readme.md", "[a](LICENSE), [b](#map)", "a, [b](#map)"),
        ("tutorials/researcher.md", "[the notebook](../../examples/train_a_model.ipynb)", "the notebook"),
        ("concepts.md", "[a](https://example.org/x)", "[a](https://example.org/x)"),
        ("concepts.md", "`[a](../README.md)`", "`[a](../README.md)`"),
        ("concepts.md", "```text\n[a](../README.md)\n```", "```text\n[a](../README.md)\n```"),
        ("concepts.md", "[a](gone.md)", "a"),
    ],
)
def test_a_link_leads_where_it_led(page: str, written: str, led: str) -> None:
    assert relinked(written, page) == led
