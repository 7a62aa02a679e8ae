// Runs the lock recipes on Lettuce with RESP2.

package lockwheel.clients.recipes;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.protocol.ProtocolVersion;
import lockwheel.clients.Library;
import lockwheel.clients.Servers;

@Library.Setting("RESP2")
class LettuceResp2Test extends LettuceTest {
    private static final RedisClient CLIENT = RedisClient.create(Servers.main().toString());

    static {
        var older = ClientOptions.builder().protocolVersion(ProtocolVersion.RESP2);
        CLIENT.setOptions(older.build());
    }

    @Override
    public Commands open() {
        return new LettuceCommands(CLIENT.connect());
    }
}
