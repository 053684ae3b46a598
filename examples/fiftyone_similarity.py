"""Use logt as a similarity backend of FiftyOne: search, duplicates and unique samples.

Needs `pip install "logt-search[fiftyone]"`. The embeddings here are synthetic; use those of your model.
"""

import tempfile

import fiftyone as fo
import fiftyone.brain as fob
import numpy as np

fob.brain_config.similarity_backends["logt"] = {
    "config_cls": "logt.integrations.fiftyone.LogtSimilarityConfig",
    "folder": tempfile.mkdtemp(),  # without it, the indexes are in FiftyOne's own folder
}

dataset = fo.Dataset()
dataset.add_samples([fo.Sample(f"/photos/{number}.jpg", number=number) for number in range(500)])
rng = np.random.default_rng(0)
embeddings = rng.normal(size=(500, 64))
embeddings[490:] = embeddings[:10] + 0.05 * rng.normal(size=(10, 64))  # ten near-duplicates

results = fob.compute_similarity(dataset, embeddings=embeddings, backend="logt", brain_key="logt")
first = dataset.first()
print("nearest:", dataset.sort_by_similarity(first.id, k=2, brain_key="logt").values("number"))

results.find_duplicates(thresh=0.05)
print("duplicates:", len(results.duplicate_ids))
results.find_unique(100)
print("unique samples:", len(results.unique_view()))

results.cleanup()  # deletes the index
dataset.delete()
