"""Reader of an X server: frames, pictures with the pointer, and windows."""

import io
import struct
from typing import Any

from PIL import Image
from Xlib import X, Xatom
from Xlib.display import Display
from Xlib.error import XError
from Xlib.ext import xfixes  # noqa: F401  (adds the extension's requests to `Display`)
from Xlib.protocol.event import ClientMessage

from quartet.env.desktop.objects import Box, Window

PNG_COMPRESSION = 1
"""Level 1 takes a quarter of the time of the default level for a picture a few percent larger."""


class Screen:
    """Connection to one X server. Its methods block, for less than a few milliseconds."""

    def __init__(self, display: str) -> None:
        self.display = Display(display)
        self.display.set_error_handler(lambda *_: None)  # a window may be gone before a request about it arrives
        self.root = self.display.screen().root
        size = self.root.get_geometry()
        self.width, self.height = size.width, size.height
        self.display.xfixes_query_version()

    def frame(self) -> bytes:
        """Return the pixels without the pointer, four bytes each: blue, green, red, unused."""
        return self.root.get_image(0, 0, self.width, self.height, X.ZPixmap, 0xFFFFFFFF).data

    def picture(self) -> bytes:
        """Return the screen with the pointer as PNG."""
        image = Image.frombytes("RGB", (self.width, self.height), self.frame(), "raw", "BGRX")
        cursor: Any = self.display.xfixes_get_cursor_image(self.root)
        pixels = struct.pack(f"<{len(cursor.cursor_image)}I", *cursor.cursor_image)
        pointer = Image.frombytes("RGBA", (cursor.width, cursor.height), pixels, "raw", "BGRA")
        image.paste(pointer, (cursor.x - cursor.xhot, cursor.y - cursor.yhot), pointer)
        file = io.BytesIO()
        image.save(file, "PNG", compress_level=PNG_COMPRESSION)
        return file.getvalue()

    def windows(self) -> list[Window]:
        """Return the windows in the order in which they were opened."""
        active, *_ = self._property(self.root, "_NET_ACTIVE_WINDOW", Xatom.WINDOW) or (0,)  # any program may set it
        found = [(number, self._title(number)) for number in self._clients()]
        return [Window(number, title, number == active) for number, title in found if title]

    def popups(self) -> list[Box]:
        """Return left, top, width and height of the windows that the window manager does not manage, such as menus."""
        found = []
        for window in self.root.query_tree().children:
            try:
                attributes = window.get_attributes()
                if attributes.override_redirect and attributes.map_state == X.IsViewable:
                    box = window.get_geometry()
                    found.append((box.x, box.y, box.width, box.height))
            except XError:
                continue  # it was closed meanwhile
        return found

    def managed(self) -> bool:
        """Return whether a window manager has started."""
        return bool(self._property(self.root, "_NET_SUPPORTING_WM_CHECK", Xatom.WINDOW))

    def activate(self, window: int) -> None:
        """Raise and focus a window, as a click in a taskbar does."""
        event = ClientMessage(
            window=self.display.create_resource_object("window", window),
            client_type=self._atom("_NET_ACTIVE_WINDOW"),
            data=(32, [2, X.CurrentTime, 0, 0, 0]),
        )
        self.root.send_event(event, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)
        self.display.sync()

    def _clients(self) -> list[int]:
        return list(self._property(self.root, "_NET_CLIENT_LIST", Xatom.WINDOW))

    def _title(self, number: int) -> str:
        window = self.display.create_resource_object("window", number)
        title = self._property(window, "_NET_WM_NAME", self._atom("UTF8_STRING"))
        title = title or self._property(window, "WM_NAME", Xatom.STRING)
        return bytes(title).decode(errors="replace")

    def _property(self, window: Any, name: str, kind: int) -> Any:
        try:
            found = window.get_full_property(self._atom(name), kind)
        except XError:
            return ()  # the window was closed meanwhile
        return found.value if found else ()

    def _atom(self, name: str) -> int:
        return self.display.get_atom(name)  # which keeps them, unlike `intern_atom`
