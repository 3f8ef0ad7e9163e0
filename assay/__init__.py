"""Assay: a market for machine-learning training compute in which nobody has to be trusted.

One package for everything that is installed. `chain`, `solver`, `verifier` and `whistleblower` stand at
the top of a checkout, are links here, and are imported as `assay.chain` and so on
(docs/decisions/0029-layout.md).

To have a model trained from Python::

    import asyncio

    import assay

    with assay.connect(account="client") as market:
        data = assay.text("my_texts/", context=128)
        job = market.post(model, assay.cross_entropy, assay.AdamW(lr=3e-4), data, budget="400tok")
        asyncio.run(job.wait())
        trained = job.fetch()

The names below are imported when they are first used, so that `import assay` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.api.job import Job as Job
    from assay.api.market import Balance as Balance
    from assay.api.market import Market as Market
    from assay.api.market import connect as connect
    from assay.api.plan import Plan as Plan
    from assay.client.job_events import JobEvent as JobEvent
    from assay.client.job_events import JobEventKind as JobEventKind
    from assay.protocol.errors import AssayError as AssayError
    from assay.training.algorithms import Algorithm as Algorithm
    from assay.training.datasets import Dataset as Dataset
    from assay.training.datasets import LabelledLayout as LabelledLayout
    from assay.training.datasets import TextLayout as TextLayout
    from assay.training.datasets import text as text
    from assay.training.losses import cross_entropy as cross_entropy
    from assay.training.optimisers import AdamW as AdamW
    from assay.training.optimisers import Lion as Lion
    from assay.training.optimisers import Muon as Muon
    from assay.training.optimisers import Sgd as Sgd
    from assay.training.schedules import Schedule as Schedule

_MODULES = {
    "assay.api.job": ("Job",),
    "assay.api.market": ("Balance", "Market", "connect"),
    "assay.api.plan": ("Plan",),
    "assay.client.job_events": ("JobEvent", "JobEventKind"),
    "assay.protocol.errors": ("AssayError",),
    "assay.training.algorithms": ("Algorithm",),
    "assay.training.datasets": ("Dataset", "LabelledLayout", "TextLayout", "text"),
    "assay.training.losses": ("cross_entropy",),
    "assay.training.optimisers": ("AdamW", "Lion", "Muon", "Sgd"),
    "assay.training.schedules": ("Schedule",),
}
FRONT_DOOR = "assay-market"
"""Identifies this package: another distribution may install one of this name
(docs/decisions/0029-layout.md)."""
_ORIGINS = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_ORIGINS)


def __getattr__(name: str) -> Any:
    if name not in _ORIGINS:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    return getattr(import_module(_ORIGINS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ORIGINS})
