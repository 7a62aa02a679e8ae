"""Native locks of a Lockwheel server (``LOCK.*``), over redis-py.

    from lockwheel.locks import Lock

    with Lock(client, "invoice:7", ttl_ms=30_000, wait_ms=5_000) as lock:
        write(invoice, token=lock.token)

`AsyncLock` is the same for ``redis.asyncio``. A lock that is held renews itself. Clients that wait
for it form a queue, first in first out. Needs the package ``redis``.

A lock uses a connection of its own, with the settings of the client, while it waits and while it is
held: a shared connection must not wait, and pools close connections that a lock is bound to.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import secrets
import socket
import threading
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Callable

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError

from lockwheel._errors import LockwheelError

#: The limit for connecting and for a reply, in addition to the time that the lock waits.
LIMIT_S = 10.0

#: The pause before a failed renewal is tried again.
_PAUSE_S = 0.1

#: The limit for a Sentinel that is asked for the master, before the next one is.
_SENTINEL_LIMIT_S = 1.0

#: The shortest limit for the reply to a renewal, unless the lease is too short for it.
_RENEWAL_LIMIT_S = 1.0

#: A lock that is bound with a shorter grace is not renewed more often than with this one.
_GRACE_MS_MIN = 300


class LockError(LockwheelError):
    """The base class of the errors of locks."""


class NotAcquired(LockError):
    """Another owner holds the lock, or the time to wait is over."""


class LockLost(LockError):
    """The lock was lost before it was released: another owner may have held it since."""


class NoNativeLocks(LockError):
    """The server does not know ``LOCK.*``."""


#: What can make a renewal fail although the lock may still be held.
_FAILURES = (RedisError, NoNativeLocks)


class _Common:
    """What `Lock` and `AsyncLock` have in common. Its coroutines do not wait in a `Lock`, whose
    connection, mutex and pauses block instead.

    - ``ttl_ms``: the lease, which is renewed while the lock is held;
    - ``wait_ms``: how long `acquire` waits, by the server's clock;
    - ``owner``: by default the host, the process and a random number; locks with the same owner
      may be held at the same time;
    - ``shared``: other owners may share the lock;
    - ``permits``: a pair: so many permits of a semaphore that has so many;
    - ``bound``: the server releases the lock ``grace_ms`` after its connection has ended; until
      then the lock connects again and keeps what it holds;
    - ``meta``: a text that ``LOCK.INFO`` shows;
    - ``renew_ms``: the time between two renewals, by default a third of the lease, or of the grace
      if that is shorter; 0 turns them off;
    - ``on_lost``: is called with this lock when a renewal finds that it is lost.
    """

    #: The classes that differ between threads and tasks.
    _client_type: Any
    _retry_type: Any
    _mutex_type: Any
    _event_type: Any
    _finder_type: Any
    #: Whether methods block the thread.
    _is_blocking: bool

    def __init__(
        self,
        client: Any,
        key: str | bytes,
        *,
        ttl_ms: int,
        wait_ms: int = 0,
        owner: str | None = None,
        shared: bool = False,
        permits: tuple[int, int] | None = None,
        bound: bool = False,
        grace_ms: int = 2_000,
        meta: str | None = None,
        renew_ms: float | None = None,
        on_lost: Callable[[Any], Any] | None = None,
    ) -> None:
        if shared and permits is not None:
            raise TypeError("a lock is shared or has permits")
        self._check_client(client)
        self.key = key
        #: The owner in the commands.
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
        #: The fencing token of the last grant: later grants have greater ones.
        self.token: int | None = None
        self._is_held = False
        self._wait_ms, self._ttl_ms, self._on_lost = wait_ms, ttl_ms, on_lost
        mode = ["SHARED"] if shared else []
        if permits is not None:
            mode = ["PERMITS", str(permits[0]), "OF", str(permits[1])]
        self._options = [*mode, *(["BOUND", "GRACE", str(grace_ms)] if bound else [])]
        self._options += [] if meta is None else ["META", meta]
        # An owner of its own holds the lock once, also if the reply to a grant was lost. With
        # another owner, a release that is sent again may be that of another object.
        self._all, self._release_tries = ([], 1) if owner else (["ALL"], 2)
        self._set_times(ttl_ms, grace_ms if bound else ttl_ms, renew_ms)
        self._connection = self._own_connection(client.connection_pool)
        self._denial = ""
        self._mutex = self._mutex_type()
        #: Ends the renewals of one grant.
        self._stop = self._event_type()

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock, as far as it knows. That ends at the latest when the
        lease, or the grace of a bound lock unless it is 0, is over but for a twentieth by the clock
        of this process, also while a renewal waits for the server."""
        is_trusted = self._trust_s == 0 or time.monotonic() < self._trusted_until_s
        return self._is_held and is_trusted

    def _check_client(self, client: Any) -> None:
        wanted = self._client_type
        if not isinstance(client, wanted):
            raise TypeError(
                f"client: expected a {wanted.__module__.partition('.client')[0]}.Redis, which may "
                f"be that of Sentinel.master_for, and not a {type(client).__name__}"
            )
        if not getattr(client.connection_pool, "is_master", True):
            raise TypeError("client: expected that of Sentinel.master_for, not of slave_for")

    def _set_times(self, ttl_ms: int, grace_ms: int, renew_ms: float | None) -> None:
        period_ms = min(ttl_ms, max(grace_ms, _GRACE_MS_MIN)) / 3
        self._period_s = (period_ms if renew_ms is None else renew_ms) / 1000
        #: How long the lock is surely held after a request that was answered was sent, by a clock
        #: that is slower than that of the server by a twentieth.
        self._trust_s = min(ttl_ms, grace_ms) / 1000 * 19 / 20
        self._trusted_until_s = 0.0
        shortest_s = min(ttl_ms / 3000, _RENEWAL_LIMIT_S)
        self._limit_s = min(max(self._trust_s / 3, shortest_s), LIMIT_S)

    def _own_connection(self, pool: Any) -> Any:
        limit_s = max(self._limit_s, _RENEWAL_LIMIT_S)
        settings = {
            **pool.connection_kwargs,
            "decode_responses": True,
            "health_check_interval": 0,
            # A LOCK.ACQUIRE that is sent again would hold the lock twice.
            "retry": self._retry_type(NoBackoff(), 0),
            "socket_connect_timeout": limit_s,
            "socket_timeout": limit_s if self._is_blocking else None,
        }
        if hasattr(pool, "sentinel_manager"):
            settings["connection_pool"] = self._finder_type(pool, settings["retry"])
        return pool.connection_class(**settings)

    def _acquire_words(self, wait_ms: int) -> list[Any]:
        if self._is_held:
            raise LockError(f"this object holds the lock {self.key!r} already")
        lease = ["TTL", self._ttl_ms, "WAIT", wait_ms]
        return ["LOCK.ACQUIRE", self.key, self.owner, *lease, *self._options]

    def _renew_words(self) -> list[Any]:
        lease = ["TTL", self._ttl_ms, "TOKEN", self.token]
        return ["LOCK.RENEW", self.key, self.owner, *lease]

    def _release_words(self) -> list[Any]:
        return ["LOCK.RELEASE", self.key, self.owner, "TOKEN", self.token, *self._all]

    def _settle(self, reply: Any, begun_s: float) -> bool:
        """Reads the reply to a ``LOCK.ACQUIRE`` that was sent at this time. Returns whether the
        lease has to be renewed at once, since it is not known when in this time it began."""
        fields = reply if isinstance(reply, Mapping) else dict(zip(reply[::2], reply[1::2]))
        self._is_held = fields["status"] == "acquired"
        if self._is_held:
            self.token = int(fields["token"])
            self._trusted_until_s = begun_s + self._trust_s
            self._denial = f"the lock {self.key!r} was acquired, and lost at once"
            return time.monotonic() - begun_s > self._trust_s / 3
        self._denial = (
            f"the lock {self.key!r} was not acquired ({fields['status']}): owners "
            f"{fields['holders']}, lease {fields['ttl']} ms, queue {fields['queue']}"
        )
        return False

    def _lost(self) -> LockLost:
        return LockLost(f"the lock {self.key!r} with the token {self.token} was lost")

    async def _acquire(self, wait_ms: int | None) -> bool:
        wait_ms = self._wait_ms if wait_ms is None else wait_ms
        async with self._mutex:
            words = self._acquire_words(wait_ms)
            begun_s = time.monotonic()
            try:
                reply = await self._call(words, wait_ms / 1000 + LIMIT_S, 1)
                if self._settle(reply, begun_s):
                    await self._renew()
            except BaseException:
                self._is_held = False
                raise
            finally:
                if not self._is_held:
                    await self._disconnect()
            if self._is_held:
                self._stop = self._event_type()
                if self._period_s > 0:
                    self._begin(self._keep(self._stop))
            return self._is_held

    async def _renew_now(self) -> bool:
        async with self._mutex:
            if not self._is_held:
                return False
            is_renewed = await self._renew()
        if not is_renewed:
            await self._tell()  # Without the mutex, since it may use the lock.
        return is_renewed

    async def _release(self) -> bool:
        async with self._mutex:
            if not self._is_held:
                return False
            self._is_held = False
            self._stop.set()
            try:
                reply = await self._call(self._release_words(), LIMIT_S, self._release_tries)
                return reply is not None
            finally:
                await self._disconnect()

    async def _keep(self, stop: Any) -> None:
        """Renews the lease until it is released or lost."""
        pause_s = self._period_s
        while not await self._waited(stop, pause_s):
            async with self._mutex:
                if stop.is_set():
                    return
                try:
                    is_renewed = await self._renew()
                    pause_s = self._period_s
                except _FAILURES:
                    pause_s = min(self._period_s, _PAUSE_S)
                    continue
            if not is_renewed:
                await self._tell()

    async def _renew(self) -> bool:
        begun_s = time.monotonic()
        try:
            self._is_held = await self._call(self._renew_words(), self._limit_s) == 1
        except _FAILURES:
            self._is_held = time.monotonic() < self._trusted_until_s
            if self._is_held:
                raise
        if self._is_held:
            self._trusted_until_s = begun_s + self._trust_s
        else:
            self._stop.set()
            await self._disconnect()
        return self._is_held

    async def _tell(self) -> None:
        result = self._on_lost(self) if self._on_lost else None
        if inspect.isawaitable(result):
            await result

    async def _call(self, words: list[Any], limit_s: float, tries: int = 2) -> Any:
        """The reply to a command, which is sent again if the connection has ended."""
        for left in reversed(range(tries)):
            try:
                return await self._exchange(words, limit_s)
            except ResponseError as error:
                raise _explained(error) from None
            except ConnectionError:
                await self._disconnect()
                if left == 0:
                    raise
            except BaseException:
                await self._disconnect()
                raise

    # What differs between threads and tasks.

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine beside this one."""
        raise NotImplementedError

    async def _waited(self, stop: Any, limit_s: float) -> bool:
        """Waits for an event, for so long at most."""
        raise NotImplementedError

    async def _exchange(self, words: list[Any], limit_s: float) -> Any:
        """Sends a command; returns the reply, for which it waits so long at most."""
        raise NotImplementedError

    async def _disconnect(self) -> None:
        raise NotImplementedError


def _explained(error: ResponseError) -> Exception:
    if "unknown command" not in str(error).lower():
        return error
    return NoNativeLocks("this server has no native locks: it must be Lockwheel 0.1 or later")


def _late(words: list[Any], limit_s: float) -> TimeoutError:
    return TimeoutError(f"no reply to {words[0]} within {limit_s:g} s")


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine that blocks and does not wait."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a lock over threads does not wait")


class _ThreadMutex:
    def __init__(self) -> None:
        self._mutex = threading.Lock()

    async def __aenter__(self) -> None:
        self._mutex.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._mutex.release()


class _Finder:
    """What a connection uses of the pool of a Sentinel's client. It finds the master without the
    retries of that pool, which last longer than a lease."""

    is_master = True

    def __init__(self, pool: Any, retry: Any) -> None:
        self.service_name, self.check_connection = pool.service_name, pool.check_connection
        self._sentinel, self._retry = pool.sentinel_manager, retry

    def _limited(self) -> Any:
        """The Sentinel with clients that are used once."""
        sentinel = copy.copy(self._sentinel)
        settings = {**sentinel.sentinel_kwargs, "retry": self._retry}
        for name in ["socket_connect_timeout", "socket_timeout"]:
            settings[name] = min(settings.get(name) or _SENTINEL_LIMIT_S, _SENTINEL_LIMIT_S)
        addresses = [each.connection_pool.connection_kwargs for each in sentinel.sentinels]
        sentinel.sentinels = [
            type(each)(host=address["host"], port=address["port"], **settings)
            for each, address in zip(sentinel.sentinels, addresses)
        ]
        return sentinel

    def get_master_address(self) -> Any:
        sentinel = self._limited()
        try:
            return sentinel.discover_master(self.service_name)
        finally:
            for each in sentinel.sentinels:
                each.connection_pool.disconnect()


class _AsyncFinder(_Finder):
    async def get_master_address(self) -> Any:
        sentinel = self._limited()
        try:
            return await sentinel.discover_master(self.service_name)
        finally:
            for each in sentinel.sentinels:
                await each.connection_pool.disconnect()


class Lock(_Common):
    """A lock over ``redis.Redis``. A ``with`` statement acquires and releases it; it raises
    `NotAcquired`, or `LockLost` at its end. A thread renews it and calls ``on_lost``.

    All methods may be called from any thread.
    """

    _client_type = redis.Redis
    _retry_type = redis.retry.Retry
    _mutex_type = _ThreadMutex
    _event_type = threading.Event
    _finder_type = _Finder
    _is_blocking = True

    def acquire(self, wait_ms: int | None = None) -> bool:
        """Acquires the lock; may wait for it. Returns whether it is held.

        After a `redis.ConnectionError` the server may have granted the lock: then acquiring it
        again succeeds at once, and otherwise it is free when its lease ends.
        """
        return _run(self._acquire(wait_ms))

    def renew(self) -> bool:
        """Renews the lease now; returns whether the lock is still held."""
        return _run(self._renew_now())

    def release(self) -> bool:
        """Releases the lock; returns whether it was held until now."""
        return _run(self._release())

    def __enter__(self) -> Lock:
        if not self.acquire():
            raise NotAcquired(self._denial)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if not self.release() and kind is None:
            raise self._lost()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        threading.Thread(target=_run, args=[work], daemon=True).start()

    async def _waited(self, stop: threading.Event, limit_s: float) -> bool:
        return stop.wait(limit_s)

    async def _exchange(self, words: list[Any], limit_s: float) -> Any:
        # Only this method asks a Sentinel for the master.
        self._connection.connect()
        self._connection.send_command(*words)
        if not self._connection.can_read(limit_s):
            raise _late(words, limit_s)
        return self._connection.read_response()

    async def _disconnect(self) -> None:
        self._connection.disconnect()


class AsyncLock(_Common):
    """A lock over ``redis.asyncio.Redis``. An ``async with`` statement acquires and releases it; it
    raises `NotAcquired`, or `LockLost` at its end. A task renews it and calls ``on_lost``, which
    may be a coroutine function.
    """

    _client_type = redis.asyncio.Redis
    _retry_type = redis.asyncio.retry.Retry
    _mutex_type = asyncio.Lock
    _event_type = asyncio.Event
    _finder_type = _AsyncFinder
    _is_blocking = False

    async def acquire(self, wait_ms: int | None = None) -> bool:
        """As `Lock.acquire`. The server forgets a client that is cancelled while it waits."""
        return await self._acquire(wait_ms)

    async def renew(self) -> bool:
        """Renews the lease now; returns whether the lock is still held."""
        return await self._renew_now()

    async def release(self) -> bool:
        """Releases the lock; returns whether it was held until now."""
        return await self._release()

    async def __aenter__(self) -> AsyncLock:
        if not await self.acquire():
            raise NotAcquired(self._denial)
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if not await self.release() and kind is None:
            raise self._lost()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        # The event loop has only a weak reference to it.
        self._task = asyncio.create_task(work)

    async def _waited(self, stop: asyncio.Event, limit_s: float) -> bool:
        try:
            return await asyncio.wait_for(stop.wait(), limit_s)
        except asyncio.TimeoutError:
            return False

    async def _exchange(self, words: list[Any], limit_s: float) -> Any:
        async def exchange() -> Any:
            await self._connection.connect()
            await self._connection.send_command(*words)
            return await self._connection.read_response()

        try:
            return await asyncio.wait_for(exchange(), limit_s)
        except asyncio.TimeoutError:
            raise _late(words, limit_s) from None

    async def _disconnect(self) -> None:
        # A task that is cancelled must not wait for the end of its connection.
        await self._connection.disconnect(nowait=True)
