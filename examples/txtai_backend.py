"""Use logt as the backend of a txtai database. Needs pip install "logt-search[txtai]"; txtai installs PyTorch."""

import tempfile
from itertools import pairwise

import numpy as np

try:
    import txtai
except ImportError as error:
    raise SystemExit(f"this example needs txtai ({error}): pip install 'logt-search[txtai]'") from None


def embed(texts):
    """Return an embedding that needs no model: counts of pairs of letters."""
    vectors = np.zeros((len(texts), 27 * 27), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
        letters = [(ord(letter) - 96) % 27 if letter.isalpha() else 0 for letter in f" {text.lower()} "]
        for first, second in pairwise(letters):
            vector[27 * first + second] += 1
    return vectors


texts = ["Group testing for image search", "A boat on the river", "Memory vectors of a unit", "Boats in the harbour"]
settings = {"backend": "logt.integrations.txtai.Logt", "logt": {"bits": 8}}
embeddings = txtai.Embeddings(method="external", transform=embed, **settings)
embeddings.index(texts)

for row, score in embeddings.search("boat", 2):
    print(f"{score:.2f} {texts[row]}")
with tempfile.TemporaryDirectory() as folder:
    embeddings.save(folder)  # the index of logt is a folder inside
embeddings.delete([1])
print("after a removal:", texts[embeddings.search("a boat on a river", 1)[0][0]])
