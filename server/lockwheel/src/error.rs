//! Errors of the library. Error replies to clients are in [`lockwheel_engine::error`].

use std::fmt;
use std::io;

/// An error of the library. Its text is for people; programs compare [`Error::kind`].
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<io::Error>,
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting is invalid.
    Config,
    /// A socket, thread or file could not be created.
    Io,
    /// The call has an invalid argument, such as a command without a name.
    Usage,
    /// The reply to a command is an error. The text of the error is its line.
    Reply,
    /// The server has ended.
    Stopped,
    /// The engine has failed because of a bug, and runs no further command.
    Failed,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Error {
        Error { kind: ErrorKind::Io, message: source.to_string(), source: Some(source) }
    }
}
