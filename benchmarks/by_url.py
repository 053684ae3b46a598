"""Bytes that an index by URL fetches: when it is opened, and for searches.

    python -m benchmarks.by_url --index build/scale/index-200000-512-100000

The store is in the memory of this process, so that bytes and requests are counted, not times.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile

import logt
from benchmarks.synthetic_blocks import Model
from logt.storage.places import RemotePlace

URL, COUNTS = "memory://index", (1, 10, 100)


class Counter:
    """Counts the bytes and the requests of reads."""

    def __init__(self) -> None:
        self.bytes = self.requests = 0
        read, read_ranges = RemotePlace.read, RemotePlace.read_ranges

        def counted_read(place, *given):
            data = read(place, *given)
            self.note([data])
            return data

        def counted_ranges(place, ranges):
            parts = read_ranges(place, ranges)
            self.note(parts)
            return parts

        RemotePlace.read, RemotePlace.read_ranges = counted_read, counted_ranges

    def note(self, parts: list[bytes]) -> None:
        self.bytes += sum(map(len, parts))
        self.requests += len(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", required=True, help="the folder of an index of the vectors of make scale")
    args = parser.parse_args()
    here = logt.open(args.index)
    here.save(URL)
    whole = sum(size for size, _ in RemotePlace(URL).versions().values())
    Q = Model(here.dim).draw(COUNTS[-1], [1 << 30])
    count = Counter()

    def show(what: str) -> None:
        print(
            f"{what:<36}{count.bytes / 1e6:10.2f} MB {100 * count.bytes / whole:7.2f} % {count.requests:7} requests"
        )

    print(f"{len(here):,} vectors, {whole / 1e6:.1f} MB")
    for name, used in (("default", {}), ("effort 0.5", {"effort": 0.5}), ("nprobe 1", {"nprobe": 1})):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["LOGT_CACHE"] = folder
            count.bytes = count.requests = 0
            index = logt.open(URL)
            show(f"{name}: open")
            done = 0
            for upto in COUNTS:
                for q in Q[done:upto]:
                    assert (index.search(q, 10, **used).ids == here.search(q, 10, **used).ids).all()
                done = upto
                show(f"{name}: and {upto} searches")
            del index
            gc.collect()


if __name__ == "__main__":
    main()
