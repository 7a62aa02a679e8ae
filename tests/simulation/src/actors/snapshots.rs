//! A client that orders snapshots.

use lockwheel_compat::random::Random;

use super::Actor;
use crate::core::{Core, Notice};

/// A client that orders snapshots.
pub struct Snapshots {
    client: usize,
    connection: usize,
    random: Random,
}

impl Snapshots {
    pub fn new(core: &mut Core, client: usize) -> Snapshots {
        let connection = core.connect(client, 0, 0);
        let random = Random::of(core.plan.seed, core.plan.roles[client].0);
        core.set_timer(client, 300_000, 0);
        Snapshots { client, connection, random }
    }
}

impl Actor for Snapshots {
    fn notice(&mut self, core: &mut Core, notice: Notice) {
        if let Notice::Timer(_) = notice {
            core.send(self.connection, &["BGREWRITEAOF"]);
            core.set_timer(self.client, self.random.between(20_000, 700_000), 0);
        }
    }
}
