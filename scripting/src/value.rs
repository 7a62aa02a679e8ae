//! A Lua value outside Lua. What the bridge reads from the stack and pushes onto it; everything
//! above the bridge works on these.

use bytes::Bytes;

/// A Lua value, copied.
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
    /// A table nested deeper than the reader would go.
    TooDeep,
    /// Anything else, by the name of its type.
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

    /// The name of its type, as `type()` gives it.
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
