"""Search, previews, metrics and pages of the server, through a test client."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from server_testing import API, error_message, open_client, result_ids
from synthetic_photos import SyntheticPhotos, draw_scene, draw_two_scenes, encode_jpeg, write_photos

import logt
from logt.server.collection import VectorCollection
from logt.server.photo_collection import PhotoCollection, open_collection
from logt.server.settings import Limits, Settings


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    """(folder of photos, index of them, ids)."""
    root = tmp_path_factory.mktemp("album")
    return root / "photos", root / "vectors", write_photos(root / "photos", root / "vectors")


@pytest.fixture
def photo_client(album):
    folder, index, _ = album
    with open_client(PhotoCollection(SyntheticPhotos(folder, index))) as client:
        yield client


@pytest.fixture
def X(vectors):
    return vectors(200, 32)


@pytest.fixture
def vector_client(tmp_path, X):
    """A client of a server with 200 vectors and integer ids."""
    index = logt.Index(32)
    index.add(X)
    index.save(tmp_path / "index")
    with open_client(VectorCollection(tmp_path / "index")) as client:
        client.folder = tmp_path / "index"
        yield client


def test_a_search_by_vector_returns_the_results_of_the_index(vector_client, X):
    expected = logt.open(vector_client.folder).search(X[:5], 7)
    response = vector_client.post(f"{API}/search", json={"vectors": X[:5].tolist(), "k": 7})
    assert result_ids(response) == expected.ids.tolist()
    assert [[hit["score"] for hit in hits] for hits in response.json()["results"]] == expected.scores.tolist()


def test_a_search_by_id_excludes_the_vector_itself(vector_client, photo_client, album):
    found = result_ids(vector_client.post(f"{API}/search/ids", json={"ids": [3, 5], "k": 199}))
    assert [len(row) for row in found] == [199, 199]
    assert 3 not in found[0]
    assert 5 not in found[1]
    ids = album[2]
    response = photo_client.post(f"{API}/search/ids", json={"ids": [ids[4]], "k": 2})
    assert set(result_ids(response)[0]) == {ids[3], ids[5]}


def test_searches_are_reranked_if_the_index_has_a_graph(tmp_path, X):
    index = logt.Index(32)
    index.add(X)
    index.link(10)
    index.save(tmp_path / "index")
    expected = index.search(X[:5], 7, rerank="diffusion")
    with open_client(VectorCollection(tmp_path / "index")) as client:
        assert client.get(f"{API}/info").json()["rerank"] is True
        body = {"vectors": X[:5].tolist(), "k": 7, "rerank": "diffusion"}
        response = client.post(f"{API}/search", json=body)
        assert result_ids(response) == expected.ids.tolist()
        assert [[hit["score"] for hit in hits] for hits in response.json()["results"]] == expected.scores.tolist()
        (found,) = result_ids(client.post(f"{API}/search/ids", json={"ids": [3], "k": 199, "rerank": "diffusion"}))
        assert 3 not in found
        assert len(found) == 199
        response = client.post(f"{API}/search", json={**body, "rerank": "magic"})
        assert "rerank" in error_message(response, 422, "invalid_input")


def test_without_a_graph_reranking_is_refused(vector_client, photo_client, album):
    assert vector_client.get(f"{API}/info").json()["rerank"] is False
    body = {"vectors": [[1.0] * 32], "rerank": "diffusion"}
    assert "logt link" in error_message(vector_client.post(f"{API}/search", json=body), 409, "no_graph")
    body = {"ids": [1], "rerank": "diffusion"}
    error_message(vector_client.post(f"{API}/search/ids", json=body), 409, "no_graph")
    body = {"id": album[2][0], "box": [0, 0, 1, 1], "rerank": "diffusion"}
    error_message(photo_client.post(f"{API}/search/region", json=body), 409, "no_graph")
    form = {"data": {"rerank": "diffusion"}, "files": {"photo": encode_jpeg(draw_scene(1))}}
    error_message(photo_client.post(f"{API}/search/image", **form), 409, "no_graph")


def test_searches_by_image_are_reranked(album, tmp_path):
    folder, source, ids = album
    index = logt.open(source)
    copy = logt.Index(index.dim)
    copy.add(index.reconstruct(index.ids), ids=index.ids)
    copy.link(5)
    copy.save(tmp_path / "vectors")
    with open_client(PhotoCollection(SyntheticPhotos(folder, tmp_path / "vectors"))) as client:
        form = {"data": {"k": 3, "rerank": "diffusion"}, "files": {"photo": (folder / ids[4]).read_bytes()}}
        (found,) = result_ids(client.post(f"{API}/search/image", **form))
        assert set(found) == set(ids[3:6])
        body = {"id": ids[4], "box": [0, 0, 1, 1], "k": 2, "rerank": "diffusion"}
        (found,) = result_ids(client.post(f"{API}/search/region", json=body))
        assert set(found) == {ids[3], ids[5]}


def test_a_search_returns_all_vectors_if_there_are_fewer_than_k(vector_client, X):
    response = vector_client.post(f"{API}/search", json={"vectors": X[:1].tolist(), "k": 1000})
    assert len(result_ids(response)[0]) == 200


def test_a_search_by_image_finds_the_other_photos_of_the_scene(photo_client, album):
    for number in range(8):
        files = {"photo": ("query.jpg", encode_jpeg(draw_scene(number, seed=99)))}
        found = result_ids(photo_client.post(f"{API}/search/image", files=files, data={"k": 3}))
        assert set(found[0]) == set(album[2][3 * number : 3 * number + 3])


def test_a_search_by_region_finds_the_scene_in_the_region(photo_client, album):
    files = {"photo": encode_jpeg(draw_two_scenes(1, 2))}
    for box, number in (("0,0,0.5,1", 1), ("0.5,0,1,1", 2), ("0,0,240,180", 1), ("240,0,480,180", 2)):
        response = photo_client.post(f"{API}/search/image", files=files, data={"k": 3, "box": box})
        assert set(result_ids(response)[0]) == set(album[2][3 * number : 3 * number + 3])


def test_a_search_by_region_of_an_indexed_photo_excludes_the_photo(photo_client, album):
    ids = album[2]
    body = {"id": ids[0], "box": [0, 0, 1, 1], "k": 2}
    assert set(result_ids(photo_client.post(f"{API}/search/region", json=body))[0]) == set(ids[1:3])
    assert error_message(photo_client.post(f"{API}/search/region", json=body | {"id": "none.jpg"}), 404, "not_found")


@pytest.mark.parametrize(
    "box", ["0,0,1", "a,b,c,d", "0.5,0,0.5,1", "0,0,1.5,1", "nan,0,1,1", "-0.1,0,1,1", "0,0,1,1,1"]
)
def test_an_invalid_region_is_an_error(photo_client, box):
    files = {"photo": encode_jpeg(draw_scene(0))}
    response = photo_client.post(f"{API}/search/image", files=files, data={"box": box})
    assert "left < right" in error_message(response, 422, "bad_box")


def test_a_region_in_pixels_is_inside_the_photo(photo_client, album):
    body = {"id": album[2][0], "box": [0, 0, 240, 180], "k": 2}
    assert set(result_ids(photo_client.post(f"{API}/search/region", json=body))[0]) == set(album[2][1:3])
    response = photo_client.post(f"{API}/search/region", json=body | {"box": [0, 0, 241, 180]})
    assert "beyond the image, which has 240 x 180 pixels" in error_message(response, 422, "bad_box")


def test_previews_are_upright_small_and_without_metadata(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    exif[0x010E] = "where I live"
    write_photos(tmp_path / "photos", tmp_path / "index", 1, 1, "a.jpg")
    draw_scene(0, size=(1200, 600)).save(tmp_path / "photos" / "a.jpg", exif=exif)
    with open_client(PhotoCollection(SyntheticPhotos(tmp_path / "photos", tmp_path / "index"))) as client:
        thumb = client.get(f"{API}/picture", params={"id": "a.jpg"})
        assert thumb.headers["content-type"] == "image/jpeg"
        image = Image.open(io.BytesIO(thumb.content))
        assert image.size == (240, 480)
        assert not image.getexif()
        assert b"where I live" not in thumb.content
        large = client.get(f"{API}/picture", params={"id": "a.jpg", "size": "large"})
        assert Image.open(io.BytesIO(large.content)).size == (600, 1200)


def test_a_preview_is_sent_again_only_if_the_file_changed(tmp_path):
    write_photos(tmp_path / "photos", tmp_path / "index", 1, 1, "a.jpg")
    with open_client(PhotoCollection(SyntheticPhotos(tmp_path / "photos", tmp_path / "index"))) as client:
        etag = client.get(f"{API}/picture", params={"id": "a.jpg"}).headers["etag"]
        unchanged = client.get(f"{API}/picture", params={"id": "a.jpg"}, headers={"If-None-Match": etag})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        draw_scene(1, size=(100, 100)).save(tmp_path / "photos" / "a.jpg")
        changed = client.get(f"{API}/picture", params={"id": "a.jpg"}, headers={"If-None-Match": etag})
        assert Image.open(io.BytesIO(changed.content)).size == (100, 100)
        (tmp_path / "photos" / "a.jpg").unlink()
        error_message(client.get(f"{API}/picture", params={"id": "a.jpg"}), 410, "gone")


def test_the_thumbnail_cache_stays_within_its_limit(album):
    folder, index, ids = album
    limits = Limits(cache_bytes=20_000)
    with open_client(PhotoCollection(SyntheticPhotos(folder, index)), limits=limits) as client:
        sizes = [len(client.get(f"{API}/picture", params={"id": photo_id}).content) for photo_id in ids]
        assert sum(sizes) > 20_000
        lines = client.get(f"{API}/metrics").text.splitlines()
        cached = next(line for line in lines if line.startswith("logt_thumbnail_bytes"))
        assert 0 < float(cached.split()[1]) <= 20_000


def test_an_index_of_vectors_has_no_photos(vector_client):
    files = {"photo": encode_jpeg(draw_scene(0))}
    error_message(vector_client.post(f"{API}/search/image", files=files), 409, "no_pictures")
    error_message(vector_client.get(f"{API}/picture", params={"id": "a.jpg"}), 409, "no_pictures")
    assert vector_client.get(f"{API}/info").json()["pictures"] is False


def test_metrics_count_requests_and_measure_their_latency(vector_client, X):
    for _ in range(3):
        vector_client.post(f"{API}/search", json={"vectors": X[:1].tolist()})
    vector_client.get("/nowhere%0A%22")
    response = vector_client.get(f"{API}/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    lines = response.text.splitlines()
    assert 'logt_requests_total{method="POST",route="/api/v1/search",status="200"} 3.0' in lines
    assert 'logt_request_seconds_count{route="/api/v1/search"} 3.0' in lines
    assert 'logt_request_seconds_bucket{le="+Inf",route="/api/v1/search"} 3.0' in lines
    assert "logt_vectors 200.0" in lines
    buckets = [line for line in lines if "bucket{" in line and 'route="/api/v1/search"' in line]
    counts = [float(line.split()[-1]) for line in buckets]
    assert counts == sorted(counts)


def test_the_api_reference_lists_every_operation(vector_client):
    page = vector_client.get("/docs").text
    for path in vector_client.get("/openapi.json").json()["paths"]:
        assert path in page
    assert "http://" not in page.replace("http://127.0.0.1:8000", "")
    assert "https://" not in page
    assert "`" not in page  # no Markdown
    assert not re.search(r"(?<!/api/v1)/info\b", page)


def test_a_wrong_url_returns_no_words_about_files(photo_client):
    page = photo_client.get("/nowhere").text
    assert "There is nothing at this address." in page
    assert "JPEG" not in page
    response = photo_client.post("/", files={"photo": b"not an image"})
    assert response.status_code == 415
    assert "JPEG" in response.text


@pytest.mark.parametrize(("limit", "words"), [(32 << 20, "of 32 MB"), (1 << 20, "of 1 MB"), (5000, "of 5,000 bytes")])
def test_the_limit_of_a_request_is_named_as_it_was_set(album, limit, words):
    folder, index, _ = album
    with open_client(PhotoCollection(SyntheticPhotos(folder, index)), limits=Limits(body_bytes=limit)) as client:
        headers = {"Content-Length": str(limit + 1), "Content-Type": "application/json"}
        response = client.post(f"{API}/search", content=b"", headers=headers)
        assert words in error_message(response, 413, "too_large")


def test_the_page_respects_the_limit_of_k(album):
    folder, index, ids = album
    with open_client(PhotoCollection(SyntheticPhotos(folder, index)), limits=Limits(k=5)) as client:
        page = client.get("/", params={"id": ids[0]})
        assert page.status_code == 200
        assert page.text.count('class="card"') == 5


def test_open_collection_opens_an_index_of_vectors(tmp_path):
    logt.Index(8).save(tmp_path / "vectors")
    assert not open_collection(tmp_path / "vectors").has_photos
    with pytest.raises(OSError, match="holds no index"):
        open_collection(tmp_path / "none")


def test_invalid_settings_are_errors():
    with pytest.raises(logt.InvalidInputError, match="seconds"):
        Limits(seconds=0)
    with pytest.raises(logt.InvalidInputError, match="k must be"):
        replace(Limits(), k=0)
    with pytest.raises(logt.InvalidInputError, match="12"):
        Settings(token="short")


def test_json_responses_are_ascii(tmp_path, X):
    index = logt.Index(32)
    ids = [f"ü{i}\u2028<b>\"'" for i in range(200)]
    index.add(X, ids=ids)
    index.save(tmp_path / "i")
    with open_client(VectorCollection(tmp_path / "i")) as client:
        response = client.post(f"{API}/search/ids", json={"ids": [ids[7]], "k": 200})
        assert response.content.isascii()
        assert set(result_ids(response)[0]) == set(ids) - {ids[7]}
        assert np.isfinite([hit["score"] for hit in json.loads(response.content)["results"][0]]).all()


def test_the_reference_shows_a_path_parameter_in_the_path(vector_client):
    page = vector_client.get("/docs").text
    assert "/api/v1/changes/ID" in page
    assert "changes/{id} -G" not in page
