"""The commands that the modules of Testcontainers run in a container, and the lines they wait for.

There is no container here, so a port comes first that the command itself does not name.
"""

import re
import signal
import subprocess

import pytest
import redis

import server

LIBRARY = ("Testcontainers' commands", None)

# The vendor, the arguments of `redis-server`, the password they set, and the awaited log line.
COMMANDS = [
    ("Java's", ["{conf}"], None, r".*Ready to accept connections.*\n"),
    ("Go's", [], None, r"\* Ready to accept connections"),
    (
        "Go's with all options",
        ["{conf}", "--loglevel", "verbose", "--save", "10", "1"],
        None,
        r"\* Ready to accept connections",
    ),
    (
        "Node's",
        ["--requirepass secret", "--save 1 1 ", "--appendonly yes"],
        "secret",
        "Ready to accept connections",
    ),
    ("Python's", ["--requirepass", "secret"], "secret", "Ready to accept connections"),
    ("Rust's and .NET's", [], None, "Ready to accept connections"),
]


class Launched:
    """A server started by a command in a folder, its log read."""

    def __init__(self, command, folder, port):
        conf = folder / "redis.conf"
        conf.write_text(f"port {port}\nmaxmemory 64mb\nappendonly no\n", encoding="utf-8")
        words = [word.format(conf=conf) for word in command]
        # A file is the first argument, and has the port in it.
        words = words if "{conf}" in command else ["--port", str(port), *words]
        self.process = subprocess.Popen(
            [server.PROGRAM, *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.port = port
        self.log = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def wait_for(self, pattern):
        """Reads the log up to the line."""
        for line in self.process.stdout:
            self.log += line
            if re.search(pattern, line):
                return
        raise AssertionError(f"never said: {pattern}\n{self.log}")

    def end(self, signal_sent=None):
        """Its status."""
        if signal_sent is not None:
            self.process.send_signal(signal_sent)
        self.log += self.process.stdout.read()
        return self.process.wait()


@pytest.mark.parametrize(
    "vendor, command, password, ready", COMMANDS, ids=[command[0] for command in COMMANDS]
)
def test_command(vendor, command, password, ready, tmp_path):
    """{vendor}: starts, logs the expected line, serves, and ends with status 0"""
    with Launched(command, tmp_path, server.free_port()) as launched:
        launched.wait_for(ready)
        with redis.Redis(port=launched.port, password=password) as client:
            assert server.use(client) == launched.process.pid
        # As a container is stopped.
        assert launched.end(signal.SIGTERM) == 0, launched.log


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_signal(name, tmp_path):
    """SIG{name} ends it with status 0, and it says so"""
    with Launched([], tmp_path, server.free_port()) as launched:
        launched.wait_for("Ready to accept connections")
        assert launched.end(signal.Signals[f"SIG{name}"]) == 0
        assert f"Received SIG{name} scheduling shutdown..." in launched.log
        assert "User requested shutdown..." in launched.log
        assert "now ready to exit, bye bye..." in launched.log


def test_port_is_taken(tmp_path):
    """a port that is taken: says so, and ends with status 1"""
    port = server.free_port()
    with Launched([], tmp_path, port) as first, Launched([], tmp_path, port) as second:
        # Either server may get the port.
        first.wait_for("Ready to accept connections|already in use")
        second.wait_for("Ready to accept connections|already in use")
        refused = [it for it in (first, second) if "already in use" in it.log]
        assert len(refused) == 1 and refused[0].end() == 1
        assert "Could not create server TCP listening socket" in refused[0].log


def test_tls_of_no_certificate(tmp_path):
    """Go's with TLS, without the certificates: says what is wrong, and ends with status 1"""
    tls = ["--tls-port", str(server.free_port()), "--tls-cert-file", "/tls/server.crt"]
    tls += ["--tls-key-file", "/tls/server.key", "--tls-ca-cert-file", "/tls/ca.crt"]
    tls += ["--tls-auth-clients", "yes"]
    with Launched(tls, tmp_path, server.free_port()) as launched:
        assert launched.end() == 1, launched.log
        assert "tls" in launched.log.lower(), launched.log
