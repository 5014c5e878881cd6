"""A name server of tests: it has addresses for names, and nothing else."""

import contextlib
import socket
import struct
import threading

_A = 1
_HEADER = struct.Struct("!6H")


class Names:
    """Records that may change while it answers."""

    def __init__(self, records, server):
        self.records = dict(records)
        host, port = server.getsockname()
        self.address = f"{host}:{port}"

    def answer(self, query):
        """The reply to a query of one question: its addresses of IPv4, or none."""
        identity = _HEADER.unpack_from(query)[0]
        labels, place = [], _HEADER.size
        while length := query[place]:
            labels.append(query[place + 1 : place + 1 + length].decode())
            place += 1 + length
        question = query[_HEADER.size : place + 5]
        (kind,) = struct.unpack_from("!H", query, place + 1)
        found = self.records.get(".".join(labels).lower(), ()) if kind == _A else ()
        # An answer names the question by its offset, and lives for no second.
        answers = b"".join(struct.pack("!HHHIH", 0xC00C, _A, 1, 0, 4) + socket.inet_aton(host) for host in found)
        return _HEADER.pack(identity, 0x8580, 1, len(found), 0, 0) + question + answers


@contextlib.contextmanager
def names_at(records):
    """A name server with these records, at its address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.1)
        names, ended = Names(records, server), threading.Event()

        def serve():
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    query, caller = server.recvfrom(4096)
                    server.sendto(names.answer(query), caller)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield names
        finally:
            ended.set()
            thread.join()
