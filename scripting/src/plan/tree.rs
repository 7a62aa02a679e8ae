//! A plan: the script's statements with resolved names. Independent of the text and of the host.

use bytes::Bytes;

use super::value_ref::ValueRef;
use crate::CommandId;

/// A script of the subset.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) body: Block,
    /// The greatest number of locals in scope at once.
    pub(super) registers: usize,
    /// The string literals.
    pub(super) literals: Vec<Bytes>,
}

pub(super) type Block = Box<[Statement]>;

#[derive(Debug)]
pub(super) enum Statement {
    /// `local a = e`, `a = e`
    Set(u16, Expr),
    /// Evaluates all values first and then sets the locals.
    SetMany(Box<[u16]>, Box<[Expr]>),
    /// `local[e] = e`
    Store {
        list: u16,
        index: Expr,
        value: Expr,
    },
    /// `table.insert(e, e)`
    Insert {
        list: Expr,
        value: Expr,
    },
    /// A call as a statement; its value is not used.
    Evaluate(Expr),
    If {
        arms: Box<[(Expr, Block)]>,
        otherwise: Block,
    },
    While {
        condition: Expr,
        body: Block,
    },
    For(Box<For>),
    Each(Box<Each>),
    Do(Block),
    Break,
    Return(Expr),
    /// `return {ok = e}`
    ReturnStatus(Expr),
}

/// `for variable = from, to, step do body end`
#[derive(Debug)]
pub(super) struct For {
    pub(super) variable: u16,
    pub(super) from: Expr,
    pub(super) to: Expr,
    pub(super) step: Option<Expr>,
    pub(super) body: Block,
}

/// `for index, value in ipairs(list) do body end`
#[derive(Debug)]
pub(super) struct Each {
    pub(super) index: u16,
    pub(super) value: u16,
    pub(super) list: Expr,
    pub(super) body: Block,
}

#[derive(Clone, Debug)]
pub(super) enum Expr {
    Nil,
    Boolean(bool),
    Number(f64),
    Literal(u32),
    Local(u16),
    Keys,
    Args,
    /// `KEYS[n]`, counted from 0.
    Key(u32),
    /// `ARGV[n]`, counted from 0.
    Arg(u32),
    /// `KEYS[local + n]`
    KeyAt(IndexedLocal),
    /// `ARGV[local + n]`
    ArgAt(IndexedLocal),
    List(Box<[Expr]>),
    Index(Box<(Expr, Expr)>),
    Not(Box<Expr>),
    Minus(Box<Expr>),
    Length(Box<Expr>),
    And(Box<(Expr, Expr)>),
    Or(Box<(Expr, Expr)>),
    Equal(Box<(Expr, Expr)>),
    Less(Box<(Expr, Expr)>),
    LessOrEqual(Box<(Expr, Expr)>),
    Greater(Box<(Expr, Expr)>),
    GreaterOrEqual(Box<(Expr, Expr)>),
    Arithmetic(Operator, Box<(Expr, Expr)>),
    Concat(Box<[Expr]>),
    Call(Box<CommandCall>),
    ToNumber(Box<Expr>),
    ToText(Box<Expr>),
    /// The index of the first type name among the literals, and the operand.
    Type(u32, Box<Expr>),
    Largest(Box<[Expr]>),
    Smallest(Box<[Expr]>),
    Floor(Box<Expr>),
    /// `string.len`, which takes strings and numbers only.
    TextLength(Box<Expr>),
    Sub(Box<(Expr, Expr, Expr)>),
    Assert(Box<[Expr]>),
    /// The plan leaves here.
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// `redis.call` and `redis.pcall`, which differ only if a command fails.
#[derive(Clone, Debug)]
pub(super) struct CommandCall {
    /// The command, if the host has it with this number of arguments.
    pub(super) command: Option<CommandId>,
    pub(super) arguments: Box<[Expr]>,
    pub(super) unpacked: Option<Unpacked>,
    pub(super) direct: Option<Direct>,
}

/// A known command with arguments that need no computation.
#[derive(Clone, Debug)]
pub(super) struct Direct {
    pub(super) command: CommandId,
    pub(super) name: Bytes,
    pub(super) operands: Box<[Operand]>,
}

/// An argument that needs no computation, if it is a string.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    Literal(u32),
    Key(u32),
    Arg(u32),
    Local(u16),
    KeyAt(IndexedLocal),
    ArgAt(IndexedLocal),
}

impl Operand {
    pub(super) fn of(expr: &Expr) -> Option<Operand> {
        match expr {
            Expr::Literal(at) => Some(Operand::Literal(*at)),
            Expr::Key(at) => Some(Operand::Key(*at)),
            Expr::Arg(at) => Some(Operand::Arg(*at)),
            Expr::Local(at) => Some(Operand::Local(*at)),
            Expr::KeyAt(place) => Some(Operand::KeyAt(*place)),
            Expr::ArgAt(place) => Some(Operand::ArgAt(*place)),
            _ => None,
        }
    }
}

/// An index of a table: a local plus a constant.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexedLocal {
    pub(super) local: u16,
    pub(super) add: i16,
}

impl IndexedLocal {
    /// The index in an expression, if it is simple enough.
    pub(super) fn read(index: &Expr) -> Option<IndexedLocal> {
        let small = |number: f64| {
            let add = number as i16;
            (f64::from(add) == number && add > 0).then_some(add)
        };
        match index {
            Expr::Local(local) => Some(IndexedLocal { local: *local, add: 0 }),
            Expr::Arithmetic(operator, both) => match (operator, &**both) {
                (Operator::Add, (Expr::Local(local), Expr::Number(number)))
                | (Operator::Add, (Expr::Number(number), Expr::Local(local))) => {
                    Some(IndexedLocal { local: *local, add: small(*number)? })
                }
                (Operator::Subtract, (Expr::Local(local), Expr::Number(number))) => {
                    Some(IndexedLocal { local: *local, add: -small(*number)? })
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The index, counted from 0, if the local is a number for which it is valid.
    pub(super) fn of(self, registers: &[ValueRef]) -> Option<usize> {
        let ValueRef::Number(number) = registers[usize::from(self.local)] else { return None };
        let number = number + f64::from(self.add);
        let place = number as u32;
        (f64::from(place) == number).then_some(place)?.checked_sub(1).map(|at| at as usize)
    }
}

/// `unpack(list, from, to)`
#[derive(Clone, Debug)]
pub(super) struct Unpacked {
    pub(super) list: Expr,
    pub(super) from: Option<Expr>,
    pub(super) to: Option<Expr>,
}
