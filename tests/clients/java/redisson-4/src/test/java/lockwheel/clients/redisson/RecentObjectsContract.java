// The contracts of other objects that only recent versions of Redisson have.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import lockwheel.clients.Actor;
import lockwheel.clients.Await;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.redisson.api.options.LocalCachedMapOptions;
import org.redisson.api.options.LocalCachedMapOptions.SyncStrategy;
import org.redisson.api.stream.StreamAddArgs;
import org.redisson.api.stream.StreamCreateGroupArgs;
import org.redisson.api.stream.StreamMessageId;
import org.redisson.api.stream.StreamReadArgs;
import org.redisson.api.stream.StreamReadGroupArgs;

interface RecentObjectsContract extends Contract {
    @Test
    @DisplayName("RIdGenerator: no number is given twice")
    default void numbersAreUnique() throws Exception {
        var name = Contract.fresh("ids");
        assertTrue(clients().any(0).getIdGenerator(name).tryInit(1, 7));
        var ends = new ArrayList<Actor.Result<ArrayList<Long>>>();
        for (var worker = 0; worker < 4; worker++) {
            var generator = clients().any(worker).getIdGenerator(name);
            ends.add(new Actor().begin(() -> {
                var numbers = new ArrayList<Long>();
                for (var count = 0; count < 50; count++) {
                    numbers.add(generator.nextId());
                }
                return numbers;
            }));
        }
        var all = new HashSet<Long>();
        for (var end : ends) {
            all.addAll(end.get());
        }
        assertEquals(200, all.size());
    }

    @Test
    @DisplayName("RStream: readers sleep until there is news; a group's entry goes to one of them")
    default void streamsBlock() throws Exception {
        var name = Contract.fresh("stream");
        var stream = clients().any(0).<String, String>getStream(name);
        stream.createGroup(StreamCreateGroupArgs.name("group").makeStream());
        var limit = Duration.ofSeconds(60);
        try (var reader = new Actor(); var first = new Actor(); var second = new Actor()) {
            var news = reader.begin(() -> clients().any(1).<String, String>getStream(name).read(
                    StreamReadArgs.greaterThan(StreamMessageId.ALL).count(1).timeout(limit)));
            var members = new ArrayList<Actor.Result<Map<StreamMessageId, Map<String, String>>>>();
            for (var member : List.of(first, second)) {
                var consumer = "consumer " + members.size();
                members.add(member.begin(() -> clients().any(0).<String, String>getStream(name)
                        .readGroup("group", consumer, StreamReadGroupArgs.neverDelivered()
                                .count(1).timeout(limit))));
            }
            Thread.sleep(300);
            assertFalse(news.isDone() || members.stream().anyMatch(Actor.Result::isDone));
            var entries = List.of(Map.of("k", "1"), Map.of("k", "2"));
            for (var entry : entries) {
                stream.add(StreamAddArgs.entries(entry));
            }
            assertEquals(entries.subList(0, 1), List.copyOf(news.get().values()));
            var delivered = new HashSet<Map<String, String>>();
            for (var member : members) {
                assertEquals(1, member.get().size());
                assertEquals(1, stream.ack("group", List.copyOf(member.get().keySet()).get(0)));
                delivered.addAll(member.get().values());
            }
            assertEquals(Set.copyOf(entries), delivered);
        }
    }

    @Test
    @DisplayName("RReliableTopic: messages arrive in order, also those from before a listener")
    default void reliableTopicsDeliver() throws Exception {
        var name = Contract.fresh("reliable");
        var received = new LinkedBlockingQueue<String>();
        var topic = clients().any(0).getReliableTopic(name);
        topic.publish("0");
        var listener = topic.addListener(String.class, (channel, message) -> received.add(message));
        for (var message = 1; message < 10; message++) {
            assertEquals(1, clients().any(1).getReliableTopic(name).publish("" + message));
        }
        for (var message = 0; message < 10; message++) {
            assertEquals("" + message, received.poll(20, SECONDS));
        }
        topic.removeListener(listener);
        assertEquals(0, topic.countSubscribers());
    }

    @Test
    @DisplayName("RLocalCachedMap: a change by one client reaches the copy of another")
    default void copiesAreKept() throws Exception {
        var options = LocalCachedMapOptions.<String, String>name(Contract.fresh("near"))
                .syncStrategy(SyncStrategy.UPDATE);
        var mine = clients().any(0).getLocalCachedMap(options);
        var other = clients().any(1).getLocalCachedMap(options);
        mine.put("k", "1");
        assertEquals("1", other.get("k"));
        mine.put("k", "2");
        Await.until("the change in the copy",
                () -> "2".equals(other.getCachedMap().get("k")));
        assertEquals("2", other.get("k"));
        other.remove("k");
        Await.until("the removal in the copy", () -> mine.getCachedMap().isEmpty());
    }
}
