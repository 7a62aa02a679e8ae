//! Scripts and transactions do not interleave.
//!
//! Every writer moves one unit from `left` to `right` in several steps, and increments the counter
//! by a read and a later write, so that a step of another writer in between loses an increment.

use std::thread;

use lockwheel_tests::frame::show;
use lockwheel_tests::target::Target;
use lockwheel_tests::wire::Wire;

const WRITERS: usize = 4;
const ROUNDS: usize = 200;

/// Reads, makes many calls, then writes the value read plus one. Fails if the sum is wrong.
const TRANSFER: &str = "\
    local left = tonumber(redis.call('get', 'left') or 0) \
    local right = tonumber(redis.call('get', 'right') or 0) \
    local count = tonumber(redis.call('get', 'count') or 0) \
    if left + right ~= 0 then return redis.error_reply('TORN ' .. left .. ' ' .. right) end \
    redis.call('set', 'left', left - 1) \
    for step = 1, 20 do redis.call('hincrby', 'steps', step, 1) end \
    redis.call('set', 'right', right + 1) \
    redis.call('set', 'count', count + 1) \
    return count + 1";

fn by_script(wire: &mut Wire) {
    let reply = wire.call(&["EVAL", TRANSFER, "0"]);
    assert_eq!(reply[0], b':', "{}", show(&reply));
}

/// The same by EXEC. A transaction cannot compute, so it reads at both ends and increments.
fn by_transaction(wire: &mut Wire) {
    let mut commands: Vec<Vec<String>> = Vec::new();
    let mut say = |words: &str| commands.push(words.split(' ').map(str::to_owned).collect());
    say("MULTI");
    say("GET count");
    say("DECR left");
    (1..=20).for_each(|step| say(&format!("HINCRBY steps {step} 1")));
    say("INCR right");
    say("INCR count");
    say("GET left");
    say("GET right");
    say("EXEC");
    commands.iter().for_each(|command| wire.send(command));
    let replies: Vec<_> = commands.iter().map(|_| wire.read()).collect();
    let result = lockwheel_tests::frame_of(replies.last().expect("EXEC answers"));
    let number = |at: usize| -> i64 {
        let text = String::from_utf8_lossy(&result.items[at].text).into_owned();
        text.parse().unwrap_or(0) // A missing count.
    };
    assert_eq!(result.items.len(), 26, "{result}");
    assert_eq!(number(0).max(0) + 1, number(23), "something came between: {result}");
    assert_eq!(number(24) + number(25), 0, "something came between: {result}");
}

fn race(writers: &[fn(&mut Wire)]) {
    for target in Target::all() {
        target.run("FLUSHALL");
        thread::scope(|scope| {
            for index in 0..WRITERS {
                let (target, writer) = (&target, writers[index % writers.len()]);
                scope.spawn(move || {
                    let mut wire = target.connect(2);
                    (0..ROUNDS).for_each(|_| writer(&mut wire));
                });
            }
        });
        let total = WRITERS * ROUNDS;
        let expect = |line: &str, value: String| {
            let bulk = format!("${}\r\n{value}\r\n", value.len());
            assert_eq!(show(&target.run(line)), show(bulk.as_bytes()), "{} {line}", target.name());
        };
        expect("GET count", total.to_string());
        expect("GET left", format!("-{total}"));
        expect("GET right", total.to_string());
        expect("HGET steps 20", total.to_string());
    }
}

#[test]
fn scripts_do_not_interleave() {
    race(&[by_script]);
}

#[test]
fn transactions_do_not_interleave() {
    race(&[by_transaction]);
}

#[test]
fn scripts_and_transactions_do_not_interleave() {
    race(&[by_script, by_transaction]);
}

/// The check notices a partial transfer, as interleaving would leave it.
#[test]
fn check_notices_a_partial_transfer() {
    for target in Target::all() {
        target.run("FLUSHALL");
        target.run("DECR left");
        let mut wire = target.connect(2);
        let reply = wire.call(&["EVAL", TRANSFER, "0"]);
        assert_eq!(show(&reply), "-TORN -1 0\\r\\n", "{}", target.name());
    }
}

/// Of many clients that request one lock at the same time, one gets it.
#[test]
fn one_of_many_gets_the_lock() {
    for target in Target::all() {
        for round in 0..50 {
            let key = format!("lock:{round}");
            let granted: usize = thread::scope(|scope| {
                let claim = |token: usize| {
                    let (target, key) = (&target, &key);
                    scope.spawn(move || {
                        let token = token.to_string();
                        let reply = target.connect(2).call(&["SET", key, &token, "NX"]);
                        usize::from(reply == b"+OK\r\n")
                    })
                };
                let claims: Vec<_> = (0..WRITERS).map(claim).collect();
                claims.into_iter().map(|claim| claim.join().expect("no panic")).sum()
            });
            assert_eq!(granted, 1, "{}", target.name());
        }
    }
}
