"""Takes and releases locks with redis-py until its input ends: see ../README.md."""

import random
import sys
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, LockNotOwnedError
from redis.exceptions import MasterDownError, ReadOnlyError, TimeoutError
from redis.lock import Lock
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

LOCKS = 5
# Such a request has no effect.
REFUSALS = (BusyLoadingError, MasterDownError, MasterNotFoundError, ReadOnlyError)
RETRY_DELAY_SECONDS = 0.005


class Shared:
    """What the threads share."""

    epoch = 0
    ended = False
    output_lock = threading.Lock()

    @classmethod
    def write(cls, line):
        with cls.output_lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


def seconds(ms):
    """The library truncates seconds to milliseconds, so the rounded number must not be below."""
    return (ms + 0.5) / 1000


def connect(servers, reply_timeout_ms):
    """Without retries: a request whose answer is lost must not be repeated unnoticed."""
    options = {
        "socket_timeout": reply_timeout_ms / 1000,
        "socket_connect_timeout": reply_timeout_ms / 1000,
        "retry": Retry(NoBackoff(), 0),
    }
    kind, _, addresses = servers.rpartition("=")
    addresses = [address.split(":") for address in addresses.split(",")]
    if kind == "sentinel":
        return Sentinel(addresses, sentinel_kwargs=options, **options).master_for("mymaster")
    [(host, port)] = addresses
    return redis.Redis(host=host, port=int(port), **options)


class Worker:
    """One thread. Each attempt to take a lock has a token, so it is an owner of its own."""

    def __init__(self, number, library, servers, seed, lease_range_ms, reply_timeout_ms):
        self.name = f"{library}-{number}"
        self.random = random.Random(f"{seed} {number}")
        self.lease_range_ms = lease_range_ms
        self.epoch = None
        self.rounds = 0
        self.server = connect(servers, reply_timeout_ms)

    def run(self):
        try:
            self.wait_until_ready()
            while not Shared.ended:
                if self.epoch != Shared.epoch:
                    self.epoch = Shared.epoch
                    Shared.write(f"epoch {self.name} {self.epoch}")
                self.round()
        except Exception as problem:
            Shared.write(f"problem {self.name}: {problem!r}".replace("\n", " "))

    def round(self):
        self.rounds += 1
        lease_ms = self.random.randint(*self.lease_range_ms)
        name = f"plain-{self.epoch}-{self.random.randrange(LOCKS)}"
        self.owner = f"{self.name}.{self.rounds}"
        timeout = seconds(lease_ms)
        lock = Lock(self.server, name, timeout=timeout, blocking=False, thread_local=False)
        taken = self.ask(name, f"acquire {lease_ms}ms", lambda: self.granted(lock.acquire()))
        if taken != "granted":
            time.sleep(self.random.uniform(0, 0.01))
            return
        if self.hold(lock, lease_ms):
            self.ask(name, "release", lambda: lock.release() or "released")

    def hold(self, lock, lease_ms):
        """Holds the lock for a while. Returns whether to release it."""
        longest_ms = self.random.choice([3, 3, 3, 100, 100, lease_ms])
        end = time.monotonic() + self.random.uniform(0, longest_ms) / 1000
        while time.monotonic() < end and not Shared.ended:
            time.sleep(min(self.random.uniform(0, 0.1), max(0, end - time.monotonic())))
            choice = self.random.randrange(4)
            if choice == 0:
                answer = self.ask(lock.name, "check", lambda: self.owned(lock))
            elif choice == 1:
                renew = f"renew {lease_ms}ms"
                answer = self.ask(lock.name, renew, lambda: self.granted(lock.reacquire()))
            elif choice == 2:
                longer_ms = self.random.randint(*self.lease_range_ms)
                extend = lambda: lock.extend(seconds(longer_ms), replace_ttl=True)
                answer = self.ask(lock.name, f"renew {longer_ms}ms", lambda: self.granted(extend()))
            else:
                continue
            if answer is None or answer == "unknown":
                # The server is here again: it must know the holder.
                answer = self.ask(lock.name, "check", lambda: self.owned(lock))
            if answer == "not-owner":
                return False
        return True

    @staticmethod
    def granted(answer):
        return "granted" if answer else "refused"

    @staticmethod
    def owned(lock):
        return "held" if lock.owned() else "not-owner"

    def ask(self, lock, action, request):
        """Writes an event. Returns the answer, `unknown` if it was lost, or None if the server has
        refused the request. Returns only when the server answers requests."""
        late = ""
        invoked_us = time.monotonic_ns() // 1000
        try:
            answer = request()
        except LockNotOwnedError:
            answer = "not-owner"
        except REFUSALS:
            answer = None
        except TimeoutError:
            answer = "unknown"
            late = "late "
        except ConnectionError:
            # If there is one server, it is dead: the request takes no effect any more.
            answer = "unknown"
        returned_us = -(-time.monotonic_ns() // 1000)
        if answer is not None:
            times = f"{invoked_us}..{returned_us}"
            Shared.write(f"{late}{times} {lock} {self.owner} {action} {answer}")
        if answer is None or answer == "unknown":
            self.wait_until_ready()
        return answer

    def wait_until_ready(self):
        while not Shared.ended:
            time.sleep(RETRY_DELAY_SECONDS)
            try:
                self.server.ping()
                return
            except (ConnectionError, TimeoutError, *REFUSALS):
                pass


def main():
    library, servers, seed, *numbers = sys.argv[1:]
    threads, *lease_range_ms, timeout_ms = map(int, numbers)
    workers = [
        Worker(number, library, servers, seed, lease_range_ms, timeout_ms)
        for number in range(threads)
    ]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    Shared.epoch = int(sys.stdin.readline() or 0)
    for thread in threads:
        thread.start()
    for line in sys.stdin:
        Shared.epoch = int(line)
    Shared.ended = True
    for thread in threads:
        thread.join()


main()
