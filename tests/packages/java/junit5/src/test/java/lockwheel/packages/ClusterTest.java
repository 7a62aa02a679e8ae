// Tests lock objects on a cluster of three nodes.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.Program;
import io.github.lockwheel.locks.JedisLocks;
import io.github.lockwheel.locks.LettuceLocks;
import io.github.lockwheel.locks.Locks;
import io.github.lockwheel.locks.NativeLock;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.RedisSentinelClient;

class ClusterTest {
    private static final String USER = "worker on >word ~* &* +@all";

    private final List<AutoCloseable> opened = new ArrayList<>();
    /** The processes of the nodes, by their ports. */
    private final Map<Integer, String> processes = new HashMap<>();
    /** Trusts the certificate of the nodes; null if there is none. */
    private TrustManagerFactory authority;
    /** Finds the leader. */
    private RedisSentinelClient client;
    private List<Locks> locks;

    /** Starts the nodes, with TLS and the user of the tests or without both. */
    private void start(Path folder, boolean isSecure) throws Exception {
        var certificate = folder.resolve("certificate");
        var words = new ArrayList<>(List.of(System.getenv("CLUSTER"), Program.find().toString()));
        if (isSecure) {
            words.addAll(List.of("--requirepass", "secret", "--user"));
            words.addAll(List.of(USER.split(" ")));
        }
        var builder = new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.INHERIT);
        if (isSecure) {
            builder.environment().put("TLS", certificate.toString());
        }
        var cluster = builder.start();
        opened.add(cluster.getOutputStream());
        var reader = new BufferedReader(new InputStreamReader(cluster.getInputStream()));
        for (int count = 0; count < 3; count++) {
            var node = reader.readLine().split(" ");
            processes.put(Integer.parseInt(node[0]), node[1]);
        }
        if (isSecure) {
            authority = authority(certificate);
        }
        client = jedis(isSecure);
        locks = List.of(
                new JedisLocks(client, settings(isSecure).database(isSecure ? 3 : 0).build()),
                lettuce(isSecure));
    }

    private static TrustManagerFactory authority(Path certificate) throws Exception {
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (var file = Files.newInputStream(certificate)) {
            store.setCertificateEntry(
                    "nodes", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        var authority = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        authority.init(store);
        return authority;
    }

    private RedisSentinelClient jedis(boolean isSecure) throws Exception {
        JedisClientConfig settings = settings(isSecure).build();
        var nodes = processes.keySet().stream().map(port -> new HostAndPort("127.0.0.1", port));
        var jedis = RedisSentinelClient.builder().masterName("mymaster")
                .sentinels(nodes.collect(Collectors.toSet()))
                .clientConfig(settings).sentinelClientConfig(settings).build();
        opened.add(jedis);
        return jedis;
    }

    private DefaultJedisClientConfig.Builder settings(boolean isSecure) throws Exception {
        var settings = DefaultJedisClientConfig.builder();
        if (isSecure) {
            var context = SSLContext.getInstance("TLS");
            context.init(null, authority.getTrustManagers(), null);
            settings.ssl(true).sslSocketFactory(context.getSocketFactory())
                    .user("worker").password("word");
        }
        return settings;
    }

    private RedisClient lettuce() {
        var lettuce = RedisClient.create();
        opened.add(() -> lettuce.shutdown(Duration.ZERO, Duration.ZERO));
        return lettuce;
    }

    private Locks lettuce(boolean isSecure) {
        var lettuce = lettuce();
        var uri = RedisURI.builder().withSentinelMasterId("mymaster");
        // The leader is asked first, which is the worst order if it is stopped.
        int leader = client.getCurrentMaster().getPort();
        uri.withSentinel(node(leader, isSecure));
        processes.keySet().stream().filter(port -> port != leader)
                .forEach(port -> uri.withSentinel(node(port, isSecure)));
        if (isSecure) {
            lettuce.setOptions(ClientOptions.builder().sslOptions(
                    SslOptions.builder().trustManager(authority).build()).build());
            uri.withSsl(true).withDatabase(3).withAuthentication("worker", "word".toCharArray());
        }
        return new LettuceLocks(lettuce, uri.build());
    }

    private static RedisURI node(int port, boolean isSecure) {
        var uri = RedisURI.builder().withHost("127.0.0.1").withPort(port);
        return isSecure
                ? uri.withSsl(true).withAuthentication("worker", "word".toCharArray()).build()
                : uri.build();
    }

    private void signal(String signal, String process) throws Exception {
        assertEquals(0, new ProcessBuilder("kill", "-" + signal, process).start().waitFor());
    }

    @AfterEach
    void close() throws Exception {
        for (var each : opened) {
            each.close();
        }
    }

    @Test
    void locksOutliveALeaderThatIsKilled(@TempDir Path folder) throws Exception {
        start(folder, false);
        locksOutliveTheLeader("KILL", LocksContract.TTL);
    }

    @Test
    void locksOutliveALeaderThatIsStopped(@TempDir Path folder) throws Exception {
        start(folder, true);
        // A renewal waits for a third of the lease for a server that is stopped.
        locksOutliveTheLeader("STOP", Duration.ofSeconds(12));
    }

    private void locksOutliveTheLeader(String signal, Duration lease) throws Exception {
        var period = Duration.ofMillis(50);
        var held = new ArrayList<NativeLock>();
        for (int index = 0; index < locks.size(); index++) {
            held.add(locks.get(index).lock("lock-" + index, lease).renewEvery(period).build()
                    .acquire());
        }
        signal(signal, processes.get(client.getCurrentMaster().getPort()));
        for (int index = 0; index < held.size(); index++) {
            var lock = held.get(index);
            Later.eventually("it is renewed", () -> isRenewed(lock) || !lock.isHeld());
            assertTrue(lock.isHeld(), "it was lost");
            var other = locks.get(0).lock("lock-" + index, lease).build();
            assertFalse(answered(other::tryAcquire));
            assertTrue(answered(lock::release));
            assertTrue(answered(other::tryAcquire));
            assertTrue(other.token() > lock.token());
            assertTrue(answered(other::release));
        }
    }

    /** The answer of the leader: a client may still know the one before. */
    private static boolean answered(Callable<Boolean> call) throws Exception {
        var answer = new AtomicBoolean();
        Later.eventually("an answer of the leader", () -> {
            try {
                answer.set(call.call());
                return true;
            } catch (Exception error) {
                return false;
            }
        });
        return answer.get();
    }

    private static boolean isRenewed(NativeLock lock) {
        try {
            return lock.renew();
        } catch (RuntimeException error) {
            return false;
        }
    }

    // Shows L17, L18.
    @Test
    void aLockOfOneAddressIsLostBeforeTheClusterGrantsItAgain(@TempDir Path folder)
            throws Exception {
        start(folder, false);
        int leader = client.getCurrentMaster().getPort();
        var jedis = redis.clients.jedis.RedisClient.create("127.0.0.1", leader);
        opened.add(jedis);
        var addresses = List.of(new JedisLocks(jedis),
                new LettuceLocks(lettuce(), RedisURI.create("127.0.0.1", leader)));
        var held = new ArrayList<NativeLock>();
        for (int index = 0; index < addresses.size(); index++) {
            held.add(addresses.get(index).lock("lock-" + index, Duration.ofSeconds(6))
                    .renewEvery(Duration.ofMillis(50)).build().acquire());
        }
        signal("KILL", processes.get(leader));
        for (var lock : held) {
            assertThrows(RuntimeException.class, lock::renew);
        }
        for (int index = 0; index < held.size(); index++) {
            var other = locks.get(0).lock("lock-" + index, LocksContract.TTL)
                    .waitFor(Duration.ofMinutes(1)).build();
            assertTrue(answered(other::tryAcquire));
            assertFalse(held.get(index).isHeld());
            assertTrue(other.token() > held.get(index).token());
            assertTrue(other.release());
            assertFalse(held.get(index).renew());
        }
    }

    // The README's locks of a cluster.

    Locks overLettuce(RedisClient client, String nodes) { // Such as 10.0.0.1:6379,10.0.0.2:6379.
        return new LettuceLocks(client, RedisURI.create("redis-sentinel://" + nodes + "#mymaster"));
    }

    Locks overJedis(Set<HostAndPort> nodes) {
        var settings = DefaultJedisClientConfig.builder().build();
        var client = RedisSentinelClient.builder().masterName("mymaster").sentinels(nodes)
                .clientConfig(settings).sentinelClientConfig(settings).build();
        return new JedisLocks(client, settings); // Close the client after its locks.
    }

    @Test
    void theExamplesOfTheReadmeSurviveAFailover(@TempDir Path folder) throws Exception {
        start(folder, false);
        var nodes = processes.keySet().stream().map(port -> new HostAndPort("127.0.0.1", port))
                .collect(Collectors.toSet());
        var addresses = nodes.stream().map(HostAndPort::toString).collect(Collectors.joining(","));
        locks = List.of(overLettuce(lettuce(), addresses), overJedis(nodes));
        locksOutliveTheLeader("KILL", LocksContract.TTL);
    }

    // Shows L17, L18.
    @Test
    void aBoundLockOfAStoppedClusterIsLostWithItsGrace(@TempDir Path folder) throws Exception {
        start(folder, false);
        var held = new ArrayList<NativeLock>();
        for (int index = 0; index < locks.size(); index++) {
            held.add(locks.get(index).lock("lock-" + index, LocksContract.TTL)
                    .bound(Duration.ofSeconds(2)).build().acquire());
        }
        for (var process : processes.values()) {
            signal("STOP", process);
        }
        for (var lock : held) {
            Later.eventually("it is lost", () -> !lock.isHeld());
        }
    }
}
