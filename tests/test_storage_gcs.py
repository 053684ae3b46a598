"""An index at gs://, on an emulator of Google Cloud Storage."""

import os
import time
from http import HTTPStatus

import pytest
from exact_index import assert_same, built

os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"  # it looks for credentials
pytest.importorskip("gcsfs")
emulator = pytest.importorskip("gcp_storage_emulator.server")

import logt  # noqa: E402
from logt.errors import ConflictError  # noqa: E402
from logt.storage.locations import RemoteLocation, _written  # noqa: E402

DIM = 16


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """The URL of a bucket of an emulator, which here also knows the condition that an object is new."""
    import gcsfs
    from gcp_storage_emulator.exceptions import NotFound
    from gcp_storage_emulator.handlers import objects

    upload = objects._multipart_upload

    def upload_if_new(request, response, storage):
        if request.query.get("ifGenerationMatch") == ["0"]:
            try:
                storage.get_file_obj(request.params["bucket_name"], request.data["meta"]["name"])
            except NotFound:
                pass
            else:
                response.status = HTTPStatus.PRECONDITION_FAILED
                return None
        return upload(request, response, storage)

    monkeypatch.setattr(objects, "_multipart_upload", upload_if_new)
    server = emulator.create_server("127.0.0.1", 0, in_memory=True, default_bucket="bucket")
    server.start()
    host, port = server._api._httpd.server_address
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}:{port}")
    monkeypatch.setenv("LOGT_CACHE", str(tmp_path / "cache"))
    gcsfs.GCSFileSystem.clear_instance_cache()
    yield "gs://bucket"
    server.stop()


def test_an_index_is_saved_to_opened_from_and_committed_to_google_cloud_storage(bucket, vectors):
    made = built(vectors(400, DIM))
    made.save(f"{bucket}/index")
    for about in RemoteLocation(f"{bucket}/index")._list().values():
        assert abs(time.time() - _written(about)) < 600
    index, Q = logt.open(f"{bucket}/index"), vectors(30, DIM, seed=1)
    assert_same(index.search(Q, 5), made.search(Q, 5))
    with logt.open(f"{bucket}/index", mode="a") as one, logt.open(f"{bucket}/index", mode="a") as two:
        one.remove([1])
        two.remove([2])
        one.save()
        with pytest.raises(ConflictError, match="written by another"):
            two.save()
    assert index.refresh()
    assert 1 not in index
    assert 2 in index
