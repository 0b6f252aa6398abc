# Calls the methods of grpc_server.py at the port that is the argument, and fails unless each does as
# it should.
import concurrent.futures
import queue
import sys

try:
    import grpc
except ImportError as error:
    sys.exit(f"{error}: install Debian's package python3-grpcio, as .ci/setup does")

# Longer than on any machine: only a test that fails waits so long.
PATIENCE = 300

channel = grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}", (("grpc.enable_http_proxy", 0),))


def failure_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("the call succeeds")


def unary():
    sent = (("x-sent", "a value"), ("x-sent-bin", bytes(range(256))))
    for length in (0, 1, 3_000_000):
        message = bytes(number % 251 for number in range(length))
        answer, call = channel.unary_unary("/test.Echo/Unary").with_call(
            message, timeout=PATIENCE, metadata=sent
        )
        assert answer == message[::-1], length
        first, last = dict(call.initial_metadata()), dict(call.trailing_metadata())
        assert (first["x-first"], first["x-first-bin"]) == (sent[0][1], sent[1][1]), first
        assert (last["x-last"], last["x-last-bin"]) == (sent[0][1], sent[1][1]), last
        assert call.code() == grpc.StatusCode.OK


def server_stream():
    answers = channel.unary_stream("/test.Echo/ServerStream")(b"1000", timeout=PATIENCE)
    assert [int(answer) for answer in answers] == list(range(1000))


def client_stream():
    messages = [str(number).encode() for number in range(1000)]
    answer = channel.stream_unary("/test.Echo/ClientStream")(iter(messages), timeout=PATIENCE)
    assert answer == b",".join(messages)


def both_ways():
    # Each message waits for the answer to the one before.
    messages = queue.Queue()
    answers = channel.stream_stream("/test.Echo/BothWays")(iter(messages.get, None), timeout=PATIENCE)
    for number in range(20):
        message = str(number).encode()
        messages.put(message)
        assert next(answers) == message + b"!"
    messages.put(None)
    assert list(answers) == [] and answers.code() == grpc.StatusCode.OK


def failing():
    error = failure_of(lambda: channel.unary_unary("/test.Echo/Failing")(b"", timeout=PATIENCE))
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
    assert error.details() == "not today: 100 % caf\u00e9", error
    assert dict(error.trailing_metadata())["x-reason"] == "closed", error
    answers = channel.unary_stream("/test.Echo/FailingLater")(b"", timeout=PATIENCE)
    assert next(answers) == b"first"
    error = failure_of(lambda: next(answers))
    assert (error.code(), error.details()) == (grpc.StatusCode.DATA_LOSS, "lost"), error
    error = failure_of(lambda: channel.unary_unary("/test.Echo/None")(b"", timeout=PATIENCE))
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error


def late():
    call = channel.unary_unary("/test.Echo/LateForTheRoute")
    error = failure_of(lambda: call(b""))
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
    # A busy machine takes its time to begin.
    timeout, messages = 0.3, []
    while not messages:
        answers = channel.unary_stream("/test.Echo/Late")(b"", timeout=timeout)
        error = failure_of(lambda: messages.extend(iter(answers.__next__, None)))
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
        timeout *= 2
    assert messages == [b"first"], messages


def many():
    method = channel.unary_unary("/test.Echo/Unary")
    sent = (("x-sent", "a"), ("x-sent-bin", b"\0"))

    def call(number):
        message = str(number).encode()
        return method(message, timeout=PATIENCE, metadata=sent) == message[::-1]

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert all(threads.map(call, range(400)))


for test in (unary, server_stream, client_stream, both_ways, failing, late, many):
    test()
    print(test.__name__, flush=True)
