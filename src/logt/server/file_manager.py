"""Show a file in the file manager of the desktop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from logt.server.errors import HTTPError


def show_in_folder(path: Path) -> None:
    """Open the folder of a file; macOS also selects the file there."""
    command = ["open", "-R", str(path)] if sys.platform == "darwin" else ["xdg-open", str(path.parent)]
    try:
        silent = subprocess.DEVNULL
        subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent, start_new_session=True)
    except OSError:
        raise HTTPError(501, "no_desktop", f"{command[0]} cannot be started on this machine") from None
