"""Servers on loopback that keep what is sent to them: HTTP, HTTPS and SMTP."""

import datetime
import ipaddress
import json
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

S = TypeVar("S", bound=socketserver.BaseServer)


class WebServer(ThreadingHTTPServer):
    """Answers each POST with `status` and `answer`, and keeps path, headers and JSON of each."""

    status = 200
    location = ""
    answer = b"ok"
    scheme = "http"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Web)
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.fetched: list[str] = []

    def url(self, path: str = "/hooks/secret-part") -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}{path}"


class _Web(BaseHTTPRequestHandler):
    server: WebServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, json.loads(body)))
        self._answer()

    def do_GET(self) -> None:
        self.server.fetched.append(self.path)
        self._answer()

    def _answer(self) -> None:
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_: object) -> None:
        """Say nothing on stderr."""


@contextmanager
def running(server: S) -> Iterator[S]:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def secured(server: Any, folder: Path) -> Path:
    """Let a server speak TLS as 127.0.0.1; return the certificate to be trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    trusted = folder / "server.pem"
    trusted.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    whole = folder / "server-and-key.pem"
    whole.write_bytes(
        trusted.read_bytes()
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(whole)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.scheme = "https"
    return trusted


class MailServer(socketserver.ThreadingTCPServer):
    """Takes mail by SMTP, or refuses each with `refuses`; keeps who it was for, and the message."""

    daemon_threads = True
    refuses = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Smtp)
        self.got: list[tuple[list[str], EmailMessage]] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Smtp(socketserver.StreamRequestHandler):
    """As much of RFC 5321 as a client that sends plain mail needs."""

    def handle(self) -> None:
        server = cast("MailServer", self.server)
        readers: list[str] = []
        self._say("220 here")
        while line := self.rfile.readline():
            word = line.decode().strip()
            command = word[:4].upper()
            if command == "QUIT":
                self._say("221 bye")
                return
            if command == "RCPT" and server.refuses:
                self._say(server.refuses)
                continue
            if command == "RCPT":
                readers.append(word.partition("<")[2].rstrip(">"))
            if command == "DATA":
                self._say("354 go on")
                server.got.append((readers, self._message()))
                readers = []
            self._say("250 ok")

    def _message(self) -> EmailMessage:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        return message_from_bytes(b"".join(lines), policy=policy.default)

    def _say(self, words: str) -> None:
        self.wfile.write(f"{words}\r\n".encode())
