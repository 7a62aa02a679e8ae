# frozen_string_literal: true
# The properties that the tests of all Ruby libraries share.

# The properties of every lock: mutual exclusion, the lease to the millisecond, release
# and extension by the owner only. A contender has the method `try_lock(key, lease_ms)`, which
# returns a lock or nil; a lock has `unlock` and `extend(lease_ms)`, which return whether it was
# still held.
module Properties
  # A lease that does not end within a test.
  LONG_MS = 60_000
  # A lease that ends within a test.
  SHORT_MS = 600
  # How late a lease may end or a waiter be woken on a machine that is slow and busy.
  GENEROUS_MS = 10_000

  # The time before the end of a lease in which a test polls without pauses.
  NEAR_MS = 30

  WORKERS = 8
  ROUNDS = 10

  # Many contenders read a counter, wait, and write the incremented value: if two hold the lock at
  # the same time, an increment is lost.
  def assert_excludes
    key = Servers.unique('excludes')
    number = 0
    inside = 0
    together(WORKERS) do
      contender = yield
      ROUNDS.times do
        lock = wait(contender, key)
        inside += 1
        assert_equal 1, inside, 'two hold the lock'
        read = number
        sleep 0.001
        number = read + 1
        inside -= 1
        assert lock.unlock, 'the lock was lost while it was held'
      end
    end
    assert_equal WORKERS * ROUNDS, number
  end

  # The lock is granted when its lease has ended, and not before.
  def assert_expires
    holder, other, key = yield, yield, Servers.unique('expires')
    before = now_ms
    assert holder.try_lock(key, SHORT_MS), 'it is free'
    assert_granted(other, key, before, SHORT_MS)
  end

  # A release after the end of the lease changes nothing for the next holder.
  def assert_refuses_late_release
    late, following, third = yield, yield, yield
    key = Servers.unique('late-release')
    ended = late.try_lock(key, SHORT_MS)
    assert ended, 'it is free'
    kept = wait(following, key)
    refute ended.extend(LONG_MS), 'a lock that another holds was extended'
    refute ended.unlock, 'the release by the late holder succeeded'
    refute third.try_lock(key, LONG_MS), 'it was taken from the next holder'
    assert kept.unlock, 'the next holder had lost it'
  end

  # An extended lease counts from the extension; the lock is not granted before its end.
  def assert_extends
    holder, other, key = yield, yield, Servers.unique('extends')
    before = extended(holder, key, SHORT_MS * 3, SHORT_MS * 4)
    assert_granted(other, key, before, SHORT_MS * 4)
  end

  # Acquires a lock and extends it later, and returns the time before the extension. A late
  # extension is refused: if the machine stalled for as long as the lease, both are repeated.
  def extended(holder, key, first_ms, then_ms)
    loop do
      begin_ms = now_ms
      lock = holder.try_lock(key, first_ms)
      assert lock, 'it is free'
      sleep SHORT_MS / 4000.0
      before = now_ms
      return before if lock.extend(then_ms)

      assert_operator now_ms - begin_ms, :>=, first_ms, "it was the holder's to extend"
    end
  end

  # Runs a block in several threads at once, and fails if it fails in any of them.
  def together(count, &work)
    threads = Array.new(count) { |number| Thread.new(number, &work) }
    threads.each { |thread| thread.report_on_exception = false }
    threads.each(&:join)
  end

  # Waits for a lock with a lease that began after `before_ms`; polls without pauses near its end.
  # Fails if the lock is granted too early.
  def assert_granted(contender, key, before_ms, lease_ms)
    sleep [(lease_ms - NEAR_MS - (now_ms - before_ms)) / 1000.0, 0].max
    until contender.try_lock(key, LONG_MS)
      assert_operator now_ms - before_ms, :<, lease_ms + GENEROUS_MS, 'the lease did not end'
    end
    assert_operator now_ms - before_ms, :>=, lease_ms, 'the lease ended too early'
  end

  # Tries until the lock is granted.
  def wait(contender, key)
    begin_ms = now_ms
    loop do
      lock = contender.try_lock(key, LONG_MS)
      return lock if lock

      assert_operator now_ms - begin_ms, :<, 3 * GENEROUS_MS, 'the lock never came free'
      sleep 0.005
    end
  end

  def now_ms
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
  end
end
