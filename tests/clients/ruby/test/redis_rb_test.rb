# frozen_string_literal: true
# Tests locks made with redis-rb.

# redis-rb: the recipes by hand, and the ways it waits.

require 'minitest/autorun'
require 'redis'
require 'securerandom'
require 'uri'

require 'properties'
require 'reported'
require 'servers'

# `SET NX PX` with a token, released and extended by scripts that compare it.
class Recipe
  RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1]) end return 0"
  EXTEND = "if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"

  # A held lock.
  Held = Struct.new(:redis, :key, :token) do
    def unlock
      redis.eval(RELEASE, keys: [key], argv: [token]) == 1
    end

    def extend(lease_ms)
      redis.eval(EXTEND, keys: [key], argv: [token, lease_ms]) == 1
    end
  end

  def initialize(redis)
    @redis = redis
  end

  def try_lock(key, lease_ms)
    token = Servers.unique('token')
    Held.new(@redis, key, token) if @redis.set(key, token, nx: true, px: lease_ms)
  end
end

class RedisRbTest < Minitest::Test
  include Properties
  include Reported
  parallelize_me!

  def library
    'redis-rb'
  end

  def version
    Redis::VERSION
  end

  def connect(url = Servers.main)
    Redis.new(url: url, timeout: GENEROUS_MS / 1000, reconnect_attempts: 0)
  end

  def recipe
    Recipe.new(connect)
  end

  behaviour 'SET NX PX: of many contenders one holds the lock' do
    assert_excludes { recipe }
  end

  behaviour 'SET NX PX: contenders that share a connection exclude each other' do
    shared = connect
    assert_excludes { Recipe.new(shared) }
  end

  behaviour 'SET NX PX: a lease ends at its time, not before' do
    assert_expires { recipe }
  end

  behaviour 'eval: a late release takes nothing from the next holder' do
    assert_refuses_late_release { recipe }
  end

  behaviour 'eval: an extended lease ends at its new time' do
    assert_extends { recipe }
  end

  behaviour 'evalsha: an unknown script fails with NOSCRIPT' do
    redis = connect(Servers.disposable(Servers::OF_SCRIPT_FLUSH).first)
    script = "return redis.call('incr', KEYS[1])"
    sha = Digest::SHA1.hexdigest(script)
    (1..3).each do |expected|
      error = assert_raises(Redis::CommandError) { redis.evalsha(sha, keys: ['number']) }
      assert error.message.start_with?('NOSCRIPT'), error.message
      assert_equal sha, redis.script(:load, script)
      assert_equal expected, redis.evalsha(sha, keys: ['number'])
      redis.script(:flush)
    end
  end

  behaviour 'watch, multi: concurrent read-modify-writes lose nothing' do
    key = Servers.unique('redis-rb')
    together(4) do
      redis = connect
      25.times do
        loop do
          done = redis.watch(key) do
            number = redis.get(key).to_i
            redis.multi { |transaction| transaction.set(key, number + 1) }
          end
          break if done
        end
      end
    end
    assert_equal '100', connect.get(key)
  end

  behaviour 'watch, multi: a change in between aborts it' do
    one, other, key = connect, connect, Servers.unique('redis-rb')
    done = one.watch(key) do
      other.set(key, 'overtaken')
      one.multi { |transaction| transaction.set(key, 'late') }
    end
    assert_nil done
    assert_equal 'overtaken', one.get(key)
  end

  behaviour 'setnx, getset: of many that find a dead lock one takes it over' do
    key = Servers.unique('redis-rb')
    assert connect.setnx(key, 'dead')
    winners = Queue.new
    together(8) do |number|
      redis = connect
      refute redis.setnx(key, number)
      winners << number if redis.getset(key, number) == 'dead'
    end
    assert_equal 1, winners.size
  end

  behaviour 'blpop: a token in a list lets in one waiter at a time' do
    first, key, inside = connect, Servers.unique('redis-rb'), 0
    first.rpush(key, 'token')
    together(6) do
      redis = connect
      ROUNDS.times do
        assert_equal [key, 'token'], redis.blpop(key, timeout: GENEROUS_MS / 1000)
        inside += 1
        assert_equal 1, inside, 'two hold the token'
        sleep 0.001
        inside -= 1
        redis.rpush(key, 'token')
      end
    end
    assert_equal 1, first.llen(key)
  end

  behaviour 'brpoplpush: a waiter is given what is put back, and it is moved with it' do
    key, taken = Servers.unique('redis-rb'), Servers.unique('redis-rb')
    giver = connect
    waiter = Thread.new { connect.brpoplpush(key, taken, timeout: GENEROUS_MS / 1000) }
    sleep SHORT_MS / 1000.0
    giver.lpush(key, 'token')
    assert_equal 'token', waiter.value
    assert_equal ['token'], giver.lrange(taken, 0, -1)
    assert_equal 0, giver.exists(key)
  end

  behaviour 'subscribe: a waiter is woken by the message of the release' do
    holder, waiter, teller = recipe, recipe, connect
    key = Servers.unique('redis-rb')
    lock = holder.try_lock(key, LONG_MS)
    refute waiter.try_lock(key, LONG_MS), 'it was granted twice'
    connect.subscribe_with_timeout(GENEROUS_MS / 1000, key) do |on|
      on.subscribe do
        assert lock.unlock
        assert_equal 1, teller.publish(key, 'free')
      end
      on.message do |_, message|
        assert_equal 'free', message
        assert waiter.try_lock(key, LONG_MS), 'the message came before the release'
        Thread.current[:received] = true
        raise StopIteration
      end
    end
  rescue StopIteration
    assert Thread.current[:received]
  end

  behaviour 'a lock outlives the connection it was taken on' do
    one, other, key = connect, connect, Servers.unique('redis-rb')
    lock = Recipe.new(one).try_lock(key, LONG_MS)
    other.client(:kill, 'ID', one.client(:id))
    assert_raises(Redis::ConnectionError) { one.ping }
    refute Recipe.new(other).try_lock(key, LONG_MS), 'it was lost'
    assert lock.unlock, 'it was lost'
  end

  behaviour 'cluster: of many contenders one holds the lock' do
    address = Servers.optional('REDIS_CLUSTER_URL')
    skip 'there is no cluster' unless address
    assert_excludes { Recipe.new(Redis.new(cluster: [address])) }
  end

  behaviour 'sentinel: of many contenders at the master one holds the lock' do
    address = Servers.optional('REDIS_SENTINEL_URL')
    skip 'there is no sentinel' unless address
    assert_excludes do
      Recipe.new(Redis.new(url: 'redis://mymaster', sentinels: [address], role: :master))
    end
  end
end
