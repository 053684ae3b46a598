"""What bench.py derives from its rows: times at equal recall, by interpolation, and who is fastest."""

from collections.abc import Iterable

import numpy as np

HELD_OUT, QUERIES = "recall, held out", "recall, queries"
TARGETS = [*((HELD_OUT, target) for target in (0.80, 0.90, 0.95, 0.98)), *((QUERIES, t) for t in (0.95, 0.99))]
TIMES = {"one query": "ms, one query", "batch": "ms, batch"}
RAM = "bytes in RAM"
OWN = "logt"  # the default index


def by_system(rows: Iterable[dict]) -> dict[str, list[dict]]:
    """Return the rows of each system, in the order of their first row."""
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["system"], []).append(row)
    return groups


def pareto(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (recall, time) that no other point beats in both, by increasing recall."""
    kept: list[tuple[float, float]] = []
    for recall, time in sorted(points, key=lambda point: (-point[0], point[1])):
        if not kept or time < kept[-1][1]:
            kept.append((recall, time))
    return kept[::-1]


def time_at(points: Iterable[tuple[float, float]], recall: float) -> float | None:
    """Return the time at a recall, between the settings on both sides of it; None if no setting reaches it.

    The logarithm of the time is interpolated. If all settings have a higher recall, it is the time of the fastest.
    """
    frontier = pareto(points)
    if not frontier or frontier[-1][0] < recall:
        return None
    recalls, times = np.array(frontier).T
    return float(np.exp(np.interp(recall, recalls, np.log(times))))


def interpolated(rows: list[dict], targets: Iterable[tuple[str, float]] = TARGETS) -> list[dict]:
    """Return, for each system, its bytes and its times at each target."""
    table = []
    for system, group in by_system(rows).items():
        row = {name: group[0][name] for name in ("library", "version")} | {"system": system}
        row |= {name: group[0][name] for name in (RAM, "bytes on disk", "build s")}
        for kind, column in TIMES.items():
            for measure, target in targets:
                time = time_at([(r[measure], r[column]) for r in group], target)
                row[f"{kind}, {measure} {target:.2f}"] = "" if time is None else round(time, 4)
        table.append(row)
    return table


def compare(table: list[dict]) -> list[dict]:
    """Return the default index next to the fastest other library, at each target.

    Once that of libraries with at most twice its RAM, once that of all. Exhaustive search and the paper's method are
    not other libraries.
    """
    own = next((row for row in table if row["system"] == OWN), None)
    if own is None:
        return []
    others = [row for row in table if row["library"] != own["library"]]
    small = [row for row in others if row[RAM] <= 2 * own[RAM]]
    compared = []
    for kind in TIMES:
        for measure, target in TARGETS:
            column = f"{kind}, {measure} {target:.2f}"
            row = {"target": column, OWN: own[column]}
            for name, group in (("at most twice the RAM", small), ("all", others)):
                best = min((r for r in group if r[column] != ""), key=lambda r: r[column], default=None)
                row[f"fastest, {name}"] = "" if best is None else best["system"]
                row[f"ms, {name}"] = "" if best is None else best[column]
                both = best is not None and own[column] != ""
                row[f"ratio, {name}"] = round(own[column] / best[column], 2) if both else ""
            compared.append(row)
    return compared


def markdown(rows: list[dict]) -> str:
    """Return a table."""
    if not rows:
        return ""
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows]
    return "\n".join(lines) + "\n"
