"""Names the contract errors that mean a lost race: the call came too late or too early."""

from __future__ import annotations

LOST_RACES = frozenset(
    {
        "ShardTaken",
        "PriceBelow",
        "WrongPhase",
        "WrongRound",
        "RewoundSince",
        "WrongGame",
        "NotDue",
        "TickedLately",
        "NotStale",
        "NotStanding",
        "NotHolder",
        "DeadlinePassed",
        "DeadlineNotPassed",
        "EarlierUnsettled",
        "GamesOpen",
        "SeedUnavailable",
        "HeaderAwaited",
        "WrongHeader",
        "TooSoon",
        "NotYourMove",
        "PipelineFull",
        "RoundIncomplete",
        "NotFinished",
        "PlaceTaken",
        "Overtaken",
        "AlreadyVoted",
        "JobEnded",
        "WindowClosed",
        "NotDrawn",
        "WrongSeed",
        "NoReward",
    }
)
"""Errors of a lost race: somebody else was faster, or it is too early. The next poll decides again."""
