//! `redis.register_function`: a library declares its functions.
//!
//! Invariant: a name and a callback are checked before they are kept, and they are kept only while
//! a library is loaded.

use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use super::values::{bytes, raise_error};
use super::{Chunk, bridge};
use crate::script::Script;

/// A function of a library.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) name: String,
    pub(crate) description: Option<Vec<u8>>,
    pub(crate) script: Script,
    pub(crate) function: Chunk,
}

// The stack indexes of the arguments.
const NAME: c_int = 1;
const CALLBACK: c_int = 2;
const DESCRIPTION: c_int = 3;

pub(super) unsafe extern "C-unwind" fn redis_register_function(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        if !is_loading(lua) {
            raise_error(lua, "redis.register_function can only be called on FUNCTION LOAD command");
        }
        let script = match ffi::lua_gettop(lua) {
            1 => named_arguments(lua),
            2 => {
                if ffi::lua_isstring(lua, NAME) == 0 {
                    raise_error(lua, "first argument to redis.register_function must be a string");
                }
                if ffi::lua_type(lua, CALLBACK) != ffi::LUA_TFUNCTION {
                    raise_error(
                        lua,
                        "second argument to redis.register_function must be a function",
                    );
                }
                Script::of_function()
            }
            _ => raise_error(lua, "wrong number of arguments to redis.register_function"),
        };
        ffi::lua_settop(lua, DESCRIPTION);
        for text in [NAME, DESCRIPTION] {
            ffi::lua_tolstring(lua, text, std::ptr::null_mut());
        }
        if let Some(refusal) = refusal(lua) {
            raise_error(lua, refusal);
        }
        ffi::lua_pushvalue(lua, CALLBACK);
        let anchor = ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX);
        let function = Chunk { anchor };
        keep(lua, script, function);
    }
    0
}

/// Reads a table of arguments and moves them to their indexes. May raise.
unsafe fn named_arguments(lua: *mut lua_State) -> Script {
    // SAFETY: may raise, owns nothing; keys of other types than string are not converted.
    unsafe {
        if ffi::lua_type(lua, 1) != ffi::LUA_TTABLE {
            raise_error(
                lua,
                "calling redis.register_function with a single argument is only applicable to \
                 Lua table (representing named arguments).",
            );
        }
        let mut script = Script::of_function();
        ffi::lua_settop(lua, 1);
        // The name, the callback and the description; they take the place of the table later.
        ffi::lua_settop(lua, 4);
        ffi::lua_pushnil(lua);
        while ffi::lua_next(lua, 1) != 0 {
            if ffi::lua_isstring(lua, -2) == 0 {
                raise_error(
                    lua,
                    "named argument key given to redis.register_function is not a string",
                );
            }
            match bytes(lua, -2) {
                b"function_name" => text_argument(lua, NAME + 1, "function_name"),
                b"description" => text_argument(lua, DESCRIPTION + 1, "description"),
                b"callback" => {
                    if ffi::lua_type(lua, -1) != ffi::LUA_TFUNCTION {
                        raise_error(
                            lua,
                            "callback argument given to redis.register_function must be a function",
                        );
                    }
                    ffi::lua_pushvalue(lua, -1);
                    ffi::lua_replace(lua, CALLBACK + 1);
                }
                b"flags" => script = flags_argument(lua),
                _ => raise_error(lua, "unknown argument given to redis.register_function"),
            }
            ffi::lua_settop(lua, -2);
        }
        for (argument, missing) in [
            (NAME, "redis.register_function must get a function name argument"),
            (CALLBACK, "redis.register_function must get a callback argument"),
        ] {
            if ffi::lua_type(lua, argument + 1) == ffi::LUA_TNIL {
                raise_error(lua, missing);
            }
        }
        ffi::lua_remove(lua, 1);
        script
    }
}

/// Moves the string on top to its index. May raise.
unsafe fn text_argument(lua: *mut lua_State, to: c_int, name: &str) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        if ffi::lua_isstring(lua, -1) == 0 {
            raise_error(
                lua,
                match name {
                    "description" => {
                        "description argument given to redis.register_function must be a string"
                    }
                    _ => "function_name argument given to redis.register_function must be a string",
                },
            );
        }
        ffi::lua_pushvalue(lua, -1);
        ffi::lua_replace(lua, to);
    }
}

/// Reads the list of flags on top. May raise.
unsafe fn flags_argument(lua: *mut lua_State) -> Script {
    // SAFETY: may raise, owns nothing.
    unsafe {
        if ffi::lua_type(lua, -1) != ffi::LUA_TTABLE {
            raise_error(
                lua,
                "flags argument to redis.register_function must be a table representing function \
                 flags",
            );
        }
        let mut script = Script::of_function();
        for i in 1.. {
            ffi::lua_rawgeti_(lua, -1, i);
            if ffi::lua_type(lua, -1) == ffi::LUA_TNIL {
                break;
            }
            match script.with_flag(bytes(lua, -1)) {
                Some(more) => script = more,
                None => raise_error(lua, "unknown flag given"),
            }
            ffi::lua_settop(lua, -2);
        }
        ffi::lua_settop(lua, -2);
        script
    }
}

/// Whether a library is being loaded. Never raises.
unsafe fn is_loading(lua: *mut lua_State) -> bool {
    // SAFETY: the reference ends here.
    unsafe { (*bridge(lua).registered.get()).is_some() }
}

/// The error if the name is invalid, taken, or one too many. Never raises.
unsafe fn refusal(lua: *mut lua_State) -> Option<&'static str> {
    // SAFETY: the name is on the stack; the references end here.
    unsafe {
        let name = bytes(lua, NAME);
        if !is_name(name) {
            return Some(
                "Library names can only contain letters, numbers, or underscores(_) and must be \
                 at least one character long",
            );
        }
        let bridge = bridge(lua);
        let registered = (*bridge.registered.get()).as_deref().unwrap_or_default();
        if registered.iter().any(|other| other.name.as_bytes().eq_ignore_ascii_case(name)) {
            return Some("Function already exists in the library");
        }
        if registered.len() >= bridge.limits.library_functions_max {
            return Some("too many functions in the library");
        }
        None
    }
}

/// Whether this is a valid name of a library or a function.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Keeps a function that has been checked. Never raises.
unsafe fn keep(lua: *mut lua_State, script: Script, function: Chunk) {
    // SAFETY: name and description are on the stack; the references end here.
    unsafe {
        let name = String::from_utf8_lossy(bytes(lua, NAME)).into_owned();
        let described = ffi::lua_type(lua, DESCRIPTION) == ffi::LUA_TSTRING;
        let description = described.then(|| bytes(lua, DESCRIPTION).to_vec());
        if let Some(registered) = &mut *bridge(lua).registered.get() {
            registered.push(Registered { name, description, script, function });
        }
    }
}
