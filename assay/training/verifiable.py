"""Tasks with answers that a program can check: addition, sorting, brackets.

Contract: everything is PyTorch that can be lowered. A task draws problems with counter-based random numbers
and knows each one's only right answer, so a program that holds a problem's tokens can reward an answer.
Tokens are integer-valued f32; problems of a task have equal length, and so have answers. Not guaranteed: that
a task is worth learning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

PLUS, EQUALS = 10, 11
"""Tokens of addition; digits are their own tokens."""
ORDERED = 10
"""Token of sorting between the digits and the sorted digits."""


class Verifiable(ABC):
    """A task: a problem of `prompt` tokens, then an answer of `answer` tokens, each below `vocabulary`."""

    @property
    @abstractmethod
    def prompt(self) -> int:
        """Tokens of a problem."""

    @property
    @abstractmethod
    def answer(self) -> int:
        """Tokens of an answer."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Kinds of tokens, 0 to `vocabulary` - 1."""

    @property
    @abstractmethod
    def refused(self) -> tuple[str, str]:
        """Why a job cannot play it, and a fix; both empty if it can."""

    @abstractmethod
    def drawn(self, count: int) -> Tensor:
        """f32 [count, length]: random problems with their right answers."""

    @abstractmethod
    def right(self, tokens: Tensor) -> Tensor:
        """f32 [B, length]: the problems in f32 [B, length] tokens, with their right answers."""

    @property
    def length(self) -> int:
        """Tokens of both."""
        return self.prompt + self.answer

    def rewards(self, tokens: Tensor) -> Tensor:
        """f32 [B]: 1 where the answer in f32 [B, length] tokens is exactly right, else 0."""
        wrong = (tokens[:, self.prompt :] - self.right(tokens)[:, self.prompt :]).abs().sum(1)
        return (wrong == 0).float()


@dataclass(frozen=True)
class Addition(Verifiable):
    """a+b=c with two numbers of `digits` digits, and digits + 1 digits of answer, the least one first."""

    digits: int = 2

    @property
    def prompt(self) -> int:
        return 2 * self.digits + 2

    @property
    def answer(self) -> int:
        return self.digits + 1

    @property
    def vocabulary(self) -> int:
        return 12

    @property
    def refused(self) -> tuple[str, str]:
        many = self.digits > 3
        return ("numbers of more than three digits are not exact", "lower digits") if many else ("", "")

    def _digit(self, x: Tensor, place: int) -> Tensor:
        return (x / 10.0**place).floor() - 10 * (x / 10.0 ** (place + 1)).floor()

    def problems(self, a: Tensor, b: Tensor) -> Tensor:
        """f32 [B, length]: problems and their right answers, of whole f32 [B] numbers."""
        places = range(self.digits)
        a_digits = [self._digit(a, p) for p in reversed(places)]
        b_digits = [self._digit(b, p) for p in reversed(places)]
        plus, equals = torch.full_like(a, PLUS), torch.full_like(a, EQUALS)
        right = [self._digit(a + b, p) for p in range(self.answer)]
        return torch.stack([*a_digits, plus, *b_digits, equals, *right], 1)

    def drawn(self, count: int) -> Tensor:
        top = 10.0**self.digits
        return self.problems((torch.rand(count) * top).floor(), (torch.rand(count) * top).floor())

    def _number(self, digits: Tensor) -> Tensor:
        total = torch.zeros_like(digits[:, 0])
        for i in range(digits.shape[1]):
            total = total * 10 + digits[:, i]
        return total

    def right(self, tokens: Tensor) -> Tensor:
        n = self.digits
        return self.problems(self._number(tokens[:, :n]), self._number(tokens[:, n + 1 : 2 * n + 1]))


@dataclass(frozen=True)
class Sorting(Verifiable):
    """`digits` digits, a sign, and the same digits from the least to the greatest."""

    digits: int = 3

    @property
    def prompt(self) -> int:
        return self.digits + 1

    @property
    def answer(self) -> int:
        return self.digits

    @property
    def vocabulary(self) -> int:
        return 11

    @property
    def refused(self) -> tuple[str, str]:
        return ("one digit is in order as it is", "write digits = 2 or more") if self.digits < 2 else ("", "")

    def problems(self, digits: Tensor) -> Tensor:
        """f32 [B, length]: problems and their right answers, of whole f32 [B, digits] below 10."""
        sign = torch.full_like(digits[:, :1], ORDERED)
        return torch.cat([digits, sign, torch.sort(digits, 1).values], 1)

    def drawn(self, count: int) -> Tensor:
        return self.problems((torch.rand(count, self.digits) * 10).floor())

    def right(self, tokens: Tensor) -> Tensor:
        return self.problems(tokens[:, : self.digits])


@dataclass(frozen=True)
class Brackets(Verifiable):
    """`depth` opening brackets of `kinds` kinds, a sign, and those that close them, the last one first.

    Kind k opens with token k and closes with kinds + k; the sign is 2·kinds.
    """

    depth: int = 3
    kinds: int = 3

    @property
    def prompt(self) -> int:
        return self.depth + 1

    @property
    def answer(self) -> int:
        return self.depth

    @property
    def vocabulary(self) -> int:
        return 2 * self.kinds + 1

    @property
    def refused(self) -> tuple[str, str]:
        one = self.kinds < 2
        return (
            ("brackets of one kind all have the same answer", "write kinds = 2 or more") if one else ("", "")
        )

    def problems(self, opened: Tensor) -> Tensor:
        """f32 [B, length]: problems and their right answers, of whole f32 [B, depth] below `kinds`."""
        sign = torch.full_like(opened[:, :1], 2 * self.kinds)
        return torch.cat([opened, sign, opened.flip(1) + self.kinds], 1)

    def drawn(self, count: int) -> Tensor:
        return self.problems((torch.rand(count, self.depth) * self.kinds).floor())

    def right(self, tokens: Tensor) -> Tensor:
        return self.problems(tokens[:, : self.depth])
