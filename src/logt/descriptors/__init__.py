"""Images -> descriptors, with onnxruntime and Pillow: `pip install "logt-search[images]"`."""

from logt.descriptors.extractor import SCALES, Describer
from logt.descriptors.image_io import PictureError, read_picture
from logt.descriptors.model import Box, Model
from logt.descriptors.whitening import Whitening

__all__ = ["SCALES", "Box", "Describer", "Model", "PictureError", "Whitening", "read_picture"]
