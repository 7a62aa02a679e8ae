// Sends the requests of a recipe with Lettuce.

package lockwheel.kills;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.time.Duration;

/** Lettuce: one connection, which it makes anew. */
final class LettuceServer implements PlainWorker.Server {
    private final RedisCommands<String, String> commands;

    private LettuceServer(RedisCommands<String, String> commands) {
        this.commands = commands;
    }

    /** Connects as often as needed. */
    static LettuceServer connect(Settings settings) {
        RedisURI.Builder uri = RedisURI.builder();
        for (String server : settings.servers()) {
            int colon = server.lastIndexOf(':');
            String host = server.substring(0, colon);
            int port = Integer.parseInt(server.substring(colon + 1));
            uri = settings.hasSentinels()
                    ? uri.withSentinel(host, port)
                    : uri.withHost(host).withPort(port);
        }
        if (settings.hasSentinels()) {
            uri = uri.withSentinelMasterId("mymaster");
        }
        uri = uri.withTimeout(Duration.ofMillis(settings.replyTimeoutMs()));
        RedisClient client = RedisClient.create(uri.build());
        client.setOptions(ClientOptions.builder()
                .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
                .replayFilter(command -> true)
                .build());
        while (true) {
            try {
                return new LettuceServer(client.connect().sync());
            } catch (RedisException notReady) {
                Clients.sleep(Worker.RETRY_DELAY_MS);
            }
        }
    }

    @Override
    public boolean setNew(String key, String value, int leaseMs) {
        return commands.set(key, value, SetArgs.Builder.nx().px(leaseMs)) != null;
    }

    @Override
    public long eval(String script, String key, String... arguments) {
        String[] keys = {key};
        return commands.<Long>eval(script, ScriptOutputType.INTEGER, keys, arguments);
    }

    @Override
    public String get(String key) {
        return commands.get(key);
    }

    @Override
    public void ping() {
        commands.ping();
    }

    @Override
    public boolean isLost(Exception problem) {
        return problem instanceof RedisException
                && !(problem instanceof RedisCommandExecutionException);
    }

    @Override
    public boolean isRefused(Exception problem) {
        String text = String.valueOf(problem.getMessage());
        return problem instanceof RedisCommandExecutionException && Refusals.isOne(text);
    }
}
