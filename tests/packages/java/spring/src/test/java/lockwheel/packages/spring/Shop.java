// A shop that reduces its stock under a lock, a common example in articles about locks.

package lockwheel.packages.spring;

import java.time.Duration;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.RedisScript;
import org.springframework.stereotype.Component;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;

@SpringBootApplication
class Shop {
    private static final Duration LEASE = Duration.ofSeconds(10);

    /** As it is written first. */
    @Component
    static class MyLock {
        private final StringRedisTemplate redis;

        MyLock(StringRedisTemplate redis) {
            this.redis = redis;
        }

        boolean getLock(String key) {
            return Boolean.TRUE.equals(redis.opsForValue().setIfAbsent(key, "OK", LEASE));
        }

        void unLock(String key) {
            redis.delete(key);
        }
    }

    /** The final version: the value of the lock is the token of its owner. */
    @Component
    static class MyOwnLock {
        private static final RedisScript<Long> COMPARE_AND_DELETE = RedisScript.of("""
                if redis.call('get', KEYS[1]) == ARGV[1] then
                    return redis.call('del', KEYS[1])
                end
                return 0
                """, Long.class);

        private final StringRedisTemplate redis;

        MyOwnLock(StringRedisTemplate redis) {
            this.redis = redis;
        }

        boolean getLock(String key, String token) {
            return Boolean.TRUE.equals(redis.opsForValue().setIfAbsent(key, token, LEASE));
        }

        void unLock(String key, String token) {
            redis.execute(COMPARE_AND_DELETE, List.of(key), token);
        }
    }

    /** What the locks protect. */
    @Component
    static class Stock {
        final AtomicInteger left = new AtomicInteger();
    }

    @RestController
    static class ProductController {
        private final MyLock myLock;
        private final MyOwnLock myOwnLock;
        private final Stock stock;

        ProductController(MyLock myLock, MyOwnLock myOwnLock, Stock stock) {
            this.myLock = myLock;
            this.myOwnLock = myOwnLock;
            this.stock = stock;
        }

        @GetMapping("/stock/reduce")
        String reduceStock(@RequestParam int id) {
            String key = "product:" + id;
            try {
                if (myLock.getLock(key)) {
                    stock.left.decrementAndGet();
                }
            } finally {
                myLock.unLock(key);
            }
            return "OK";
        }

        @GetMapping("/stock/reduce/corrected")
        String reduceStockCorrected(@RequestParam int id) {
            String key = "product:" + id;
            String token = UUID.randomUUID().toString();
            if (!myOwnLock.getLock(key, token)) {
                return "busy";
            }
            try {
                stock.left.decrementAndGet();
            } finally {
                myOwnLock.unLock(key, token);
            }
            return "OK";
        }
    }
}
