#!/usr/bin/env python3
"""Draws docs/pictures/live-edit.svg from a real run: requests at a steady rate, and an edit of their limit.

    python3 docs/pictures/live_edit.py target/release/flowgate > docs/pictures/live-edit.svg

Starts a gateway with an upstream on loopback, sends RATE requests per second for SECONDS, writes another limit into the
gateway's file at EDIT seconds, and draws what the access log says. Python's standard library is all it needs.
"""
import http.client
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
from datetime import datetime

RATE, SECONDS, EDIT = 40, 10.0, 5.0
BEFORE, AFTER = "limit: 10/1s", "limit: 30/1s"
BIN = 0.5
FILE = """\
listeners: [{{ name: web, listen: 127.0.0.1:{gateway} }}]
upstreams: [{{ name: app, servers: [{{ url: http://127.0.0.1:{upstream} }}] }}]
routes:
  - name: api
    match: {{ path_prefix: / }}
    upstream: app
    flow: [{{ name: total, {limit}, burst: 3 }}]
access_log: access.log
end: true
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


def run(program, folder):
    """Returns the access log's lines, and the time of the edit."""
    ports = {"gateway": free_port(), "upstream": free_port()}
    file = folder / "gateway.yaml"
    file.write_text(FILE.format(limit=BEFORE, **ports))
    upstream = ["demo", "--upstream-only", "--upstream", f"127.0.0.1:{ports['upstream']}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    running = [subprocess.Popen([program, *arguments], **quiet) for arguments in (upstream, ["run"])]
    try:
        for port in ports.values():
            wait_for(port)
        client = http.client.HTTPConnection("127.0.0.1", ports["gateway"], timeout=5)
        begin, edited = time.time(), None
        for number in range(int(RATE * SECONDS)):
            time.sleep(max(0.0, begin + number / RATE - time.time()))
            if edited is None and number / RATE >= EDIT:
                edited = time.time()
                file.write_text(FILE.format(limit=AFTER, **ports))
            client.request("GET", "/")
            client.getresponse().read()
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(10)
    return begin, edited, (folder / "access.log").read_text().splitlines()


def second(line, begin):
    stamp, fraction = re.match(r"(.*?)\.(\d+)Z", line["ts"]).groups()
    whole = datetime.fromisoformat(stamp + "+00:00").timestamp()
    return whole + float(f"0.{fraction}") - begin


def draw(begin, edited, lines):
    bins = [[0, 0] for _ in range(int(SECONDS / BIN))]
    for line in map(json.loads, lines):
        at = int(second(line, begin) / BIN)
        if 0 <= at < len(bins):
            bins[at][line["status"] != 200] += 1
    width, height, left, top = 640, 150, 46, 30
    step = width / len(bins)
    scale = height / (1.1 * RATE)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 20} {top + height + 46}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        "<style>text{fill:#333}.p{fill:#2a78b5}.r{fill:#e0a33c}.a{stroke:#999}.e{stroke:#333;stroke-dasharray:4 3}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.e{stroke:#ddd}}</style>",
    ]
    for number, (passed, rejected) in enumerate(bins):
        x, base = left + number * step, top + height
        for kind, count, below in (("p", passed, 0), ("r", rejected, passed)):
            tall = count / BIN * scale
            if count:
                out.append(
                    f'<rect class="{kind}" x="{x:.1f}" y="{base - below / BIN * scale - tall:.1f}" '
                    f'width="{step - 1.5:.1f}" height="{tall:.1f}"/>'
                )
    for value in range(0, RATE + 1, 10):
        y = top + height - value * scale
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
        out.append(f'<line class="a" x1="{left - 4}" x2="{left}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for value in range(0, int(SECONDS) + 1):
        x = left + value * width / SECONDS
        out.append(f'<text x="{x:.1f}" y="{top + height + 18}" text-anchor="middle">{value} s</text>')
    x = left + (edited - begin) * width / SECONDS
    out.append(f'<line class="e" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 8}" y2="{top + height}"/>')
    out.append(f'<text x="{x:.1f}" y="{top - 14}" text-anchor="middle">{BEFORE} → {AFTER} saved</text>')
    y = top + height + 38
    out.append(f'<rect class="p" x="{left}" y="{y - 10}" width="12" height="12"/>')
    out.append(f'<text x="{left + 18}" y="{y}">passed per second</text>')
    out.append(f'<rect class="r" x="{left + 170}" y="{y - 10}" width="12" height="12"/>')
    out.append(f'<text x="{left + 188}" y="{y}">rejected with 429 (offered: {RATE} per second)</text>')
    out.append("</svg>")
    return "\n".join(out)


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        print(draw(*run(program, pathlib.Path(folder))))


if __name__ == "__main__":
    main()
