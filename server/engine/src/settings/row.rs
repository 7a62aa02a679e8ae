//! The row of a directive, and how to find one.

use super::table::WITH_EFFECT;
use super::value::ValueKind::{Choice, Int, Memory};
use super::without_effect::WITHOUT_EFFECT;
use super::{Permission, Settings, Value, ValueKind};
use Mutability::Live;

/// A configuration directive.
#[derive(Debug)]
pub struct Directive {
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
    pub role: Role,
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
pub enum Role {
    /// The engine uses it, or a layer above reads it from the engine while it runs.
    Used(Access),
    /// A layer above the engine uses it when the process starts: sockets, threads, files, the log.
    /// The engine keeps its value for `CONFIG`.
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
    pub set: fn(&mut Settings, Value),
}

impl Directive {
    /// The value in these settings.
    pub fn value(&self, settings: &Settings) -> Value {
        match self.role {
            Role::Used(access) => (access.get)(settings),
            _ => settings.kept.get(self.name).cloned().unwrap_or_else(|| self.default_value()),
        }
    }

    fn default_value(&self) -> Value {
        self.kind.read(&[self.default]).expect("a default that its kind reads")
    }

    pub(super) const fn alias(mut self, old: &'static str) -> Directive {
        self.alias = Some(old);
        self
    }

    pub(super) const fn own(mut self) -> Directive {
        self.is_own = true;
        self
    }

    /// Whether its value is the password of the default user.
    pub(crate) fn sets_default_password(&self) -> bool {
        self.name == "requirepass"
    }

    pub(super) const fn secret(mut self) -> Directive {
        self.is_sensitive = true;
        self
    }
}

impl PartialEq for Directive {
    fn eq(&self, other: &Directive) -> bool {
        self.name == other.name
    }
}

/// The rows of all directives of Redis 7.2, and of our own.
pub fn rows() -> impl Iterator<Item = &'static Directive> {
    WITH_EFFECT.iter().chain(WITHOUT_EFFECT)
}

/// Finds a directive by any of its names, ignoring case; returns the name that matched.
pub fn find(name: &str) -> Option<(&'static str, &'static Directive)> {
    names().find(|(known, _)| known.eq_ignore_ascii_case(name))
}

/// Every name, including older ones, with its directive.
pub fn names() -> impl Iterator<Item = (&'static str, &'static Directive)> {
    rows().flat_map(|directive| {
        [Some(directive.name), directive.alias].into_iter().flatten().map(move |n| (n, directive))
    })
}

pub(super) const fn row(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    mutability: Mutability,
    role: Role,
    doc: &'static str,
) -> Directive {
    let (alias, is_sensitive, is_own) = (None, false, false);
    Directive { name, alias, kind, default, mutability, role, is_sensitive, is_own, doc }
}

pub(super) const fn used(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    mutability: Mutability,
    access: Access,
    doc: &'static str,
) -> Directive {
    row(name, kind, default, mutability, Role::Used(access), doc)
}

macro_rules! rows_of_role {
    ($($constructor:ident => $role:ident),*) => {$(
        pub(super) const fn $constructor(
            name: &'static str,
            kind: ValueKind,
            default: &'static str,
            mutability: Mutability,
            doc: &'static str,
        ) -> Directive {
            row(name, kind, default, mutability, Role::$role, doc)
        }
    )*};
}

rows_of_role!(process => Process, accepted => Accepted, unsupported => Unsupported);

pub(super) const fn needs_log(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    doc: &'static str,
) -> Directive {
    row(name, kind, default, Live, Role::NeedsLog, doc)
}

/// The largest C `int`: the maximum of most counts.
pub(super) const INT_MAX: i64 = i32::MAX as i64;
/// The largest size that Redis accepts.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64;

pub(super) const INT: ValueKind = Int(0, INT_MAX);
pub(super) const LONG: ValueKind = Int(0, i64::MAX);
pub(super) const PORT: ValueKind = Int(0, 65535);
pub(super) const SIZE: ValueKind = Memory(0, SIZE_MAX);
pub(super) const PERMISSION: ValueKind = Choice(Permission::NAMES);
