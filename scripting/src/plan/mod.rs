//! The fast tier: a script that uses only a subset of Lua becomes a plan, which runs without Lua.
//!
//! A plan supports the usual path only. On anything else (a command fails, an operand has the wrong
//! type, a limit is reached, the host ends the script) it *leaves*: Lua runs the script from the
//! start, and the commands that have been run get their replies from a record ([`Replay`]) instead
//! of being run again. A script of the subset does the same whenever its commands get the same
//! replies, so Lua reaches the point where the plan has left and goes on from there. So every
//! error, with its text and position, is Lua's own, and the tier that ran a script cannot be
//! observed.
//!
//! If Lua calls something else than the plan has called, the plan was wrong. The script then ends
//! with an error: Lua adds no effect to the plan's, the script is run by Lua alone from then on,
//! and the event is logged and counted.
//!
//! A plan that runs to its end is compared too, by sample: in the first runs of each script and in
//! some later ones, Lua runs the script with the recorded replies before the client gets the
//! plan's. Calls and replies must be the same. If they are not, the reply is sent nevertheless, and
//! Lua alone runs the script from then on.
//!
//! # The subset
//!
//! The subset is as follows, with the section of the Lua 5.1 reference manual that defines each
//! part:
//!
//! - 2.1: names, strings between quotes, decimal numbers without an exponent, comments to the end
//!   of a line. Other literals and comments are left to Lua.
//! - 2.4.7: `local a [, b ...] [= ...]`.
//! - 2.4.3: `a = e`, `a, b = e, ...` of different locals: all expressions are evaluated before any
//!   is assigned. `t[e] = e` where the local `t` holds a list that the script has made; a key that
//!   would leave a hole, `nil` and tables are left to Lua.
//! - 2.4.2, 2.4.4: `do ... end`, `while`, `if`, `break`, `return [e]`.
//! - 2.4.5: `for i = e, e [, e]`: "All three control expressions are evaluated only once, before
//!   the loop starts"; `for i [, v] in ipairs(e)`, and no other iterator.
//! - 2.4.6: a call as a statement: "all returned values are thrown away".
//! - 2.2, 2.6: `nil`, `true`, `false`, locals, `KEYS`, `ARGV`. All other globals are left to Lua.
//! - 2.3: `e[e]`, `e.name` of a table. The fields of a string are functions and left to Lua.
//! - 2.2.1, 2.5.1: `+ - * / %` and unary `-` of numbers and of strings that are plainly numbers.
//!   `^`, `%` of large numbers, and a negative zero that Lua computes when it compiles are left to
//!   Lua.
//! - 2.5.2: `== ~=`, without conversion; `< <= > >=` of numbers. Strings compare by the locale, and
//!   are left to Lua.
//! - 2.4.4, 2.5.3: `and`, `or`, `not`: "Both false and nil are considered false".
//! - 2.2.1, 2.5.4: `..` of strings and integers. The format of other numbers is C's.
//! - 2.5.5: `#` of strings and of tables without holes.
//! - 2.5.6: precedence. 2.5: `(e)` "always results in only one value".
//! - 2.5.7: `{e, ...}`. Keys, holes, and several values of the last field are left to Lua.
//! - 2.5.8, 5: calls of the functions of [`builtins`], which defines how many values each has and
//!   where its call is allowed.
//! - Redis: `return {ok = e}`; `{err = e}`, which always leaves.
//!
//! A name that is not a local in scope and none of the above is outside the subset, and so is any
//! other use of names like `KEYS` and `redis`: the script's behaviour must depend only on its
//! arguments and the replies. Scripts cannot change the meaning of these names. Lua has accepted
//! the text before it is parsed here, so the parser need not detect invalid texts.
//!
//! Invariant: whatever this tier computes, it computes as Lua 5.1 does to the last bit, or it
//! leaves. It has no error texts and no Lua state, and depends only on
//! [`Reply`](lockwheel_resp::Reply) and [`Host`](crate::Host).

mod builtins;
mod commands;
mod execute;
mod lexer;
mod parse;
mod replay;
mod run_data;
mod run_tables;
mod tree;
mod value_ref;

pub(crate) use execute::{Scratch, run};
pub use parse::Outside;
pub(crate) use replay::{DISAGREEMENT, Mismatch};
pub(crate) use tree::Plan;
