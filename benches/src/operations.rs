//! The operations that matter most for a lock server, performed on the engine without sockets.

use lockwheel_tests::scripts::{COMPARE_AND_DELETE, LOCK_3, RENEW_3, RENEW_ALL, UNLOCK_3};

use crate::CHUNK;
use crate::engine_bench::{BenchCase, EngineBench};

/// Locks held during the measurement.
const LOCKS: usize = 1_000;
/// Subscribers of the channel to which `publish to 16` publishes.
const SUBSCRIBERS: usize = 16;
/// How often an operation is performed: enough for several cycles of Lua's garbage collector.
pub const REPETITIONS: u64 = 8 * CHUNK as u64;

/// The tiers that run scripts, each with the command that selects it.
const TIERS: &[(&str, &str)] =
    &[("lua", "CONFIG SET script-plans no"), ("plan", "CONFIG SET script-plans yes")];

/// An operation that is counted: its allocations and its instructions.
pub struct Operation {
    /// Includes the tier if the operation is a script.
    pub name: String,
    script: &'static str,
    tier: &'static str,
    setup: &'static str,
    work: &'static str,
    cleanup: &'static str,
    replies: String,
}

/// Returns every operation. In the command of a script, `{sha}` is its digest.
pub fn all() -> Vec<Operation> {
    let mut all = Vec::new();
    for (tier, selection) in TIERS {
        let scripts = [
            script("redisson lock", LOCK_3, "EVALSHA {sha} 1 {fresh} 30000 {owner}", "$-1\r\n")
                .cleanup("DEL {fresh}"),
            script(
                "redisson unlock",
                UNLOCK_3,
                "EVALSHA {sha} 2 {fresh} redisson_lock__channel:{{fresh}} 0 30000 {owner}",
                ":1\r\n",
            )
            .setup("HSET {fresh} {owner} 1; PEXPIRE {fresh} 30000"),
            script("redisson renew", RENEW_3, "EVALSHA {sha} 1 {hash} 30000 {owner}", ":1\r\n"),
            script(
                "redisson renew 100",
                RENEW_ALL,
                "EVALSHA {sha} 100 {100 hashes} 30000 {100 owners}",
                &format!("*100\r\n{}", ":1\r\n".repeat(100)),
            ),
            script(
                "compare and delete",
                COMPARE_AND_DELETE,
                "EVALSHA {sha} 1 {fresh} {owner}",
                ":1\r\n",
            )
            .setup("SET {fresh} {owner} NX PX 30000"),
        ];
        all.extend(
            scripts.map(|it| {
                Operation { name: format!("{}, {tier}", it.name), ..it }.run_in(selection)
            }),
        );
    }
    all.extend([
        plain("ping", "PING", "+PONG\r\n"),
        plain("get", "GET {string}", "$38\r\n0d9f4c5e-9a53-4a39-9b0b-6a2f53c1a7c4:1\r\n"),
        plain("set px", "SET {string} {owner} PX 30000", "+OK\r\n"),
        plain("set nx px", "SET {fresh} {owner} NX PX 30000", "+OK\r\n").cleanup("DEL {fresh}"),
        plain("del", "DEL {fresh}", ":1\r\n").setup("SET {fresh} {owner} PX 30000"),
        plain("publish to 0", "PUBLISH unused 0", ":0\r\n"),
        plain("publish to 16", "PUBLISH channel 0", ":16\r\n"),
    ]);
    all
}

fn plain(name: &str, work: &'static str, replies: &str) -> Operation {
    script(name, "", work, replies)
}

fn script(name: &str, script: &'static str, work: &'static str, replies: &str) -> Operation {
    Operation {
        name: name.to_owned(),
        script,
        tier: "",
        setup: "",
        work,
        cleanup: "",
        replies: replies.to_owned(),
    }
}

impl Operation {
    fn setup(self, setup: &'static str) -> Operation {
        Operation { setup, ..self }
    }

    fn cleanup(self, cleanup: &'static str) -> Operation {
        Operation { cleanup, ..self }
    }

    fn run_in(self, tier: &'static str) -> Operation {
        Operation { tier, ..self }
    }

    /// Performs the operation [`REPETITIONS`] times, after a warm-up that fills the buffers.
    /// `around` is called for each chunk, with a function that does the measured work.
    pub fn perform(&self, around: impl FnMut(&mut dyn FnMut())) {
        let mut bench = EngineBench::new(LOCKS);
        bench.subscribe("channel", SUBSCRIBERS);
        bench.run_once(self.tier);
        let sha = match self.script {
            "" => String::new(),
            script => bench.load(script),
        };
        let work = self.work.replace("{sha}", &sha);
        let case = BenchCase::new(&work, &self.replies).setup(self.setup).cleanup(self.cleanup);
        bench.warm_up(&case);
        bench.perform(&case, REPETITIONS, around);
    }
}
