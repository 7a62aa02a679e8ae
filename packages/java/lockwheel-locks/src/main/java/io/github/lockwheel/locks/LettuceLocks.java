// Public API: locks over Lettuce.

package io.github.lockwheel.locks;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletionStage;

/** Locks over Lettuce, 6.5 or later. */
public final class LettuceLocks extends Locks {
    /** The limit for a node of a cluster, before another one is asked for the leader. */
    private static final Duration CONNECTING_MAX = Duration.ofSeconds(1);

    private final RedisClient client;
    private final RedisURI uri;

    /**
     * The locks of a server. They have connections of their own, with the options and resources of
     * the client.
     *
     * @param client the client
     * @param uri the address of the server, which cannot be read from the client, or those of the
     *     nodes of a cluster of Lockwheel, as Sentinels
     */
    public LettuceLocks(RedisClient client, RedisURI uri) {
        this.client = RedisClient.create(client.getResources());
        this.client.setOptions(client.getOptions().mutate()
                // Lettuce would send a LOCK.ACQUIRE again when it has connected again.
                .autoReconnect(false)
                .timeoutOptions(TimeoutOptions.builder().timeoutCommands(false).build())
                .build());
        this.uri = uri.getSentinels().isEmpty() ? uri : limited(uri);
    }

    private static RedisURI limited(RedisURI uri) {
        var limit = Collections.min(List.of(CONNECTING_MAX, uri.getTimeout()));
        var limited = RedisURI.builder(uri).withTimeout(limit)
                .withSentinelMasterId(uri.getSentinelMasterId());
        uri.getSentinels().forEach(limited::withSentinel);
        return limited.build();
    }

    @Override
    Wire<?> wire() {
        return new LettuceWire();
    }

    private final class LettuceWire extends Wire<StatefulRedisConnection<String, String>> {
        @Override
        CompletionStage<StatefulRedisConnection<String, String>> connect() {
            return client.connectAsync(StringCodec.UTF8, uri);
        }

        @Override
        CompletionStage<List<Object>> send(
                StatefulRedisConnection<String, String> connection, List<String> words) {
            var arguments = new CommandArgs<>(StringCodec.UTF8);
            words.stream().skip(1).forEach(arguments::add);
            var command = new AsyncCommand<>(new Command<>(
                    new Word(words.get(0)), new NestedMultiOutput<>(StringCodec.UTF8), arguments));
            connection.dispatch(command);
            return command;
        }

        @Override
        void disconnect(StatefulRedisConnection<String, String> connection) {
            connection.closeAsync();
        }

        @Override
        boolean isReply(Throwable error) {
            return error instanceof RedisCommandExecutionException;
        }
    }

    /** The name of a command, which metrics show. */
    private static final class Word implements ProtocolKeyword {
        private final String name;

        Word(String name) {
            this.name = name;
        }

        @Override
        public byte[] getBytes() {
            return name.getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public String toString() {
            return name;
        }
    }
}
