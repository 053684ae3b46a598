"""Settings of a server and limits of a request."""

import ipaddress
from dataclasses import dataclass, field, fields

from logt._internal.threads import available_cores
from logt._internal.validation import check_int
from logt.errors import InvalidInputError

MIN_TOKEN_LENGTH = 12
SIZES = {"thumb": 480, "large": 2048}
"""Length of the longer side of a preview in pixels."""


@dataclass(frozen=True)
class Limits:
    """Limits of one request. A request above a limit gets an error response that names the limit."""

    body_bytes: int = 32 << 20
    pixels: int = 100_000_000
    """Pixels of an uploaded photo."""
    decoded_bytes: int = 400 << 20
    """Bytes of a decoded photo."""
    decode_seconds: float = 10.0
    """Time to decode a photo."""
    seconds: float = 30.0
    k: int = 1000
    queries: int = 256
    hits: int = 1_000_000
    """Results in one response: queries times `k`."""
    response_bytes: int = 64 << 20
    """Bytes of the results of a search, as JSON; ids can be long."""
    vectors: int = 10_000
    """Vectors or ids in one change."""
    waiting: int = 32
    """Queue length for searches by photo, region or text; when it is full, the response is 503."""
    waiting_large: int = 8
    """Queue length for photos from clients that are large or slow to decode; they are decoded one at a time."""
    waiting_changes: int = 1000
    """Queue length for changes, which are applied together; they may also have four times `body_bytes` in total."""
    cache_bytes: int = 64 << 20
    """Size of the thumbnail cache."""
    connections: int = 512
    """Open connections; above it, requests get status 503."""
    connections_per_address: int = 128
    """Open connections of one client address."""
    idle_seconds: float = 15.0
    """Time to send the headers of a request, to stay idle between requests, or to read no byte of a response."""

    def __post_init__(self) -> None:
        for given in fields(self):
            value = getattr(self, given.name)
            if given.type is not float:
                check_int(given.name, value)
            elif not 0 < value < float("inf"):
                raise InvalidInputError(f"{given.name} must be finite and greater than 0, got {value!r}")


def format_bytes(count: int) -> str:
    """Return a number of bytes in words; a MB is 2**20 bytes, as in --upload-mb."""
    return f"{count / (1 << 20):,.4g} MB" if count >= 1 << 20 else f"{count:,} bytes"


def parse_ip(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an IP address, or None for a name."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by a name or an address that no other machine can use."""
    address = parse_ip(host)
    return host == "localhost" if address is None else address.is_loopback


@dataclass(frozen=True)
class Settings:
    """Settings of a server. Without a token, everyone who can connect may use it."""

    token: str | None = None
    read_only: bool = False
    originals: bool = False
    """Whether clients can download the files of photos, with their metadata; otherwise they get smaller JPEGs."""
    changes: bool = False
    """Whether photos can be moved to the trash, from this machine or with the token."""
    watch: bool = False
    """Whether the index of photos follows its folder by itself."""
    hosts: tuple[str, ...] = ()
    """Host names to accept in addition to localhost and IP addresses."""
    proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose headers name the client and the scheme of a request."""
    limits: Limits = field(default_factory=Limits)
    workers: int = field(default_factory=available_cores)
    refresh_seconds: float = 1.0

    def __post_init__(self) -> None:
        check_int("workers", self.workers)
        if self.token is not None and (len(self.token) < MIN_TOKEN_LENGTH or not self.token.isascii()):
            raise InvalidInputError(f"the token must have at least {MIN_TOKEN_LENGTH} characters, all of them ASCII")
