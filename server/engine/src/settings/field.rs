//! How the fields of [`Settings`](super::Settings) take values, and show them.

use super::types::{
    ChannelDefault, ClientClass, ClientOutputBufferLimits, EndpointType, FlushPolicy,
    MaxmemoryPolicy, MemoryShare, Permission, Secret,
};
use super::{CompatVersion, Value};
use crate::store::events;

/// A field that can be converted to one [`Value`].
pub(super) trait Field {
    fn to_value(&self) -> Value;

    /// Sets the field. The value was read by the kind of the field's row, which must match the
    /// field.
    fn assign(&mut self, value: Value);
}

/// Panics: the kind of a row does not match its field, which is a mistake in the table.
fn kind_mismatch(value: &Value) -> ! {
    unreachable!("the kind of the row does not match its field: {value:?}")
}

macro_rules! number_fields {
    ($($number:ty => $value:ident,)*) => {$(
        impl Field for $number {
            fn to_value(&self) -> Value {
                Value::$value((*self).into())
            }

            fn assign(&mut self, value: Value) {
                let number = match value {
                    Value::Int(number) => number.try_into().ok(),
                    Value::Memory(bytes) => bytes.try_into().ok(),
                    Value::Octal(bits) => bits.try_into().ok(),
                    _ => None,
                };
                *self = number.unwrap_or_else(|| kind_mismatch(&value));
            }
        }
    )*};
}

number_fields! {
    u16 => Int,
    u32 => Int,
    i32 => Int,
    i64 => Int,
    u64 => Memory,
}

macro_rules! choice_fields {
    ($($choice:ty),*) => {$(
        impl Field for $choice {
            fn to_value(&self) -> Value {
                Value::Text(self.name().into())
            }

            fn assign(&mut self, value: Value) {
                let found = match &value {
                    Value::Text(name) => <$choice>::from_name(name),
                    _ => None,
                };
                *self = found.unwrap_or_else(|| kind_mismatch(&value));
            }
        }
    )*};
}

choice_fields!(
    ChannelDefault,
    CompatVersion,
    EndpointType,
    FlushPolicy,
    MaxmemoryPolicy,
    Permission
);

macro_rules! plain_fields {
    ($($field:ty => $value:ident,)*) => {$(
        impl Field for $field {
            fn to_value(&self) -> Value {
                Value::$value(self.clone())
            }

            fn assign(&mut self, value: Value) {
                match value {
                    Value::$value(inner) => *self = inner,
                    other => kind_mismatch(&other),
                }
            }
        }
    )*};
}

plain_fields! {
    bool => Bool,
    String => Text,
    Vec<String> => Words,
    events::Events => Events,
}

/// An empty text means none.
impl Field for Option<String> {
    fn to_value(&self) -> Value {
        Value::Text(self.clone().unwrap_or_default())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Text(text) => *self = Some(text).filter(|text| !text.is_empty()),
            other => kind_mismatch(&other),
        }
    }
}

/// An empty password means none.
impl Field for Option<Secret> {
    fn to_value(&self) -> Value {
        Value::Text(self.as_ref().map(|secret| secret.expose().into()).unwrap_or_default())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Text(text) => *self = (!text.is_empty()).then(|| Secret::new(text)),
            other => kind_mismatch(&other),
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

    fn assign(&mut self, value: Value) {
        let percent = |text: &str| text.strip_suffix('%')?.parse().ok();
        *self = match &value {
            Value::Memory(bytes) => MemoryShare::Bytes(*bytes),
            Value::Text(text) => {
                MemoryShare::Percent(percent(text).unwrap_or_else(|| kind_mismatch(&value)))
            }
            _ => kind_mismatch(&value),
        };
    }
}

/// Assigning does not change the classes that are not named.
impl Field for ClientOutputBufferLimits {
    fn to_value(&self) -> Value {
        Value::BufferLimits(ClientClass::ALL.map(|class| (class, self.of(class))).to_vec())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::BufferLimits(limits) => {
                limits.into_iter().for_each(|(class, limit)| self.set(class, limit));
            }
            other => kind_mismatch(&other),
        }
    }
}
