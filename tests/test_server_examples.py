"""Searches with several photos, unlike some, and with a text and a photo together, on the page."""

import re

import numpy as np
import pytest
from server_testing import open_album, open_client
from synthetic_photos import compute_descriptor, draw_scene, encode_jpeg, write_photos


class TextPhotos:
    """Gives photos a text encoder: the text is the number of a scene."""

    has_text = True

    def text_descriptor(self, text):
        return compute_descriptor(draw_scene(int(text)))


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    root = tmp_path_factory.mktemp("examples")
    write_photos(root / "p", root / "i", 12, 3, link=5)
    collection = open_album((root / "p", root / "i"))
    collection.photos.__class__ = type("TextPhotos", (TextPhotos, type(collection.photos)), {})
    with open_client(collection) as client:
        yield client


def name(scene, number=0):
    return f"scene {scene:02}/photo {number}.jpg"


def results(client, k=4, **params):
    page = client.get("/", params={"k": k, **params}).text
    return re.findall(r'class="card" id="result-\d+" data-id="([^"]*)"', page), page


def test_several_photos_find_what_is_like_all_of_them_and_none_of_the_examples(client):
    found, page = results(client, id=name(1), also=[name(5), name(7)], k=6)
    assert {result[:8] for result in found} == {"scene 01", "scene 05", "scene 07"}
    assert not {name(1), name(5), name(7)} & set(found)
    assert f'aria-label="Remove {name(5)}"' in page


def test_photos_like_an_unwanted_one_are_further_down(client):
    both, _ = results(client, id=name(1), also=name(5))
    assert {result[:8] for result in both} == {"scene 01", "scene 05"}
    found, _ = results(client, k=30, id=name(1), also=name(5), unlike=name(5, 1))
    ranks = {
        scene: np.mean([found.index(r) for r in found if r.startswith(scene)]) for scene in ("scene 01", "scene 05")
    }
    assert ranks["scene 01"] < ranks["scene 05"]
    assert results(client, unlike=name(5))[0] == results(client)[0] == []  # there is nothing to search with


def test_text_and_photos_are_searched_together(client):
    assert {r[:8] for r in results(client, id=name(2), text="9")[0]} == {"scene 02", "scene 09"}
    sent = client.post("/", files={"photo": encode_jpeg(draw_scene(3))}, follow_redirects=False).headers["location"]
    found = client.get(f"{sent}&also={name(6)}&text=9&k=8").text
    assert {r[:8] for r in re.findall(r'id="result-\d+" data-id="([^"]*)"', found)} == {
        "scene 03",
        "scene 06",
        "scene 09",
    }


def test_unknown_and_too_many_examples_are_refused(client):
    assert client.get("/", params={"id": name(1), "also": "none"}).status_code == 404
    assert client.get("/", params={"id": name(1), "also": [name(2)] * 51}).status_code == 422


def test_links_add_and_remove_examples_and_keep_the_filter(client):
    _, page = results(client, id=name(1), also=name(5), folder="scene 01")
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="([^"]*)"', page)]
    more = next(link for link in links if link.count("also=") == 2)
    assert "folder=scene+01" in more
    assert any("also" not in link and "id=" in link and "folder" in link for link in links)


def test_scores_of_a_deeper_search_are_similarities(client):
    _, page = results(client, id=name(1), deep=True, k=12)
    scores = [float(score) for score in re.findall(r'class="score"[^>]*>([\d.-]+)<', page)]
    assert len(set(scores)) > 3
    assert all(score < 0.999 for score in scores)
