//! The values that a server can send.

use bytes::Bytes;

/// The protocol version of a connection, chosen by `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// RESP2, the version before any `HELLO`.
    #[default]
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

/// A value independent of the protocol version; `encode` writes it in RESP2 or RESP3.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+text`: a status. Holds no CR or LF once encoded.
    Simple(Bytes),
    /// `-text`: an error, its code first (`ERR ...`, `WRONGTYPE ...`), without the dash.
    Error(Bytes),
    /// `:n`
    Integer(i64),
    /// `$len`, binary safe.
    Bulk(Bytes),
    /// No value: `$-1` in RESP2, `_` in RESP3.
    Null,
    /// No array (an aborted `EXEC`, a timed-out blocking pop): `*-1` in RESP2, `_` in RESP3.
    NullArray,
    /// `*n`
    Array(Vec<Reply>),
    /// `%n` in RESP3, a flat array of keys and values in RESP2.
    Map(Vec<(Reply, Reply)>),
    /// `~n` in RESP3, an array in RESP2.
    Set(Vec<Reply>),
    /// `>n` in RESP3, an array in RESP2: pub/sub messages and confirmations.
    Push(Vec<Reply>),
    /// `,n` in RESP3, a bulk string in RESP2.
    Double(f64),
    /// `#t` or `#f` in RESP3, `:1` or `:0` in RESP2.
    Boolean(bool),
    /// `(n` in RESP3, a bulk string in RESP2.
    BigNumber(Bytes),
    /// `=len` with a three-letter format in RESP3, a bulk string in RESP2.
    Verbatim {
        /// `txt` or `mkd`.
        format: [u8; 3],
        /// The text without the format.
        text: Bytes,
    },
    /// Several replies without a header: `SUBSCRIBE a b` sends two. Empty for a command that
    /// replies later, or never.
    Several(Vec<Reply>),
}

impl Reply {
    /// `+OK`
    pub const OK: Reply = Reply::Simple(Bytes::from_static(b"OK"));
    /// The absence of a reply for now.
    pub const NOTHING: Reply = Reply::Several(Vec::new());

    /// A status from a literal.
    pub const fn status(text: &'static str) -> Reply {
        Reply::Simple(Bytes::from_static(text.as_bytes()))
    }

    /// A bulk string copied from `bytes`.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(Bytes::copy_from_slice(bytes.as_ref()))
    }

    /// An error line, its code first.
    pub fn error(line: impl Into<String>) -> Reply {
        Reply::Error(Bytes::from(line.into()))
    }

    /// Whether this is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }
}

impl From<i64> for Reply {
    fn from(value: i64) -> Reply {
        Reply::Integer(value)
    }
}

impl From<bool> for Reply {
    /// `:1` or `:0`, the booleans of almost every Redis command.
    fn from(value: bool) -> Reply {
        Reply::Integer(i64::from(value))
    }
}

impl From<usize> for Reply {
    fn from(value: usize) -> Reply {
        Reply::Integer(i64::try_from(value).unwrap_or(i64::MAX))
    }
}
