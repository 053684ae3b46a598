"""A folder of photos and its index: `update` creates and updates the index, `Photos` searches it."""

from logt.photos.duplicates import DuplicateGroup, duplicates
from logt.photos.indexer import Summary, update
from logt.photos.photo_index import Photos

__all__ = ["DuplicateGroup", "Photos", "Summary", "duplicates", "update"]
