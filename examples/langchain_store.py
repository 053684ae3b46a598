"""Use logt as the vector store of a LangChain retriever."""

from itertools import pairwise

import numpy as np
from langchain_core.embeddings import Embeddings

from logt.integrations.langchain import LogtVectorStore


class LetterPairs(Embeddings):
    """A small embedding that needs no model: counts of pairs of letters."""

    def embed_query(self, text):
        vector = np.zeros(27 * 27)
        letters = [(ord(letter) - 96) % 27 if letter.isalpha() else 0 for letter in f" {text.lower()} "]
        for first, second in pairwise(letters):
            vector[27 * first + second] += 1
        return (vector / np.linalg.norm(vector)).tolist()

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


texts = ["Group testing for image search", "A boat on the river", "Memory vectors of a unit", "Boats in the harbour"]
store = LogtVectorStore.from_texts(texts, LetterPairs(), [{"page": page} for page in range(4)])

for document, score in store.similarity_search_with_score("boat", k=2):
    print(f"{score:.2f} {document.page_content}")
retriever = store.as_retriever(search_kwargs={"k": 1, "filter": lambda document: document.metadata["page"] > 1})
print("after page 1:", retriever.invoke("boat")[0].page_content)
