"""The systems side by side. A system is built once; each of its settings searches it, on one thread."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from typing import Any

from logt.baselines import HNSW, Composed, Exhaustive, Faiss, Smoothed, System, Turbovec
from logt.methods import compact, lo_gt, sketched, starred


@dataclass(frozen=True)
class Compared:
    """A system and the settings of its search, by name."""

    system: System
    settings: dict[str, dict[str, Any]] = field(default_factory=lambda: {"": {}})

    @property
    def name(self) -> str:
        return self.system.name


def systems() -> list[Compared]:
    """Rivals that are not installed are left out."""
    efforts = {f"effort {e}": {"effort": e} for e in (0.2, 0.3, 0.375, 0.5, 0.6, 0.8, 1.0)}
    cascades = {"": {"p": 1.0}, "p=0.2": {"p": 0.2}, "p=0.3": {"p": 0.3}, "p=0.5": {"p": 0.5}, "p=0.7": {"p": 0.7}}
    both = {name: {**cascade, "correct": False} for name, cascade in cascades.items()}
    both["p=0.7, corrected (LO-GT*)"] = {"p": 0.7}
    one_bit, four_bits = Composed(sketched(bits=1), "logt 1 bit"), Composed(sketched(bits=4), "logt 4 bits")
    found = [
        Compared(Exhaustive()),
        Compared(Composed(sketched(), "logt"), efforts),
        Compared(one_bit, {"effort 0.375": {"effort": 0.375}, "effort 1.0": {"effort": 1.0}}),
        Compared(Smoothed(one_bit), {"effort 0.375": {"effort": 0.375}}),
        Compared(four_bits, {"effort 0.375": {"effort": 0.375}, "effort 0.6": {"effort": 0.6}}),
        Compared(Composed(compact(lo_gt(L=100)), "LO-GT L=100"), cascades),
        Compared(Composed(compact(starred(lo_gt(L=300))), "LO-GT L=300"), both),
    ]
    if importlib.util.find_spec("faiss"):
        found += [
            Compared(Faiss("SQ8")),
            Compared(Faiss("SQ4")),
            Compared(Faiss("IVF512,SQ8"), {f"{n} lists": {"nprobe": n} for n in (4, 16, 64)}),
            Compared(Faiss("IVF512,RaBitQ"), {"16 lists": {"nprobe": 16}}),
            Compared(HNSW(), {f"ef={ef}": {"ef": ef} for ef in (128, 500)}),
        ]
    if importlib.util.find_spec("turbovec"):
        found += [Compared(Turbovec(bits)) for bits in (2, 4)]
    return found
