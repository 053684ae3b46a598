"""Run the server in a test: in the same thread with a test client, or in another thread on a real port."""

import base64
import socket
import threading
import time
from contextlib import contextmanager

import uvicorn
from starlette.testclient import TestClient
from synthetic_photos import SyntheticPhotos

from logt.server.app import create_app
from logt.server.connections import server_config
from logt.server.photo_collection import PhotoCollection
from logt.server.settings import Limits, Settings

API = "/api/v1"
TOKEN = "a token of some length"
PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}


def open_album(album):
    """The collection of photos that `write_photos` has written; album: (folder, index, ...)."""
    return PhotoCollection(SyntheticPhotos(*album[:2]))


@contextmanager
def open_client(collection, address="testclient", **settings):
    """A client of an application that runs without a socket. address: of the client."""
    app, options = create_app(collection, Settings(**settings)), {"raise_server_exceptions": False}
    with TestClient(app, base_url="http://127.0.0.1:8000", client=(address, 50000), **options) as client:
        client.app_service = getattr(app, "app", app)._app.state.service
        yield client


@contextmanager
def run_server(app, **limits):
    """The URL of an application that runs in a thread, on a free port, with the limits of connections."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(app, Limits(**limits)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def error_message(response, status, code):
    """Check the status and code of an error response and return its message."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["code"] == code
    return error["message"]


def result_ids(response):
    """The ids of the results of each query."""
    assert response.status_code == 200, response.text
    return [[hit["id"] for hit in hits] for hits in response.json()["results"]]


def raise_disk_full(*_):
    """Stand in for a function that writes."""
    raise OSError("no space left")


def wait_until(condition, seconds=20.0):
    """Wait for a condition that another thread makes true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)


def find_similar(page):
    """Search with the photo of the large view."""
    with page.expect_navigation():
        page.get_by_role("link", name="Find similar").click()


def search_photo(page, method, content, **file):
    """Search with a photo by "drop", "paste" or "choose", and wait for the page that is loaded."""
    with page.expect_navigation():
        enter_photo(page, method, content, **file)


def enter_photo(page, method, content, name="query.jpg", media_type="image/jpeg"):
    """Enter a photo by "drop", "paste" or "choose"."""
    if method == "choose":
        page.set_input_files("#photo", {"name": name, "mimeType": media_type, "buffer": content})
        return
    script = """([method, encoded, name, type]) => {
        const bytes = Uint8Array.from(atob(encoded), (c) => c.charCodeAt(0));
        const data = new DataTransfer();
        data.items.add(new File([bytes], name, { type }));
        const event = method === "paste"
            ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true })
            : new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
        document.body.dispatchEvent(event);
    }"""
    page.evaluate(script, [method, base64.b64encode(content).decode(), name, media_type])
