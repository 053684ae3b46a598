"""Claims and their verdicts, computed from the measured values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from logt.reproduce.trials import SeedMean

Verdict = Literal["holds", "holds in part", "does not hold", "undecided", "not tested"]
Outcome = bool | None
"""The outcome of one test; None if the difference is too small to decide with so few seeds."""

MARGIN = 0.5
"""Points of mAP up to which two values count as equal; the paper draws no conclusion from less."""

SINGLE_SEED_ERROR = 0.5
"""The standard error assumed for a difference that was measured with one seed."""


@dataclass(frozen=True)
class Claim:
    """A statement, whether it holds on this data, and the values that show it.

    from_paper: the paper makes the claim; otherwise it is a question of our own.
    """

    statement: str
    verdict: Verdict
    evidence: str
    from_paper: bool = True


class Pair(NamedTuple):
    """The mAP of two systems at the same setting, such as "n=20"."""

    setting: str
    first: SeedMean
    second: SeedMean


def above(a: SeedMean, b: SeedMean) -> bool:
    """Return whether a is larger than b by more than MARGIN and by more than two standard errors."""
    gap = a - b
    return gap.mean > max(MARGIN, 2 * _standard_error(gap))


def equal(a: SeedMean, b: SeedMean) -> Outcome:
    """Return whether two values differ by at most MARGIN."""
    gap = a - b
    return _within_margin(abs(gap.mean), _standard_error(gap))


def reaches(a: SeedMean, b: SeedMean) -> Outcome:
    """Return whether a is equal to b or larger."""
    gap = b - a
    return _within_margin(gap.mean, _standard_error(gap))


def judge(outcomes: Sequence[Outcome]) -> Verdict:
    """Return the verdict on a claim from the outcomes of its tests."""
    if not outcomes:
        return "not tested"
    known = [outcome for outcome in outcomes if outcome is not None]
    if not known:
        return "undecided"
    if all(known) and len(known) == len(outcomes):
        return "holds"
    return "holds in part" if any(known) else "does not hold"


def judge_above(pairs: Sequence[Pair]) -> Verdict:
    """Return the verdict on the claim that the first value of each pair is above the second."""
    return judge([above(pair.first, pair.second) for pair in pairs])


def format_differences(pairs: Sequence[Pair]) -> str:
    """Return the first value minus the second for each setting: "-0.3 at n=20, +1.2 at n=50"."""
    return ", ".join(f"{(pair.first - pair.second).mean:+.1f} at {pair.setting}" for pair in pairs)


def _standard_error(gap: SeedMean) -> float:
    return gap.standard_error if len(gap.values) > 1 else SINGLE_SEED_ERROR


def _within_margin(gap: float, error: float) -> Outcome:
    """Return whether a gap is at most MARGIN; None if it is larger, but by less than two standard errors."""
    if gap <= MARGIN:
        return True
    return None if gap - 2 * error <= MARGIN else False
