//! The errors that clients get: every error line of the engine, in Redis's exact words.

use std::borrow::Cow;
use std::fmt;

use lockwheel_resp::Reply;

/// An error reply. `Display` writes the line for the client, without the leading dash.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The key holds a value of another type than the command works on.
    WrongType,
    /// Unknown or conflicting options.
    Syntax,
    /// An argument is not a signed 64-bit integer.
    NotAnInteger,
    /// An argument or value is not a valid float.
    NotAFloat,
    /// The deadline of `EXPIRE` or a similar command is out of range. Holds the command's name.
    InvalidExpire(&'static str),
    /// Wrong number of arguments. Holds the full name (`client|id`).
    Arity(String),
    /// Unknown command. Holds its name and the first arguments as the client sent them.
    UnknownCommand(Box<[String; 2]>),
    /// Unknown subcommand. Holds the subcommand, and the command in upper case.
    UnknownSubcommand(Box<[String; 2]>),
    /// The client has to authenticate first.
    NoAuth,
    /// A script runs longer than `busy-reply-threshold`.
    Busy,
    /// A function runs longer than `busy-reply-threshold`.
    BusyFunction,
    /// A write was called by a script or command that is declared read-only.
    ReadOnlyScript,
    /// A command that only a leader serves, on a server that follows.
    ReadOnlyReplica,
    /// A read on a server that follows, while it cannot reach the leader.
    NoLeader,
    /// `EVALSHA` of a script that is not cached.
    NoScript,
    /// A subscribed RESP2 client sent another command than subscriptions. Holds the full name.
    SubscribedContext(String),
    /// The command is not allowed between `MULTI` and `EXEC`.
    NotInTransaction,
    /// A command of the transaction could not be queued.
    ExecAbort,
    /// Memory use exceeds `maxmemory`.
    OutOfMemory,
    /// The disk of the log is full.
    DiskFull,
    /// The result of an integer operation is out of range.
    Overflow,
    /// The result of a float operation is not finite.
    NotFinite,
    /// In a cluster, the keys of a request have different slots.
    CrossSlot,
    /// The command needs a cluster.
    NoCluster,
    /// The named key does not exist.
    NoSuchKey,
    /// An index or database number is out of range.
    OutOfRange(&'static str),
    /// The line with which a script or a library was refused.
    Script(Box<[u8]>),
    /// Any other line, with its code.
    Line(Cow<'static, str>),
}

impl Error {
    /// A constant line.
    pub const fn line(text: &'static str) -> Error {
        Error::Line(Cow::Borrowed(text))
    }

    /// A refusal of a script or a library, which is an error.
    pub fn refused(refusal: Reply) -> Error {
        let Reply::Error(line) = refusal else { unreachable!("a refusal is an error") };
        Error::Script(line.as_ref().into())
    }

    /// A formatted line.
    pub fn text(text: impl Into<String>) -> Error {
        Error::Line(Cow::Owned(text.into()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::WrongType => {
                f.write_str("WRONGTYPE Operation against a key holding the wrong kind of value")
            }
            Error::Syntax => f.write_str("ERR syntax error"),
            Error::NotAnInteger => f.write_str("ERR value is not an integer or out of range"),
            Error::NotAFloat => f.write_str("ERR value is not a valid float"),
            Error::InvalidExpire(name) => write!(f, "ERR invalid expire time in '{name}' command"),
            Error::Arity(name) => {
                write!(f, "ERR wrong number of arguments for '{name}' command")
            }
            Error::UnknownCommand(names) => {
                let [name, args] = &**names;
                write!(f, "ERR unknown command '{name}', with args beginning with: {args}")
            }
            Error::UnknownSubcommand(names) => {
                let [name, command] = &**names;
                write!(f, "ERR unknown subcommand '{name}'. Try {command} HELP.")
            }
            Error::NoAuth => f.write_str("NOAUTH Authentication required."),
            Error::Busy => f.write_str(
                "BUSY Redis is busy running a script. \
                 You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            ),
            Error::BusyFunction => f.write_str(
                "BUSY Redis is busy running a script. \
                 You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
            ),
            Error::ReadOnlyScript => {
                f.write_str("ERR Write commands are not allowed from read-only scripts.")
            }
            Error::ReadOnlyReplica => {
                f.write_str("READONLY You can't write against a read only replica.")
            }
            Error::NoLeader => f.write_str(
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            ),
            Error::NoScript => f.write_str("NOSCRIPT No matching script. Please use EVAL."),
            Error::SubscribedContext(name) => write!(
                f,
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / \
                 QUIT / RESET are allowed in this context"
            ),
            Error::NotInTransaction => f.write_str("ERR Command not allowed inside a transaction"),
            Error::ExecAbort => {
                f.write_str("EXECABORT Transaction discarded because of previous errors.")
            }
            Error::OutOfMemory => {
                f.write_str("OOM command not allowed when used memory > 'maxmemory'.")
            }
            Error::DiskFull => {
                f.write_str("MISCONF Errors writing to the AOF file: No space left on device")
            }
            Error::Overflow => f.write_str("ERR increment or decrement would overflow"),
            Error::NotFinite => f.write_str("ERR increment would produce NaN or Infinity"),
            Error::CrossSlot => {
                f.write_str("CROSSSLOT Keys in request don't hash to the same slot")
            }
            Error::NoCluster => f.write_str("ERR This instance has cluster support disabled"),
            Error::NoSuchKey => f.write_str("ERR no such key"),
            Error::OutOfRange(what) => write!(f, "ERR {what} is out of range"),
            Error::Script(line) => f.write_str(&String::from_utf8_lossy(line)),
            Error::Line(line) => f.write_str(line),
        }
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Reply {
        match error {
            Error::Script(line) => Reply::Error(line.into()),
            error => Reply::error(error.to_string()),
        }
    }
}
