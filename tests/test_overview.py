"""Groups, unusual photos and the map: found in the graph, kept with the index, shown on their pages."""

import sys

import numpy as np
import pytest
from exact_index import built
from server_testing import PHONE, create_app, open_album, open_client, run_server, wait_until
from synthetic_photos import write_photos

import logt
from logt.errors import MissingExtraError
from logt.photos import photo_map as maps
from logt.photos.clusters import find_clusters
from logt.photos.photo_map import MAP_FILE, photo_map

EACH, ALONE = 20, 6


def make_graph(scenes=5, alone=ALONE, new=()):
    """The graph of some clusters of 20 vectors and of single ones; new: (name, vector) of more."""
    rng = np.random.default_rng(0)
    centers = np.repeat(np.eye(40, dtype=np.float32)[:scenes], EACH, axis=0)
    X = np.concatenate([centers + rng.normal(0, 0.02, centers.shape), np.eye(40)[20 : 20 + alone]]).astype(np.float32)
    names = [f"{row // EACH}/{row:03}" for row in range(len(X))]
    index = built(np.concatenate([X, *([vector] for _, vector in new)]), ids=[*names, *(name for name, _ in new)])
    return index.graph(16)


def no_report(*_):
    pass


def test_clusters_are_groups_with_a_representative_and_lonely_photos_are_unusual():
    pytest.importorskip("sklearn")
    graph = make_graph()
    clusters = find_clusters(graph)
    groups = [clusters.members(label) for label in range(5)]
    for group in groups:  # single photos may join one
        assert len([name for name in group if name[0] != "5"]) == EACH
        assert len({name[0] for name in group} - {"5"}) == 1
    for group, row in zip(groups, clusters.representatives, strict=True):
        assert clusters.ids[row] in group
    assert {name[0] for name, _ in clusters.unusual(ALONE)} == {"5"}
    assert find_clusters(make_graph(0, 3)).representatives.tolist() == []


def test_a_graph_of_separate_parts_is_clustered():
    pytest.importorskip("sklearn")
    index = logt.Index(40)
    rng = np.random.default_rng(0)
    X = np.repeat(np.eye(40, dtype=np.float32)[:3], EACH, axis=0)
    index.add(X + rng.normal(0, 0.02, X.shape).astype(np.float32), ids=[str(row) for row in range(len(X))])
    clusters = find_clusters(index.graph(5))  # all neighbors are of the same cluster
    assert np.bincount(clusters.labels).tolist() == [EACH] * 3


@pytest.mark.parametrize(("module", "call"), [("sklearn.cluster", "find"), ("openTSNE", "map")])
def test_a_missing_package_is_named(module, call, monkeypatch, tmp_path):
    pytest.importorskip("sklearn")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'logt-search\[map\]'"):
        find_clusters(make_graph()) if call == "find" else photo_map(make_graph(), tmp_path, no_report)


def test_the_map_keeps_places_and_new_photos_are_next_to_their_neighbors(tmp_path, monkeypatch):
    pytest.importorskip("openTSNE")
    seen = []
    graph = make_graph()
    drawn = photo_map(graph, tmp_path, lambda *progress: seen.append(progress))
    assert seen[-1][1:] == (len(graph), len(graph))
    scene = [np.array([name.startswith(f"{n}/") for name in drawn.ids]) for n in range(5)]
    centers = np.array([drawn.positions[rows].mean(axis=0) for rows in scene])
    for number, rows in enumerate(scene):
        nearest = np.linalg.norm(drawn.positions[rows][:, None] - centers, axis=2).argmin(axis=1)
        assert (nearest == number).all()
    assert np.abs(drawn.positions).max() == pytest.approx(1)

    monkeypatch.setattr(maps, "_compute", None)  # nothing is computed again
    more = photo_map(make_graph(alone=2, new=[("new", np.eye(40, dtype=np.float32)[3])]), tmp_path, no_report)
    place = dict(zip(more.ids.tolist(), more.positions, strict=True))
    assert len(place) == 5 * EACH + 3
    assert all(
        (place[name] == old).all() for name, old in zip(drawn.ids, drawn.positions, strict=True) if name in place
    )
    assert np.linalg.norm(centers - place["new"], axis=1).argmin() == 3
    assert photo_map(make_graph(alone=2), tmp_path, no_report).ids.tolist() == sorted(set(place) - {"new"}, key=str)


@pytest.mark.parametrize("damage", [b"", b"x" * 100, None])
def test_a_damaged_map_is_drawn_again(tmp_path, monkeypatch, damage):
    graph, drawn = make_graph(), []
    monkeypatch.setattr(maps, "_compute", lambda graph, _: drawn.append(1) or np.zeros((len(graph), 2), np.float32))
    photo_map(graph, tmp_path, no_report)
    content = (tmp_path / MAP_FILE).read_bytes()
    (tmp_path / MAP_FILE).write_bytes(content[:-9] if damage is None else damage)
    photo_map(graph, tmp_path, no_report)
    photo_map(graph, tmp_path, no_report)
    assert len(drawn) == 2


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    root = tmp_path_factory.mktemp("overview")
    write_photos(root / "p", root / "i", 8, 8)
    return root / "p", root / "i"


def test_groups_are_browsed_and_a_missing_package_is_a_message(scenes, monkeypatch):
    pytest.importorskip("sklearn")
    with open_client(open_album(scenes)) as client:
        wait_until(lambda: "8 groups of similar photos" in client.get("/groups").text)
        page = client.get("/groups", params={"of": "scene 03/photo 1.jpg"}).text
        assert all(f'data-id="scene 03/photo {n}.jpg"' in page for n in range(8))
        assert "scene 04" not in page
        assert "Unusual photos" in client.get("/groups", params={"unusual": 1}).text
        assert client.get("/groups", params={"of": "none"}).status_code == 404
        assert client.get("/map/data").status_code == 409
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with open_client(open_album(scenes)) as client:
        wait_until(lambda: "logt-search[map]" in client.get("/groups").text)


@pytest.mark.parametrize("new_page", [{}, PHONE | {"color_scheme": "dark"}], indirect=True, ids=["desktop", "phone"])
def test_the_map_shows_a_photo_and_a_lasso_selects(scenes, new_page, request):
    pytest.importorskip("openTSNE")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with run_server(create_app(open_album(scenes))) as url:
        for path in ("groups", "map"):
            new_page.goto(f"{url}/{path}")
            new_page.wait_for_selector(".group-tile, #map", timeout=60_000)
            assert axe.run(new_page).response["violations"] == []
        box = new_page.locator("#map").bounding_box()
        new_page.wait_for_function("() => document.querySelector('#map').width > 300")
        new_page.wait_for_timeout(500)
        new_page.locator("#map").focus()
        place = new_page.evaluate(
            """async () => { const { x, y, ids } = await (await fetch("/map/data")).json();
            const { width, height, clientWidth } = document.querySelector("#map"), ratio = width / clientWidth;
            const scale = (0.96 * Math.min(width, height) - 84 * ratio) / 65535;
            const at = (place, length) => ((place - 32767.5) * scale + length / 2) / ratio;
            const others = (row) => ids.map((id, other) => id.slice(0, 8) === ids[row].slice(0, 8) ? Infinity
              : Math.hypot(x[other] - x[row], y[other] - y[row]));
            const away = ids.map((id, row) => Math.min(...others(row))), row = away.indexOf(Math.max(...away));
            return [at(x[row], width), at(y[row], height), ids[row]]; }"""
        )
        new_page.mouse.click(box["x"] + place[0], box["y"] + place[1] + 20)  # on the photo, not near its point
        new_page.wait_for_selector("#map-panel li")
        scene = new_page.locator("#map-panel .name").text_content()[:8]
        assert scene == place[2][:8]
        assert new_page.locator("#map-panel li img").first.get_attribute("alt").startswith(scene)
        assert axe.run(new_page).response["violations"] == []
        new_page.get_by_role("button", name="Close").click()
        new_page.get_by_role("button", name="Lasso").click()
        corners = [(2, 60), (box["width"] - 2, 60), (box["width"] - 2, box["height"] - 2), (2, box["height"] - 2)]
        new_page.mouse.move(box["x"] + 2, box["y"] + 60)
        new_page.mouse.down()
        for x, y in corners[1:]:
            new_page.mouse.move(box["x"] + x, box["y"] + y, steps=4)
        new_page.mouse.up()
        assert "photos selected" in new_page.locator("#selection-count").text_content()
        assert int(new_page.locator("#selection-count").text_content().split()[0]) > 40
