"""The consoles of a demo's brokers: says where they are, and opens one in a browser if there is a display."""

import os
import sys
import webbrowser
from collections.abc import Mapping


def show_consoles(urls: Mapping[str, str], opened: str, opens_browser: bool) -> None:
    """`urls` are those of the brokers by name; `opened` is the broker whose console is opened."""
    places = ", ".join(f"{url} ({name})" for name, url in urls.items())
    print(f"{'console' if len(urls) == 1 else 'consoles'} at {places}", flush=True)
    if opens_browser and _has_display():
        webbrowser.open(f"{urls[opened]}/")


def _has_display() -> bool:
    is_remote = any(os.environ.get(name) for name in ("SSH_CONNECTION", "CI"))
    has_screen = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and has_screen and not is_remote
