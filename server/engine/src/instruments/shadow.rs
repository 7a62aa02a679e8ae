//! A second engine that receives the effects of the first one and nothing else. After every unit
//! both must have the same state. A difference is a defect: a change without an effect, or an
//! effect that is applied in another way. It ends the engine.

use std::collections::BTreeSet;

use crate::Engine;
use crate::engine::inputs::Process;
use crate::settings::{Permission, Settings};
use crate::store::apply::ApplyError;
use crate::store::effects::{Effect, Effects};
use crate::timing::time::Time;

/// A second engine, to compare the states.
pub struct Shadow {
    engine: Engine,
    /// The bytes by which the comparisons of whole states have exceeded their average.
    excess_bytes: usize,
}

/// The bytes that comparisons of whole states may take for each unit, on average: a small state is
/// compared after each unit. After the other units, only the keys that they have changed are.
const STATE_BYTES_PER_UNIT: usize = 16 * 1024;

impl Shadow {
    /// A shadow of an engine without keys; `None` if effects are not verified.
    pub fn of(settings: &Settings, time: Time, seed: [u64; 4]) -> Option<Box<Shadow>> {
        if !settings.verify_effects {
            return None;
        }
        let mut settings = settings.clone();
        settings.verify_effects = false;
        settings.enable_test_commands = Permission::No;
        let mut engine = Engine::new(settings, Process::default(), time, seed);
        // Keys expire by effects.
        engine.writer.set_active_expiry(false);
        Some(Box::new(Shadow { engine, excess_bytes: 0 }))
    }

    /// Applies effects that the first engine has applied too.
    pub(crate) fn apply(&mut self, effects: &[u8], time: Time) -> Result<(), ApplyError> {
        self.engine.apply(effects, time)
    }

    /// Removes everything, as the first engine has.
    pub(crate) fn clear(&mut self, time: Time) -> Result<(), ApplyError> {
        self.engine.clear_state(time)
    }

    /// Applies the effects of a unit and compares the states.
    pub(crate) fn follow(&mut self, effects: &Effects, leader: &Engine, time: Time) {
        if let Err(error) = self.engine.apply(effects.bytes(), time) {
            panic!("effects cannot be applied ({error:?}): {:?}", describe(effects));
        }
        self.excess_bytes = self.excess_bytes.saturating_sub(STATE_BYTES_PER_UNIT);
        let agrees = match self.excess_bytes {
            0 => self.agrees(leader),
            _ => self.agrees_on_changed_keys(effects, leader),
        };
        if !agrees {
            panic!(
                "the state differs from its effects {:?}: {}",
                describe(effects),
                self.difference(leader)
            );
        }
    }

    fn agrees(&mut self, leader: &Engine) -> bool {
        let [ours, theirs] = [&self.engine, leader].map(|engine| {
            (engine.writer.state().canonical(), engine.writer.keyspace().plain_keys())
        });
        self.excess_bytes = theirs.0.len();
        ours == theirs
    }

    fn agrees_on_changed_keys(&self, effects: &Effects, leader: &Engine) -> bool {
        let mut places = BTreeSet::new();
        for (place, effect) in effects.iter().filter(|(_, effect)| effect.changes_state()) {
            places.insert((place.database, place.key));
            if let Effect::Moved { database, key } | Effect::Copied { database, key } = effect {
                places.insert((database, key));
            }
        }
        let contents = |engine: &Engine, &(database, key): &(usize, &[u8])| {
            let keyspace = engine.writer.keyspace();
            (keyspace.contents_of(database, key), keyspace.is_plain(database, key))
        };
        places.iter().all(|place| contents(&self.engine, place) == contents(leader, place))
    }

    /// The first key whose contents differ, or a general remark.
    fn difference(&self, leader: &Engine) -> String {
        let (ours, theirs) = (self.engine.writer.keyspace(), leader.writer.keyspace());
        for number in 0..theirs.count() {
            let keys = |engine: &Engine| -> BTreeSet<Vec<u8>> {
                let records = engine.writer.keyspace().database(number).records();
                records.iter().map(|(key, _)| key.to_vec()).collect()
            };
            for key in keys(leader).union(&keys(&self.engine)) {
                let (had, have) = (theirs.contents_of(number, key), ours.contents_of(number, key));
                if had != have {
                    let key = key.escape_ascii();
                    return format!("key {key} of database {number}: {had:?}, by effects {have:?}");
                }
            }
        }
        "the plain keys, the function libraries, the users or the last token differ".to_owned()
    }
}

fn describe(effects: &Effects) -> Vec<String> {
    let describe = |(place, effect): (crate::store::effects::Place<'_>, Effect<'_>)| {
        format!("{} {}: {effect:?}", place.database, place.key.escape_ascii())
    };
    effects.iter().map(describe).take(20).collect()
}
