//! Users and what they may do, as Redis's access control lists define it.
//!
//! - `users` has all users; `user` is one, with its `selector`s; `rules` reads and writes rules.
//!   Begin with `user`.
//! - `permissions` is the check of a command; `access` is what a connection may do; `log` has the
//!   refusals; `file` reads the ACL file.
//!
//! Rule: a [`User`] is a value that never changes: a change replaces it in [`Users`], and the
//! engine passes the new one to the connections of the old one. Passwords are kept as SHA-256 only.

mod access;
pub(crate) mod file;
pub(crate) mod log;
pub(crate) mod permissions;
mod rules;
mod selector;
pub(crate) mod user;
mod users;

pub(crate) use access::AccessControl;
pub use access::Identity;
pub use file::{AclFile, AclFileReader, WriteFailed};
pub(crate) use log::Reason;
pub(crate) use permissions::Request;
pub use permissions::{Channels, Denial};
pub use rules::{ConfiguredUser, RuleError, merge_selectors};
pub(crate) use rules::{has_blanks, shown, unmatched};
pub(crate) use selector::Selector;
pub(crate) use user::ReadableKeys;
pub use user::User;
pub use users::{DEFAULT_USER, Users};
