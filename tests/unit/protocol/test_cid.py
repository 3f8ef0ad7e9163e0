"""Content identifiers: published values, and one text per block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.protocol.cid import DAG_PB, RAW, Cid
from assay.protocol.errors import BadCid

EMPTY = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
cids = st.builds(Cid, st.sampled_from([RAW, DAG_PB]), st.binary(min_size=32, max_size=32))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", EMPTY),
        (b"hello world", "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"),
        (b"hello\n", "bafkreicysg23kiwv34eg2d7qweipxwosdo2py4ldv42nbauguluen5v6am"),
        (b"hello world\n", "bafkreifjjcie6lypi6ny7amxnfftagclbuxndqonfipmb64f2km2devei4"),
    ],
)
def test_published_raw_cids(data: bytes, text: str) -> None:
    assert str(Cid.of(data)) == text
    assert Cid.parse(text).matches(data)


@given(cids)
def test_text_and_bytes_round_trip(cid: Cid) -> None:
    assert Cid.parse(str(cid)) == cid
    assert Cid.from_bytes(cid.to_bytes()) == cid
    assert len(str(cid)) == 59


@given(cids, st.integers(0, 58), st.characters())
def test_another_text_never_names_the_same_block(cid: Cid, at: int, character: str) -> None:
    text = str(cid)
    changed = text[:at] + character + text[at + 1 :]
    if changed == text:
        return
    try:
        parsed = Cid.parse(changed)
    except BadCid:
        return
    assert parsed != cid
    assert str(parsed) == changed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b",
        EMPTY.upper(),
        "B" + EMPTY[1:],
        EMPTY[:-1],
        EMPTY + "a",
        EMPTY + "=",
        " " + EMPTY[1:],
        "../" + EMPTY[3:],
        EMPTY[:-1] + "1",
        EMPTY[:-1] + "ſ",
        "QmbWqxBEKC3P8tqsKc98xmWNzrzDtRLMiMPL8wBuTGsMnR",
        "bafyreiaocls5bt2ha5vszv5pwz34zzcdf3axk3uqa56bgsgvlkbezw67hq",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(BadCid):
        Cid.parse(text)


def test_stray_bits_after_the_digest_are_refused() -> None:
    """The last character carries two bits too many: all but one of the four spellings are refused."""
    spellings = [
        EMPTY[:-1] + last for last in ALPHABET if ALPHABET.index(last) // 4 == ALPHABET.index("u") // 4
    ]
    accepted = []
    for text in spellings:
        try:
            accepted.append(str(Cid.parse(text)))
        except BadCid:
            continue
    assert accepted == [EMPTY]


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_other_versions_codecs_and_hashes_are_refused(at: int) -> None:
    data = bytearray(Cid.parse(EMPTY).to_bytes())
    data[at] ^= 0x02
    with pytest.raises(BadCid):
        Cid.from_bytes(bytes(data))


def test_constructor_refuses_bad_parts() -> None:
    with pytest.raises(BadCid):
        Cid(0x71, bytes(32))
    with pytest.raises(BadCid):
        Cid(RAW, bytes(31))
