//! `LMPOP`, `ZMPOP` and their blocking variants: the arguments, and the choice of the first key
//! that is not empty.

use lockwheel_resp::Reply;

use super::at_least;
use crate::command::is;
use crate::error::Error;
use crate::run::context::Context;

/// A function that removes a number of elements from an end of a key; `None` if it has none.
type Pop<E> = fn(&mut Context<'_>, &[u8], E, usize) -> Result<Option<Reply>, Error>;

/// The parsed arguments. `E` is the type of the end.
pub struct MultiPop<'a, E> {
    /// The keys to try, in this order.
    pub keys: &'a [&'a [u8]],
    end: E,
    count: usize,
}

impl<'a, E: Copy> MultiPop<'a, E> {
    /// Parses `numkeys key [key ...] <end> [COUNT count]`; `end` parses the word at `<end>`.
    pub fn read(
        arguments: &'a [&'a [u8]],
        end: fn(&[u8]) -> Result<E, Error>,
    ) -> Result<MultiPop<'a, E>, Error> {
        let keys = at_least(arguments[0], 1, "ERR numkeys should be greater than 0")?;
        let Some((keys, [word, options @ ..])) = arguments[1..].split_at_checked(keys) else {
            return Err(Error::Syntax);
        };
        let end = end(word)?;
        let count = match options {
            [] => 1,
            [option, count, rest @ ..] if is(option, "count") => {
                let count = at_least(count, 1, "ERR count should be greater than 0")?;
                if !rest.is_empty() {
                    return Err(Error::Syntax);
                }
                count
            }
            _ => return Err(Error::Syntax),
        };
        Ok(MultiPop { keys, end, count })
    }

    /// The first key that is not empty, with what `pop` removed from it.
    pub fn run(&self, context: &mut Context<'_>, pop: Pop<E>) -> Result<Option<Reply>, Error> {
        for key in self.keys {
            if let Some(popped) = pop(context, key, self.end, self.count)? {
                return Ok(Some(Reply::Array(vec![Reply::bulk(key), popped])));
            }
        }
        Ok(None)
    }
}
