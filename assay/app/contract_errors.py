"""Explains contract errors in words: amounts in tokens, times as dates, and the next step.

Contract: one sentence for each refusal that a user's command can meet; any other keeps the contract's words.
The error's code and arguments stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from assay.app.units import show_amount
from assay.protocol.errors import Reverted
from assay.protocol.types import Business, Role

Said = tuple[str, str]
"""What happened, and what to do next."""


def _on(moment: Any) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(int(moment)))


def _role(number: Any) -> str:
    return Role(int(number)).name.lower()


_WORDS: Mapping[str, Callable[[Mapping[str, Any]], Said]] = {
    "NotDue": lambda a: (f"it is too early: this can be done from {_on(a['due'])} on", "wait until then"),
    "InsufficientStake": lambda a: (
        f"{a['account']} has {show_amount(a['unlocked'])} of {_role(a['role'])} stake that nothing locks, and"
        f" {show_amount(a['asked'])} are needed",
        f"deposit more (`assay stake deposit AMOUNT --role {_role(a['role'])}`), or wait until claims settle",
    ),
    "BeyondCap": lambda a: (
        f"the owner of {a['account']} lets it lock {show_amount(a['room'])} more of {_role(a['role'])} stake"
        f" for jobs of {a['client']}, and {show_amount(a['asked'])} are needed",
        "its owner raises the cap (`assay operator cap`, `assay operator cap-client`), or wait until claims"
        " settle; `assay operator show` tells what was lost under it",
    ),
    "BeyondAllowance": lambda a: (
        f"{a['operator']} is an operator: its owner lets it put {show_amount(a['left'])} more into jobs, and"
        f" {show_amount(a['asked'])} are needed",
        "post with the owner's account, or let the owner allow it (`assay operator allow`)",
    ),
    "InsufficientBalance": lambda a: (
        f"the balance in the vault is {show_amount(a['there'])}, and {show_amount(a['asked'])} are needed",
        "deposit more (`assay token deposit AMOUNT`), or ask for less",
    ),
    "ERC20InsufficientBalance": lambda a: (
        f"the wallet of {a['sender']} has {show_amount(a['balance'])}, and {show_amount(a['needed'])} are"
        " needed",
        "ask for less, or send the account tokens; `assay account balance` shows what it has",
    ),
    "ZeroAmount": lambda a: ("an amount of nothing moves nothing", "give an amount above 0tok"),
    "NoSuchRequest": lambda a: (
        f"there is no unbonding request {a['index']}, or it was withdrawn already",
        "`assay stake ls` lists the requests",
    ),
    "NotOwner": lambda a: (f"only the owner, {a['owner']}, may do that", "use the owner's --account"),
    "NotClient": lambda a: (
        f"only the job's client, {a['client']}, may do that",
        "use the client's --account",
    ),
    "NotPauser": lambda a: (f"only the pauser, {a['pauser']}, may do that", "use the pauser's --account"),
    "NotHolder": lambda a: (f"the shard is held by {a['holder']}", "`assay job show JOB` shows the shards"),
    "JobEnded": lambda a: ("the job has ended", "`assay job show JOB` shows how"),
    "JobExists": lambda a: ("this very job was posted already", "`assay job ls` shows it"),
    "NotFinished": lambda a: ("the job is not finished yet", "`assay job show JOB` shows what is missing"),
    "BudgetTooSmall": lambda a: (
        f"the budget is {show_amount(a['given'])}, and at worst the job pays {show_amount(a['needed'])}",
        f"raise the budget by {show_amount(a['needed'] - a['given'])}, or lower rounds, shards or prices",
    ),
    "DepositTooSmall": lambda a: (
        f"the deposit is {show_amount(a['given'])}, and at least {show_amount(a['needed'])} are needed",
        "raise the deposit",
    ),
    "BusinessPaused": lambda a: (
        f"new {Business(int(a['business'])).name.lower()} are paused",
        "`assay guardian show` says by whom; what is under way goes on",
    ),
    "DeadlinePassed": lambda a: (
        f"the time for this ended at {_on(a['deadline'])}",
        "nothing can be done now",
    ),
    "DeadlineNotPassed": lambda a: (
        f"the other side has until {_on(a['deadline'])}",
        "wait until then",
    ),
    "TickedLately": lambda a: (
        f"the market's clock was ticked lately, and may be again from block {a['dueBlock']} on",
        "wait for that block",
    ),
    "WindowClosed": lambda a: (
        f"the challenge window ended at {_on(a['end'])}",
        "nothing can be challenged there any more",
    ),
    "NotYourMove": lambda a: (
        f"it is {a['expected']}'s move",
        "wait; `assay dispute show GAME` has the clock",
    ),
    "TooSoon": lambda a: ("the announcement has to be a block old", "repeat the command"),
    "AlreadyUnbinding": lambda a: (f"this was asked for already; due {_on(a['due'])}", "wait until then"),
    "ConsentExpired": lambda a: (
        f"the consent ended at {_on(a['expiry'])}",
        "have the operator sign another: `assay operator consent OWNER`",
    ),
    "Expired": lambda a: (
        f"the invitation ended at {_on(a['expiry'])}",
        "have the leader write another: `assay crew invite`",
    ),
    "TaskOwed": lambda a: (
        "the crew's task of this round is not committed, so its shard is not given back",
        "wait until the task is committed; once its deadline has passed, `assay crew leave` ends it, and the"
        " leader loses the penalty",
    ),
    "StillLocked": lambda a: (
        f"{show_amount(a['locked'])} of the crew's stake are locked for claims that have not ended",
        "wait until they settle",
    ),
}


def in_words(error: Reverted) -> Reverted:
    """The error with an explanation as message; unchanged if there is none."""
    say = _WORDS.get(error.error)
    if say is None:
        return error
    try:
        what, todo = say(error.arguments)
    except (KeyError, ValueError, TypeError):  # another contract's error of the same name
        return error
    purpose, _, _ = error.message.partition(": refused by the contract")
    spent = "; its gas is spent" if "gas is spent" in error.message else "; nothing was sent"
    return Reverted(
        f"{purpose}: {what} ({error.error}){spent}",
        hint=todo,
        code=error.code,
        error=error.error,
        args=error.arguments,
    )
