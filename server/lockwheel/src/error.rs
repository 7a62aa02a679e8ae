//! What can go wrong for those who embed a server. What a client is told is
//! [`lockwheel_engine::error`]'s business.

use std::fmt;
use std::io;

/// Why something could not be done. What it prints is for people; programs look at
/// [`Error::kind`].
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<io::Error>,
}

/// What sort of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting is not what it should be.
    Config,
    /// A socket, thread or file could not be had.
    Io,
    /// The call makes no sense: a clock that cannot be moved, a command without a name.
    Usage,
    /// The server has ended.
    Stopped,
    /// The engine hit a bug and refuses to serve what it holds.
    Failed,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    /// What sort of thing went wrong.
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

impl From<crate::net::host::Failed> for Error {
    fn from(_: crate::net::host::Failed) -> Error {
        Error::new(ErrorKind::Failed, "the engine has failed and serves nothing any more")
    }
}
