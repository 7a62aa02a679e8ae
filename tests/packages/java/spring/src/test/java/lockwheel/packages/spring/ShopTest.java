// Tests the shop: the first version of its code shows two mistakes, the corrected one none.

package lockwheel.packages.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.Requests;
import java.io.UnsupportedEncodingException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.boot.webmvc.test.autoconfigure.AutoConfigureMockMvc;
import org.springframework.test.context.DynamicPropertyRegistry;
import org.springframework.test.context.DynamicPropertySource;
import org.springframework.test.web.servlet.assertj.MockMvcTester;

@SpringBootTest
@AutoConfigureMockMvc
class ShopTest {
    static final LockwheelServer REDIS = LockwheelServer.builder().frozen(true).start();

    @DynamicPropertySource
    static void redis(DynamicPropertyRegistry properties) {
        properties.add("spring.data.redis.url", REDIS::url);
    }

    @Autowired
    MockMvcTester shop;

    @Autowired
    Shop.Stock stock;

    @BeforeEach
    void reset() {
        REDIS.reset();
        stock.left.set(1);
    }

    @Test
    void aLateReleaseKeepsTheLockOfAnother() throws Exception {
        var release = REDIS.faults().gate(Requests.any().command("eval*"));
        var late = CompletableFuture.supplyAsync(() -> get("/stock/reduce/corrected?id=7"));
        release.await();
        REDIS.clock().advance(Duration.ofSeconds(10));
        REDIS.call("SET", "product:7", "another", "NX", "PX", "10000");
        release.open();
        assertEquals("OK", late.get());
        assertEquals("another", REDIS.call("GET", "product:7"));
        REDIS.journal().assertReleasedOnlyByOwner();
    }

    @Test
    void firstVersionReleasesTheNextHoldersLockAfterItsLease() throws Exception {
        var release = REDIS.faults().gate(Requests.any().command("del"));
        var late = CompletableFuture.supplyAsync(() -> get("/stock/reduce?id=7"));
        release.await();
        REDIS.clock().advance(Duration.ofSeconds(10));
        REDIS.call("SET", "product:7", "another", "NX", "PX", "10000");
        release.open();
        assertEquals("OK", late.get());
        assertNull(REDIS.call("GET", "product:7"));
        assertThrows(AssertionError.class, REDIS.journal()::assertReleasedOnlyByOwner);
    }

    @Test
    void firstVersionReleasesTheOwnersLockWhenRefused() {
        REDIS.call("SET", "product:7", "another", "NX", "PX", "10000");
        get("/stock/reduce?id=7");
        assertEquals(1, stock.left.get(), "it was refused ...");
        assertNull(REDIS.call("GET", "product:7"), "... and took the lock away");
        assertThrows(AssertionError.class, REDIS.journal()::assertReleasedOnlyByOwner);
    }

    @Test
    void aRefusedRequestKeepsTheOwnersLock() {
        REDIS.call("SET", "product:7", "another", "NX", "PX", "10000");
        assertEquals("busy", get("/stock/reduce/corrected?id=7"));
        assertEquals(1, stock.left.get());
        assertEquals("another", REDIS.call("GET", "product:7"));
        REDIS.journal().assertReleasedOnlyByOwner();
    }

    @Test
    void aGrantedRequestReducesTheStock() {
        assertEquals("OK", get("/stock/reduce/corrected?id=7"));
        assertEquals(0, stock.left.get());
        REDIS.journal().assertNoLockHeld();
    }

    private String get(String path) {
        try {
            return shop.get().uri(path).exchange().getResponse().getContentAsString();
        } catch (UnsupportedEncodingException error) {
            throw new AssertionError(error);
        }
    }
}
