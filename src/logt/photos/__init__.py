"""A folder of pictures and the index of their descriptors: `update` makes and renews it, `Photos` searches it."""

from logt.photos.duplicates import Group, duplicates
from logt.photos.indexer import Summary, update
from logt.photos.photo_index import Photos

__all__ = ["Group", "Photos", "Summary", "duplicates", "update"]
