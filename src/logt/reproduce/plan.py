"""The settings of the experiments: those of the paper, or fewer."""

from __future__ import annotations

from dataclasses import dataclass, replace

PAPER_L = 300
"""Entries per vector in the paper's main setting, for 2048 dimensions."""


@dataclass(frozen=True)
class Plan:
    """The settings of section 4, with the paper's symbols; an experiment runs all values of a tuple.

    count, dim: the number of vectors and their dimension. n, m, p, R: their values where they are not varied.
    unit_sizes, ms, Ls, ps, batches, cs: values of n, m, L, p, b and c, the bytes per memory vector.
    dictionary_batches: values of b for dictionary learning. verified: fractions of N that back-propagation verifies.
    flann_sample: vectors that FLANN tunes itself on. flann_checks: fractions of N that its trees compare.
    efs, efforts: of HNSW and of the default index. seeds, dense_seeds: number of repetitions.
    list_length: length to which lists are truncated to compare all systems in the same way.
    """

    dim: int
    count: int
    n: int = 50
    m: int = 4
    p: float = 0.7
    R: int = 1000
    unit_sizes: tuple[int, ...] = (20, 30, 50, 100)
    ms: tuple[int, ...] = (2, 3, 4, 5)
    Ls: tuple[int, ...] = (50, 100, 150, 200, 250, PAPER_L)
    ps: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    batches: tuple[int, ...] = (1, 10, 20, 50, 100)
    dictionary_batches: tuple[int, ...] = (1, 10, 100)
    cs: tuple[int, ...] = (256, 32, 16)
    verified: tuple[float, ...] = (0.02, 0.05, 0.1, 0.278)
    flann_sample: int = 2000
    flann_checks: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3)
    efs: tuple[int, ...] = (32, 64, 128, 256, 512, 1000)
    efforts: tuple[float, ...] = (0.25, 0.3, 0.375, 0.5, 0.6, 0.8)
    seeds: int = 3
    dense_seeds: int = 1
    list_length: int = 1000

    @property
    def L(self) -> int:
        """Entries per vector where L is not varied."""
        return max(self.Ls)

    @classmethod
    def from_shape(cls, count: int, dim: int, *, quick: bool = False) -> Plan:
        """Return the paper's settings, or fewer with `quick`; L is scaled down if d/4 is below PAPER_L."""
        plan = cls(dim, count, R=min(1000, max(1, count // 10)), list_length=min(1000, count))
        scale = min(1.0, dim / 4 / PAPER_L)
        plan = replace(
            plan,
            Ls=tuple(sorted({max(1, round(L * scale)) for L in plan.Ls})),
            cs=tuple(c for c in plan.cs if c <= dim),
            batches=plan.feasible(plan.batches),
            dictionary_batches=plan.feasible(plan.dictionary_batches),
        )
        return plan.shortened() if quick else plan

    def feasible(self, batches: tuple[int, ...]) -> tuple[int, ...]:
        """Return the numbers of batches that leave at least two units per batch."""
        return tuple(b for b in batches if b == 1 or self.count // b >= 2 * self.n)

    def shortened(self) -> Plan:
        return replace(
            self,
            unit_sizes=(20, 50, 100),
            ms=(2, 3, 4),
            Ls=self.Ls[1::2],
            ps=(0.5, 0.7, 0.9, 1.0),
            batches=self.feasible((1, 5, 20)),
            dictionary_batches=self.feasible((1, 20)),
            verified=(0.05, 0.278),
            flann_sample=500,
            flann_checks=(0.01, 0.1, 0.3),
            efs=(32, 128, 512),
            efforts=(0.25, 0.375, 0.6),
            seeds=2,
        )
