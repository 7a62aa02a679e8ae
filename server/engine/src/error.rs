//! What a client is told when a command cannot be done: every error line of the engine, in Redis's
//! exact words.

use std::borrow::Cow;
use std::fmt;

use lockwheel_resp::Reply;

/// A refusal. Its `Display` is the line a client receives, without the leading dash.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The key holds another type than the command is for.
    WrongType,
    /// Options that do not fit together or that nobody knows.
    Syntax,
    /// An argument that should be a signed 64-bit integer is not.
    NotAnInteger,
    /// An argument or value that should be a float is not.
    NotAFloat,
    /// `EXPIRE` and friends: the deadline does not fit the clock. Holds the command's name.
    InvalidExpire(&'static str),
    /// Too few or too many arguments. Holds the full name (`client|id`).
    Arity(String),
    /// No such command; holds its name and the first arguments as the client wrote them.
    UnknownCommand(Box<[String; 2]>),
    /// No such subcommand; holds the subcommand and the command, in capitals.
    UnknownSubcommand(Box<[String; 2]>),
    /// `AUTH` comes first.
    NoAuth,
    /// A script has run past `busy-reply-threshold`.
    Busy,
    /// A function has.
    BusyFunction,
    /// The command changes data and the script or command calling it promised not to.
    ReadOnlyScript,
    /// `EVALSHA` of a script that is not cached.
    NoScript,
    /// A subscribed RESP2 client sent something else than subscriptions. Holds the full name.
    SubscribedContext(String),
    /// The command may not stand between `MULTI` and `EXEC`.
    NotInTransaction,
    /// The transaction had an error while it was queued.
    ExecAbort,
    /// Data would outgrow the memory it may use.
    OutOfMemory,
    /// An operation that would put an integer out of range.
    Overflow,
    /// A sum that is no number any more.
    NotFinite,
    /// Keys of different slots where a cluster wants one.
    CrossSlot,
    /// What only a node of a cluster can do.
    NoCluster,
    /// The named key does not exist.
    NoSuchKey,
    /// An index or database number outside what exists.
    OutOfRange(&'static str),
    /// Any other line, its code first.
    Line(Cow<'static, str>),
}

impl Error {
    /// A line that never varies.
    pub const fn line(text: &'static str) -> Error {
        Error::Line(Cow::Borrowed(text))
    }

    /// A line made for the occasion.
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
            Error::UnknownCommand(said) => {
                let [name, args] = &**said;
                write!(f, "ERR unknown command '{name}', with args beginning with: {args}")
            }
            Error::UnknownSubcommand(said) => {
                let [name, command] = &**said;
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
            Error::Overflow => f.write_str("ERR increment or decrement would overflow"),
            Error::NotFinite => f.write_str("ERR increment would produce NaN or Infinity"),
            Error::CrossSlot => {
                f.write_str("CROSSSLOT Keys in request don't hash to the same slot")
            }
            Error::NoCluster => f.write_str("ERR This instance has cluster support disabled"),
            Error::NoSuchKey => f.write_str("ERR no such key"),
            Error::OutOfRange(what) => write!(f, "ERR {what} is out of range"),
            Error::Line(line) => f.write_str(line),
        }
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Reply {
        Reply::error(error.to_string())
    }
}
