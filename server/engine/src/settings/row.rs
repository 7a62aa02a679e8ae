//! The row of a directive, its constant, and how to find a row by name.

use std::marker::PhantomData;

use super::directive::WITH_EFFECT;
use super::field::{Setting, typed};
use super::value::ValueKind::{Choice, Int, Memory};
use super::without_effect::WITHOUT_EFFECT;
use super::{Permission, Settings, Value, ValueKind, directive};

/// A directive with an effect. Its value has the type `T`.
#[derive(Debug)]
pub struct Directive<T> {
    pub(super) row: &'static Row,
    pub(super) value: PhantomData<fn() -> T>,
}

impl<T> Clone for Directive<T> {
    fn clone(&self) -> Directive<T> {
        *self
    }
}

impl<T> Copy for Directive<T> {}

impl<T> Directive<T> {
    /// Its row.
    pub const fn row(self) -> &'static Row {
        self.row
    }
}

impl<T: Setting> Directive<T> {
    pub(super) fn default_value(self) -> T {
        typed(&self.row.default_value())
    }
}

/// What is known of a directive.
#[derive(Debug)]
pub struct Row {
    /// The name in Redis 7.2.
    pub name: &'static str,
    /// An older name that is still accepted.
    pub alias: Option<&'static str>,
    /// The kind of its value.
    pub kind: ValueKind,
    /// The default value as it is printed.
    pub default: &'static str,
    /// Whether it can change while the server runs.
    pub mutability: Mutability,
    /// Which part of the server uses it.
    pub usage: Usage,
    /// Whether its value must not be logged.
    pub is_sensitive: bool,
    /// Whether it is a directive of this server, which Redis does not have.
    pub is_own: bool,
    /// Its documentation: a phrase for the configuration reference.
    pub doc: &'static str,
}

/// Whether a directive can change while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutability {
    /// Yes.
    Live,
    /// Only if `enable-protected-configs` permits it.
    Protected,
    /// No, but `CONFIG SET` accepts the value that it has.
    AtStart,
    /// No.
    Fixed,
}

/// Which part of the server uses a directive.
#[derive(Clone, Copy, Debug)]
pub enum Usage {
    /// The engine uses it: a field of [`Settings`].
    Used(Access),
    /// A layer above the engine uses it: sockets, threads, files, the log. Read with
    /// [`Settings::get`].
    Process,
    /// Accepted and shown by `CONFIG GET`, without any effect on a lock server.
    Accepted,
    /// Without a log only the default is accepted, except at the start: many launchers pass such
    /// options, so the value is then dropped with a warning. Clients see the default, which is what
    /// applies.
    NeedsLog,
    /// Only the default is accepted. Accepting another value without effect would suggest a
    /// protection or a role that the server does not have.
    Unsupported,
}

/// How to access the field of a directive in [`Settings`].
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Reads the field.
    pub get: fn(&Settings) -> Value,
    /// Sets the field to a value that the directive's kind has read.
    pub set: fn(&mut Settings, &Value),
}

impl Row {
    /// The value in these settings.
    pub fn value(&self, settings: &Settings) -> Value {
        match self.usage {
            Usage::Used(access) => (access.get)(settings),
            _ => settings.kept.get(self.name).cloned().unwrap_or_else(|| self.default_value()),
        }
    }

    fn default_value(&self) -> Value {
        self.kind.read(&[self.default]).expect("a default that its kind reads")
    }

    /// Whether its value is the password of the default user.
    pub(crate) fn sets_default_password(&self) -> bool {
        self == directive::REQUIREPASS.row
    }

    pub(super) const fn alias(mut self, old: &'static str) -> Row {
        self.alias = Some(old);
        self
    }

    pub(super) const fn own(mut self) -> Row {
        self.is_own = true;
        self
    }

    pub(super) const fn secret(mut self) -> Row {
        self.is_sensitive = true;
        self
    }

    pub(super) const fn used(mut self, access: Access) -> Row {
        self.usage = Usage::Used(access);
        self
    }

    pub(super) const fn unsupported(mut self) -> Row {
        self.usage = Usage::Unsupported;
        self
    }

    pub(super) const fn needs_log(mut self) -> Row {
        self.usage = Usage::NeedsLog;
        self
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        self.name == other.name
    }
}

/// The rows of all directives of Redis 7.2, and of our own.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    WITH_EFFECT.iter().copied().chain(WITHOUT_EFFECT)
}

/// Finds a row by any of its names, ignoring case; returns the name that matched.
pub fn find(name: &str) -> Option<(&'static str, &'static Row)> {
    names().find(|(known, _)| known.eq_ignore_ascii_case(name))
}

/// Every name, including older ones, with its row.
pub fn names() -> impl Iterator<Item = (&'static str, &'static Row)> {
    rows().flat_map(|row| {
        [Some(row.name), row.alias].into_iter().flatten().map(move |name| (name, row))
    })
}

pub(super) const fn row(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    mutability: Mutability,
    usage: Usage,
    doc: &'static str,
) -> Row {
    let (alias, is_sensitive, is_own) = (None, false, false);
    Row { name, alias, kind, default, mutability, usage, is_sensitive, is_own, doc }
}

/// The largest C `int`: the maximum of most counts.
pub(super) const INT_MAX: i64 = i32::MAX as i64;
/// The largest size that Redis accepts.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64;

pub(super) const INT: ValueKind = Int(0, INT_MAX);
pub(super) const LONG: ValueKind = Int(0, i64::MAX);
pub(super) const SIZE: ValueKind = Memory(0, SIZE_MAX);
pub(super) const PERMISSION: ValueKind = Choice(Permission::NAMES);
