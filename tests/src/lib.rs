//! The harness: servers to ask, conversations to hold with them.
