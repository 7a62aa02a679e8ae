//! A Lua value outside Lua. The bridge reads values from the stack and pushes them onto it; all
//! code above the bridge uses this type.

use bytes::Bytes;

/// A copy of a Lua value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// `nil`
    Nil,
    /// `true`, `false`
    Boolean(bool),
    /// A number.
    Number(f64),
    /// A string, binary safe.
    Bytes(Bytes),
    /// A table's pairs, in the order of `next`.
    Table(Vec<(Value, Value)>),
    /// The light userdata of address zero: `cjson.null`.
    Null,
    /// A table nested more deeply than the reader's limit.
    TooDeep,
    /// A value of another type, with the name of the type.
    Other(&'static str),
}

impl Value {
    /// A string from a literal.
    pub(crate) const fn literal(text: &'static str) -> Value {
        Value::Bytes(Bytes::from_static(text.as_bytes()))
    }

    /// A table with one field.
    pub(crate) fn field(name: &'static str, value: Value) -> Value {
        Value::Table(vec![(Value::literal(name), value)])
    }

    /// A table with the keys 1, 2, ...
    pub(crate) fn array(items: impl IntoIterator<Item = Value>) -> Value {
        let numbered = items.into_iter().enumerate();
        Value::Table(numbered.map(|(i, item)| (Value::Number((i + 1) as f64), item)).collect())
    }

    /// The name of its type, as returned by `type()`.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Nil => "nil",
            Value::Boolean(_) => "boolean",
            Value::Number(_) => "number",
            Value::Bytes(_) => "string",
            Value::Table(_) | Value::TooDeep => "table",
            Value::Null => "userdata",
            Value::Other(name) => name,
        }
    }
}
