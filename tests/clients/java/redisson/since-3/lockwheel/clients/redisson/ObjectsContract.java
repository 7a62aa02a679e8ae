// The contracts of objects that programs use beside locks.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import lockwheel.clients.Actor;
import lockwheel.clients.Await;
import lockwheel.clients.Lease.Measured;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.redisson.api.BatchOptions;
import org.redisson.api.BatchOptions.ExecutionMode;
import org.redisson.api.DeletedObjectListener;
import org.redisson.api.ExpiredObjectListener;
import org.redisson.api.RScript.Mode;
import org.redisson.api.RScript.ReturnType;
import org.redisson.api.TransactionOptions;
import org.redisson.client.codec.StringCodec;

interface ObjectsContract extends Contract {
    @Test
    @DisplayName("RBucket: compareAndSet lets one of many through")
    default void compareAndSet() throws Exception {
        var name = Contract.fresh("bucket");
        var bucket = clients().any(0).<String>getBucket(name);
        assertTrue(bucket.compareAndSet(null, "0"));
        assertFalse(bucket.compareAndSet("9", "1"));
        var winners = 0;
        for (var worker = 0; worker < 4; worker++) {
            var other = clients().any(worker).<String>getBucket(name);
            winners += other.compareAndSet("0", "won by " + worker) ? 1 : 0;
        }
        assertEquals(1, winners);
        assertEquals("won by 0", bucket.getAndSet("end", 1, SECONDS));
        Await.until("the bucket's end", () -> !bucket.isExists());
    }

    @Test
    @DisplayName("RMap: put, replace and remove compare and tell what was before")
    default void mapsCompare() {
        var map = clients().any(0).<String, String>getMap(Contract.fresh("map"));
        assertNull(map.put("k", "1"));
        assertEquals("1", map.putIfAbsent("k", "2"));
        assertFalse(map.replace("k", "2", "3"));
        assertTrue(map.replace("k", "1", "3"));
        assertFalse(map.remove("k", "1"));
        assertEquals("3", map.remove("k"));
        assertTrue(map.isEmpty());
    }

    @Test
    @DisplayName("RMapCache: an entry is there while it lives, and no longer")
    default void entriesExpire() throws Exception {
        var map = clients().any(0).<String, String>getMapCache(Contract.fresh("cache"));
        var start = Measured.BY_CLIENT.now();
        assertNull(map.put("short", "1", 600, MILLISECONDS));
        assertEquals(null, map.putIfAbsent("long", "2", 300, SECONDS));
        while ("1".equals(map.get("short"))) {
            Thread.sleep(10);
        }
        start.assertPassed(600, "gone");
        assertNull(map.get("short"));
        assertEquals("2", map.get("long"));
        assertEquals("2", map.remove("long"));
    }

    @Test
    @DisplayName("RTopic: every message arrives once at every listener")
    default void topicsDeliver() throws Exception {
        var name = Contract.fresh("topic");
        var first = new LinkedBlockingQueue<String>();
        var second = new LinkedBlockingQueue<String>();
        var topic = clients().any(0).getTopic(name);
        topic.addListener(String.class, (channel, message) -> first.add(message));
        clients().any(1).getTopic(name)
                .addListener(String.class, (channel, message) -> second.add(message));
        for (var message = 0; message < 20; message++) {
            assertEquals(2, topic.publish("" + message));
        }
        // In any order: 3.15 hands messages that come close together to several threads.
        var sent = IntStream.range(0, 20).mapToObj(String::valueOf).collect(Collectors.toSet());
        for (var listener : List.of(first, second)) {
            var received = new HashSet<String>();
            for (var message = 0; message < 20; message++) {
                received.add(listener.poll(20, SECONDS));
            }
            assertEquals(sent, received);
        }
        topic.removeAllListeners();
        Await.until("one listener left", () -> topic.publish("last") == 1);
    }

    @Test
    @DisplayName("RPatternTopic: messages of all matching topics arrive")
    default void patternsDeliver() throws Exception {
        var name = Contract.fresh("topic");
        var received = new LinkedBlockingQueue<String>();
        var pattern = clients().any(0).getPatternTopic(name + ".*");
        pattern.addListener(String.class,
                (matched, channel, message) -> received.add(channel + "=" + message));
        assertEquals(1, clients().any(1).getTopic(name + ".a").publish("1"));
        assertEquals(0, clients().any(1).getTopic(name).publish("unheard"));
        assertEquals(1, clients().any(1).getTopic(name + ".b").publish("2"));
        // Redisson passes them to its threads, which do not keep their order.
        var messages = new HashSet<String>();
        messages.add(received.poll(20, SECONDS));
        messages.add(received.poll(20, SECONDS));
        assertEquals(Set.of(name + ".a=1", name + ".b=2"), messages);
        assertTrue(received.isEmpty());
    }

    @Test
    @DisplayName("RScript: runs by text and by digest, and its errors arrive")
    default void scriptsRun() {
        var name = Contract.fresh("script");
        var script = clients().any(0).getScript(StringCodec.INSTANCE);
        var text = "redis.call('set', KEYS[1], ARGV[1]) return KEYS[1] .. ' is ' .. ARGV[1]";
        List<Object> keys = List.of(name);
        assertEquals(name + " is x",
                script.eval(name, Mode.READ_WRITE, text, ReturnType.VALUE, keys, "x"));
        var digest = script.scriptLoad("return redis.call('get', KEYS[1])");
        assertEquals(List.of(true), script.scriptExists(digest));
        assertEquals("x",
                script.evalSha(name, Mode.READ_ONLY, digest, ReturnType.VALUE, keys));
        var error = assertThrows(RuntimeException.class, () -> script.eval(
                name, Mode.READ_WRITE, "return redis.error_reply('MINE is it')",
                ReturnType.VALUE, keys));
        assertTrue(error.getMessage().contains("MINE is it"), error::getMessage);
    }

    @Test
    @DisplayName("RBatch: an atomic batch runs whole, and answers in order")
    default void batchesAreAtomic() {
        // The braces hold the keys in one slot of a cluster.
        var name = "{" + Contract.fresh("batch") + "}";
        var options = BatchOptions.defaults().executionMode(ExecutionMode.IN_MEMORY_ATOMIC);
        var batch = clients().any(0).createBatch(options);
        batch.getAtomicLong(name).incrementAndGetAsync();
        batch.getAtomicLong(name).addAndGetAsync(10);
        batch.<String, String>getMap(name + "-map").fastPutAsync("k", "v");
        batch.<String>getBucket(name + "-bucket").compareAndSetAsync(null, "first");
        assertEquals(List.of(1L, 11L, true, true), batch.execute().getResponses());
        assertEquals(11, clients().any(1).getAtomicLong(name).get());
    }

    @Test
    @DisplayName("RBatch: an atomic batch without replies leaves the connection in order")
    default void batchesMaySkipReplies() {
        var name = "{" + Contract.fresh("batch") + "}";
        var options = BatchOptions.defaults()
            .executionMode(ExecutionMode.IN_MEMORY_ATOMIC).skipResult();
        for (var round = 1; round <= 20; round++) {
            var batch = clients().any(0).createBatch(options);
            batch.getAtomicLong(name).incrementAndGetAsync();
            batch.<String>getBucket(name + "-bucket").setAsync("round " + round);
            assertEquals(0, batch.execute().getResponses().size());
            assertEquals(round, clients().any(0).getAtomicLong(name).get());
        }
    }

    @Test
    @DisplayName("RTransaction: commits whole, rolls back whole, and is isolated by its locks")
    default void transactionsCommit() throws Exception {
        var name = "{" + Contract.fresh("transaction") + "}";
        var map = clients().any(0).<String, String>getMap(name);
        map.put("k", "old");
        // By default a transaction is over after five seconds.
        var patient = TransactionOptions.defaults().timeout(80, SECONDS);

        var undone = clients().any(0).createTransaction(patient);
        undone.<String, String>getMap(name).put("k", "never");
        undone.rollback();
        assertEquals("old", map.get("k"));

        var done = clients().any(0).createTransaction(patient);
        done.<String, String>getMap(name).put("k", "new");
        done.<String>getBucket(name + "-bucket").set("set");
        assertEquals("old", map.get("k"));
        try (var rival = new Actor()) {
            var second = rival.begin(() -> {
                var rivals = clients().any(1).createTransaction(patient);
                var before = rivals.<String, String>getMap(name).put("k", "newest");
                rivals.commit();
                return before;
            });
            Thread.sleep(200);
            assertFalse(second.isDone(), "two transactions changed one entry at once");
            done.commit();
            assertEquals("new", second.get());
        }
        assertEquals("newest", map.get("k"));
        assertEquals("set", clients().any(1).<String>getBucket(name + "-bucket").get());
    }

    @Test
    @DisplayName("RBlockingQueue: a taker sleeps until an item is put, and each is taken once")
    default void queuesBlock() throws Exception {
        var name = Contract.fresh("queue");
        var queue = clients().any(0).<String>getBlockingQueue(name);
        assertNull(queue.poll(1, SECONDS));
        try (var first = new Actor(); var second = new Actor()) {
            var one = first.begin(() -> clients().any(1).<String>getBlockingQueue(name).take());
            var other = second.begin(() ->
                    clients().any(0).<String>getBlockingQueue(name).poll(300, SECONDS));
            Thread.sleep(200);
            assertFalse(one.isDone() || other.isDone());
            assertTrue(queue.offer("a"));
            assertTrue(queue.offer("b"));
            assertEquals(List.of("a", "b"),
                    List.of(one.get(), other.get()).stream().sorted().toList());
        }
        assertTrue(queue.isEmpty());
    }

    @Test
    @DisplayName("RBoundedBlockingQueue: never holds more than its capacity, and wakes waiters")
    default void queuesAreBounded() throws Exception {
        var name = Contract.fresh("queue");
        var queue = clients().any(0).<String>getBoundedBlockingQueue(name);
        assertTrue(queue.trySetCapacity(2));
        assertTrue(queue.offer("a"));
        assertTrue(queue.offer("b"));
        assertFalse(queue.offer("never", 100, MILLISECONDS));
        try (var producer = new Actor()) {
            var put = producer.begin(() -> clients().any(1)
                    .<String>getBoundedBlockingQueue(name).offer("c", 300, SECONDS));
            clients().awaitSubscriber(name);
            assertFalse(put.isDone());
            assertEquals("a", queue.take());
            assertTrue(put.get());
        }
        assertEquals(List.of("b", "c"), List.of(queue.take(), queue.take()));
        assertEquals(2, queue.remainingCapacity());
    }

    @Test
    @DisplayName("RBucket: a listener is notified of expiry and removal")
    default void listenersHear() throws Exception {
        try (var console = clients().console()) {
            console.call("CONFIG", "SET", "notify-keyspace-events", "Egx");
        }
        var name = Contract.fresh("bucket");
        var received = new LinkedBlockingQueue<String>();
        var bucket = clients().any(0).<String>getBucket(name);
        bucket.addListener((ExpiredObjectListener) key -> received.add("expired " + key));
        bucket.addListener((DeletedObjectListener) key -> received.add("deleted " + key));
        bucket.set("removed");
        assertTrue(clients().any(1).getBucket(name).delete());
        assertEquals("deleted " + name, received.poll(20, SECONDS));
        bucket.set("ends", 100, MILLISECONDS);
        assertEquals("expired " + name, received.poll(20, SECONDS));
        assertTrue(received.isEmpty());
    }

    @Test
    @DisplayName("RDelayedQueue: an item arrives when its delay is over, not before")
    @SuppressWarnings("removal")
    default void queuesDelay() throws Exception {
        var name = Contract.fresh("queue");
        var queue = clients().any(0).<String>getBlockingQueue(name);
        var delayed = clients().any(0).getDelayedQueue(queue);
        var start = Measured.BY_CLIENT.now();
        delayed.offer("later", 1500, MILLISECONDS);
        delayed.offer("sooner", 500, MILLISECONDS);
        // If the machine stalls between the two offers, the shorter delay may end after the longer.
        var inOrder = start.passedMs() < 1000;
        var first = queue.poll(30, SECONDS);
        start.assertPassed("sooner".equals(first) ? 500 : 1500, first);
        var second = queue.poll(30, SECONDS);
        start.assertPassed(1500, "both");
        assertEquals(Set.of("sooner", "later"), Set.of(first, second));
        assertTrue(!inOrder || "sooner".equals(first), "the later came first");
        delayed.destroy();
    }
}
