"""Announced addresses of block servers: the chain may hold any text, and few texts are one."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from assay.protocol.peer_url import LONGEST, BadPeerUrl, origin, peer_url

GOOD = {
    "http://a": "http://a",
    "HTTP://Host:8080/": "http://host:8080",
    "http://host:80/gw/": "http://host/gw",
    "https://host:443": "https://host",
    "https://host:80": "https://host:80",
    "http://203.0.113.7:65535": "http://203.0.113.7:65535",
    "http://[2001:DB8::0:7]:4001": "http://[2001:db8::7]:4001",
    "http://bücher.example": "http://xn--bcher-kva.example",
    "http://xn--bcher-kva.example/a-b_c~d.e": "http://xn--bcher-kva.example/a-b_c~d.e",
}
BAD = [
    *("", "a", "ftp://a", "file:///etc/passwd", "http://", "http:///x", "//a", "http:a"),
    *("http://xn--a", "http://xn--", "http://xn--999999999", "http://a..b", "http://-a", "http://a."),
    *("http://a_b", "http://" + "a" * 64, "http://" + "a." * 130 + "a", "http://a/" + "x" * LONGEST),
    *("http://a:0", "http://a:65536", "http://a:99999", "http://a:-1", "http://a:", "http://a:1e3"),
    *("http://a:٣", "http://a:999999999999", "http://u@a", "http://u:p@a", "http://a?x", "http://a/#"),
    *(
        "http://a/?x=1",
        "http://a/x?",
        "http://a\n",
        "\thttp://a",
        "http://a b",
        "http://a\x00",
        "http://a\x7f",
    ),
    *("http://a\u0085b", "http://a\u2028", "http://a\u00a0b", "http://a/%2e", "http://a\\b", "http://a/b c"),
    *("http://a/../b", "http://a/./b", "http://a//b", "http://a/é", "http://\ud800", "http://a/\ud800"),
    *("http://[::1", "http://::1", "http://[::1%25eth0]", "http://[fe80::1%eth0]", "http://[::g]"),
    *("http://0.0.0.0", "http://[::]", "http://1.2.3", "http://256.1.1.1", "http://2130706433"),
    *("http://0x7f000001", "http://127.1", "http://01.2.3.4", "http://a.0x", "http://1.2.3.4.5"),
]


@pytest.mark.parametrize(("url", "spelt"), GOOD.items())
def test_a_base_url_has_one_spelling(url: str, spelt: str) -> None:
    assert peer_url(url) == spelt == peer_url(spelt)


@pytest.mark.parametrize("url", BAD, ids=ascii)
def test_attack_T46_what_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(BadPeerUrl) as refused:
        peer_url(url)
    assert refused.value.message.isascii() and refused.value.message.isprintable()


@given(st.one_of(st.text(), st.text().map("http://".__add__), st.from_regex(r"https?://(xn--)?\w+(:\d+)?")))
@example("http://xn--a")
def test_attack_T46_whatever_it_is_it_is_one_or_is_refused(url: str) -> None:
    """And what is one means the same to the library that asks there."""
    try:
        spelt = peer_url(url)
    except BadPeerUrl:
        return
    parsed: Any = httpx.URL(spelt)
    parts = urlsplit(spelt)
    assert str(parsed) in (spelt, spelt + "/") and parsed.raw_host.decode().strip("[]") == parts.hostname
    assert 1 <= (parsed.port or 80) <= 65_535 and spelt.isascii() and peer_url(spelt) == spelt


def test_an_origin_has_no_path() -> None:
    assert origin("http://[::1]:8/a/b") == "http://[::1]:8" and origin("https://a") == "https://a"
