"""The systems that bench.py compares: each is built once and searched with several settings."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from typing import Any

from logt.baselines import HNSW, Composed, Exhaustive, Faiss, Smoothed, System, Turbovec
from logt.methods import compact, lo_gt, sketched, starred


@dataclass(frozen=True)
class SystemSettings:
    """A system and the settings of its searches, by name."""

    system: System
    settings: dict[str, dict[str, Any]] = field(default_factory=lambda: {"": {}})

    @property
    def name(self) -> str:
        return self.system.name


def systems() -> list[SystemSettings]:
    """Return all systems whose libraries are installed, exhaustive search first."""
    return [SystemSettings(Exhaustive()), *_own_systems(), *_other_libraries()]


def _own_systems() -> list[SystemSettings]:
    cascades = {"": {"p": 1.0}, **{f"p={p}": {"p": p} for p in (0.2, 0.3, 0.5, 0.7)}}
    uncorrected: dict[str, dict[str, Any]] = {name: {**p, "correct": False} for name, p in cascades.items()}
    one_bit, four_bits = Composed(sketched(bits=1), "logt 1 bit"), Composed(sketched(bits=4), "logt 4 bits")
    without_refinement = Composed(sketched(refine=False), "logt without refinement")
    return [
        SystemSettings(
            Composed(sketched(), "logt"),
            {"": {}, "recall 0.95 of 100": {"recall": 0.95}, **_efforts(0.0, 0.2, 0.4, 0.6, 0.8, 1.0)},
        ),
        SystemSettings(one_bit, {"": {}}),
        SystemSettings(Smoothed(one_bit), {"": {}}),
        SystemSettings(four_bits, {"": {}}),
        SystemSettings(without_refinement, {"": {}}),
        SystemSettings(Composed(compact(lo_gt(L=100)), "LO-GT L=100"), cascades),
        SystemSettings(
            Composed(compact(starred(lo_gt(L=300))), "LO-GT L=300"),
            {**uncorrected, "p=0.7, corrected (LO-GT*)": {"p": 0.7}},
        ),
    ]


def _efforts(*efforts: float) -> dict[str, dict[str, Any]]:
    return {f"effort {effort}": {"effort": effort} for effort in efforts}


def _other_libraries() -> list[SystemSettings]:
    installed = []
    if importlib.util.find_spec("faiss"):
        installed += [
            SystemSettings(Faiss("SQ8")),
            SystemSettings(Faiss("SQ4")),
            SystemSettings(Faiss("IVF512,SQ8"), {f"{n} lists": {"nprobe": n} for n in (4, 16, 64)}),
            SystemSettings(Faiss("IVF512,RaBitQ"), {"16 lists": {"nprobe": 16}}),
            SystemSettings(HNSW(), {f"ef={ef}": {"ef": ef} for ef in (128, 500)}),
        ]
    if importlib.util.find_spec("turbovec"):
        installed += [SystemSettings(Turbovec(bits)) for bits in (2, 4)]
    return installed
