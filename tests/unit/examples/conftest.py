"""The fetched job of the client's tests."""

from tests.unit.client.conftest import copy, fetched

__all__ = ["copy", "fetched"]
