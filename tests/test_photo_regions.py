"""Further indexes inside an index of photos: the vectors of regions, and descriptors for texts."""

import re
import shutil

import numpy as np
import pytest
from drawn_photos import counts, draw
from PIL import Image
from server_testing import API, error_message, open_client, wait_until
from synthetic_photos import encode_jpeg

from logt.descriptors import Model, read_image
from logt.errors import CorruptIndexError, InvalidInputError
from logt.photos import Photos, photo_vectors, update
from logt.photos.backup import copy_photo_index
from logt.photos.extraction import read_photo
from logt.photos.index_folder import IndexFolder
from logt.photos.regions import BOXES, reconstruct
from logt.server.photo_collection import PhotoCollection, open_collection

pytest.importorskip("onnxruntime")

CORNER = (0.5, 0.0, 1.0, 0.5)


def draw_pairs(folder, count=12):
    """Write photos of four drawings each; drawing 4i + 1 is at the upper right of photo i."""
    for number in range(4 * count):
        draw(folder / "drawings" / f"{number}.png", number)
    for photo in range(count):
        page = Image.new("RGB", (120, 96))
        for part in range(4):
            with Image.open(folder / "drawings" / f"{4 * photo + part}.png") as drawing:
                page.paste(drawing, (60 * (part % 2), 48 * (part // 2)))
        (folder / "photos").mkdir(exist_ok=True)
        page.save(folder / "photos" / f"{photo}.png")
    return folder / "photos"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, small):
    folder = draw_pairs(tmp_path_factory.mktemp("regions"))
    assert counts(update(folder, model=small, regions=True)) == (12, 0, 0, 0, 0)
    return folder


@pytest.fixture
def pairs(whole, tmp_path):
    shutil.copytree(whole.parent / "drawings", tmp_path / "drawings")
    return shutil.copytree(whole, tmp_path / "photos")


def test_a_photo_has_the_score_of_its_best_region_and_names_it(whole, small):
    photos = Photos.open(whole)
    model, whitening = Model.load(small), photos.for_photos._state.whitening
    for number in (1, 21, 45):
        drawing = whole.parent / "drawings" / f"{number}.png"
        found = photos.search_regions(drawing, 12)
        name, score, box = found[0]
        assert (name, box) == (f"{number // 4}.png", CORNER)
        assert sorted(match.name for match in found) == sorted(path.name for path in whole.glob("*.png"))
        assert [match[:2] for match in found] == photos.search(drawing, 12)
        query = whitening(model(read_image(drawing)))
        page, _ = read_photo(whole / name, model.side * 2)
        assert score == pytest.approx(max(float(query @ whitening(model(page, box))) for box in BOXES), abs=0.02)
    name, score, box = photos.search_regions(whole / "3.png", 1)[0]
    assert (name, box) == ("3.png", None)
    assert score > 0.97
    assert len(photos.index) == len(photos.details()) == 12  # all but searches see whole photos


def test_many_photos_are_removed_from_both_indexes_at_once(pairs):
    for number in range(6):
        (pairs / f"{number}.png").unlink()
    with pytest.raises(InvalidInputError, match="--yes"):
        update(pairs)
    assert update(pairs, yes=True).removed == 6
    photos = Photos.open(pairs)
    assert set(photos.for_photos.index.items.tolist()) == set(photos.index.ids.tolist())


def test_a_model_that_was_moved_serves_regions_too(pairs, small, tmp_path):
    path = shutil.copy(small, tmp_path / "net.onnx")
    update(pairs, model=path, regions=True, relearn=True)
    path.rename(tmp_path / "moved.onnx")
    photos = Photos.open(pairs, model=tmp_path / "moved.onnx")
    assert photos.search_regions(pairs.parent / "drawings" / "5.png", 1)[0][2] == CORNER


def test_regions_follow_the_folder(pairs):
    (pairs / "0.png").unlink()
    (pairs / "1.png").rename(pairs / "moved.png")
    draw(pairs / "new.png", 500)
    assert counts(update(pairs)) == (1, 0, 1, 10, 0)
    photos = Photos.open(pairs)
    inside = photos.for_photos.index
    names = sorted(path.name for path in pairs.glob("*.png"))
    assert sorted(set(inside.items.tolist())) == names
    assert len(inside) == len(names) * len(BOXES)
    assert photos.search_regions(pairs.parent / "drawings" / "5.png", 1)[0][::2] == ("moved.png", CORNER)
    (pairs / "0.png").symlink_to("2.png")  # skipped
    shutil.copy(pairs / "new.png", pairs / "copy.png")
    update(pairs)
    assert photos.refresh()
    assert len(photos.for_photos.index) == 13 * len(BOXES)


def test_photos_of_other_folders_have_regions_too(pairs):
    other = pairs.with_name("other")
    other.mkdir()
    draw(other / "new.png", 99)
    update(pairs, also=[other])
    photos = Photos.open(pairs)
    assert photos.for_photos.folders == photos.folders == [pairs, other]
    assert photos.search(other / "new.png", 1)[0][0] == (other / "new.png").as_posix()


def test_another_model_is_used_for_regions_too_also_if_the_run_was_killed_between_them(pairs, monkeypatch):
    shutil.copytree(pairs / ".logt" / "regions", pairs.parent / "regions before")
    update(pairs, model="lite", relearn=True)
    shutil.rmtree(pairs / ".logt" / "regions")
    shutil.move(pairs.parent / "regions before", pairs / ".logt" / "regions")
    update(pairs)
    photos = Photos.open(pairs)
    assert photos.index.dim == photos.for_photos.index.dim == 1280
    assert photos.for_photos._model is photos._model


def test_copies_and_checks_include_what_is_inside(pairs, tmp_path):
    copy_photo_index(pairs / ".logt", tmp_path / "copy")
    found = Photos.open(tmp_path / "copy").search_regions(pairs.parent / "drawings" / "9.png", 2)
    assert found == Photos.open(pairs).search_regions(pairs.parent / "drawings" / "9.png", 2)
    shutil.rmtree(pairs / ".logt" / "regions")
    copy_photo_index(pairs / ".logt", tmp_path / "copy", overwrite=True)
    assert not IndexFolder(tmp_path / "copy").parts()
    update(pairs, regions=True)
    vectors = next((pairs / ".logt" / "regions").glob("vectors-*/segment-*"))
    vectors.write_bytes(vectors.read_bytes()[:-1])
    with pytest.raises(CorruptIndexError, match="regions"):
        IndexFolder(pairs / ".logt").check()
    update(pairs, rebuild=True)
    IndexFolder(pairs / ".logt").check()
    assert Photos.open(pairs).search_regions(pairs.parent / "drawings" / "9.png", 1)[0][::2] == ("2.png", CORNER)


def test_results_of_the_service_and_of_the_page_name_the_region(pairs):
    drawing = (pairs.parent / "drawings" / "9.png").read_bytes()
    with open_client(open_collection(pairs)) as client:
        (hits,) = client.post(f"{API}/search/photo", files={"photo": drawing}, data={"k": 12}).json()["results"]
        assert hits[0] == {"id": "2.png", "score": hits[0]["score"], "box": list(CORNER)}
        assert len({hit["id"] for hit in hits}) == 12
        body = {"id": "2.png", "box": [0.0, 0.5, 0.5, 1.0], "k": 11}
        (others,) = client.post(f"{API}/search/region", json=body).json()["results"]
        assert "2.png" not in [hit["id"] for hit in others]
        page = client.post("/", files={"photo": ("9.png", drawing)}).text
        assert '<svg class="matched" viewBox="0 0 120 96"' in page
        assert '<rect x="60" y="0" width="60" height="48"/>' in page
        assert 'class="matched"' not in client.get("/").text
        assert "4.png" in client.get("/", params={"id": "2.png", "name": "4"}).text


def test_removed_and_uploaded_photos_are_removed_and_added_inside_too(pairs):
    drawing = (pairs.parent / "drawings" / "9.png").read_bytes()
    collection = open_collection(pairs, allow_changes=True, allow_uploads=True)
    with open_client(collection, token="a token of some length", changes=True) as client:
        client.headers["Authorization"] = "Bearer a token of some length"
        trashed = client.post(f"{API}/photos/trash", json={"ids": ["2.png"]})
        assert trashed.status_code == 200, trashed.text
        (hits,) = client.post(f"{API}/search/photo", files={"photo": drawing}, data={"k": 12}).json()["results"]
        assert "2.png" not in [hit["id"] for hit in hits]
        uploaded = client.post(f"{API}/photos", files={"photo": drawing}).json()["id"]
        client.post(f"{API}/photos/restore", json={"batch": trashed.json()["batch"]})  # after what is done in between
        (hits,) = client.post(f"{API}/search/photo", files={"photo": drawing}, data={"k": 2}).json()["results"]
        assert hits[0]["id"] == uploaded
        assert hits[1] == {"id": "2.png", "score": hits[1]["score"], "box": list(CORNER)}


def upload(client, folder, number):
    """Upload a drawing, and return its id."""
    drawing = (folder.parent / "drawings" / f"{number}.png").read_bytes()
    return client.post(f"{API}/photos", files={"photo": drawing}).json()["id"]


@pytest.fixture
def updates(monkeypatch):
    """The calls of `update_index`; whitenings are final."""
    calls, real = [], PhotoCollection.update_index
    monkeypatch.setattr(PhotoCollection, "update_index", lambda *given: (calls.append(given), real(*given))[1])
    monkeypatch.setattr(photo_vectors, "FINAL_COUNT", 10)
    return calls


def test_uploads_in_a_row_are_added_to_the_regions_without_an_update(pairs, small, updates):
    with open_client(open_collection(pairs, allow_uploads=True)) as client:
        for number in (5, 9, 14, 26):
            name = upload(client, pairs, number)
            drawing = (pairs.parent / "drawings" / f"{number}.png").read_bytes()
            (hits,) = client.post(f"{API}/search/photo", files={"photo": drawing}, data={"k": 2}).json()["results"]
            assert [hit["id"] for hit in hits] == [name, f"{number // 4}.png"]
        assert client.post(f"{API}/vectors/remove", json={"ids": [name]}).json()["removed"] == 1
        (hits,) = client.post(f"{API}/search/photo", files={"photo": drawing}, data={"k": 2}).json()["results"]
        assert hits[0]["id"] == "6.png"
    assert updates == []
    assert counts(update(pairs)) == (0, 0, 0, 15, 0)
    assert len(Photos.open(pairs).for_photos.index) == 150


def test_an_upload_leaves_the_regions_that_indexing_the_folder_would(pairs, small, updates):
    with open_client(open_collection(pairs, allow_uploads=True)) as client:
        name = upload(client, pairs, 9)

    def vectors():
        return reconstruct(Photos.open(pairs).for_photos.index, [name])

    uploaded = vectors()
    (pairs / name).touch()
    assert counts(update(pairs, model=small)) == (0, 1, 0, 12, 0)
    np.testing.assert_allclose(vectors(), uploaded, atol=1e-3)


def test_an_upload_while_the_regions_are_locked_is_added_to_them_later(pairs, updates, monkeypatch):
    monkeypatch.setattr("logt.server.photo_collection.RETRY_SECONDS", 0)
    monkeypatch.setattr("logt.server.photo_collection.SCAN_SHARE", 0)
    with open_client(open_collection(pairs, allow_uploads=True)) as client:
        with IndexFolder(pairs / ".logt" / "regions").lock():
            first = upload(client, pairs, 9)
            wait_until(lambda: updates)
            second = upload(client, pairs, 5)
        assert len(Photos.open(pairs).index) == 14
        third = upload(client, pairs, 14)
        wait_until(lambda: all(name in Photos.open(pairs).for_photos.index for name in (first, second, third)))
        before = len(updates)
        upload(client, pairs, 26)
        upload(client, pairs, 30)
        assert len(updates) == before


# ------------------------------------------------------------------------------------------------------------ texts


@pytest.fixture
def captioned(tmp_path, small, encoders):
    """Photos that a network for photos and one for texts have described."""
    pytest.importorskip("tokenizers")
    from text_encoders import example

    folder, rng = tmp_path / "captioned", np.random.default_rng(7)
    folder.mkdir()
    for colour in example.COLOURS:
        for pattern in example.PATTERNS:
            example.draw(colour, pattern, rng).save(folder / f"{colour} {pattern}.png")
    update(folder, model=small, text=encoders)
    return folder


def test_texts_and_photos_are_searched_with_their_own_descriptors(captioned, small, encoders, tmp_path):
    photos = Photos.open(captioned)
    assert photos.has_text
    assert photos.is_whitened
    alone = tmp_path / "alone"
    update(captioned, alone, model=small)
    by_photo = photos.search(captioned / "red dots.png", 5)
    assert by_photo == Photos.open(alone).search(captioned / "red dots.png", 5)
    update(captioned, tmp_path / "texts", model=encoders)
    by_text = photos.search_text("green checks", 5)
    assert by_text == Photos.open(tmp_path / "texts").search_text("green checks", 5)
    assert by_text[0][0] == "green checks.png"
    assert not Photos.open(alone).has_text
    (captioned / "green checks.png").unlink()
    update(captioned)
    assert photos.refresh()
    assert "green checks.png" not in dict(photos.search_text("green checks", 20))


def test_an_upload_is_found_by_text_without_an_update(captioned, updates):
    from text_encoders import example

    colour, pattern = list(example.COLOURS)[1], next(iter(example.PATTERNS))
    drawn = example.draw(colour, pattern, np.random.default_rng(8))
    with open_client(open_collection(captioned, allow_uploads=True)) as client:
        name = client.post(f"{API}/photos", files={"photo": encode_jpeg(drawn)}).json()["id"]
        (hits,) = client.post(f"{API}/search/text", json={"text": f"{colour} {pattern}", "k": 2}).json()["results"]
        assert {hit["id"] for hit in hits} == {name, f"{colour} {pattern}.png"}
    assert updates == []


def test_text_and_photos_together_are_searched_among_the_descriptors_for_texts(captioned):
    with open_client(open_collection(captioned)) as client:
        (hits,) = client.post(f"{API}/search/text", json={"text": "blue stripes", "k": 3}).json()["results"]
        assert hits[0]["id"] == "blue stripes.png"
        assert client.get(f"{API}/info").json()["text"] is True
        both = client.get("/", params={"id": "red dots.png", "text": "blue stripes", "k": 20}).text
    photos = Photos.open(captioned)
    texts = photos.for_text.index
    vector = (texts.reconstruct(["red dots.png"])[0] + photos.text_descriptor("blue stripes")) / 2
    ranking = texts.search(vector, 20, effort=1).ids.tolist()
    expected = [name for name in ranking if name not in (None, "red dots.png")]
    assert re.findall('data-id="([^"]+ [^"]+)" data-about', both) == expected


def test_an_index_for_texts_that_cannot_be_opened_does_not_hinder_searches_by_photo(captioned, encoders):
    model = Model.load(encoders)
    manifest = captioned / ".logt" / "text" / "photos.json"
    shutil.copytree(encoders, captioned.parent / "elsewhere")
    update(captioned, text=captioned.parent / "elsewhere", relearn=True)
    shutil.rmtree(captioned.parent / "elsewhere")
    photos = Photos.open(captioned)
    assert not photos.has_text
    assert photos.search(captioned / "red dots.png", 1)[0][0] == "red dots.png"
    with pytest.raises(InvalidInputError, match="elsewhere"):
        photos.search_text("red dots")
    manifest.write_text("{")
    with pytest.raises(InvalidInputError, match=r"the model of .*text is not known any more; pass it with --text"):
        update(captioned, rebuild=True)
    update(captioned, rebuild=True, text=model)
    assert photos.search_text("red dots", 1)[0][0] == "red dots.png"


@pytest.mark.parametrize("damaged", ["manifest", "vectors"])
def test_a_damaged_index_for_texts_is_only_reported_by_searches_by_text(captioned, damaged):
    inside = captioned / ".logt" / "text"
    if damaged == "manifest":
        (inside / "photos.json").write_text("{")
    else:
        shutil.rmtree(next(inside.glob("vectors-*")))
    photos = Photos.open(captioned)
    assert not photos.has_text
    assert photos.search(captioned / "red dots.png", 1)[0][0] == "red dots.png"
    with pytest.raises((CorruptIndexError, FileNotFoundError), match="text/"):
        photos.search_text("red dots")
    assert not photos.refresh()


def test_a_text_is_refused_where_photos_have_descriptors_for_photos_only(whole):
    with open_client(open_collection(whole)) as client:
        message = error_message(client.post(f"{API}/search/text", json={"text": "a cat"}), 409, "no_text")
        assert "logt images index FOLDER --text clip" in message
