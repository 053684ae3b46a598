"""A vector store for LangChain: texts and their metadata in memory, their vectors in an `Index`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from logt._internal.extras import needs_extra
from logt.engine.protocols import Method
from logt.errors import InvalidInputError
from logt.index import Index

with needs_extra("langchain", "the vector store needs langchain-core"):
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance

__all__ = ["LogtVectorStore"]


class LogtVectorStore(VectorStore):
    """A vector store; scores are cosines. embedding: of texts. method: of the index, one of `logt.methods`."""

    def __init__(self, embedding: Embeddings, *, method: Method | None = None):
        self._embedding, self._method = embedding, method
        self.index: Index | None = None  # created with the first text, which gives the dimension
        self._documents: dict[str, Document] = {}

    @property
    def embeddings(self) -> Embeddings:
        """The embedding of texts."""
        return self._embedding

    def add_texts(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, *, ids: Any = None, **kwargs: Any
    ) -> list[str]:
        """Add texts and return their ids; texts with the same ids are replaced. metadatas, ids: one per text."""
        texts = list(texts)
        names = [given or str(uuid.uuid4()) for given in ids or [None] * len(texts)]
        metadatas = metadatas or [{} for _ in texts]
        if not len(texts) == (n := len(names)) == len(metadatas):
            raise InvalidInputError(f"{len(texts)} texts, {len(metadatas)} metadatas, {n} ids: pass one each")
        if texts:
            vectors = self._embedding.embed_documents(texts)
            self.index = Index(len(vectors[0]), method=self._method) if self.index is None else self.index
            self.index.upsert(vectors, names)
        for name, text, metadata in zip(names, texts, metadatas, strict=True):
            self._documents[name] = Document(id=name, page_content=text, metadata=metadata)
        return names

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Delete the texts with these ids; all if None. Unknown ids are ignored."""
        names = [name for name in (list(self._documents) if ids is None else ids) if name in self._documents]
        if self.index is not None and names:
            self.index.remove(names)
        for name in names:
            self._documents.pop(name, None)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids; unknown ids are left out."""
        return [self._documents[name] for name in ids if name in self._documents]

    def _search(self, embedding: Any, k: int, filter: Any = None, **settings: Any) -> list[tuple[Document, float]]:
        """Search among the documents that pass `filter`; settings as in `Index.search`."""
        if not (filter is None or callable(filter) or isinstance(filter, dict)):
            raise InvalidInputError(f"filter must be a function of a document or a dict of metadata, got {filter!r}")
        if self.index is None or not len(self.index):
            return []
        passes = filter if callable(filter) else lambda document: filter.items() <= document.metadata.items()
        names = None if filter is None else [name for name, found in self._documents.items() if passes(found)]
        scores, ids = self.index.search(embedding, min(k, len(self.index)), filter=names, **settings)
        return [
            (self._documents[name], float(score)) for name, score in zip(ids, scores, strict=True) if name is not None
        ]

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        """Return the k best documents for a text `query`, with their cosines."""
        return self._search(self._embedding.embed_query(query), k, **kwargs)

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k best documents for a vector `embedding`."""
        return [document for document, _ in self._search(embedding, k, **kwargs)]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k best documents for `query`. kwargs: filter, a function or a dict of metadata; effort."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k documents for a text `query`, chosen one by one from the `fetch_k` best.

        lambda_mult: from 0, where the chosen documents differ most, to 1, the plain order. kwargs: as in
        `similarity_search`.
        """
        vector = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, **kwargs)

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k documents for a vector `embedding`; k, fetch_k, lambda_mult: as in the search by text."""
        found = self.similarity_search_by_vector(embedding, fetch_k, **kwargs)
        if self.index is None or not found:
            return []
        vectors = self.index.reconstruct([str(document.id) for document in found])
        return [found[at] for at in maximal_marginal_relevance(np.array(embedding), list(vectors), lambda_mult, k)]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda cosine: min(1.0, max(0.0, (1 + cosine) / 2))

    @classmethod
    def from_texts(cls, texts: Any, embedding: Embeddings, metadatas: Any = None, **kwargs: Any) -> LogtVectorStore:
        """Return a store of texts; embedding as in the constructor, metadatas and ids as in `add_texts`."""
        store = cls(embedding, method=kwargs.pop("method", None))
        store.add_texts(texts, metadatas, **kwargs)
        return store
