//! The cost of the scripts that take, renew and release a lock, run as plans and in Lua, and the
//! part of it that the tier takes.
//!
//! - `engine`: `EVALSHA`, from the arguments to the encoded reply, among 1 k held locks.
//! - `interpreter`: the same scripts with a host that returns constant replies. `call` is one
//!   `redis.call` of a loop.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lockwheel_benches::engine_bench::{BenchCase, EngineBench, OWNER};
use lockwheel_engine::commands::scripts::interpreter;
use lockwheel_engine::settings::CompatVersion;
use lockwheel_resp::{Protocol, Reply};
use lockwheel_scripting::{Host, Interpreter, Interrupt, LogLevel, Sha};
use lockwheel_tests::scripts::{COMPARE_AND_DELETE, LOCK_3, RENEW_3, UNLOCK_3};

const LOCKS: usize = 1_000;
const RETURN_1: &str = "return 1";
/// Slightly below the number of replies that a plan may keep.
const CALLS: u64 = 500;
const CALL_OFTEN: &str = "for i = 1, 500 do redis.call('exists', KEYS[1]) end";

const KEY: &[u8] = b"lock:orders:4711";
const CHANNEL: &[u8] = b"redisson_lock__channel:{lock:orders:4711}";

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500));
    targets = at_the_engine, at_the_interpreter
}
criterion_main!(benches);

/// The tiers that run scripts, and whether plans are enabled.
const TIERS: [(&str, bool); 2] = [("plan", true), ("lua", false)];

fn at_the_engine(criterion: &mut Criterion) {
    let mut bench = EngineBench::new(LOCKS);
    let [one, delete, lock, unlock, renew] =
        [RETURN_1, COMPARE_AND_DELETE, LOCK_3, UNLOCK_3, RENEW_3].map(|script| bench.load(script));
    let hold = "SET {fresh} {owner} NX PX 30000";
    let hold_hash = "HSET {fresh} {owner} 1";
    let lock = format!("EVALSHA {lock} 1 {{fresh}} 30000 {{owner}}");
    let unlock = format!(
        "EVALSHA {unlock} 2 {{fresh}} redisson_lock__channel:{{{{fresh}}}} 0 30000 {{owner}}"
    );
    let delete_own = format!("EVALSHA {delete} 1 {{fresh}} {{owner}}");
    let delete_others = format!("EVALSHA {delete} 1 {{string}} other");
    let renew = format!("EVALSHA {renew} 1 {{hash}} 30000 {{owner}}");
    let one = format!("EVALSHA {one} 0");
    let cases = [
        ("return_1", BenchCase::new(&one, ":1\r\n")),
        ("compare_and_delete/hit", BenchCase::new(&delete_own, ":1\r\n").setup(hold)),
        ("compare_and_delete/miss", BenchCase::new(&delete_others, ":0\r\n")),
        ("redisson_lock", BenchCase::new(&lock, "$-1\r\n").cleanup("DEL {fresh}")),
        ("redisson_unlock", BenchCase::new(&unlock, ":1\r\n").setup(hold_hash)),
        ("redisson_renew", BenchCase::new(&renew, ":1\r\n")),
    ];
    let mut group = criterion.benchmark_group("engine");
    for (name, case) in &cases {
        for (tier, has_plans) in TIERS {
            bench.run_once(if has_plans { PLANS } else { NO_PLANS });
            group.bench_function(format!("{name}/{tier}"), |bencher| {
                bencher.iter_custom(|count| bench.time(case, count));
            });
        }
    }
}

const PLANS: &str = "CONFIG SET script-plans yes";
const NO_PLANS: &str = "CONFIG SET script-plans no";

fn at_the_interpreter(criterion: &mut Criterion) {
    let mut lua = interpreter(lockwheel_scripting::MathRandom::new(1), CompatVersion::default());
    let [one, delete, lock, unlock, renew, call_often] =
        [RETURN_1, COMPARE_AND_DELETE, LOCK_3, UNLOCK_3, RENEW_3, CALL_OFTEN]
            .map(|script| lua.load(script.as_bytes()).expect("a script that compiles"));
    let owner = OWNER.as_bytes();
    let lock_args: [&[u8]; 2] = [b"30000", owner];
    let unlock_args: [&[u8]; 3] = [b"0", b"30000", owner];
    let lock = ScriptCall { sha: lock, keys: &[KEY], args: &lock_args, reply: Reply::Null };
    let unlock = ScriptCall {
        sha: unlock,
        keys: &[KEY, CHANNEL],
        args: &unlock_args,
        reply: Reply::Integer(1),
    };
    let renew = ScriptCall { sha: renew, keys: &[KEY], args: &lock_args, reply: Reply::Integer(1) };
    let owner = [owner];
    let delete = ScriptCall { sha: delete, keys: &[KEY], args: &owner, reply: Reply::Integer(1) };
    let one = ScriptCall { sha: one, keys: &[], args: &[], reply: Reply::Integer(1) };
    let call_often = ScriptCall { sha: call_often, keys: &[KEY], args: &[], reply: Reply::Null };
    let cases = [
        ("return_1", 1, one),
        ("call", CALLS, call_often),
        ("compare_and_delete", 1, delete),
        ("redisson_lock", 1, lock),
        ("redisson_unlock", 1, unlock),
        ("redisson_renew", 1, renew),
    ];
    let mut group = criterion.benchmark_group("interpreter");
    for (name, elements, call) in &cases {
        group.throughput(Throughput::Elements(*elements));
        for (tier, has_plans) in TIERS {
            lua.set_plans(has_plans);
            group.bench_function(format!("{name}/{tier}"), |bencher| {
                bencher.iter(|| call.run(&mut lua));
            });
        }
    }
}

struct ScriptCall<'a> {
    sha: Sha,
    keys: &'a [&'a [u8]],
    args: &'a [&'a [u8]],
    reply: Reply,
}

impl ScriptCall<'_> {
    fn run(&self, lua: &mut Interpreter) {
        let sha = self.sha.as_bytes();
        let reply = lua.run(black_box(sha), self.keys, self.args, &mut ConstantHost);
        assert_eq!(reply, self.reply);
    }
}

/// Returns the replies of a server on which the lock is free when taken, and then held.
struct ConstantHost;

impl Host for ConstantHost {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        match argv[0] {
            b"get" => Reply::bulk(OWNER),
            b"hexists" | b"pexpire" | b"del" => Reply::Integer(1),
            _ => Reply::Integer(0),
        }
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn interrupt(&mut self) -> Interrupt {
        Interrupt::Continue
    }
}
