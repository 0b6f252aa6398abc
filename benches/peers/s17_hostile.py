"""What other requests of a worker wait for while servers or clients send what is laborious to read: flowgate alone.

usage: s17_hostile.py [KIND…]      (all; `server-…` is what an upstream sends, the others are clients)

Two hostile connections of each kind at once, one worker. Prints, for a connection that asks for `/probe`, which flowgate
answers itself, every 5 ms for six seconds: the median, the 99th percentile and the longest wait, and the CPU that flowgate
takes. `quiet` has no hostile connection: what the machine does by itself. At last the CPU for 1 MiB in chunks of one byte.
"""
import asyncio
import http.client
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BINARY = os.environ.get("FLOWGATE") or str(Path(__file__).parents[2] / "target/release/flowgate")
CONFIGURATION = """workers: 1
listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
upstreams: [{{ name: up, servers: [{{ url: http://127.0.0.1:{} }}] }}]
routes:
  - {{ name: all, match: {{ path_prefix: / }}, upstream: up, body_limit: 10GiB }}
  - {{ name: probe, match: {{ path: /probe }}, respond: {{ body: ok }} }}
"""
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ONE = b"1\r\nx\r\n"
MIB = 1 << 20
POST = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
SECONDS = 6


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def open_stream(flags):
    return frame(1, flags, 1, bytes([0x83, 0x84, 0x86]) + b"\x41\x01a")


BEGIN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
# What a server sends again and again, after its first bytes.
SERVERS = {
    "zeros": (CHUNKED, b"0" * 65536),
    "one-byte-chunks": (CHUNKED, ONE * 20_000),
    "interim": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 2_000),
    "fields": (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 10_000),
}
# The same of clients.
CLIENTS = {
    "zeros": (POST, b"0" * 65536),
    "one-byte-chunks": (POST, ONE * 10_000),
    "empty-lines": (b"", b"\r\n" * 30_000),
    "pipelined": (b"", b"GET /probe HTTP/1.1\r\nHost: a\r\n\r\n" * 500),
    "h2-ping": (BEGIN, frame(6, 0, 0, b"12345678") * 2_000),
    "h2-settings": (BEGIN, frame(4, 0, 0, b"") * 4_000),
    "h2-window": (BEGIN, frame(8, 0, 0, (1).to_bytes(4, "big")) * 2_000),
    "h2-priority": (BEGIN, frame(2, 0, 3, b"\0\0\0\0\x10") * 2_000),
    "h2-empty-data": (BEGIN + open_stream(4), frame(0, 0, 1, b"") * 2_000),
    "h2-one-byte-data": (BEGIN + open_stream(4), frame(0, 0, 1, b"x") * 2_000),
    "h2-continuation": (BEGIN + open_stream(0), frame(9, 0, 1, b"") * 2_000),
}


async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            kind = head.split(b" ")[1].decode()[1:]
            if b"chunked" in head.lower():
                while await reader.readuntil(b"\r\n") != b"0\r\n":
                    pass
                await reader.readuntil(b"\r\n")
            elif length := re.search(rb"content-length: (\d+)", head.lower()):
                await reader.readexactly(int(length[1]))
            if kind in SERVERS:
                first, again = SERVERS[kind]
                writer.write(first)
                while not writer.is_closing():
                    writer.write(again)
                    await writer.drain()
                    await asyncio.sleep(0)
            elif kind == "drip":
                for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: " + b"y" * 20_000 + b"\r\n\r\n":
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0)
            elif kind == "mib":
                writer.write(CHUNKED)
                for _ in range(MIB // 16384):
                    writer.write(ONE * 16384)
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def upstream(port):
    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def take_all(stream):
    try:
        while stream.recv(65536):
            pass
    except OSError:
        pass


def attack(kind, address):
    """Attacks until it is ended."""
    side, _, what = kind.partition("-")
    while True:
        try:
            with socket.create_connection(address) as stream:
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if side == "server":
                    stream.sendall(f"GET /{what} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
                    take_all(stream)
                elif what == "drip":
                    for byte in b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 30_000 + b"\r\n\r\n":
                        stream.send(bytes([byte]))
                else:
                    first, again = CLIENTS[what]
                    threading.Thread(target=take_all, args=(stream,), daemon=True).start()
                    stream.sendall(first)
                    while True:
                        stream.sendall(again)
        except OSError:
            pass


def probe(address):
    waits = []
    with socket.create_connection(address) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            begun = time.monotonic()
            stream.sendall(b"GET /probe HTTP/1.1\r\nHost: a\r\n\r\n")
            assert stream.recv(4096).startswith(b"HTTP/1.1 200")
            waits.append((time.monotonic() - begun) * 1000)
            time.sleep(0.005)
    waits.sort()
    return waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1]


def cpu_ms(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def start_upstream():
    """Starts the server that is attacked or attacks, and returns its port."""
    here, there = multiprocessing.Pipe()
    multiprocessing.Process(target=upstream, args=(there,), daemon=True).start()
    return here.recv()


def download_chunks(address, count):
    """Takes 1 MiB in chunks of one byte from the server, `count` times."""
    for _ in range(count):
        connection = http.client.HTTPConnection(*address)
        connection.request("GET", "/mib")
        assert len(connection.getresponse().read()) == MIB


def upload_chunks(address, count):
    """Sends 1 MiB in chunks of one byte, `count` times."""
    body = POST + ONE * MIB + b"0\r\n\r\n"
    for _ in range(count):
        with socket.create_connection(address) as stream:
            stream.sendall(body)
            assert stream.recv(4096).startswith(b"HTTP/1.1 200")


def one_byte_chunks(address, gateway):
    """Prints the CPU for each MiB in chunks of one byte, down and up."""
    before = cpu_ms(gateway)
    download_chunks(address, 20)
    down = cpu_ms(gateway)
    upload_chunks(address, 5)
    up = cpu_ms(gateway)
    print(f"1 MiB in one-byte chunks: {(down - before) / 20:.1f} ms of CPU down, {(up - down) / 5:.1f} up")


def main():
    kinds = ["quiet", *(f"server-{kind}" for kind in [*SERVERS, "drip"]), *(f"client-{kind}" for kind in [*CLIENTS, "drip"]), "quiet"]
    kinds = sys.argv[1:] or kinds
    port_of_upstream = start_upstream()
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "gateway.yaml", Path(folder) / "log"
        file.write_text(CONFIGURATION.format(port_of_upstream))
        gateway = subprocess.Popen([BINARY, "run", str(file)], stderr=log.open("w"), env={**os.environ, "NO_COLOR": "1"})
        while "ready config" not in log.read_text():
            time.sleep(0.05)
        port = re.search(r"listener=web address=127.0.0.1:(\d+)", log.read_text())[1]
        address = ("127.0.0.1", int(port))
        print(f"{'':24}{'median':>9}{'p99':>9}{'longest':>9} ms   CPU")
        for kind in kinds:
            hostile = [multiprocessing.Process(target=attack, args=(kind, address), daemon=True) for _ in range(2 * (kind != "quiet"))]
            for process in hostile:
                process.start()
            time.sleep(0.5)
            before = cpu_ms(gateway)
            median, most, longest = probe(address)
            used = (cpu_ms(gateway) - before) / SECONDS / 10
            print(f"{kind:24}{median:9.2f}{most:9.2f}{longest:9.2f}   {used:5.1f} %", flush=True)
            for process in hostile:
                process.kill()
                process.join()
        one_byte_chunks(address, gateway)
        gateway.terminate()
        gateway.wait()


if __name__ == "__main__":
    main()
