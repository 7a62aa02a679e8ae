//! `string.find`, `match`, `gmatch` and `gsub`: connects Lua's stack to the pattern matcher.
//!
//! Invariant: subject and pattern stay on the stack while they are borrowed. The matcher polls the
//! host, because Lua's hook cannot run within a match.

use std::ffi::c_int;
use std::ptr;

use mlua::ffi::{self, lua_State};

use super::bounds::{check_end, stop, work};
use super::bridge;
use super::string_builder::StringBuilder;
use super::values::{bytes, push_bytes, raise};
use crate::convert::c_string;
use crate::pattern_matching::{self, Budget, Capture, Match};

/// The work of a search, and of each step of it.
const SEARCH_WORK: usize = 64;
const STEP_WORK: usize = 4;
/// Bytes that a search without a pattern scans per unit of work.
const BYTES_FOUND_PER_WORK: usize = 4;

pub(super) unsafe extern "C-unwind" fn string_find(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe { find(lua, true) }
}

pub(super) unsafe extern "C-unwind" fn string_match(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe { find(lua, false) }
}

/// `find`, or `match` without `places`. May raise.
unsafe fn find(lua: *mut lua_State, places: bool) -> c_int {
    // SAFETY: may raise, owns nothing; both strings stay on the stack.
    unsafe {
        let (subject, pattern) = (argument(lua, 1), argument(lua, 2));
        let from = ffi::luaL_optinteger(lua, 3, 1);
        let from = if from < 0 { (from + subject.len() as i64 + 1).max(1) } else { from.max(1) };
        let from = (from as usize - 1).min(subject.len());
        if places && (ffi::lua_toboolean(lua, 4) != 0 || pattern_matching::is_plain(pattern)) {
            work(lua, SEARCH_WORK + subject.len() / BYTES_FOUND_PER_WORK);
            let Some(start) = pattern_matching::find_plain(subject, pattern, from) else {
                ffi::lua_pushnil(lua);
                return 1;
            };
            ffi::lua_pushinteger(lua, (start + 1) as i64);
            ffi::lua_pushinteger(lua, (start + pattern.len()) as i64);
            return 2;
        }
        let (anchored, pattern) = pattern_matching::parse(pattern);
        let Some(found) = search(lua, subject, pattern, from, anchored) else {
            ffi::lua_pushnil(lua);
            return 1;
        };
        if !places {
            return push_captures(lua, subject, &found, true);
        }
        ffi::lua_pushinteger(lua, (found.start + 1) as i64);
        ffi::lua_pushinteger(lua, found.end as i64);
        2 + push_captures(lua, subject, &found, false)
    }
}

pub(super) unsafe extern "C-unwind" fn string_gmatch(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        argument(lua, 1);
        argument(lua, 2);
        ffi::lua_settop(lua, 2);
        ffi::lua_pushnumber(lua, 0.0);
        ffi::lua_pushcclosure(lua, gmatch_next, 3);
    }
    1
}

/// The iterator of `gmatch`. Its upvalues are the subject, the pattern, and the next position.
unsafe extern "C-unwind" fn gmatch_next(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; upvalues 1 and 2 are strings for as long as the function
    // lives.
    unsafe {
        let subject = bytes(lua, ffi::lua_upvalueindex(1));
        let pattern = c_string(bytes(lua, ffi::lua_upvalueindex(2)));
        let from = ffi::lua_tonumber(lua, ffi::lua_upvalueindex(3)) as usize;
        if from > subject.len() {
            return 0;
        }
        let Some(found) = search(lua, subject, pattern, from, false) else { return 0 };
        let next = found.end + usize::from(found.end == found.start);
        ffi::lua_pushnumber(lua, next as f64);
        ffi::lua_replace(lua, ffi::lua_upvalueindex(3));
        push_captures(lua, subject, &found, true)
    }
}

pub(super) unsafe extern "C-unwind" fn string_gsub(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing; the strings stay on the stack, Lua owns the output.
    unsafe {
        let (subject, pattern) = (argument(lua, 1), argument(lua, 2));
        let kind = ffi::lua_type(lua, 3);
        let most = ffi::luaL_optinteger(lua, 4, subject.len() as i64 + 1) as c_int;
        if !matches!(
            kind,
            ffi::LUA_TNUMBER | ffi::LUA_TSTRING | ffi::LUA_TFUNCTION | ffi::LUA_TTABLE
        ) {
            ffi::luaL_argerror(lua, 3, c"string/function/table expected".as_ptr());
        }
        if kind == ffi::LUA_TNUMBER {
            argument(lua, 3);
        }
        let (anchored, pattern) = pattern_matching::parse(pattern);
        ffi::lua_settop(lua, 3);
        let mut output = StringBuilder::new(lua, subject.len() + 32);
        let (mut at, mut count) = (0, 0);
        while count < most && at <= subject.len() {
            let Some(found) = search(lua, subject, pattern, at, anchored) else { break };
            count += 1;
            output.add(lua, &subject[at..found.start]);
            replace(lua, subject, &found, kind, &mut output);
            at = found.end;
            if found.end == found.start {
                let Some(byte) = subject.get(at..=at) else {
                    at += 1;
                    break;
                };
                output.add(lua, byte);
                at += 1;
            }
            if anchored {
                break;
            }
        }
        output.add(lua, subject.get(at..).unwrap_or_default());
        output.push(lua);
        ffi::lua_pushnumber(lua, count as f64);
    }
    2
}

/// Adds the replacement of a match, as the third argument defines it. May raise.
unsafe fn replace(
    lua: *mut lua_State,
    subject: &[u8],
    found: &Match,
    kind: c_int,
    output: &mut StringBuilder,
) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let whole = &subject[found.start..found.end];
        match kind {
            ffi::LUA_TFUNCTION => {
                ffi::lua_pushvalue(lua, 3);
                let count = push_captures(lua, subject, found, true);
                ffi::lua_call(lua, count, 1);
            }
            ffi::LUA_TTABLE => {
                push_capture(lua, subject, found, 0);
                ffi::lua_gettable_(lua, 3);
            }
            _ => return expand(lua, subject, found, output),
        }
        if ffi::lua_toboolean(lua, -1) == 0 {
            output.add(lua, whole);
        } else if ffi::lua_isstring(lua, -1) == 0 {
            ffi::luaL_where(lua, 1);
            push_bytes(lua, b"invalid replacement value (a ");
            ffi::lua_pushstring_(lua, ffi::luaL_typename(lua, -3));
            push_bytes(lua, b")");
            ffi::lua_concat(lua, 4);
            ffi::lua_error(lua);
        } else {
            ffi::lua_tolstring(lua, -1, ptr::null_mut());
            output.add(lua, bytes(lua, -1));
        }
        ffi::lua_settop(lua, -2);
    }
}

/// Adds the replacement string with its `%1` filled in. May raise.
unsafe fn expand(lua: *mut lua_State, subject: &[u8], found: &Match, output: &mut StringBuilder) {
    // SAFETY: may raise, owns nothing; the replacement stays at 3.
    unsafe {
        let mut rest = bytes(lua, 3);
        while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
            output.add(lua, &rest[..at]);
            // A last `%` is followed by the zero that ends a C string.
            let what = rest.get(at + 1).copied().unwrap_or(0);
            match what {
                b'0' => output.add(lua, &subject[found.start..found.end]),
                b'1'..=b'9' => {
                    push_capture(lua, subject, found, usize::from(what - b'1'));
                    ffi::lua_tolstring(lua, -1, ptr::null_mut());
                    output.add(lua, bytes(lua, -1));
                    ffi::lua_settop(lua, -2);
                }
                other => output.add(lua, &[other]),
            }
            rest = rest.get(at + 2..).unwrap_or_default();
        }
        output.add(lua, rest);
    }
}

/// A string argument; a number is converted in place. May raise.
pub(super) unsafe fn argument<'a>(lua: *mut lua_State, index: c_int) -> &'a [u8] {
    // SAFETY: may raise, owns nothing; the string stays on the stack.
    unsafe {
        ffi::luaL_checklstring(lua, index, ptr::null_mut());
        bytes(lua, index)
    }
}

/// Searches and counts the work. May raise: its values have no destructors.
unsafe fn search(
    lua: *mut lua_State,
    subject: &[u8],
    pattern: &[u8],
    from: usize,
    anchored: bool,
) -> Option<Match> {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let bridge = bridge(lua);
        let mut poll = |steps| bridge.work(steps as usize * STEP_WORK);
        let steps = bridge.limits.match_steps_max;
        let mut budget = Budget { steps, poll: &mut poll };
        let found = bridge
            .guard(|| pattern_matching::search(subject, pattern, from, anchored, &mut budget));
        check_end(lua);
        // The last steps, which are not counted yet.
        let steps = (steps - budget.steps).min(pattern_matching::STEPS_PER_POLL);
        work(lua, SEARCH_WORK + steps as usize * STEP_WORK);
        match found {
            Some(Ok(found)) => found,
            Some(Err(why)) => raise(lua, why),
            None => stop(lua),
        }
    }
}

/// Pushes all captures, or the whole match if there are none and `whole` is set. May raise.
unsafe fn push_captures(lua: *mut lua_State, subject: &[u8], found: &Match, whole: bool) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let count = if found.count == 0 && whole { 1 } else { found.count };
        ffi::luaL_checkstack_(lua, count as c_int, c"too many captures".as_ptr());
        for i in 0..count {
            push_capture(lua, subject, found, i);
        }
        count as c_int
    }
}

/// Pushes one capture. May raise.
unsafe fn push_capture(lua: *mut lua_State, subject: &[u8], found: &Match, index: usize) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        match found.captures[..found.count].get(index) {
            Some(Capture::Range(start, end)) => push_bytes(lua, &subject[*start..*end]),
            Some(Capture::Position(at)) => ffi::lua_pushnumber(lua, (at + 1) as f64),
            Some(Capture::Open(_)) => raise(lua, "unfinished capture"),
            None if index == 0 => push_bytes(lua, &subject[found.start..found.end]),
            None => raise(lua, "invalid capture index"),
        }
    }
}
