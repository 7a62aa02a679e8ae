//! What a key can hold. A new type is a variant here and a family of commands.

use crate::engine::keyspace::hash::Hash;
use crate::engine::keyspace::string::StringValue;

/// The value of a key.
#[derive(Clone, Debug)]
pub enum Value {
    /// A byte string.
    String(StringValue),
    /// Fields with values.
    Hash(Hash),
}

/// The type of a value, as `TYPE` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `string`
    String,
    /// `hash`
    Hash,
}

impl Value {
    /// The type of this value.
    pub fn kind(&self) -> Kind {
        match self {
            Value::String(_) => Kind::String,
            Value::Hash(_) => Kind::Hash,
        }
    }

    /// The name `OBJECT ENCODING` answers with.
    pub fn encoding(&self) -> &'static str {
        match self {
            Value::String(value) => value.encoding(),
            Value::Hash(value) => value.encoding(),
        }
    }
}

impl Kind {
    /// The name `TYPE` answers with.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Hash => "hash",
        }
    }
}
