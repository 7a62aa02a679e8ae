"""The plugin, as tests of others use it: pytest runs them in a folder of their own."""

import pytest

#: The beginning of its description.
MARKER = "lockwheel(frozen=False, clock_start=None, lock_keys=*"


@pytest.fixture
def run(pytester):
    """Runs these tests, and returns what came of them."""

    def run(code, *options):
        pytester.makepyfile("import pytest\nimport lockwheel as package\n" + code)
        return pytester.runpytest("-p", "no:cacheprovider", *options)

    return run


def test_each_test_has_its_own_server(run):
    done = run("""
@pytest.mark.parametrize("which", range(3))
def test_takes_the_lock(lockwheel, which):
    assert isinstance(lockwheel, package.Server)
    assert lockwheel.call("SETNX", "lock", "token") == 1
    assert lockwheel.clock.now().rate == 1
""")
    done.assert_outcomes(passed=3)


def test_servers_end_with_their_test(run):
    done = run("""
seen = []

def test_starts(lockwheel, lockwheel_factory):
    seen.extend([lockwheel, lockwheel_factory()])

def test_has_ended():
    for server in seen:
        with pytest.raises(package.LockwheelError, match="has been stopped"):
            server.call("PING")
    assert len(seen) == 2
""")
    done.assert_outcomes(passed=2)


def test_marker_sets_the_start(run):
    done = run(
        """
pytestmark = pytest.mark.lockwheel(frozen=True, options=["--databases", "2"])

def databases(server):
    return server.call("CONFIG", "GET", "databases")[1]

def test_of_the_module(lockwheel):
    assert lockwheel.clock.now().rate == 0 and databases(lockwheel) == "2"

@pytest.mark.lockwheel(options=["--databases", "3"])
def test_of_the_function(lockwheel):
    assert lockwheel.clock.now().rate == 0 and databases(lockwheel) == "3"

class TestClass:
    pytestmark = pytest.mark.lockwheel(frozen=False)

    def test_of_the_class(self, lockwheel):
        assert lockwheel.clock.now().rate == 1 and databases(lockwheel) == "2"

def test_of_the_factory(lockwheel, lockwheel_factory):
    servers = [lockwheel, lockwheel_factory(), lockwheel_factory(frozen=False, options=[])]
    assert len({server.url for server in servers}) == 3
    assert [server.clock.now().rate for server in servers] == [0, 0, 1]
    assert [databases(server) for server in servers] == ["2", "2", "16"]
""",
        "--strict-markers",
    )
    done.assert_outcomes(passed=4)


def test_unknown_marker_argument_is_an_error(run):
    done = run("""
@pytest.mark.lockwheel(frosen=True)
def test_misspelt(lockwheel):
    pass
""")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines([f"*unknown argument frosen of the marker {MARKER}"])


@pytest.fixture(params=["true", None], ids=["CI", "no CI"])
def ci(request, monkeypatch):
    """pytest's summary shows whole messages where one of these variables is set."""
    for name in ["CI", "BUILD_NUMBER"]:
        monkeypatch.delenv(name, raising=False)
    if request.param is not None:
        monkeypatch.setenv("CI", request.param)


CHECKED = """
@pytest.mark.lockwheel(frozen=True, check=["no-lock-held", "every-lock-has-a-lease"])
def test_takes_a_lock(lockwheel):
    lockwheel.call("SET", "lock", "token", "NX", "PX", 30_000)
    {end}
"""


def test_held_lock_fails_the_check(run, ci):
    done = run(CHECKED.format(end="pass"))
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "no-lock-held: client * holds the lock 'lock' as 'token'",
            "  +0 ms #* SET lock token NX PX 30000 -> OK",
            "=>+0 ms #* acquired 'lock' as 'token' for 30000 ms",
        ]
    )
    assert_story_is_printed_once(done)


def assert_story_is_printed_once(done):
    text = done.stdout.str()
    assert text.count("acquired 'lock' as 'token' for 30000 ms") == 1, text
    assert "During handling" not in text and "lockwheel at port" not in text, text


def test_failed_assertion_prints_the_story_once(run, ci):
    assertion = "lockwheel.journal.assert_no_lock_held()"
    done = run(CHECKED.format(end=assertion))
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            f">   *{assertion}",
            "E   *CheckError: no-lock-held: client * holds the lock 'lock' as 'token'",
        ]
    )
    assert_story_is_printed_once(done)


def test_journals_of_other_servers_are_reported_with_a_failed_check(run):
    done = run("""
def test_takes_a_lock(lockwheel, lockwheel_factory):
    lockwheel_factory().call("SET", "another", "value")
    lockwheel.call("SET", "lock", "token", "NX", "PX", 30_000)
    lockwheel.journal.assert_no_lock_held()
""")
    done.assert_outcomes(failed=1)
    assert done.stdout.str().count("lockwheel at port") == 1
    done.stdout.fnmatch_lines(["*- lockwheel at port * -*", "*SET another value*"])


def test_released_lock_passes_the_check(run):
    run(CHECKED.format(end='lockwheel.call("DEL", "lock")')).assert_outcomes(passed=1)


def test_failed_test_is_not_checked(run):
    done = run(CHECKED.format(end='assert False, "for another reason"'))
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*for another reason*"])
    done.stdout.no_fnmatch_line("no-lock-held*")


def test_failed_check_counts_as_expected_failure(run):
    run("@pytest.mark.xfail(strict=True)" + CHECKED.format(end="pass")).assert_outcomes(xfailed=1)


def test_all_servers_of_a_test_are_checked(run):
    done = run("""
@pytest.mark.lockwheel(check=["no-lock-held"])
def test_takes_a_lock(lockwheel, lockwheel_factory):
    lockwheel_factory().call("SET", "lock-of-the-second", "token", "NX", "PX", 30_000)
""")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["no-lock-held: * holds the lock 'lock-of-the-second' as 'token'"])


FAILS = """
@pytest.mark.lockwheel(frozen=True)
def test_fails(lockwheel):
    lockwheel.call("SET", "lock", "token", "NX")
    lockwheel.clock.advance("1s")
    lockwheel.journal.locks()
    {end}
"""


def test_report_of_a_failure_has_the_journal(run):
    done = run(FAILS.format(end="assert False"))
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "*- lockwheel at port * -*",
            "  +0 ms #1 client 1: connected",
            "  +0 ms #2 client 1: SET lock token NX -> OK",
            "  +0 ms #3 client 1: acquired 'lock' as 'token' without a lease",
            "  +0 ms #4 client 2: connected",
            "  +0 ms #5 client 2: LOCKWHEEL CLOCK ADVANCE 1s -> OK",
            "  +0 ms #6 the clock: was advanced by 1000 ms",
        ]
    )
    done.stdout.no_fnmatch_line("*LOCKWHEEL JOURNAL HOLDERS*")


def test_report_of_a_success_has_no_journal(run):
    done = run(FAILS.format(end="pass"), "-rA")
    done.assert_outcomes(passed=1)
    done.stdout.no_fnmatch_line("*lockwheel at port*")


def test_failure_after_the_stop_of_the_server_is_reported(run):
    done = run(FAILS.format(end='lockwheel.stop(); assert False, "afterwards"'))
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*afterwards*", "  the server has been stopped"])


def test_xdist_workers_have_their_own_servers(run, pytester):
    done = run(
        """
@pytest.mark.parametrize("which", range(12))
def test_takes_the_lock(lockwheel, which, worker_id, request):
    assert lockwheel.call("SETNX", "lock", which) == 1
    lockwheel.clock.advance("1h")
    assert lockwheel.call("GET", "lock") == str(which)
    with open(request.config.rootpath / f"seen-by-{worker_id}", "a") as seen:
        print(lockwheel.port, file=seen)
""",
        "-n",
        "2",
    )
    done.assert_outcomes(passed=12)
    seen = [path.read_text().split() for path in pytester.path.glob("seen-by-gw?")]
    assert len(seen) == 2 and sum(map(len, seen)) == 12


def test_missing_program_is_an_error_of_the_test(run, monkeypatch):
    monkeypatch.setenv("LOCKWHEEL_BINARY", "/nowhere/lockwheel")
    done = run("def test_needs_it(lockwheel): pass")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["E *ProgramNotFound: LOCKWHEEL_BINARY names '/nowhere/lockwheel'*"])


def test_marker_and_fixtures_are_documented(run):
    run("", "--markers").stdout.fnmatch_lines([f"@pytest.mark.{MARKER}"])
    done = run("def test_it(): pass", "--fixtures")
    done.stdout.fnmatch_lines(["lockwheel_factory*", "*Starts servers for this test*"])
    done.stdout.fnmatch_lines(["lockwheel -- *", "*A server for this test.*"])
