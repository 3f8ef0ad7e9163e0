"""Defines the errors of all packages by what the caller must do: retry, stop, or ask a person.

Contract: every error that crosses a package boundary is an `AssayError`. It has a stable kebab-case `code`, a
message that states cause and consequence, and a `hint` that names the next step. Cheating is never an error:
it is a value.
"""

from __future__ import annotations

from collections.abc import Callable


class AssayError(Exception):
    """Base class of all errors with a code, a message and a hint."""

    code: str = "assay-error"

    def __init__(self, message: str, *, hint: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(
                f"next: {hint}"
            )  # Python shows it below the message, where nobody catches the error
        if code is not None:
            self.code = code

    def __reduce__(self) -> tuple[Callable[..., AssayError], tuple[object, ...]]:
        """Pickles the error whatever its constructor takes: processes send errors to each other."""
        return _as_it_was, (type(self), self.args, self.__dict__)


def _as_it_was(kind: type[AssayError], args: tuple[object, ...], about: dict[str, object]) -> AssayError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(about)
    return error


class Retry(AssayError):
    """The same call may succeed later or elsewhere."""

    code = "retry"


class Stop(AssayError):
    """The same call will never succeed: the input itself is at fault."""

    code = "stop"


class Ask(AssayError):
    """A person must decide or change something before the call can succeed."""

    code = "ask"


class Unknown(Retry):
    """The market has no such job, claim or game: it does not exist yet, or a reorganisation removed it."""

    code = "not-found"


class BlockNotFound(Retry):
    """No reachable store has the block."""

    code = "block-not-found"


class Deferred(Retry):
    """The caller's time for fetching is used up; blocks received so far are kept, and a later call fetches
    the rest."""

    code = "put-off"


class CorruptBlock(Retry):
    """A store or a peer returned bytes that do not match the CID."""

    code = "corrupt-block"


class BlockTooLarge(Stop):
    """A block exceeds the largest size that the network carries."""

    code = "block-too-large"


class BadFile(Stop):
    """The blocks match their CIDs but do not form a file: whoever made the file's CID is at fault."""

    code = "bad-file"


class BadCid(Stop):
    """The text or bytes are not a canonical content identifier."""

    code = "bad-cid"


class PeerUnreachable(Retry):
    """A peer did not answer in time or answered with a failure."""

    code = "peer-unreachable"


class RpcUnreachable(Retry):
    """The chain's RPC endpoint did not answer, answered with a failure, or contradicted itself."""

    code = "rpc-unreachable"


class Reverted(Stop):
    """The contracts refused the call; `error` is the custom error's name and `args` its decoded arguments."""

    code = "reverted"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        code: str | None = None,
        error: str = "",
        args: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.error = error
        self.arguments: dict[str, object] = {} if args is None else args


class InsufficientFunds(Ask):
    """The account cannot pay for the transaction's value and gas."""

    code = "insufficient-funds"
