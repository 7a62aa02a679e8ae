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
//! - Statements: `local a [, b ...] [= ...]`, assignment to locals, `t[e] = e` where `t` is a local
//!   that holds a list, `if`, `while`, `for i = e, e [, e]`, `for i [, v] in ipairs(e)`,
//!   `do ... end`, `break`, `return [e]`, a call of those below.
//! - Values: `nil`, `true`, `false`, decimal numbers without an exponent, strings between quotes,
//!   locals, `KEYS`, `ARGV`, `{e, ...}`, `e[e]`, `e.name`, `(e)`.
//! - Operators: `and or not == ~= < <= > >= .. + - * / % #` and unary `-`.
//! - Calls: the functions of [`builtins`], which says how many values each has and where its call
//!   may stand; behind `return` also `{ok = e}`, and everywhere `{err = e}`, which always leaves.
//!
//! A name that is no local in scope and none of the above is outside, and so is any other use of
//! `KEYS`'s and `redis`'s like: what the text does must not depend on anything but its arguments
//! and the replies. Scripts cannot change what these names stand for; Lua has accepted the text
//! before it is looked at here, so that a wrong one is not our matter.
//!
//! What must hold: whatever this tier computes, it computes as Lua 5.1 does to the last bit, or
//! leaves. It has no error texts and no Lua state; it knows [`Reply`](leasehold_resp::Reply) and
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
