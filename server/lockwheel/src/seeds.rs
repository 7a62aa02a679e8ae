//! The seeds of a server's random numbers.

use crate::error::{Error, ErrorKind};

/// Returns the seeds that follow from `seed`, or random ones.
///
/// # Errors
/// If the system has no randomness.
pub(crate) fn seeds(seed: Option<u64>) -> Result<[u64; 4], Error> {
    let mut seeds = [0; 4];
    for (at, place) in seeds.iter_mut().enumerate() {
        *place = match seed {
            Some(seed) => seed.wrapping_add(at as u64),
            None => getrandom::u64()
                .map_err(|error| Error::new(ErrorKind::Io, format!("no randomness: {error}")))?,
        };
    }
    Ok(seeds)
}
