//! Random selection for `HRANDFIELD`, `SRANDMEMBER` and `ZRANDMEMBER`: the arguments and the
//! selection.

use crate::command::{integer, is};
use crate::error::Error;
use crate::limits;
use crate::random::Random;

/// The number of members to select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// At most this many distinct members.
    Different(usize),
    /// This many members, which may repeat: the argument was negative.
    Repeating(u64),
}

impl Count {
    /// Parses a count.
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

    /// Parses a count and the optional word `option` after it; returns whether it is there.
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

    /// Selects members: by `different` all at once, by `one` each on its own.
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
