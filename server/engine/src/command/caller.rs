//! How a command was called.

/// How a command was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Directly by a client.
    Client,
    /// Again for a blocked client, since a key that it waits for has changed.
    Waiter,
    /// For a blocked client that waits no longer: it gets the reply of a timeout.
    TimedOutWaiter,
    /// By `EXEC`, for a client.
    Transaction,
    /// By a script, for a client.
    Script,
}
