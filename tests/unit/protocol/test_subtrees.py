"""Trees put together from their aligned subtrees are the trees over all leaves."""

from __future__ import annotations

import pytest

from protocol import trees


def leaves(count: int) -> list[bytes]:
    return [trees.leaf(bytes([i % 256, i // 256])) for i in range(count)]


@pytest.mark.parametrize("height", [1, 2, 3])
@pytest.mark.parametrize("count", [5, 8, 9, 15, 16, 17, 33])
def test_joined_subtrees_are_the_tree(count: int, height: int) -> None:
    digests, width = leaves(count), 1 << height
    if count <= width:
        with pytest.raises(ValueError):
            trees.join([trees.subtree(digests, height)], height, count)
        return
    parts = [trees.subtree(digests[i : i + width], height) for i in range(0, count, width)]
    assert trees.join(parts, height, count) == trees.root(digests)
    with pytest.raises(ValueError):
        trees.join(parts[:-1], height, count)
    with pytest.raises(ValueError):
        trees.join([*parts, parts[0]], height, count)


def test_a_subtree_of_the_whole_depth_is_the_tree() -> None:
    for count in range(1, 20):
        assert trees.subtree(leaves(count), trees.depth(count)) == trees.root(leaves(count))


def test_a_subtree_holds_no_more_than_its_width() -> None:
    for wrong in ([], leaves(5)):
        with pytest.raises(ValueError):
            trees.subtree(wrong, 2)
