# Answers each request with its method and the length of its body, and says how many connections
# have been opened. Prints its port, and a line when a connection has been closed. Ends with its
# standard input.
#
# The first argument is the version of HTTP. The second one is how many seconds a connection may be
# idle after an answer; http.server does not announce it.
import http.server
import sys
import threading

version, idle = sys.argv[1], float(sys.argv[2])


def say(line):
    # One write: threads would put their lines into each other.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = version
    # The header and the body are written one after the other.
    disable_nagle_algorithm = True

    def answer(self):
        self.connection.settimeout(None)
        length = int(self.headers.get("Content-Length", 0))
        body = f"{self.command} {len(self.rfile.read(length))}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Opened", str(server.opened))
        self.end_headers()
        self.wfile.write(body)
        self.connection.settimeout(idle)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    opened = 0

    def process_request(self, request, client_address):
        self.opened += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        super().shutdown_request(request)
        say("closed")


server = Server(("127.0.0.1", 0), Handler)
say(server.server_port)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
