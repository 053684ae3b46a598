"""A folder of pictures and the index of their descriptors: `update` makes and renews it, `Photos` searches it."""

from logt.photos.duplicates import Group, duplicates
from logt.photos.photos import Photos
from logt.photos.updating import Summary, update

__all__ = ["Group", "Photos", "Summary", "duplicates", "update"]
