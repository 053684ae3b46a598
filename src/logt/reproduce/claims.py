"""Claims of the paper, judged by what was measured: (figures) -> holds, holds in part, does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from logt.reproduce.trials import Mean

Verdict = Literal["holds", "holds in part", "does not hold", "undecided", "not tested"]
Test = bool | None
"""None: too near to tell with so few seeds."""

MARGIN = 0.5
"""mAP points below which two figures are level: less than the paper makes anything of."""

ONE_SEED = 0.5
"""The standard error of a difference that was measured once."""


@dataclass(frozen=True)
class Claim:
    """What is said, whether it holds on this data, and the figures that say so; said by the paper, or asked by us."""

    said: str
    verdict: Verdict
    found: str
    asked: bool = False


def above(a: Mean, b: Mean) -> bool:
    """By more than MARGIN and by two standard errors of the difference."""
    gap = a - b
    return gap.value > max(MARGIN, 2 * _error(gap))


def level(a: Mean, b: Mean) -> Test:
    gap = a - b
    return _within(abs(gap.value), _error(gap))


def reaches(a: Mean, b: Mean) -> Test:
    """Level or above."""
    gap = b - a
    return _within(gap.value, _error(gap))


def _error(gap: Mean) -> float:
    return gap.error if len(gap.values) > 1 else ONE_SEED


def _within(gap: float, error: float) -> Test:
    """Whether a gap is at most MARGIN; unknown, where it is more but two standard errors may be the reason."""
    if gap <= MARGIN:
        return True
    return None if gap - 2 * error <= MARGIN else False


def judged(tests: Sequence[Test]) -> Verdict:
    """All, some or none of the tests passed."""
    if not tests:
        return "not tested"
    known = [test for test in tests if test is not None]
    if not known:
        return "undecided"
    if all(known) and len(known) == len(tests):
        return "holds"
    return "holds in part" if any(known) else "does not hold"


def differences(pairs: Sequence[tuple[str, Mean, Mean]]) -> str:
    """The first minus the second, for each place: "-0.3 at n=20, +1.2 at n=50"."""
    return ", ".join(f"{(a - b).value:+.1f} at {place}" for place, a, b in pairs)
