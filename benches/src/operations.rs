//! The operations that matter most to a server of locks, and how one is performed at the engine. It
//! must not know what is counted meanwhile.

use crate::CHUNK;
use crate::stage::{Conversation, Stage};

const LOCK: &str = include_str!("../../server/compat/src/scripts/redisson-3/lock.lua");
const UNLOCK: &str = include_str!("../../server/compat/src/scripts/redisson-3/unlock.lua");
const RENEW: &str = include_str!("../../server/compat/src/scripts/redisson-3/renew.lua");
const COMPARE_AND_DELETE: &str =
    include_str!("../../server/compat/src/scripts/compare-and-delete.lua");
/// The watchdog of Redisson since 3.44: as many locks at once as it names in one script.
const RENEW_ALL: &str = include_str!("../../server/compat/src/scripts/redisson/renew.lua");

/// Locks held meanwhile.
const LOCKS: usize = 1_000;
/// Who listens to the channel that is published to.
const LISTENERS: usize = 16;
/// How often an operation is performed: several rounds of Lua's collector.
pub const TIMES: u64 = 8 * CHUNK as u64;

/// A way to run scripts, and the command that chooses it. One row more for each further way.
const TIERS: &[(&str, &str)] =
    &[("lua", "CONFIG SET script-plans no"), ("plan", "CONFIG SET script-plans yes")];

/// What is counted.
pub struct Operation {
    /// In words; with the tier, if it is a script.
    pub name: String,
    script: &'static str,
    tier: &'static str,
    before: &'static str,
    work: &'static str,
    after: &'static str,
    replies: String,
}

/// Every operation. In a script's, `{sha}` is its digest.
pub fn all() -> Vec<Operation> {
    let mut all = Vec::new();
    for (tier, choose) in TIERS {
        let scripts = [
            script("redisson lock", LOCK, "EVALSHA {sha} 1 {fresh} 30000 {owner}", "$-1\r\n")
                .after("DEL {fresh}"),
            script(
                "redisson unlock",
                UNLOCK,
                "EVALSHA {sha} 2 {fresh} redisson_lock__channel:{{fresh}} 0 30000 {owner}",
                ":1\r\n",
            )
            .before("HSET {fresh} {owner} 1; PEXPIRE {fresh} 30000"),
            script("redisson renew", RENEW, "EVALSHA {sha} 1 {hash} 30000 {owner}", ":1\r\n"),
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
            .before("SET {fresh} {owner} NX PX 30000"),
        ];
        all.extend(
            scripts
                .map(|it| Operation { name: format!("{}, {tier}", it.name), ..it }.run_in(choose)),
        );
    }
    all.extend([
        plain("ping", "PING", "+PONG\r\n"),
        plain("get", "GET {string}", "$38\r\n0d9f4c5e-9a53-4a39-9b0b-6a2f53c1a7c4:1\r\n"),
        plain("set px", "SET {string} {owner} PX 30000", "+OK\r\n"),
        plain("set nx px", "SET {fresh} {owner} NX PX 30000", "+OK\r\n").after("DEL {fresh}"),
        plain("del", "DEL {fresh}", ":1\r\n").before("SET {fresh} {owner} PX 30000"),
        plain("publish to nobody", "PUBLISH nobody 0", ":0\r\n"),
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
        before: "",
        work,
        after: "",
        replies: replies.to_owned(),
    }
}

impl Operation {
    fn before(self, before: &'static str) -> Operation {
        Operation { before, ..self }
    }

    fn after(self, after: &'static str) -> Operation {
        Operation { after, ..self }
    }

    fn run_in(self, tier: &'static str) -> Operation {
        Operation { tier, ..self }
    }

    /// Performs it [`TIMES`] times, and a few times before that so that everything has its place.
    /// `around` is called for each chunk, with the work itself.
    pub fn perform(&self, around: impl FnMut(&mut dyn FnMut())) {
        let mut stage = Stage::new(LOCKS);
        stage.subscribe("channel", LISTENERS);
        stage.hold_once(self.tier);
        let sha = match self.script {
            "" => String::new(),
            script => stage.load(script),
        };
        let work = self.work.replace("{sha}", &sha);
        let conversation =
            Conversation::new(&work, &self.replies).before(self.before).after(self.after);
        stage.warm_up(&conversation);
        stage.perform(&conversation, TIMES, around);
    }
}
