# A gRPC server whose messages are plain bytes. Prints its port, and a line when a call without an
# end comes and when it has been cancelled. Ends with its standard input.
import concurrent.futures
import sys
import threading

try:
    import grpc
except ImportError as error:
    sys.exit(f"{error}: install Debian's package python3-grpcio, as .ci/setup does")


def say(line):
    # One write: threads would put their lines into each other.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def unary(request, context):
    given = dict(context.invocation_metadata())
    context.send_initial_metadata((("x-first", given["x-sent"]), ("x-first-bin", given["x-sent-bin"])))
    context.set_trailing_metadata((("x-last", given["x-sent"]), ("x-last-bin", given["x-sent-bin"])))
    return request[::-1]


def server_stream(request, _):
    for number in range(int(request)):
        yield str(number).encode()


def client_stream(requests, _):
    return b",".join(requests)


def both_ways(requests, _):
    for request in requests:
        yield request + b"!"


def failing(_, context):
    context.set_trailing_metadata((("x-reason", "closed"),))
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today: 100 % caf\u00e9")


def failing_later(_, context):
    yield b"first"
    context.abort(grpc.StatusCode.DATA_LOSS, "lost")


def wait_for_the_end(context):
    say("called")
    ended = threading.Event()
    if context.add_callback(ended.set):
        ended.wait()
    say("cancelled")


def late(_, context):
    wait_for_the_end(context)
    return b""


def late_after_a_message(_, context):
    yield b"first"
    wait_for_the_end(context)


service = grpc.method_handlers_generic_handler(
    "test.Echo",
    {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "ServerStream": grpc.unary_stream_rpc_method_handler(server_stream),
        "ClientStream": grpc.stream_unary_rpc_method_handler(client_stream),
        "BothWays": grpc.stream_stream_rpc_method_handler(both_ways),
        "Failing": grpc.unary_unary_rpc_method_handler(failing),
        "FailingLater": grpc.unary_stream_rpc_method_handler(failing_later),
        "Late": grpc.unary_stream_rpc_method_handler(late_after_a_message),
        "LateForTheRoute": grpc.unary_unary_rpc_method_handler(late),
    },
)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(32))
server.add_generic_rpc_handlers((service,))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
say(port)
sys.stdin.read()
server.stop(None)
