"""The commands as a user runs them; most run in this process, so that the package is imported once."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from exact_index import built
from typer.main import get_command

import logt
from logt.cli import console
from logt.cli.main import app


@pytest.fixture(scope="module")
def files(tmp_path_factory, vectors):
    folder = tmp_path_factory.mktemp("cli")
    np.save(folder / "x.npy", vectors(300, 32))
    np.save(folder / "q.npy", vectors(300, 32)[:25])
    np.save(folder / "nan.npy", np.full((2, 32), np.nan, np.float32))
    built(vectors(300, 32)).save(folder / "index")
    return folder


def test_build_search_and_info(files, run_logt):
    found = json.loads(run_logt("search", files / "index", files / "q.npy", "-k", 3, "--json"))
    assert [row[0] for row in found["ids"]] == list(range(25))
    assert len(found["scores"][0]) == 3
    padded = json.loads(run_logt("search", files / "index", files / "q.npy", "-k", 301, "--json"))
    assert (padded["ids"][0][-1], padded["scores"][0][-1]) == (-1, None)
    shown = run_logt("search", files / "index", files / "q.npy")
    assert "5 more queries" in shown
    assert len(re.findall(r"\d+ \(-?[.\d]+\)", shown)) == 200  # no line ends between an id and its score
    report = json.loads(run_logt("info", files / "index", "--json"))
    assert (report["vectors"], report["dim"]) == (300, 32)


def test_queries_from_the_standard_input_and_json_lines_out(files, run_logt, monkeypatch):
    expected = json.loads(run_logt("search", files / "index", files / "q.npy", "-k", 3, "--json"))
    with open(files / "q.npy", "rb") as queries:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=queries))
        shown = run_logt("search", files / "index", "-", "-k", 3, "--jsonl")
    rows = [json.loads(line) for line in shown.splitlines()]
    assert [row["query"] for row in rows] == list(range(25))
    assert [row["ids"] for row in rows] == expected["ids"]
    shown = run_logt("search", files / "index", files / "q.npy", "-k", 301, "--jsonl")
    rows = [json.loads(line) for line in shown.splitlines()]
    assert [len(row["ids"]) for row in rows] == [len(row["scores"]) for row in rows] == [300] * 25


@pytest.mark.parametrize(
    ("queries", "closed", "message"),
    [
        ("q.npy", ">&-", "the standard output is closed; --jsonl needs it"),
        ("-", "<&-", "the standard input is closed; pass a file of vectors"),
    ],
)
def test_a_closed_stream_is_an_error_of_one_line(files, queries, closed, message):
    command = f'"{sys.executable}" -m logt search index {queries} --jsonl {closed}'
    done = subprocess.run(["sh", "-c", command], cwd=files, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("build", "none.npy", "out"), "file not found: none.npy"),
        (("build", "{files}/x.npy", "{files}/index"), "--overwrite"),
        (("search", "nowhere", "{files}/q.npy"), "nowhere holds no index: this path does not exist"),
        (("search", "{files}/q.npy", "{files}/q.npy"), "q.npy holds no index: it is a file"),
        (("search", "{files}/index", "{files}"), "is a folder; pass a file of vectors"),
        (("search", "{files}/index", "{files}/q.npy", "--rerank", "magic"), "--rerank must be diffusion"),
        (("search", "{files}/index", "{files}/q.npy", "--rerank", "diffusion"), "logt link"),
        (("search", "{files}/index", "{files}/q.npy", "--json", "--jsonl"), "pass one of them"),
        (("search", "{files}/index", "{files}/nan.npy"), "row 0 of QUERIES holds nan at column 0; correct it"),
        (("info", "{files}"), "holds no index: it has no manifest.json"),
        (("search", "{files}/photos", "{files}/q.npy"), "photos is an index of photos: use `logt images search`"),
        (("serve", "{files}"), "logt images index {files}"),
        (("serve", "nowhere"), "nowhere"),
        (("build", "a.npy", "b.npy", "i", "--threads", "1"), "--threads is for one file"),
        (("serve", "i", "--replicas", "1"), "--replicas is for indexes in shards"),
        (("serve", "i", "--ray", "--allow-upload"), "--allow-upload needs one"),
    ],
)
def test_errors_are_one_line_with_a_way_to_fix_them(files, words, message, run_logt):
    (files / "photos" / ".logt").mkdir(parents=True, exist_ok=True)
    (files / "photos" / ".logt" / "photos.json").touch()
    shown = run_logt(*(word.format(files=files) for word in words), ok=False)
    assert message.format(files=files) in shown
    assert "Traceback" not in shown


def test_string_ids_and_paths_that_look_like_markup(files, vectors, run_logt):
    ids, method = [f"[red]{i}[/x].jpg" for i in range(20)], logt.methods.rnd(n=10, m=2, L=8)
    built(vectors(20, 32), ids, method=method).save(files / "odd[/x]")
    assert "[red]3[/x].jpg" in run_logt("search", files / "odd[/x]", files / "q.npy")
    assert "OK" in run_logt("verify", files / "odd[/x]")
    assert "holds no index" in run_logt("verify", files / "no[/red]ne", ok=False)


def test_control_characters_and_lone_surrogates_of_ids_are_escaped(tmp_path, vectors, run_logt):
    ids = ["\x1b[31mred", "two\nlines", "\udc80", "\x9b31m", "été"]
    X = vectors(1, 32)
    built(X.repeat(5, axis=0), ids).save(tmp_path / "index")
    np.save(tmp_path / "q.npy", X)
    words = ("search", tmp_path / "index", tmp_path / "q.npy", "-k", 5)
    duplicates = ("duplicates", tmp_path / "index")
    shown = [run_logt(*words), run_logt(*duplicates), run_logt(*duplicates, "--pairs")]
    for text in shown:
        assert all(name in text for name in (r"\x1b[31mred", r"two\nlines", r"\udc80", r"\x9b31m", "été"))
    for text in (*shown, *(run_logt(*words, option) for option in ("--json", "--jsonl"))):
        assert not {"\x1b", "\x9b", "\udc80"} & set(text)
        assert "été" in text
    assert sorted(json.loads(run_logt(*words, "--json"))["ids"][0]) == sorted(ids)
    assert sorted(json.loads(run_logt(*words, "--jsonl"))["ids"]) == sorted(ids)
    assert sorted(json.loads(run_logt(*duplicates, "--json"))[0]) == sorted(ids)
    refused = run_logt("search", tmp_path / "\x1b[31m", tmp_path / "q.npy", ok=False)
    assert r"\x1b[31m holds no index" in refused


def test_demo_compares_with_exhaustive_search(run_logt):
    rows = json.loads(run_logt("demo", "--vectors", 2000, "--dim", 32, "--json"))
    assert [row["system"] for row in rows] == ["exhaustive", "logt"]
    assert all(row["mAP"] > 5 and row["bytes"] > 0 for row in rows)
    assert rows[0]["recall@10"] == 1
    shown = run_logt("demo", "--vectors", 2000, "--dim", 16)
    assert all(name in shown for name in ("exhaustive", "logt", "recall@10"))


def test_version_and_python_m_logt(run_logt):
    done = subprocess.run([sys.executable, "-m", "logt", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, logt.__version__)
    assert "The folder or URL of an index" in run_logt("info", "--help")


def test_search_only_reads_the_ids_of_a_filter(files, tmp_path, vectors, run_logt):
    (tmp_path / "ids.txt").write_text("7\n3\n\n299\n12345\n")
    words = ("search", files / "index", files / "q.npy", "-k", 3, "--json", "--filter")
    for given in ("7,3, 299", tmp_path / "ids.txt"):
        assert all(sorted(row) == [3, 7, 299] for row in json.loads(run_logt(*words, given))["ids"])
    assert "the ids of this index are integers, got 'none.txt'" in run_logt(*words, "none.txt", ok=False)
    built(vectors(3, 32), ["a", "b", "c d"]).save(tmp_path / "strings")
    found = json.loads(run_logt("search", tmp_path / "strings", files / "q.npy", "--json", "--filter", "c d,a"))
    assert all(sorted(row[:2]) == ["a", "c d"] for row in found["ids"])


def test_the_help_lists_each_command_once_in_groups(run_logt):
    shown = run_logt("--help").split("--help")[1]
    groups = {
        title: re.findall(r"(?m)^  (\w+)", rows) for title, rows in re.findall(r"\n(\w.+):\n((?:  .*\n?)+)", shown)
    }
    assert groups["Keep an index safe"] == ["verify", "backup", "restore", "repair"]
    assert len(groups) == 6
    assert sorted(name for names in groups.values() for name in names) == sorted(get_command(app).commands)


def test_info_is_short_and_names_the_method(files, run_logt):
    shown = run_logt("info", files / "index")
    assert "sketched()" in shown
    assert max(map(len, shown.splitlines())) < 200
    rows = dict(re.split("  +", line, maxsplit=1) for line in shown.splitlines())
    size = sum(path.stat().st_size for path in (files / "index").iterdir())
    assert (rows["vectors"], rows["bytes on disk"]) == ("300", f"{size:,}")
    assert len({line.index(value) for line, value in zip(shown.splitlines(), rows.values(), strict=True)}) == 1


@pytest.mark.parametrize("existing", [False, True])
def test_a_failed_build_leaves_nothing_and_the_next_may_find_a_lock(files, tmp_path, existing, run_logt):
    np.save(tmp_path / "bad.npy", np.full((300, 32), np.nan, np.float32))
    target = tmp_path / "new" / "index"
    if existing:
        target.mkdir(parents=True)
    assert "row 0 of X" in run_logt("build", tmp_path / "bad.npy", target, ok=False)
    assert (tmp_path / "new").exists() == existing
    if existing:
        (target / ".lock").touch()  # of a build that was killed
    run_logt("build", files / "x.npy", target)
    assert "300 vectors" in run_logt("verify", target)
    assert "--overwrite" in run_logt("build", files / "x.npy", target, ok=False)
    run_logt("build", files / "x.npy", target, "--overwrite", "--link", 3)
    assert logt.open(target).report()["linked"] == len(logt.open(target))


def test_a_manifest_of_another_program_is_never_overwritten(files, tmp_path, run_logt):
    (tmp_path / "manifest.json").write_text('{"name": "app"}')
    for words in (("build", files / "x.npy", tmp_path), ("backup", files / "index", tmp_path)):
        run_logt(*words, "--overwrite", ok=False)
    assert (tmp_path / "manifest.json").read_text() == '{"name": "app"}'
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_errors_are_one_line_in_a_pipe(files):
    for words in (("info", files / ("long" * 60)), ("search", files, "--effort", "much")):
        done = subprocess.run([sys.executable, "-m", "logt", *map(str, words)], capture_output=True, text=True)
        assert done.stderr.splitlines()[-1].lower().startswith("error: ")


def test_backup_and_restore(files, tmp_path, run_logt):
    assert "copy of generation 1" in run_logt("backup", files / "index", tmp_path / "copy")
    assert "--overwrite" in run_logt("backup", files / "index", tmp_path / "copy", ok=False)
    run_logt("backup", files / "index", tmp_path / "copy", "--overwrite")
    assert "300 vectors" in run_logt("restore", tmp_path / "copy", tmp_path / "again")
    assert "--overwrite" in run_logt("restore", tmp_path / "copy", tmp_path / "again", ok=False)
    run_logt("restore", tmp_path / "copy", tmp_path / "again", "--overwrite")
    Q = np.load(files / "q.npy")
    assert np.array_equal(logt.open(tmp_path / "again").search(Q).ids, logt.open(files / "index").search(Q).ids)


def test_damage_is_shown_with_what_helps(tmp_path, vectors, run_logt):
    built(vectors(100, 32)).save(tmp_path / "index")
    for path in (tmp_path / "index").glob("segment-*"):
        path.write_bytes(path.read_bytes()[:-10])
    assert "`logt repair` shows what can be kept" in run_logt("verify", tmp_path / "index", ok=False)
    assert "nothing can be kept" in run_logt("repair", tmp_path / "index", ok=False)


def test_repair_changes_nothing_without_yes(tmp_path, vectors, run_logt):
    built(vectors(100, 8), segment_size=20).save(tmp_path / "index")
    assert "nothing to repair" in run_logt("repair", tmp_path / "index", "--yes")
    file = next((tmp_path / "index").glob("segment-*"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    before = {path: path.read_bytes() for path in (tmp_path / "index").iterdir()}
    done = run_logt("repair", tmp_path / "index", ok=False)
    assert "20 vectors" in done
    assert "Nothing was changed" in done
    assert {path: path.read_bytes() for path in (tmp_path / "index").iterdir()} == before
    done = json.loads(run_logt("repair", tmp_path / "index", "--yes", "--json"))
    assert (done["kept"], done["repaired"], len(done["losses"][0]["ids"])) == (80, True, 20)
    assert "80 vectors" in run_logt("verify", tmp_path / "index")


def test_numbers_have_the_right_plural_and_progress_never_shows_zero_minutes(monkeypatch, capsys):
    assert [console.count_of(number, "group") for number in (0, 1, 1200)] == ["0 groups", "1 group", "1,200 groups"]
    clock = iter([0.0, 20.0, 40.0, 40.0, 60.0, 120.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    report = console._LineProgress()
    report("indexing", 0, 100)
    report("indexing", 90, 100)
    assert "indexing 90/100, 4.5/s, less than 1 min left" in capsys.readouterr().err
    report("indexing", 100, 100)
    assert "indexing 100/100, 2.5/s, done\n" in capsys.readouterr().err
    report("points", 12, 36)  # resumed
    report("points", 12, 36)
    report("points", 16, 36)
    assert capsys.readouterr().err == "points 12/36\npoints 16/36, 7 min left\n"


def test_link_rerank_duplicates_and_pairs(tmp_path, vectors, run_logt):
    X = vectors(200, 32)
    X[50] = X[49] = X[20]
    np.save(tmp_path / "q.npy", X[:3])
    path = tmp_path / "index"
    built(X, [f"{i}.jpg" for i in range(200)]).save(path)
    assert json.loads(run_logt("link", path, "-k", 10, "--json"))["linked"] == 200
    found = json.loads(run_logt("search", path, tmp_path / "q.npy", "--rerank", "diffusion", "--json"))
    assert [row[0] for row in found["ids"]] == ["0.jpg", "1.jpg", "2.jpg"]
    groups = json.loads(run_logt("duplicates", path, "--threshold", 0.98, "--json"))
    assert [sorted(group) for group in groups] == [["20.jpg", "49.jpg", "50.jpg"]]
    assert "1 group of 3 vectors" in run_logt("duplicates", path, "--threshold", 0.98)
    assert len(run_logt("duplicates", path, "--threshold", 0.98, "--pairs").splitlines()) == 3
    run_logt("pairs", path, tmp_path / "pairs.txt", "--per-image", 5)
    lines = [line.split(" ") for line in (tmp_path / "pairs.txt").read_text().splitlines()]
    assert all(len(line) == 2 and line[0] != line[1] for line in lines)
    assert 500 <= len({frozenset(line) for line in lines}) == len(lines) <= 1000
    assert "--overwrite" in run_logt("pairs", path, tmp_path / "pairs.txt", ok=False)


def test_pairs_refuses_names_with_spaces_with_the_way_out(tmp_path, vectors, run_logt):
    built(vectors(30, 32), [f"{n}.jpg" for n in range(29)] + ["a photo.jpg"]).save(tmp_path / "index")
    refused = run_logt("pairs", tmp_path / "index", tmp_path / "pairs.txt", ok=False)
    assert "1 name with spaces, such as 'a photo.jpg'" in refused
    assert "rename these images and index them again. Nothing was written" in refused
    assert not (tmp_path / "pairs.txt").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("build a.npy index --ray", "build a.npy index --ray "),
        ("build --ray a.npy index", "build --ray  a.npy index"),
        ("build a.npy index --ray --overwrite", "build a.npy index --ray  --overwrite"),
        ("build a.npy index --ray local", "build a.npy index --ray local"),
        ("build a.npy --ray 10.0.0.1:6379 index", "build a.npy --ray 10.0.0.1:6379 index"),
        ("build a.npy --ray s3://bucket/index", "build a.npy --ray  s3://bucket/index"),
        ("build -- --ray index", "build -- --ray index"),
    ],
)
def test_ray_takes_an_address_or_none(words, expected):
    assert " ".join(console.with_value(words.split(" "))) == expected


def test_compact_frees_the_space_of_removed_vectors(tmp_path, vectors, run_logt):
    built(vectors(300, 8)).save(tmp_path / "index")
    with logt.open(tmp_path / "index", mode="a") as opened:
        opened.remove(range(100))
        opened.save()
    assert "200 vectors in 1 segment;" in run_logt("compact", tmp_path / "index")
    opened = logt.open(tmp_path / "index")
    assert (len(opened), opened.report()["removed"]) == (200, 0)
    run_logt("compact", tmp_path / "index", "--relearn")
    assert logt.open(tmp_path / "index").ids.tolist() == list(range(100, 300))
