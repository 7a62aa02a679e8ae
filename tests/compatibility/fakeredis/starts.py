"""Starts and ends each form of fakeredis so often within this process, and says for each time how
many nanoseconds it took to the first reply, and then to the end."""

import socket
import sys
from threading import Thread
from time import perf_counter_ns

from fakeredis import FakeRedis, TcpFakeServer


def fake_redis():
    begin = perf_counter_ns()
    client = FakeRedis()
    client.ping()
    answered = perf_counter_ns()
    client.close()
    return answered - begin, perf_counter_ns() - answered


def tcp_fake_server():
    begin = perf_counter_ns()
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    thread = Thread(target=server.serve_forever)
    thread.start()
    with socket.create_connection(server.server_address) as connection:
        connection.sendall(b"*1\r\n$4\r\nPING\r\n")
        if connection.recv(7) != b"+PONG\r\n":
            sys.exit("no PONG")
    answered = perf_counter_ns()
    server.shutdown()
    server.server_close()
    thread.join()
    return answered - begin, perf_counter_ns() - answered


for name, start in [("FakeRedis()", fake_redis), ("TcpFakeServer", tcp_fake_server)]:
    for _ in range(int(sys.argv[1])):
        print(name, *start())
