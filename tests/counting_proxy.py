"""A proxy that counts the bytes which a server sends."""

from __future__ import annotations

import contextlib
import socket
import threading


class CountingProxy:
    """Passes connections on to a server. `sent`: bytes that the server has sent, headers included."""

    def __init__(self, host, port):
        self._server, self.sent = (host, port), 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def count(self, call):
        """Return (the result of a call, the bytes that the server sent for it)."""
        before = self.sent
        result = call()
        return result, self.sent - before

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for pair in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source, target, counted):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if counted:
                    with self._lock:
                        self.sent += len(data)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
