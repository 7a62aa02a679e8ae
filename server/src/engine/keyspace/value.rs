//! What a key can hold. A new type is a variant here and a family of commands.

use crate::engine::keyspace::hash::Hash;
use crate::engine::keyspace::list::List;
use crate::engine::keyspace::set::Set;
use crate::engine::keyspace::sorted_set::SortedSet;
use crate::engine::keyspace::stream::Stream;
use crate::engine::keyspace::string::StringValue;

/// The value of a key.
#[derive(Clone, Debug)]
pub enum Value {
    /// A byte string.
    String(StringValue),
    /// Fields with values.
    Hash(Hash),
    /// Elements in order.
    List(List),
    /// Members, each once.
    Set(Set),
    /// Members with scores.
    SortedSet(SortedSet),
    /// Entries in order, and who is given them.
    Stream(Box<Stream>),
}

/// The type of a value, as `TYPE` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `string`
    String,
    /// `hash`
    Hash,
    /// `list`
    List,
    /// `set`
    Set,
    /// `zset`
    SortedSet,
    /// `stream`
    Stream,
}

/// What can stand behind a key: the type inside one variant of [`Value`].
pub trait Typed: Into<Value> {
    /// The value, if it is of this type.
    fn of(value: &Value) -> Option<&Self>;
    /// The value, if it is of this type.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
}

/// Ties each variant to the type inside it.
macro_rules! typed {
    ($($variant:ident($inner:ty),)*) => {$(
        impl From<$inner> for Value {
            fn from(inner: $inner) -> Value {
                Value::$variant(inner)
            }
        }

        impl Typed for $inner {
            fn of(value: &Value) -> Option<&Self> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }

            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }
        }
    )*};
}

typed! {
    String(StringValue),
    Hash(Hash),
    List(List),
    Set(Set),
    SortedSet(SortedSet),
    Stream(Box<Stream>),
}

impl Value {
    /// The type of this value.
    pub fn kind(&self) -> Kind {
        match self {
            Value::String(_) => Kind::String,
            Value::Hash(_) => Kind::Hash,
            Value::List(_) => Kind::List,
            Value::Set(_) => Kind::Set,
            Value::SortedSet(_) => Kind::SortedSet,
            Value::Stream(_) => Kind::Stream,
        }
    }

    /// The name `OBJECT ENCODING` answers with.
    pub fn encoding(&self) -> &'static str {
        match self {
            Value::String(value) => value.encoding(),
            Value::Hash(value) => value.encoding(),
            Value::List(value) => value.encoding(),
            Value::Set(value) => value.encoding(),
            Value::SortedSet(value) => value.encoding(),
            Value::Stream(value) => value.encoding(),
        }
    }
}

impl Kind {
    /// The name `TYPE` answers with.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Stream => "stream",
        }
    }
}
