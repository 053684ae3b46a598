"""Search, previews, metrics and pages of the server, through a test client."""

import io

import pytest
from exact_index import built
from PIL import Image
from server_testing import API, error_message, open_album, open_client, result_ids
from synthetic_photos import draw_scene, draw_two_scenes, encode_jpeg, write_photos

from logt.cli.serve import _import_function
from logt.errors import InvalidInputError
from logt.server.collection import VectorCollection
from logt.server.settings import Limits

IDS = [f"ü{i}\u2028<b>\"'" for i in range(200)]


@pytest.fixture(scope="module")
def X(vectors):
    return vectors(200, 32)


@pytest.fixture(scope="module")
def vector_client(tmp_path_factory, X):
    """A client of a server with 200 vectors, string ids and a neighbor graph."""
    folder = tmp_path_factory.mktemp("vectors") / "index"
    index = built(X, ids=IDS, link=10)
    index.save(folder)
    with open_client(VectorCollection(folder)) as client:
        client.index = index
        yield client


@pytest.mark.parametrize("rerank", [None, "diffusion"])
def test_a_search_by_vector_returns_the_results_of_the_index(vector_client, X, rerank):
    expected = vector_client.index.search(X[:5], 7, rerank=rerank)
    response = vector_client.post(f"{API}/search", json={"vectors": X[:5].tolist(), "k": 7, "rerank": rerank})
    assert result_ids(response) == expected.ids.tolist()
    assert [[hit["score"] for hit in hits] for hits in response.json()["results"]] == expected.scores.tolist()
    assert response.content.isascii()


@pytest.mark.parametrize("rerank", [None, "diffusion"])
def test_a_search_by_id_excludes_the_vector_itself(vector_client, rerank):
    response = vector_client.post(f"{API}/search/ids", json={"ids": IDS[3:5], "k": 1000, "rerank": rerank})
    assert [set(row) for row in result_ids(response)] == [set(IDS) - {own} for own in IDS[3:5]]


def test_without_a_graph_reranking_is_refused(vector_client, photo_client, photo_album):
    assert vector_client.get(f"{API}/info").json()["rerank"] is True
    assert photo_client.get(f"{API}/info").json()["rerank"] is False
    photo_id = photo_album[2][0]
    for path, body in (
        ("search", {"vectors": [[1.0] * 108]}),
        ("search/ids", {"ids": [photo_id]}),
        ("search/region", {"id": photo_id, "box": [0, 0, 1, 1]}),
    ):
        response = photo_client.post(f"{API}/{path}", json={**body, "rerank": "diffusion"})
        assert "logt link" in error_message(response, 409, "no_graph")


def test_a_function_reranks_the_results_of_vectors_and_photos(tmp_path, monkeypatch, X):
    (tmp_path / "by_name.py").write_text("def backwards(query, ids, scores):\n    return -scores\n")
    monkeypatch.chdir(tmp_path)
    backwards = _import_function("by_name:backwards")
    built(X, ids=IDS).save(tmp_path / "vectors")
    ids = write_photos(tmp_path / "photos", tmp_path / "index")
    for collection, search in (
        (VectorCollection(tmp_path / "vectors"), {"json": {"vectors": X[:1].tolist(), "k": 200}}),
        (open_album((tmp_path / "photos", tmp_path / "index")), {"json": {"ids": [ids[0]], "k": len(ids)}}),
    ):
        path = f"{API}/search" if "vectors" in search["json"] else f"{API}/search/ids"
        with open_client(collection) as client:
            plain = result_ids(client.post(path, **search))[0]
            search["json"]["rerank"] = "function"
            assert "--rerank" in error_message(client.post(path, **search), 409, "no_function")
            assert client.get(f"{API}/info").json()["function"] is False
            collection.function = backwards
            assert client.get(f"{API}/info").json()["function"] is True
            assert result_ids(client.post(path, **search))[0] == plain[::-1]
            if collection.has_photos:
                form = {
                    "data": {"k": 3, "rerank": "function"},
                    "files": {"photo": (tmp_path / "photos" / ids[4]).read_bytes()},
                }
                assert ids[4] not in result_ids(client.post(f"{API}/search/photo", **form))[0]


@pytest.mark.parametrize("name", ["backwards", "no_such_module:f", "math:no_such_function", "math:pi", ":", "a:"])
def test_what_is_no_function_is_refused_by_name(name):
    with pytest.raises(InvalidInputError, match="--rerank"):
        _import_function(name)


def test_searches_by_photo_are_reranked(tmp_path):
    ids = write_photos(tmp_path / "photos", tmp_path / "index", link=5)
    with open_client(open_album((tmp_path / "photos", tmp_path / "index"))) as client:
        form = {
            "data": {"k": 3, "rerank": "diffusion"},
            "files": {"photo": (tmp_path / "photos" / ids[4]).read_bytes()},
        }
        assert set(result_ids(client.post(f"{API}/search/photo", **form))[0]) == set(ids[3:6])
        body = {"id": ids[4], "box": [0, 0, 1, 1], "k": 2, "rerank": "diffusion"}
        assert set(result_ids(client.post(f"{API}/search/region", json=body))[0]) == {ids[3], ids[5]}
        page = client.get("/", params={"id": ids[4], "deep": "1"}).text
        assert 'aria-checked="true"' in page
        assert 'id="divider"' not in page


def test_a_search_by_region_finds_the_scene_in_the_region(photo_client, photo_album):
    files = {"photo": encode_jpeg(draw_two_scenes(1, 2))}
    for box, number in (("0,0,0.5,1", 1), ("0.5,0,1,1", 2), ("0,0,240,180", 1), ("240,0,480,180", 2)):
        response = photo_client.post(f"{API}/search/photo", files=files, data={"k": 3, "box": box})
        assert set(result_ids(response)[0]) == set(photo_album[2][3 * number : 3 * number + 3])
    for box in ("0,0,1", "a,b,c,d", "0.5,0,0.5,1", "0,0,1.5,1", "nan,0,1,1", "-0.1,0,1,1", "0,0,1,1,1"):
        response = photo_client.post(f"{API}/search/photo", files=files, data={"box": box})
        assert "left < right" in error_message(response, 422, "bad_box")


@pytest.mark.parametrize("box", [[0, 0, 1, 1], [0, 0, 240, 180]])
def test_a_search_by_region_of_an_indexed_photo_excludes_the_photo(photo_client, photo_album, box):
    ids = photo_album[2]
    body = {"id": ids[0], "box": box, "k": 2}
    assert set(result_ids(photo_client.post(f"{API}/search/region", json=body))[0]) == set(ids[1:3])


def test_previews_are_upright_small_without_metadata_and_sent_again_only_if_the_file_changed(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    exif[0x010E] = "where I live"
    write_photos(tmp_path / "photos", tmp_path / "index", 1, 1, "a.jpg")
    file = tmp_path / "photos" / "a.jpg"
    draw_scene(0, size=(1200, 600)).save(file, exif=exif)
    with open_client(open_album((tmp_path / "photos", tmp_path / "index"))) as client:

        def preview(size="thumb", **headers):
            return client.get(f"{API}/photo", params={"id": "a.jpg", "size": size}, headers=headers)

        thumb = preview()
        assert thumb.headers["content-type"] == "image/jpeg"
        image = Image.open(io.BytesIO(thumb.content))
        assert image.size == (240, 480)
        assert not image.getexif()
        assert b"where I live" not in thumb.content
        assert client.app_service.photo_decoder._children.children  # it was decoded in a process of its own
        assert Image.open(io.BytesIO(preview("large").content)).size == (600, 1200)
        known = {"If-None-Match": thumb.headers["etag"]}
        assert (preview(**known).status_code, preview(**known).content) == (304, b"")
        draw_scene(1, size=(100, 100)).save(file)
        assert Image.open(io.BytesIO(preview(**known).content)).size == (100, 100)
        file.write_bytes(b"not an image any more")
        assert str(tmp_path) not in error_message(preview(), 415, "not_a_photo")
        assert client.get("/", params={"id": "a.jpg"}).status_code == 200
        file.unlink()
        error_message(preview(), 410, "gone")


def test_an_index_of_vectors_has_no_photos(vector_client):
    files = {"photo": encode_jpeg(draw_scene(0))}
    error_message(vector_client.post(f"{API}/search/photo", files=files), 409, "no_photos")
    error_message(vector_client.get(f"{API}/photo", params={"id": "a.jpg"}), 409, "no_photos")
    error_message(vector_client.get(f"{API}/duplicates"), 409, "no_photos")
    assert "Find nearest vectors" in vector_client.get("/").text
    assert vector_client.get("/", params={"id": IDS[0]}).text.count('class="card"') == 24


def test_metrics_count_requests_and_measure_their_latency(tmp_path, X):
    built(X, ids=range(200)).save(tmp_path / "i")
    with open_client(VectorCollection(tmp_path / "i"), limits=Limits(k=5)) as client:
        assert client.get("/", params={"id": "7"}).text.count('class="card"') == 5
        for _ in range(3):
            client.post(f"{API}/search", json={"vectors": [[1.0] * 32], "k": 5})
        client.get("/nowhere%0A%22")
        response = client.get(f"{API}/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    lines = response.text.splitlines()
    assert 'logt_requests_total{method="POST",route="/api/v1/search",status="200"} 3.0' in lines
    assert 'logt_request_seconds_count{route="/api/v1/search"} 3.0' in lines
    assert "logt_vectors 200.0" in lines
