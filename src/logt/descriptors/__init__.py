"""Images -> descriptors, with onnxruntime and Pillow: `pip install "logt[images]"`."""

from logt.descriptors.describing import SCALES, Describer
from logt.descriptors.model import Box, Model
from logt.descriptors.reading import PictureError, read_picture
from logt.descriptors.whitening import Whitening

__all__ = ["SCALES", "Box", "Describer", "Model", "PictureError", "Whitening", "read_picture"]
