//! Reads single arguments.

use lockwheel_resp::number;

use crate::error::Error;

/// Reads an integer argument.
pub fn integer(argument: &[u8]) -> Result<i64, Error> {
    match number::parse_integer(argument) {
        Some(integer) => Ok(integer),
        None => Err(Error::NotAnInteger),
    }
}

/// Reads an integer argument that must not be negative.
pub fn unsigned(argument: &[u8]) -> Result<u64, Error> {
    u64::try_from(integer(argument)?).map_err(|_| Error::NotAnInteger)
}

/// Whether an argument is the option `word`, ignoring case.
pub fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// The value that an argument names, if it is one of these words, ignoring case.
pub fn one_of<T, const N: usize>(argument: &[u8], values: [(&str, T); N]) -> Option<T> {
    let named = values.into_iter().find(|(word, _)| is(argument, word));
    named.map(|(_, value)| value)
}
