//! A server of several that replicate a log: what it may do while another one leads.
//!
//! - `following` is the change between following and leading, and the effects of a leader.
//!   Begin here.
//! - `held` keeps requests until this server may answer them.
//! - `nodes` shows the nodes to clients; `users` passes users that commands change to all nodes.
//!
//! Rule: a server that follows changes its state by the effects of its leader only.

pub mod following;
pub mod held;
pub mod nodes;
mod users;
