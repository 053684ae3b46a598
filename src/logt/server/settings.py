"""What the service may take from one request, and how it was started."""

from __future__ import annotations

from dataclasses import dataclass, field

from logt._threads import available_cores
from logt._validation import check_int
from logt.errors import InvalidInputError

SHORTEST_TOKEN = 12


@dataclass(frozen=True)
class Limits:
    """The most that one request may ask for; what is above is refused with a 4xx error that names the limit."""

    body_bytes: int = 32 << 20
    pixels: int = 100_000_000
    seconds: float = 30.0
    k: int = 1000
    queries: int = 256
    vectors: int = 10_000
    waiting: int = 32
    """Photos that may wait to be described or drawn; one more is answered 503."""
    cache_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("body_bytes", "pixels", "k", "queries", "vectors", "waiting", "cache_bytes"):
            check_int(name, getattr(self, name))
        if not 0 < self.seconds < float("inf"):
            raise InvalidInputError(f"seconds must be above 0, got {self.seconds!r}")


@dataclass(frozen=True)
class Settings:
    """How a service was started. Without a token, everyone who can reach it may use it."""

    token: str | None = None
    read_only: bool = False
    hosts: tuple[str, ...] = ()
    """Names, besides localhost and plain addresses, that the service may be called by."""
    limits: Limits = field(default_factory=Limits)
    workers: int = field(default_factory=available_cores)
    refresh_seconds: float = 1.0

    def __post_init__(self) -> None:
        check_int("workers", self.workers)
        if self.token is not None and (len(self.token) < SHORTEST_TOKEN or not self.token.isascii()):
            raise InvalidInputError(f"a token has at least {SHORTEST_TOKEN} plain characters; take a longer one")
