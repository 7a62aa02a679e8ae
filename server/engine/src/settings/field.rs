//! The types of directives: how a [`Value`] becomes one, and how a field of
//! [`Settings`](super::Settings) is shown as a [`Value`].

use std::time::Duration;

use super::types::{
    ChannelDefault, ClientClass, ClientOutputBufferLimits, EndpointType, FlushPolicy, LogFormat,
    LogLevel, MaxmemoryPolicy, MemoryShare, Permission, SavePoint, Secret, Supervised,
    TlsAuthClients,
};
use super::{CompatVersion, Value};
use crate::store::events::Events;
use crate::timing::time::Millis;

/// A type of a directive.
pub trait Setting: Sized {
    /// The value as this type; `None` if it is of another kind.
    fn from_value(value: &Value) -> Option<Self>;
}

/// A type of a directive that can be set.
pub trait Field: Setting {
    /// The value that a directive's kind would read.
    fn to_value(&self) -> Value;

    /// Takes the value, which the directive's kind has read.
    fn assign(&mut self, value: &Value) {
        *self = typed(value);
    }
}

/// The value as the type of its directive. Panics if the kind of a row does not match its type,
/// which is a mistake in the table.
pub(super) fn typed<T: Setting>(value: &Value) -> T {
    T::from_value(value)
        .unwrap_or_else(|| unreachable!("the kind of a row does not match its type: {value:?}"))
}

macro_rules! numbers {
    ($($number:ty => $kind:ident,)*) => {$(
        impl Setting for $number {
            fn from_value(value: &Value) -> Option<$number> {
                match *value {
                    Value::Int(number) => number.try_into().ok(),
                    Value::Memory(bytes) => bytes.try_into().ok(),
                    Value::Octal(bits) => bits.try_into().ok(),
                    _ => None,
                }
            }
        }

        impl Field for $number {
            fn to_value(&self) -> Value {
                Value::$kind((*self).into())
            }
        }
    )*};
}

numbers! {
    u16 => Int,
    u32 => Int,
    i32 => Int,
    i64 => Int,
    u64 => Memory,
}

macro_rules! choices {
    ($($choice:ty),*) => {$(
        impl Setting for $choice {
            fn from_value(value: &Value) -> Option<$choice> {
                match value {
                    Value::Text(name) => <$choice>::from_name(name),
                    _ => None,
                }
            }
        }

        impl Field for $choice {
            fn to_value(&self) -> Value {
                Value::Text(self.name().into())
            }
        }
    )*};
}

choices!(
    ChannelDefault,
    CompatVersion,
    EndpointType,
    FlushPolicy,
    LogFormat,
    LogLevel,
    MaxmemoryPolicy,
    Permission,
    Supervised,
    TlsAuthClients
);

macro_rules! plain {
    ($($type:ty => $kind:ident,)*) => {$(
        impl Setting for $type {
            fn from_value(value: &Value) -> Option<$type> {
                match value {
                    Value::$kind(inner) => Some(inner.clone()),
                    _ => None,
                }
            }
        }

        impl Field for $type {
            fn to_value(&self) -> Value {
                Value::$kind(self.clone())
            }
        }
    )*};
}

plain! {
    bool => Bool,
    Millis => Span,
    String => Text,
    Vec<String> => Words,
    Vec<SavePoint> => SavePoints,
    Events => Events,
}

impl Setting for Duration {
    fn from_value(value: &Value) -> Option<Duration> {
        match *value {
            Value::Seconds(number) => Some(Duration::from_secs(number)),
            Value::Milliseconds(number) => Some(Duration::from_millis(number)),
            _ => None,
        }
    }
}

/// A negative time means none.
impl Setting for Option<Millis> {
    fn from_value(value: &Value) -> Option<Option<Millis>> {
        i64::from_value(value).map(|time_ms| (time_ms >= 0).then_some(Millis(time_ms)))
    }
}

impl Field for Option<Millis> {
    fn to_value(&self) -> Value {
        Value::Int(self.map_or(-1, |Millis(time_ms)| time_ms))
    }
}

/// An empty text means none.
impl Setting for Option<String> {
    fn from_value(value: &Value) -> Option<Option<String>> {
        String::from_value(value).map(|text| Some(text).filter(|text| !text.is_empty()))
    }
}

impl Field for Option<String> {
    fn to_value(&self) -> Value {
        Value::Text(self.clone().unwrap_or_default())
    }
}

/// An empty password means none.
impl Setting for Option<Secret> {
    fn from_value(value: &Value) -> Option<Option<Secret>> {
        Option::<String>::from_value(value).map(|text| text.map(Secret::new))
    }
}

impl Field for Option<Secret> {
    fn to_value(&self) -> Value {
        Value::Text(self.as_ref().map(|secret| secret.expose().into()).unwrap_or_default())
    }
}

impl Setting for MemoryShare {
    fn from_value(value: &Value) -> Option<MemoryShare> {
        match value {
            Value::Memory(bytes) => Some(MemoryShare::Bytes(*bytes)),
            Value::Text(text) => text.strip_suffix('%')?.parse().ok().map(MemoryShare::Percent),
            _ => None,
        }
    }
}

impl Field for MemoryShare {
    fn to_value(&self) -> Value {
        match self {
            MemoryShare::Bytes(bytes) => Value::Memory(*bytes),
            MemoryShare::Percent(percent) => Value::Text(format!("{percent}%")),
        }
    }
}

/// Classes that are not named have no limit.
impl Setting for ClientOutputBufferLimits {
    fn from_value(value: &Value) -> Option<ClientOutputBufferLimits> {
        let Value::BufferLimits(named) = value else { return None };
        let mut limits = ClientOutputBufferLimits::default();
        named.iter().for_each(|&(class, limit)| limits.set(class, limit));
        Some(limits)
    }
}

/// Assigning does not change the classes that are not named.
impl Field for ClientOutputBufferLimits {
    fn to_value(&self) -> Value {
        Value::BufferLimits(ClientClass::ALL.map(|class| (class, self.of(class))).to_vec())
    }

    fn assign(&mut self, value: &Value) {
        if let Value::BufferLimits(named) = value {
            named.iter().for_each(|&(class, limit)| self.set(class, limit));
        }
    }
}
