"""Images -> descriptors, with onnxruntime and Pillow: `pip install "logt-search[images]"`."""

from logt.descriptors.boxes import Box
from logt.descriptors.image_io import ImageError, read_image
from logt.descriptors.model import SCALES, Model
from logt.descriptors.text import TextEncoder
from logt.descriptors.whitening import Whitening

__all__ = ["SCALES", "Box", "ImageError", "Model", "TextEncoder", "Whitening", "read_image"]
