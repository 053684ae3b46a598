"""The vector store for LangChain: the right texts are found, replaced, deleted, filtered."""

import pytest
from word_vectors import TEXTS, vector

pytest.importorskip("langchain_core")
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

import logt
from logt.integrations.langchain import LogtVectorStore


class WordEmbeddings(Embeddings):
    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        return vector(text).tolist()


@pytest.fixture
def store():
    metadatas = [{"page": page} for page in range(len(TEXTS))]
    return LogtVectorStore.from_texts(TEXTS, WordEmbeddings(), metadatas, ids=list("abcde"))


def test_the_right_texts_are_found(store):
    (best, score), *_ = store.similarity_search_with_score("red bus", k=2)
    assert (best.id, best.page_content, best.metadata) == ("a", "a red bus", {"page": 0})
    assert score == pytest.approx((2 / 3) ** 0.5, abs=0.05)
    assert [d.id for d in store.similarity_search("big tree", k=2)] == ["e", "c"]
    assert len(store.similarity_search("boat", k=50, effort=1.0)) == 5
    (_, relevance), *_ = store.similarity_search_with_relevance_scores("a red bus", k=1)
    assert relevance == pytest.approx(1, abs=0.03)
    found = store.as_retriever(search_kwargs={"k": 1}).invoke("green boat")
    assert [document.page_content for document in found] == ["a green boat"]


def test_texts_are_added_replaced_and_deleted(store):
    assert len(store.add_documents([Document("red river"), Document("red tree")])) == 2
    store.add_texts(["old river"], ids=["a"])
    assert store.get_by_ids(["a", "x"])[0].page_content == "old river"
    assert store.similarity_search("bus", k=7)[0].page_content != "a red bus"
    store.delete(["a", "unknown"])
    assert store.get_by_ids(["a"]) == []
    assert store.index.ntotal == 6
    store.delete()
    assert store.similarity_search("bus") == []


def test_a_filter_sees_documents_and_bad_input_changes_nothing(store):
    found = store.similarity_search("big tree", k=5, filter=lambda document: document.metadata["page"] < 2)
    assert {document.id for document in found} == {"a", "b"}
    for metadata, ids in (({"page": 1}, ["b"]), ({"page": 9}, []), ({"name": "x"}, []), ({}, list("abcde"))):
        found = store.similarity_search("big tree", k=5, filter=metadata, effort=1.0)
        assert sorted(document.id for document in found) == ids
    with pytest.raises(
        logt.InvalidInputError, match=r"filter must be a function .* or a dict of metadata, got 'page'"
    ):
        store.similarity_search("big tree", filter="page")
    with pytest.raises(logt.InvalidInputError, match="1 texts, 2 metadatas, 1 ids: pass one each"):
        store.add_texts(["x"], [{}, {}])
    assert store.index.ntotal == 5


def test_marginal_relevance_chooses_documents_that_differ(store):
    store.add_texts(["red bus", "bus red"], ids=["copy 1", "copy 2"])
    plain = [document.id for document in store.similarity_search("a red bus", k=3)]
    assert set(plain) == {"a", "copy 1", "copy 2"}
    chosen = store.max_marginal_relevance_search("a red bus", k=3, lambda_mult=0.2)
    assert chosen[0].id == plain[0]
    assert len({"copy 1", "copy 2"} & {document.id for document in chosen}) <= 1
    relevant = store.max_marginal_relevance_search("a red bus", k=3, lambda_mult=1.0)
    assert {document.id for document in relevant} == set(plain)
    retriever = store.as_retriever(search_type="mmr", search_kwargs={"k": 1, "filter": {"page": 1}})
    assert [document.id for document in retriever.invoke("red bus")] == ["b"]
    assert LogtVectorStore(WordEmbeddings()).max_marginal_relevance_search("bus") == []


def test_the_method_is_that_of_the_index():
    method = logt.methods.sketched(bits=8)
    store = LogtVectorStore.from_texts(TEXTS, WordEmbeddings(), method=method)
    assert store.index.method == method
    by_vector = store.similarity_search_by_vector(vector("river boat").tolist(), k=1)
    assert by_vector[0].page_content == "river boat old"
