// Receives the messages of channels, in order, in its own thread.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;

final class Listener extends JedisPubSub {
    private static final String SUBSCRIBED = "(subscribed)";
    private static final String PONG = "(pong)";

    private final BlockingQueue<String> received = new LinkedBlockingQueue<>();

    private Listener() {}

    /** Subscribes, and returns when the server has confirmed it. */
    static Listener of(Jedis client, String... channels) {
        var listener = new Listener();
        Later.run(() -> {
            client.subscribe(listener, channels);
            return null;
        });
        for (int count = 0; count < channels.length; count++) {
            listener.expect(SUBSCRIBED);
        }
        return listener;
    }

    /** The next message. */
    String next() {
        try {
            String message = received.poll(Later.MAX_WAIT_SECONDS, TimeUnit.SECONDS);
            assertNotNull(message, "no message was received");
            return message;
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
    }

    /** Whether no message was sent to it: messages arrive before the reply to PING. */
    boolean hasReceivedNothing() {
        ping();
        return next().equals(PONG);
    }

    private void expect(String message) {
        if (!next().equals(message)) {
            throw new AssertionError("not " + message);
        }
    }

    @Override
    public void onSubscribe(String channel, int count) {
        received.add(SUBSCRIBED);
    }

    @Override
    public void onPong(String pattern) {
        received.add(PONG);
    }

    @Override
    public void onMessage(String channel, String message) {
        received.add(message);
    }
}
