"""A server for tests: a child process on a free port. It ends with the process that started it."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import quote

from lockwheel._clock import Clock, milliseconds_since_1970
from lockwheel._connection import Argument, Connections
from lockwheel._errors import StartError
from lockwheel._faults import Faults
from lockwheel._journal import Journal
from lockwheel._program import program

#: A server starts within milliseconds. A longer start means that the program is not a server, or
#: that its options hide its log (`loglevel`, `logfile`).
START_LIMIT_S = 30.0

#: A server stops within milliseconds. One that hangs is killed after this time.
STOP_LIMIT_S = 10.0

_LINES_KEPT = 200

_READY = re.compile(r"ready to accept connections on port (\d+)")

_OPTIONS = ["--port", "0", "--bind", "127.0.0.1"]
_OPTIONS += ["--enable-test-commands", "local", "--end-with-stdin", "yes"]


def start(
    *,
    frozen: bool = False,
    clock_start: datetime | None = None,
    lock_keys: Sequence[str] = (),
    ignored_lock_keys: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Server:
    """Starts a server on a free port of this machine.

    With `frozen` the clock is stopped from the start. It begins at `clock_start`, or at the current
    time. Keys that match a pattern of `lock_keys` are locks, however they are made; those that
    match one of `ignored_lock_keys` are none. `options` are those of redis-server, such as
    ``["--requirepass", "secret"]``; a configuration file comes first, as in redis-server. Raises
    `ProgramNotFound` if there is no program, and `StartError` if the program ends before it accepts
    connections.
    """
    return Server(
        frozen=frozen,
        clock_start=clock_start,
        lock_keys=lock_keys,
        ignored_lock_keys=ignored_lock_keys,
        options=options,
    )


class Server:
    """A running server. It stops on `stop`, at the end of a ``with`` statement, when this object
    is garbage collected, and when this process ends for any reason.

    All methods may be called from any thread. They return at once, so asynchronous code may call
    them too, except for `Gate.wait`: use `Gate.wait_async`.
    """

    #: The address that the server listens on.
    host = "127.0.0.1"

    def __init__(
        self,
        *,
        frozen: bool = False,
        clock_start: datetime | None = None,
        lock_keys: Sequence[str] = (),
        ignored_lock_keys: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> None:
        directives = ["--clock-frozen", "yes"] if frozen else []
        if clock_start is not None:
            directives += ["--clock-start", str(milliseconds_since_1970(clock_start))]
        directives += _patterns("--lock-keys", lock_keys)
        directives += _patterns("--ignored-lock-keys", ignored_lock_keys)
        self._command = _command(directives, options)
        self._password = _value(options, "--requirepass")
        self._connections = Connections(self.host, self._password)
        #: The clock of the server.
        self.clock = Clock(self._connections)
        #: The fault rules and gates of the server.
        self.faults = Faults(self._connections)
        #: The journal of the server.
        self.journal = Journal(self._connections)
        self._run(self._command)

    def _run(self, command: list[str]) -> None:
        process, log = _launch(command)
        #: The last lines of the log.
        self._log = log.lines
        #: The port that the server listens on.
        self.port = _port(process, log)
        self._connections.open(self.port)
        self._end = weakref.finalize(self, _end, process, log, self._connections)

    @property
    def url(self) -> str:
        """The URL for clients: ``redis://127.0.0.1:54321``, with the password if the server has
        one."""
        secret = "" if self._password is None else f":{quote(self._password, safe='')}@"
        return f"redis://{secret}{self.host}:{self.port}"

    @property
    def log(self) -> list[str]:
        """The last lines of the log."""
        return list(self._log)

    def call(self, *arguments: Argument) -> Any:
        """Runs one command and returns its reply, with strings as `str`.

        Each thread has its own connection. An error reply is raised as `ReplyError`. Fault rules
        apply to these connections as to any other.
        """
        return self._connections.call(*arguments)

    def reset(self) -> None:
        """Restores the state after the start: no keys, scripts, functions, fault rules, gates or
        names of clients, an empty journal, the settings of the start, and a clock that runs, or is
        stopped if the server was started with `frozen`. The connections of clients and the time of
        the clock stay."""
        self._connections.order("RESET")
        self._connections.forget_session()

    def restart(self) -> None:
        """Stops the server, if it runs, and starts it again on the same port, as at the first
        start: all connections end, and all keys are lost unless ``--appendonly yes`` keeps them.
        """
        self.stop()
        self._run([*self._command, "--port", str(self.port)])

    def stop(self) -> None:
        """Stops the server and waits until it has ended. May be called again."""
        self._end()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "" if self._end.alive else " (stopped)"
        return f"<lockwheel.Server at port {self.port}{state}>"


class _Log:
    """Reads the output of a server, so that its pipe never fills."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: deque[str] = deque(maxlen=_LINES_KEPT)
        #: Receives the port once it is known, and None at the end of the output.
        self.port: SimpleQueue[int | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._read, args=[process.stdout], daemon=True)
        self._thread.start()

    def _read(self, output: Any) -> None:
        for line in output:
            self.lines.append(line.rstrip("\n"))
            ready = _READY.search(line)
            if ready:
                self.port.put(int(ready.group(1)))
        self.port.put(None)
        output.close()

    def join(self) -> None:
        """Waits until the output has been read to its end."""
        self._thread.join()


def _command(directives: list[str], options: Sequence[str]) -> list[str]:
    # redis-server requires a configuration file before all options.
    files = 1 if options and not options[0].startswith("-") else 0
    return [program(), *options[:files], *_OPTIONS, *directives, *options[files:]]


def _patterns(directive: str, patterns: Sequence[str]) -> list[str]:
    # A text is a sequence too: of its characters, of which a `*` matches every key.
    if isinstance(patterns, str):
        raise TypeError(f"{directive[2:]}: expected a list of patterns, not '{patterns}'")
    return [directive, " ".join(patterns)] if patterns else []


def _launch(command: list[str]) -> tuple[subprocess.Popen[str], _Log]:
    # A variable LOCKWHEEL_<DIRECTIVE> sets an option. Only the test may set options.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LOCKWHEEL_")}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            encoding="utf-8",
            errors="replace",
            # An interrupt from the terminal must not stop the server: reports read its journal.
            start_new_session=True,
        )
    except OSError as error:
        raise StartError(f"{command[0]} cannot be run: {error.strerror}") from error
    return process, _Log(process)


def _port(process: subprocess.Popen[str], log: _Log) -> int:
    problem = "ended before it accepted connections"
    try:
        port = log.port.get(timeout=START_LIMIT_S)
    except Empty:
        port = None
        problem = f"did not report its port within {START_LIMIT_S:g} s"
        process.terminate()
    if port is None:
        _await_end(process, log)
        output = "\n".join(f"  {line}" for line in log.lines) or "  nothing"
        command = subprocess.list2cmdline(process.args)  # type: ignore[arg-type]
        status = process.returncode
        raise StartError(f"{command}\n{problem} (status {status}). Its output:\n{output}")
    return port


def _end(process: subprocess.Popen[str], log: _Log, connections: Connections) -> None:
    # In a forked process this does not end the server, which is not its child.
    connections.close()
    process.terminate()
    _await_end(process, log)


def _await_end(process: subprocess.Popen[str], log: _Log) -> None:
    """Waits for the end of a process that is terminating, and kills it after the limit."""
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdin is not None
    process.stdin.close()
    log.join()


def _value(options: Sequence[str], name: str) -> str | None:
    """The value of an option, the last if it is repeated."""
    values = [value for option, value in zip(options, options[1:]) if option.lower() == name]
    return values[-1] if values else None
