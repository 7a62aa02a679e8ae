//! The values a key can hold. A new type is a variant here and a family of commands.

use crate::store::garbage::free_end;
use crate::store::hash::{Fields, Hash};
use crate::store::list::List;
use crate::store::lock::Lock;
use crate::store::set::Set;
use crate::store::sorted_set::SortedSet;
use crate::store::stream::Stream;
use crate::store::string_value::{StringValue, Text};

/// An owned value: one that moves between keys, or is too large for a record.
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
    /// Entries in order, and the consumer groups that read them.
    Stream(Box<Stream>),
    /// The owners of a lock.
    Lock(Box<Lock>),
}

/// A borrowed value, wherever it is stored.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is the variant of `Value` of that name")]
pub enum ValueRef<'a> {
    String(Text<'a>),
    Hash(Fields<'a>),
    List(&'a List),
    Set(&'a Set),
    SortedSet(&'a SortedSet),
    Stream(&'a Stream),
    Lock(&'a Lock),
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
    /// `lock`
    Lock,
}

/// A type that can be stored at a key: the type inside one variant of [`Value`].
pub trait Typed {
    /// The read-only view of such a value.
    type View<'a>: Copy;

    /// The value, if it is of this type.
    fn of(value: ValueRef<'_>) -> Option<Self::View<'_>>;
}

/// A type of values that are never stored inside the record of their key, so that they can be
/// changed in place.
pub trait OutOfLine: Typed + Into<Value> {
    /// The value, if it is of this type.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
}

/// Ties each variant to the type inside it.
macro_rules! typed {
    ($($variant:ident($inner:ty) seen as $view:ty,)*) => {$(
        impl From<$inner> for Value {
            fn from(inner: $inner) -> Value {
                Value::$variant(inner)
            }
        }

        impl Typed for $inner {
            type View<'a> = $view;

            fn of(value: ValueRef<'_>) -> Option<Self::View<'_>> {
                match value {
                    ValueRef::$variant(view) => Some(view),
                    _ => None,
                }
            }
        }
    )*};
}

macro_rules! out_of_line {
    ($($variant:ident($inner:ty),)*) => {$(
        impl OutOfLine for $inner {
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
    String(StringValue) seen as Text<'a>,
    Hash(Hash) seen as Fields<'a>,
    List(List) seen as &'a List,
    Set(Set) seen as &'a Set,
    SortedSet(SortedSet) seen as &'a SortedSet,
    Stream(Box<Stream>) seen as &'a Stream,
    Lock(Box<Lock>) seen as &'a Lock,
}

out_of_line! {
    List(List),
    Set(Set),
    SortedSet(SortedSet),
    Stream(Box<Stream>),
    Lock(Box<Lock>),
}

impl Value {
    /// A read-only view of the value.
    pub fn view(&self) -> ValueRef<'_> {
        match self {
            Value::String(value) => ValueRef::String(value.text()),
            Value::Hash(value) => ValueRef::Hash(value.fields()),
            Value::List(value) => ValueRef::List(value),
            Value::Set(value) => ValueRef::Set(value),
            Value::SortedSet(value) => ValueRef::SortedSet(value),
            Value::Stream(value) => ValueRef::Stream(value),
            Value::Lock(value) => ValueRef::Lock(value),
        }
    }
}

// --- freeing ---

impl Value {
    /// About how many items are freed with it, one by one.
    pub(super) fn items(&self) -> usize {
        match self {
            Value::String(_) | Value::Hash(Hash::Small(_)) | Value::Set(Set::Integers(_)) => 1,
            Value::Hash(Hash::Large(fields)) => fields.len(),
            Value::List(list) => list.len(),
            Value::Set(set) => set.len(),
            Value::SortedSet(set) => set.len(),
            Value::Stream(stream) => stream.items(),
            Value::Lock(lock) => lock.stored().len(),
        }
    }

    /// Frees up to `budget` parts of a value that is no longer used. Returns whether there are
    /// more.
    pub(super) fn free_part(&mut self, budget: &mut usize) -> bool {
        match self {
            Value::String(_)
            | Value::Hash(Hash::Small(_))
            | Value::Set(Set::Integers(_))
            | Value::Lock(_) => false,
            Value::Hash(Hash::Large(fields)) => fields.free_part(budget),
            Value::List(list) => list.free_part(budget),
            Value::Set(Set::Small(members)) => free_end(members, budget),
            Value::Set(Set::Large(members)) => members.free_part(budget),
            Value::SortedSet(SortedSet::Small(members)) => free_end(members, budget),
            Value::SortedSet(SortedSet::Large(large)) => large.free_part(budget),
            Value::Stream(stream) => stream.free_part(budget),
        }
    }
}

impl ValueRef<'_> {
    /// An owned copy.
    pub fn to_value(self) -> Value {
        match self {
            ValueRef::String(value) => value.to_string_value().into(),
            ValueRef::Hash(value) => value.to_hash().into(),
            ValueRef::List(value) => value.clone().into(),
            ValueRef::Set(value) => value.clone().into(),
            ValueRef::SortedSet(value) => value.clone().into(),
            ValueRef::Stream(value) => Box::new(value.clone()).into(),
            ValueRef::Lock(value) => Box::new(value.clone()).into(),
        }
    }

    /// The type of this value.
    pub fn kind(self) -> Kind {
        match self {
            ValueRef::String(_) => Kind::String,
            ValueRef::Hash(_) => Kind::Hash,
            ValueRef::List(_) => Kind::List,
            ValueRef::Set(_) => Kind::Set,
            ValueRef::SortedSet(_) => Kind::SortedSet,
            ValueRef::Stream(_) => Kind::Stream,
            ValueRef::Lock(_) => Kind::Lock,
        }
    }

    /// The name that `OBJECT ENCODING` replies with.
    pub fn encoding(self) -> &'static str {
        match self {
            ValueRef::String(value) => value.encoding(),
            ValueRef::Hash(value) => value.encoding(),
            ValueRef::List(value) => value.encoding(),
            ValueRef::Set(value) => value.encoding(),
            ValueRef::SortedSet(value) => value.encoding(),
            ValueRef::Stream(value) => value.encoding(),
            ValueRef::Lock(_) => "lock",
        }
    }
}

impl Kind {
    /// The name that `TYPE` replies with.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Stream => "stream",
            Kind::Lock => "lock",
        }
    }
}
