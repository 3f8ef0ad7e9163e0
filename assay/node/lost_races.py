"""What the contracts say to whoever comes too late or too early."""

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
"""Refusals that mean: somebody else was faster, or it is too early. The next reading decides anew."""
