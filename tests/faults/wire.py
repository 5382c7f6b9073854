"""A loopback proxy of bytes before a database, which lets it end between two parts of a talk."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from select import select

from msgspec import Struct, field

_PART_BYTES = 1 << 16


class Wire(Struct):
    """What passes to the port `target`; clients connect to `port`.

    A part is what a client sends at once: a statement, the begin or end of a transaction, or some
    rows of a COPY.
    """

    target: int
    port: int = 0
    parts: int = 0
    was_cut: bool = False
    _at: int = 0
    _end: Callable[[], None] = lambda: None
    _is_late: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def cut(self, at: int, end: Callable[[], None], *, is_late: bool) -> None:
        """Call `end` instead of passing on the part of that number, counted from now on and 1.

        `is_late`: once the server answered it; the client hears nothing of it.
        """
        with self._lock:
            self.parts, self.was_cut = 0, False
            self._at, self._end, self._is_late = at, end, is_late

    def heal(self) -> None:
        """Let everything pass."""
        self.cut(0, lambda: None, is_late=False)

    def carry(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on what both sides say until one of them ends."""
        while True:
            ready, _, _ = select([client, server], [], [])
            for one in ready:
                part = one.recv(_PART_BYTES)
                if not part:
                    return
                if one is client and self._is_last():
                    if self._is_late:
                        server.sendall(part)
                        # Rows of a COPY are not answered: then the client says more.
                        select([client, server], [], [])
                    self._end()
                    return
                (server if one is client else client).sendall(part)

    def _is_last(self) -> bool:
        with self._lock:
            self.parts += 1
            if self.parts != self._at:
                return False
            self.was_cut = True
            return True


@contextmanager
def wire(target: int) -> Iterator[Wire]:
    """Yield a proxy before a port of 127.0.0.1."""
    made = Wire(target)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made.port = listener.getsockname()[1]
        thread = threading.Thread(target=_listen, args=(listener, made), daemon=True)
        thread.start()
        try:
            yield made
        finally:
            # Closing alone would not wake the thread.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _listen(listener: socket.socket, made: Wire) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(client, made), daemon=True).start()


def _serve(client: socket.socket, made: Wire) -> None:
    with client, suppress(OSError), socket.create_connection(("127.0.0.1", made.target)) as server:
        made.carry(client, server)
