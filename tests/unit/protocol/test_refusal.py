"""How the pure rules say no."""

from __future__ import annotations

import pytest

from assay.protocol.game import IllegalMove
from assay.protocol.refusal import Refused, require


def test_what_holds_passes_and_what_does_not_is_named_as_the_contracts_do() -> None:
    require(True, "NotClient")
    with pytest.raises(Refused) as refused:
        require(False, "NotClient", "somebody else's job")
    assert refused.value.error == "NotClient" and str(refused.value) == "NotClient: somebody else's job"


def test_without_a_reason_the_name_is_all() -> None:
    assert str(Refused("NothingDue")) == "NothingDue"


def test_an_illegal_move_is_refused_like_anything_else() -> None:
    assert issubclass(IllegalMove, Refused) and issubclass(Refused, ValueError)
