"""Optional packages: an import that fails names the extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager

from logt.errors import MissingExtraError


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Raise MissingExtraError if an import in the block fails. what: such as "groups need scikit-learn"."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(f"{what}: {install_hint(extra)} ({error})") from error


def install_hint(extra: str) -> str:
    """Return how to install an extra, from the package index or in a clone of the sources."""
    return f"pip install 'logt-search[{extra}]', or '.[{extra}]' in a clone"
