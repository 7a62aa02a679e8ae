"""A server for tests: a process of its own, on a free port, that ends with whoever started it."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import quote

from lockwheel._clock import Clock
from lockwheel._connection import Argument, Connections
from lockwheel._errors import StartError
from lockwheel._faults import Faults
from lockwheel._journal import Journal
from lockwheel._program import program

#: A server is there within milliseconds. What says nothing for so long is none, or its options
#: keep its log from being read (`loglevel`, `logfile`).
START_LIMIT_S = 30.0

#: It ends within milliseconds, unless it hangs: then it is killed.
STOP_LIMIT_S = 10.0

_LINES_KEPT = 200

_READY = re.compile(r"ready to accept connections on port (\d+)")

_OPTIONS = ["--port", "0", "--bind", "127.0.0.1"]
_OPTIONS += ["--enable-test-commands", "local", "--end-with-stdin", "yes"]


def start(*, frozen: bool = False, options: Sequence[str] = ()) -> Server:
    """Starts a server on a free port of this machine.

    With `frozen` its clock stands still until it is moved. `options` are those of redis-server,
    such as ``["--requirepass", "secret"]``; a configuration file comes first, as there. Raises
    `ProgramNotFound` if there is no program, and `StartError` if it ends before it serves.
    """
    return Server(frozen=frozen, options=options)


class Server:
    """A server that runs. It ends with `stop`, at the end of a ``with`` statement, when nothing
    refers to it any more, and with this process, however that ends.

    All of it may be called from any thread, and from asynchronous code, since it answers at once;
    but see `Gate.wait_async`.
    """

    #: The address at which it serves.
    host = "127.0.0.1"

    def __init__(self, *, frozen: bool = False, options: Sequence[str] = ()) -> None:
        process, log = _launch(_command(options))
        #: The last lines of its log.
        self._log = log.lines
        self._frozen = frozen
        #: The port at which it serves.
        self.port = _port(process, log)
        self._password = _value(options, "--requirepass")
        self._connections = Connections(self.host, self.port, self._password)
        self._end = weakref.finalize(self, _end, process, log, self._connections)
        #: Its clock.
        self.clock = Clock(self._connections)
        #: What goes wrong there.
        self.faults = Faults(self._connections)
        #: What has happened there.
        self.journal = Journal(self._connections)
        if frozen:
            self._freeze()

    @property
    def url(self) -> str:
        """What to give a client as its URL: ``redis://127.0.0.1:54321``, with the password if
        there is one."""
        secret = "" if self._password is None else f":{quote(self._password, safe='')}@"
        return f"redis://{secret}{self.host}:{self.port}"

    @property
    def log(self) -> list[str]:
        """The last lines of its log."""
        return list(self._log)

    def call(self, *arguments: Argument) -> Any:
        """Runs one command and returns its answer, in which texts are `str`.

        Each thread is a client of its own. An error is raised as `ReplyError`; a fault can hit
        this client like any other.
        """
        return self._connections.call(*arguments)

    def reset(self) -> None:
        """Makes it as it was when it had been started: no keys, no faults and gates, nothing in
        the journal, and the clock runs, or stands if it was started so. What it shows stays."""
        self.faults.clear()
        self._connections.forget_session()
        self.call("FLUSHALL")
        if self._frozen:
            self.clock.freeze()
        else:
            self.clock.run()
        self.journal.clear()

    def _freeze(self) -> None:
        try:
            self.clock.freeze()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends it, and returns when it has ended. May be called again."""
        self._end()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "" if self._end.alive else " (stopped)"
        return f"<lockwheel.Server at port {self.port}{state}>"


class _Log:
    """Reads what a server prints, so that it never waits for a reader."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: deque[str] = deque(maxlen=_LINES_KEPT)
        #: The port when it is known, and nothing when the output has ended.
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


def _command(options: Sequence[str]) -> list[str]:
    # redis-server wants a configuration file before all options.
    files = 1 if options and not options[0].startswith("-") else 0
    return [program(), *options[:files], *_OPTIONS, *options[files:]]


def _launch(command: list[str]) -> tuple[subprocess.Popen[str], _Log]:
    # A variable LOCKWHEEL_<DIRECTIVE> is an option: what a server does is said by the test alone.
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
            # An interrupt from the terminal is for the tests, which still ask what has happened.
            start_new_session=True,
        )
    except OSError as error:
        raise StartError(f"{command[0]} cannot be run: {error.strerror}") from error
    return process, _Log(process)


def _port(process: subprocess.Popen[str], log: _Log) -> int:
    problem = "ended before it served"
    try:
        port = log.port.get(timeout=START_LIMIT_S)
    except Empty:
        port = None
        problem = f"did not say within {START_LIMIT_S:g} s that it serves"
        process.terminate()
    if port is None:
        _await_end(process, log)
        said = "\n".join(f"  {line}" for line in log.lines) or "  nothing"
        command = subprocess.list2cmdline(process.args)  # type: ignore[arg-type]
        status = process.returncode
        raise StartError(f"{command}\n{problem} (status {status}), and said:\n{said}")
    return port


def _end(process: subprocess.Popen[str], log: _Log, connections: Connections) -> None:
    # In a process that was forked off this does nothing to the server, which is no child of it.
    connections.close()
    process.terminate()
    _await_end(process, log)


def _await_end(process: subprocess.Popen[str], log: _Log) -> None:
    """Waits until it has ended, as it does by itself or was told to."""
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdin is not None
    process.stdin.close()
    log.join()


def _value(options: Sequence[str], name: str) -> str | None:
    """The value of an option, the last if it is there more than once."""
    values = [value for option, value in zip(options, options[1:]) if option.lower() == name]
    return values[-1] if values else None
