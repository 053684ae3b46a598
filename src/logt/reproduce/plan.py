"""What the experiments vary, and how far: the paper's settings, or fewer of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

PAPER_L = 300
"""The entries per vector of the paper's main setting, for its 2048 dimensions."""


@dataclass(frozen=True)
class Plan:
    """The settings of section 4. Symbols are the paper's; tuples are what an experiment goes through."""

    dim: int
    count: int
    n: int = 50
    m: int = 4
    sizes: tuple[int, ...] = (20, 30, 50, 100)
    ms: tuple[int, ...] = (2, 3, 4, 5)
    Ls: tuple[int, ...] = (50, 100, 150, 200, 250, PAPER_L)
    ps: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    R: int = 1000
    batches: tuple[int, ...] = (1, 10, 20, 50, 100)
    bytes: tuple[int, ...] = (256, 32, 16)
    verified: tuple[float, ...] = (0.02, 0.05, 0.1, 0.278)
    opened: float = 0.1
    unit: int = 25
    cascade: float = 0.7
    code: int = 256
    learned_batches: tuple[int, ...] = (1, 10, 100)
    flann_sample: int = 2000
    checks: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3)
    efs: tuple[int, ...] = (32, 64, 128, 256, 512, 1000)
    efforts: tuple[float, ...] = (0.25, 0.3, 0.375, 0.5, 0.6, 0.8)
    seeds: int = 3
    dense_seeds: int = 1
    cut: int = 1000

    @property
    def L(self) -> int:
        """Entries per vector wherever they are not what is varied."""
        return max(self.Ls)

    def possible(self, batches: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers of batches that leave each batch a few units."""
        return tuple(b for b in batches if b == 1 or self.count // b >= 2 * self.n)

    @classmethod
    def of(cls, count: int, dim: int, *, quick: bool = False) -> Plan:
        """The paper's settings; L in proportion where d/4 is less than the largest of them, and few with `quick`."""
        plan = cls(dim, count, R=min(1000, max(1, count // 10)), cut=min(1000, count))
        share = min(1.0, dim / 4 / PAPER_L)
        plan = replace(
            plan,
            Ls=tuple(sorted({max(1, round(L * share)) for L in plan.Ls})),
            bytes=tuple(c for c in plan.bytes if c <= dim),
            code=max(c for c in (4, 8, 16, 32, 64, 128, 256) if dim % c == 0 or c == 4),
        )
        plan = replace(plan, batches=plan.possible(plan.batches), learned_batches=plan.possible(plan.learned_batches))
        if not quick:
            return plan
        return replace(
            plan,
            sizes=(20, 50, 100),
            ms=(2, 3, 4),
            Ls=plan.Ls[1::2],
            ps=(0.5, 0.7, 0.9, 1.0),
            batches=plan.possible((1, 5, 20)),
            learned_batches=plan.possible((1, 20)),
            verified=(0.05, 0.278),
            flann_sample=500,
            code=min(32, plan.code),
            checks=(0.01, 0.1, 0.3),
            efs=(32, 128, 512),
            efforts=(0.25, 0.375, 0.6),
            seeds=2,
        )
