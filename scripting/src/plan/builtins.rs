//! The functions that a plan may call, with their numbers of arguments and results and where their
//! calls are allowed. This is the only place that defines it; everything else is left to Lua.
//!
//! The quoted sentences are from the Lua 5.1 reference manual. The most important is 2.5: "If an
//! expression is used as the last (or the only) element of a list of expressions, then no
//! adjustment is made (unless the call is enclosed in parentheses). In all other contexts, Lua
//! adjusts the result list to one element". So a function with any number of results but one must
//! not be the last of a list, because a plan's calls have one value.

use std::ops::RangeInclusive;

/// A function.
#[derive(Debug)]
pub(super) struct Builtin {
    /// The table that holds it; empty for a global.
    pub(super) table: &'static str,
    pub(super) name: &'static str,
    /// How many arguments a plan may pass. Calls with other numbers are left to Lua.
    pub(super) arguments: RangeInclusive<usize>,
    pub(super) results: Results,
    pub(super) position: CallPosition,
    pub(super) function: BuiltinFunction,
}

/// How many values a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Results {
    /// Exactly one, whatever the arguments are.
    One,
    /// As many as it has arguments, or as the arguments define.
    Several,
}

/// Where a call is allowed in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallPosition {
    /// As an expression, but not as a statement.
    Expression,
    /// As an expression or a statement.
    ExpressionOrStatement,
    /// Only as a statement.
    Statement,
    /// Only as the whole returned value: `return f(e)`.
    Return,
    /// Only as the last argument of `redis.call` or `redis.pcall`.
    LastArgument,
    /// Only after the `in` of a loop.
    Loop,
}

impl CallPosition {
    /// Whether the call is allowed where any expression is.
    pub(super) fn is_expression(self) -> bool {
        matches!(self, CallPosition::Expression | CallPosition::ExpressionOrStatement)
    }
}

/// The effect of a call, with the definition from Lua's or Redis's manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuiltinFunction {
    /// Redis: the command's reply, converted. One value; an error is raised.
    Call,
    /// Redis: does the same as `redis.call`, but an error is a table. A plan leaves in both cases.
    ProtectedCall,
    /// Redis: "always returns true".
    ReplicateCommands,
    /// Redis: a table with the single field `ok`.
    StatusReply,
    /// Redis: a table with the single field `err`; 5.1 `error`: "Terminates the last protected
    /// function called". Both are left to Lua.
    Leave,
    /// 5.1: "Issues an error when the value of its argument v is false ...; otherwise, returns all
    /// its arguments."
    Assert,
    /// 5.1: "Tries to convert its argument to a number. If the argument is already a number or a
    /// string convertible to a number, then tonumber returns this number; otherwise, it returns
    /// nil." The optional base is left to Lua.
    ToNumber,
    /// 5.1: "Receives an argument of any type and converts it to a string in a reasonable format."
    ToString,
    /// 5.1: "Returns the type of its only argument, coded as a string."
    Type,
    /// 5.1: "will iterate over the pairs (1,t[1]), (2,t[2]), ..., up to the first integer key
    /// absent from the table."
    IPairs,
    /// 5.1: "Returns the elements from the given table. This function is equivalent to return
    /// list[i], list[i+1], ..., list[j]".
    Unpack,
    /// 5.6: "Returns the maximum value among its arguments."
    Max,
    /// 5.6: "Returns the minimum value among its arguments."
    Min,
    /// 5.6: "Returns the largest integer smaller than or equal to x."
    Floor,
    /// 5.4: "Receives a string and returns its length."
    Length,
    /// 5.4: "Returns the substring of s that starts at i and continues until j".
    Sub,
    /// 5.5: "Inserts element value at position pos in table ... The default value for pos is n+1".
    /// The position is left to Lua.
    Insert,
}

const fn builtin(
    table: &'static str,
    name: &'static str,
    arguments: RangeInclusive<usize>,
    results: Results,
    position: CallPosition,
    function: BuiltinFunction,
) -> Builtin {
    Builtin { table, name, arguments, results, position, function }
}

/// Every function of the subset.
pub(super) const BUILTINS: &[Builtin] = {
    use BuiltinFunction::*;
    use CallPosition::*;
    use Results::{One, Several};
    const ANY: RangeInclusive<usize> = 1..=usize::MAX;
    &[
        builtin("redis", "call", ANY, One, ExpressionOrStatement, Call),
        builtin("redis", "pcall", ANY, One, ExpressionOrStatement, ProtectedCall),
        builtin(
            "redis",
            "replicate_commands",
            0..=0,
            One,
            ExpressionOrStatement,
            ReplicateCommands,
        ),
        builtin("redis", "status_reply", 1..=1, One, Return, StatusReply),
        builtin("redis", "error_reply", 1..=2, One, ExpressionOrStatement, Leave),
        builtin("", "error", 1..=2, One, ExpressionOrStatement, Leave),
        builtin("", "assert", 1..=2, Several, ExpressionOrStatement, Assert),
        builtin("", "tonumber", 1..=1, One, Expression, ToNumber),
        builtin("", "tostring", 1..=1, One, Expression, ToString),
        builtin("", "type", 1..=1, One, Expression, Type),
        builtin("", "ipairs", 1..=1, Several, Loop, IPairs),
        builtin("", "unpack", 1..=3, Several, LastArgument, Unpack),
        builtin("math", "max", ANY, One, Expression, Max),
        builtin("math", "min", ANY, One, Expression, Min),
        builtin("math", "floor", 1..=1, One, Expression, Floor),
        builtin("string", "len", 1..=1, One, Expression, Length),
        builtin("string", "sub", 2..=3, One, Expression, Sub),
        builtin("table", "insert", 2..=2, One, Statement, Insert),
    ]
};

impl Builtin {
    /// The function of this name.
    pub(super) fn find(table: &[u8], name: &[u8]) -> Option<&'static Builtin> {
        BUILTINS
            .iter()
            .find(|known| known.table.as_bytes() == table && known.name.as_bytes() == name)
    }

    /// Whether this is the name of a table with functions.
    pub(super) fn is_table(name: &[u8]) -> bool {
        BUILTINS.iter().any(|known| !known.table.is_empty() && known.table.as_bytes() == name)
    }
}
