//! What `LMPOP`, `ZMPOP` and those that wait like them share: how their arguments are read, and
//! that the first key with something in it gives it.

use lockwheel_resp::Reply;

use super::at_least;
use crate::context::{Context, is};
use crate::error::Error;

/// Takes so many from an end of what a key holds; `None` if there is nothing.
type Pop<E> = fn(&mut Context<'_>, &[u8], E, usize) -> Result<Option<Reply>, Error>;

/// What is asked for. `E` says from which end.
pub struct MultiPop<'a, E> {
    /// Where to look, in this order.
    pub keys: &'a [&'a [u8]],
    end: E,
    count: usize,
}

impl<'a, E: Copy> MultiPop<'a, E> {
    /// Reads `numkeys key [key ...] <end> [COUNT count]`; `end` reads its word.
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

    /// The first key in which there is something, with what `pop` took from it.
    pub fn run(&self, context: &mut Context<'_>, pop: Pop<E>) -> Result<Option<Reply>, Error> {
        for key in self.keys {
            if let Some(popped) = pop(context, key, self.end, self.count)? {
                return Ok(Some(Reply::Array(vec![Reply::bulk(key), popped])));
            }
        }
        Ok(None)
    }
}
