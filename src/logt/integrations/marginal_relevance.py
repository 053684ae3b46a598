"""Maximal marginal relevance for the vector store of LangChain: documents that are relevant and differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance

from logt.index import Index


class MarginalRelevance(VectorStore):
    """A vector store over an `index`, whose ids are those of the documents; differences are those of its codes."""

    index: Index | None

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k documents for a text `query`, chosen one by one from the `fetch_k` best.

        lambda_mult: from 0, where the chosen documents differ most, to 1, the plain order. kwargs: as in
        `similarity_search`.
        """
        assert self.embeddings is not None
        vector = self.embeddings.embed_query(query)
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
