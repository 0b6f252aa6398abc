"""What the control thread does while a very large file is read: flowgate alone, without load.

usage: s16_large_edit.py [ROUTES…]      (100000; so many that they take more than a second to read)

Prints, for each number of routes with a rule each: how long an edit to them takes to be in force, the slowest of the
probes of /healthz meanwhile, after how long a small edit made one second into the next reading is in force, and
after how long a TERM made there is answered by the end. From the write of the file on, the debounce of 100 ms included.
"""
import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BINARY = os.environ.get("FLOWGATE") or str(Path(__file__).parents[2] / "target/release/flowgate")
HEAD = """workers: 2
admin: { listen: 127.0.0.1:0 }
listeners: [{ name: web, listen: 127.0.0.1:0 }]
upstreams: [{ name: up, servers: [{ url: http://127.0.0.1:9 }] }]
routes:
"""
ROUTE = "  - {{ name: {0}, match: {{ path_prefix: /{0} }}, upstream: up, flow: [{{ name: all, limit: 9/1s }}] }}\n"


class Gateway:
    def __init__(self, folder):
        self.file, self.log, self.version = folder / "gateway.yaml", folder / "log", 1
        self.write("first", 0)
        with self.log.open("w") as log:
            environment = {**os.environ, "NO_COLOR": "1"}
            self.process = subprocess.Popen([BINARY, "run", str(self.file)], stderr=log, env=environment)
        self.wait("ready config")
        self.admin = re.search(r"listener=admin address=(\S+)", self.log.read_text())[1]

    def write(self, name, routes):
        """Renames another file over it, and returns when."""
        text = HEAD + "".join(ROUTE.format(f"{name}{i}") for i in range(routes + 1))
        other = self.file.with_suffix(".new")
        other.write_text(text)
        other.rename(self.file)
        return time.monotonic()

    def wait(self, words):
        while words not in self.log.read_text():
            if self.process.poll() is not None:
                sys.exit(self.log.read_text())
            time.sleep(0.005)

    def in_force_after(self, since):
        self.version += 1
        self.wait(f"reloaded v{self.version}:")
        return time.monotonic() - since

    def slowest_probe(self, until):
        slowest = 0.0
        while not until.is_set():
            began = time.monotonic()
            connection = http.client.HTTPConnection(self.admin, timeout=60)
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.005)
        return slowest


def measure(routes):
    with tempfile.TemporaryDirectory() as folder:
        gateway, over, slowest = Gateway(Path(folder)), threading.Event(), []
        prober = threading.Thread(target=lambda: slowest.append(gateway.slowest_probe(over)))
        prober.start()
        whole = gateway.in_force_after(gateway.write("large", routes))
        over.set()
        prober.join()
        gateway.write("larger", routes)
        time.sleep(1)
        assert "reloaded v3" not in gateway.log.read_text(), "read within a second: take more routes"
        small = gateway.in_force_after(gateway.write("small", 0))
        gateway.write("large", routes)
        time.sleep(1)
        began = time.monotonic()
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait() == 0
        return whole, slowest[0], small, time.monotonic() - began


print("routes, in force, slowest probe, small edit meanwhile, TERM meanwhile (seconds)")
for routes in [int(word) for word in sys.argv[1:]] or [100_000]:
    print(routes, *(f"{seconds:.3f}" for seconds in measure(routes)), flush=True)
