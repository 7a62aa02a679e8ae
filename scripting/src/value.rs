//! A Lua value outside Lua. The bridge reads values from the stack and pushes them onto it; all
//! code above the bridge uses this type.

use std::cmp::Ordering;

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
    /// A table's pairs, in the order of `next`, or sorted if that depends on addresses.
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

    /// Whether its place in a table depends on its address.
    pub(crate) fn is_placed_by_address(&self) -> bool {
        matches!(self, Value::Table(_) | Value::TooDeep | Value::Other(_))
    }

    /// Sorts the pairs of a table.
    pub(crate) fn sort(pairs: &mut [(Value, Value)]) {
        pairs.sort_by(order_of_pairs);
    }

    /// A total order in which equal values are copies of each other.
    fn order(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Boolean(a), Value::Boolean(b)) => a.cmp(b),
            (Value::Number(a), Value::Number(b)) => a.total_cmp(b),
            (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
            (Value::Other(a), Value::Other(b)) => a.cmp(b),
            (Value::Table(a), Value::Table(b)) => {
                let mut orders = a.iter().zip(b).map(|(a, b)| order_of_pairs(a, b));
                orders.find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Value::Nil => 0,
            Value::Boolean(_) => 1,
            Value::Number(_) => 2,
            Value::Bytes(_) => 3,
            Value::Table(_) => 4,
            Value::Null => 5,
            Value::TooDeep => 6,
            Value::Other(_) => 7,
        }
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

fn order_of_pairs(a: &(Value, Value), b: &(Value, Value)) -> Ordering {
    a.0.order(&b.0).then_with(|| a.1.order(&b.1))
}
