//! Records the inputs of a server while the compatibility suite runs, and replays them on two
//! engines.

use std::sync::PoisonError;

use lockwheel_compat::cases::wrapping::Wrapping;
use lockwheel_compat::{Options, Suite, cases};
use lockwheel_engine::settings::Settings;
use lockwheel_engine::timing::time::Time;

use crate::faulty::{FaultyServer, SEED};
use crate::replay::{Input, Twins};

/// How long each property is run.
const SECONDS: f64 = 0.2;

/// What of the suite is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The cases.
    Cases,
    /// The cases, and the properties unless commands are wrapped.
    Everything,
}

/// Replays what the suite sends; the error shows a difference. Returns the number of inputs.
pub fn compare(part: Part, wrapping: Wrapping) -> Result<u64, String> {
    let inputs = record(part, wrapping)?;
    let Some(&Input::Time { lease_us, wall_us }) = inputs.first() else {
        return Err("the recording begins without a time".to_owned());
    };
    let begin = Time::from_micros(lease_us, wall_us);
    Twins::new(&Settings::default(), begin, SEED).replay(inputs)
}

fn record(part: Part, wrapping: Wrapping) -> Result<Vec<Input>, String> {
    let (server, inputs) = FaultyServer::recorded().map_err(|error| error.to_string())?;
    let mut options = Options::new(&server.url()).map_err(|error| error.to_string())?;
    options.allow_flush = true;
    options.seconds = SECONDS;
    options.wrapping = wrapping;
    if part == Part::Cases {
        options.cases = Some(cases::all().map_err(|mistake| mistake.to_string())?);
    }
    let suite = Suite::new(&options).map_err(|error| error.to_string())?;
    suite.run(&mut ()).map_err(|error| error.to_string())?;
    drop(server);
    Ok(std::mem::take(&mut inputs.lock().unwrap_or_else(PoisonError::into_inner)))
}
