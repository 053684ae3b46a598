"""Updating, a folder of pictures -> its index: describes what is new, forgets what is gone, can be stopped any time.

Descriptors are recorded in the catalogue as they are made; vectors follow. Each step may be repeated: the index takes
vectors in place of those it has, and is then made to hold exactly the pictures of the catalogue.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from logt._threads import Progress, Workers, available_cores
from logt._types import Floats
from logt._validation import check_int
from logt.descriptors import SCALES, DescriptorExtractor, ImageError, Model, Whitening, read_image
from logt.errors import CorruptIndexError, InvalidInputError
from logt.index import Index
from logt.methods import sketched
from logt.photos.catalog import CATALOGUE, Catalogue, Stamp
from logt.photos.folder_scan import Listing, listing
from logt.photos.manifest import ABOUT, About, vectors_folder, whitening_file
from logt.storage.files import replace_file
from logt.storage.lock import LOCK, Lock

HOME = ".logt"
"""Where the index of a folder lies unless told: in the folder."""

SETTLED = 4096
"""A whitening that was learned from so many pictures stays. One from fewer is learned anew as the folder grows."""

GROWTH = 1.25
"""Then it is learned anew for so many times the pictures."""

_SAMPLE = 20_000  # descriptors that a whitening is learned from at most
_BLOCK = 64  # pictures whose descriptors are recorded together: what is lost at most when the run is killed
_ROWS = 8192  # vectors made together
_SEGMENTS = 8  # more are joined at the end


@dataclass(frozen=True)
class Summary:
    """What an update did: how many pictures were new, changed, gone and as before, and which files failed and why."""

    added: int
    changed: int
    removed: int
    unchanged: int
    failed: list[tuple[str, str]] = field(default_factory=list)


def update(
    folder: str | Path,
    path: str | Path | None = None,
    *,
    model: str | Path | Model | None = None,
    scales: Sequence[float] | None = None,
    relearn: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Make the index at `path`, by default FOLDER/.logt, hold the pictures that the folder holds now.

    Only new and changed pictures are described, on `workers` threads. Killed at any moment, it goes on where it was
    when it is called again. `relearn` describes everything anew, with another model or scales if those are given.
    """
    pictures = Path(folder).resolve()
    if not pictures.is_dir():
        raise InvalidInputError(f"{folder} is not a folder")
    home = Path(path).resolve() if path is not None else pictures / HOME
    threads = available_cores() if workers is None else check_int("workers", workers)
    if not (home / ABOUT).exists():
        model = _describer(model, scales).model  # one that cannot be used is refused before anything is made
    with _held(home), closing(Catalogue(home)) as catalogue:
        about, describer = (_relearned if relearn else _opened)(pictures, home, catalogue, model, scales)
        run = _Update(home, pictures, catalogue, describer, about, Workers(threads, progress))
        return run(listing(pictures, home))


@contextmanager
def _held(home: Path) -> Iterator[None]:
    """The right to write to an index of photos, which is made where nothing is."""
    if home.exists():
        ours = home.is_dir() and {file.name for file in home.iterdir()} <= {LOCK, CATALOGUE, f"{CATALOGUE}-journal"}
        if not ours and not (home / ABOUT).is_file():
            raise InvalidInputError(f"{home} exists and is no index of photos; choose another path")
    home.mkdir(parents=True, exist_ok=True)
    with Lock(home):
        yield


def _opened(
    pictures: Path, home: Path, catalogue: Catalogue, model: str | Path | Model | None, scales: Sequence[float] | None
) -> tuple[About, DescriptorExtractor]:
    """What the index says of itself, or is to say, and what describes its pictures."""
    there = _there(pictures, home)
    going_on = catalogue.relearning
    if going_on is not None:
        there = About.parsed(going_on, home).moved(pictures, home)
    if there is None:
        describer = _describer(model, scales)
        there = About.of(pictures, home, describer)
        there.write(home)
        return there, describer
    describer = there.describer(model)
    if scales is not None and tuple(scales) != tuple(describer.scales):
        raise InvalidInputError(f"the pictures were described at the scales {there.scales}; relearn to change them")
    return there, describer


def _relearned(
    pictures: Path, home: Path, catalogue: Catalogue, model: str | Path | Model | None, scales: Sequence[float] | None
) -> tuple[About, DescriptorExtractor]:
    """What the index is to say of itself once everything is described anew; going on if that has begun."""
    there = _there(pictures, home)
    describer = _describer(there.same_model() if there and model is None else model, scales)
    about = About.of(pictures, home, describer)
    if there is None:
        about.write(home)
    elif catalogue.relearning != about.text:
        catalogue.forget_all(about.text)
    return about, describer


def _describer(model: str | Path | Model | None, scales: Sequence[float] | None) -> DescriptorExtractor:
    loaded = model if isinstance(model, Model) else Model.load(model)
    return DescriptorExtractor(loaded, SCALES if scales is None else scales)


def _there(pictures: Path, home: Path) -> About | None:
    """What an index says of itself; one whose folder is gone from its place is that of the folder that is given."""
    if not (home / ABOUT).exists():
        return None
    about = About.read(home)
    if about.pictures(home) == pictures:
        return about
    if about.pictures(home).is_dir():
        raise InvalidInputError(f"{home} is the index of {about.pictures(home)}, not of {pictures}")
    about = about.moved(pictures, home)
    about.write(home)
    return about


@dataclass
class _Update:
    """One run over a folder."""

    home: Path
    pictures: Path
    catalogue: Catalogue
    describer: DescriptorExtractor
    about: About
    workers: Workers

    def __call__(self, found: Listing) -> Summary:
        before = self._consistent()
        if before and not found.files:
            raise InvalidInputError(
                f"{self.pictures} holds no pictures now, but its index holds {len(before):,}: is the disk there? "
                f"Remove {self.home} if they are gone for good"
            )
        gone = [name for name in before if name not in found.files and not found.hides(name)]
        new = [name for name, stamp in found.files.items() if before.get(name) != stamp]
        self.catalogue.forget(gone)
        failed = self._describe(sorted(new, key=_shuffled), found)
        self._settle(compact=True)
        bad = {name for name, _ in failed}
        known = [name for name in new if name in before]
        return Summary(
            added=sum(name not in before and name not in bad for name in new),
            changed=sum(name not in bad for name in known),
            removed=len(gone) + sum(name in bad for name in before),
            unchanged=sum(before.get(name) == stamp and name not in bad for name, stamp in found.files.items()),
            failed=sorted(found.failed + failed),
        )

    def _consistent(self) -> dict[str, Stamp]:
        """The pictures that are described; those whose vectors got lost are forgotten, to be described again."""
        name = self.about.whitening
        if name:
            with _vectors(self.home, read_whitening(self.home, name)) as index:
                there = set(index.ids.tolist())
            self.catalogue.forget(self.catalogue.in_index(name) - there)
        return self.catalogue.stamps()

    def _describe(self, names: list[str], found: Listing) -> list[tuple[str, str]]:
        """Describe the pictures, recording every few; those that cannot be read are forgotten and given back."""
        failed: list[tuple[str, str]] = []
        fresh = 0
        for start in range(0, len(names), _BLOCK):
            block = names[start : start + _BLOCK]
            told = self._told(start, len(names))
            results = replace(self.workers, progress=told).map(self._described, block, "describing")
            good = [(n, found.files[n], x) for n, x in zip(block, results, strict=True) if not isinstance(x, str)]
            bad = [(n, reason) for n, reason in zip(block, results, strict=True) if isinstance(reason, str)]
            self.catalogue.record(good)
            self.catalogue.forget(name for name, _ in bad)
            failed += bad
            fresh += len(good)
            if fresh >= SETTLED and start + _BLOCK < len(names) and not self.catalogue.relearning:
                self._settle()
                fresh = 0
        return failed

    def _told(self, done_before: int, total: int) -> Progress | None:
        progress = self.workers.progress
        if progress is None:
            return None
        return lambda what, done, _: progress(what, done_before + done, total)

    def _described(self, name: str) -> Floats | str:
        """The raw descriptor of a picture, or why there is none."""
        try:
            return self.describer(read_image(self.pictures / name, side=self.describer.side))
        except ImageError as error:
            return error.reason
        except InvalidInputError as error:
            return str(error)

    def _settle(self, *, compact: bool = False) -> None:
        """Make the index hold exactly the pictures of the catalogue, under their whitening."""
        if not self.catalogue.count() and self.about.whitening is None:
            return
        whitening = self._whitening()
        with _vectors(self.home, whitening) as index:
            pending = False
            for names, X in self.catalogue.pending(whitening.checksum, _ROWS):
                index.upsert(whitening(X), names, threads=self.workers.threads)
                pending = True
            gone = set(index.ids.tolist()) - set(self.catalogue.stamps())
            if gone:
                index.remove(sorted(gone))
            report = index.report()
            if compact and (report["segments"] > _SEGMENTS or report["removed"] > len(index) // 4):
                index.compact(threads=self.workers.threads)
                pending = True
            if pending or gone or index.generation is None:
                index.save(vectors_folder(self.home, whitening.checksum))
        if whitening.checksum != self.about.whitening:
            replace_file(whitening_file(self.home, whitening.checksum), whitening.serialized)
            self.about = replace(self.about, whitening=whitening.checksum)
            self.about.write(self.home)
        self.catalogue.saved(whitening.checksum, settled=whitening.count >= SETTLED)
        _remove_others(self.home, whitening.checksum)

    def _whitening(self) -> Whitening:
        """The one that the vectors have, unless it is time for a new one."""
        rng = np.random.default_rng(0)
        if self.about.whitening is None or self.catalogue.relearning:
            return Whitening.learn(self.catalogue.sample(_SAMPLE, rng))
        there = read_whitening(self.home, self.about.whitening)
        if there.count < SETTLED and self.catalogue.count() >= GROWTH * there.count:
            return Whitening.learn(self.catalogue.sample(_SAMPLE, rng))
        return there


def read_whitening(home: Path, name: str) -> Whitening:
    """The whitening that an index of photos names."""
    try:
        whitening = Whitening.from_bytes(whitening_file(home, name).read_bytes())
    except FileNotFoundError:
        raise CorruptIndexError(f"{whitening_file(home, name)} is missing") from None
    if whitening.checksum != name:
        raise CorruptIndexError(f"{whitening_file(home, name)} is damaged: its checksum does not fit")
    return whitening


def _vectors(home: Path, whitening: Whitening) -> Index:
    """The vectors under a whitening, open for writing; a new index where there is none, or only a broken one."""
    folder = vectors_folder(home, whitening.checksum)
    try:
        return Index.open(folder, "a")
    except FileNotFoundError:
        pass
    except CorruptIndexError:
        shutil.rmtree(folder)
    return Index(whitening.dim, method=sketched(bits=4))


def _remove_others(home: Path, name: str) -> None:
    """Remove whitenings and vectors of before; readers keep what they opened."""
    for other in home.iterdir():
        if other.name.startswith("whitening-") and other != whitening_file(home, name):
            other.unlink(missing_ok=True)
        elif other.name.startswith("vectors-") and other != vectors_folder(home, name):
            shutil.rmtree(other, ignore_errors=True)


def _shuffled(name: str) -> bytes:
    """Pictures are described in an order without order, so that the first ones stand for all of the folder."""
    return hashlib.blake2b(name.encode(), digest_size=8).digest()
