//! The fast tier: a script whose whole text lies in a subset of Lua becomes a plan, which is run
//! without Lua.
//!
//! A plan knows the usual path only. On anything else (a command fails, an operand has the wrong
//! type, a bound is met, the host says to end) it *leaves*: Lua runs the script from its beginning,
//! and the commands that have been run are answered from a record ([`Replay`]) instead of being
//! run again. A script of the subset does the same whenever its commands are answered the same, so
//! Lua comes to where the plan has left and goes on from there. So every error, with its text and
//! place, is Lua's own, and nobody can tell which tier has run a script.
//!
//! Should Lua call something else than the plan has called, the plan was wrong. That ends the
//! script with an error and nothing else: Lua adds no effect to the plan's, the script is run by
//! Lua alone from then on, and the event is logged and counted.
//!
//! # The subset
//!
//! What is in it, with the section of the Lua 5.1 reference manual that defines it:
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
//! - 2.5.8, 5: calls of the functions of [`builtins`], which says how many values each has and
//!   where its call may stand.
//! - Redis: `return {ok = e}`; `{err = e}`, which always leaves.
//!
//! A name that is no local in scope and none of the above is outside, and so is any other use of
//! `KEYS`'s and `redis`'s like: what the text does must not depend on anything but its arguments
//! and the replies. Scripts cannot change what these names stand for; Lua has accepted the text
//! before it is looked at here, so that a wrong one is not our matter.
//!
//! What must hold: whatever this tier computes, it computes as Lua 5.1 does to the last bit, or
//! leaves. It has no error texts and no Lua state; it knows [`Reply`](lockwheel_resp::Reply) and
//! [`Host`](crate::Host).

mod builtins;
mod call;
mod held;
mod lexer;
mod parse;
mod replay;
mod run;
mod tables;
mod tree;
mod value;

pub use parse::Outside;
pub(crate) use replay::{DISAGREEMENT, Mismatch};
pub(crate) use run::{Scratch, run};
pub(crate) use tree::Plan;
