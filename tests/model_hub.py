"""A stand-in of the Hugging Face Hub, for tests of downloads: one repository, served from memory."""

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from logt.descriptors.model_catalog import CatalogModel, RemoteFile

REPOSITORY, REVISION = "someone/words-ONNX", "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Files by their paths; `requests` are (path, Range) of each GET. `cut` ends replies after so many bytes."""

    def __init__(self, files):
        self.files, self.requests, self.cut, self.url = dict(files), [], None, ""

    def catalog_model(self, name, local_names, settings):
        """Return the entry of the catalog for these files. local_names: by path."""
        files = {
            local: RemoteFile(path, len(self.files[path]), hashlib.sha256(self.files[path]).hexdigest())
            for path, local in local_names.items()
        }
        about = (REPOSITORY, REVISION, "someone/words", "MIT", "a few words")
        return CatalogModel(name, *about, files, settings)


@contextmanager
def running_hub(files):
    hub = Hub(files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self.reply(head=True)

        def do_GET(self):
            self.reply(head=False)

        def reply(self, head):
            path = self.path.removeprefix(f"/{REPOSITORY}/resolve/{REVISION}/")
            content = hub.files.get(path)
            if content is None:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            assert "Authorization" not in self.headers
            wanted = self.headers.get("Range")
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            self.send_response(206 if wanted else 200)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", REVISION)
            self.send_header("Content-Length", str(len(content) - start))
            if wanted:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            if head:
                return
            hub.requests.append((path, wanted))
            self.wfile.write(content[start:] if hub.cut is None else content[start : start + hub.cut])
            self.close_connection = hub.cut is not None

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
