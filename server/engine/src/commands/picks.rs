//! What `HRANDFIELD`, `SRANDMEMBER` and `ZRANDMEMBER` share: how it is read how many are to be
//! picked at random, and how that is done.

use crate::context::{integer, is};
use crate::error::Error;
use crate::limits;
use crate::random::Random;

/// How many are to be picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// As many different ones as there are, at most so many.
    Different(usize),
    /// So many that may repeat: a negative number was given.
    Repeating(u64),
}

impl Count {
    /// Reads a count.
    pub fn read(argument: &[u8]) -> Result<Count, Error> {
        let count = integer(argument)?;
        match usize::try_from(count) {
            Ok(count) => Ok(Count::Different(count)),
            Err(_) if count == i64::MIN => Err(Error::line(
                "ERR value is out of range, value must between -9223372036854775807 and \
                 9223372036854775807",
            )),
            Err(_) => Ok(Count::Repeating(count.unsigned_abs())),
        }
    }

    /// Reads a count and the `option` that may stand behind it; tells whether it does.
    pub fn read_with(arguments: &[&[u8]], option: &str) -> Result<(Count, bool), Error> {
        let &[count, ref rest @ ..] = arguments else { return Err(Error::Syntax) };
        let count = Count::read(count)?;
        let with = match rest {
            [] => false,
            [word] if is(word, option) => true,
            _ => return Err(Error::Syntax),
        };
        let size = match count {
            Count::Different(count) => count as u64,
            Count::Repeating(count) => count,
        };
        // Twice as many must be countable.
        if with && size > i64::MAX as u64 / 2 {
            return Err(Error::OutOfRange("value"));
        }
        Ok((count, with))
    }

    /// Picks: by `different` so many at once, by `one` each for itself.
    pub fn pick<T>(
        self,
        random: &mut Random,
        different: impl FnOnce(usize, &mut Random) -> Vec<T>,
        one: impl Fn(&mut Random) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        match self {
            Count::Different(count) => Ok(different(count, random)),
            Count::Repeating(count) if count > limits::RANDOM_REPEATS_MAX => {
                Err(Error::OutOfRange("value"))
            }
            Count::Repeating(count) => Ok((0..count).filter_map(|_| one(random)).collect()),
        }
    }
}
