//! Builds the environment of scripts, once for each state, from the lists in `sandbox`.
//!
//! Invariant: a script reaches nothing that is not on these lists. Everything that scripts share,
//! except KEYS and ARGV, is frozen for every script that could write to it.

use std::ffi::c_int;
use std::ptr;

use mlua::ffi::{self, lua_CFunction, lua_State};

use super::freeze::{freeze, read_from, thaw};
use super::harmless::{GLOBALS, TABLE};
use super::key_tables::make_tables;
use super::libraries::{cjson_new, library_function};
use super::values::{get_field, push, push_bytes, raise, set_field};
use super::{
    BridgeState, LuaFunctions, PLAIN_LIBRARIES, StateKind, base_library, bridge, compile, patterns,
    redis, redis_call, register, string_library, table_library,
};
use crate::libs::{self, Constant};
use crate::sandbox;
use crate::value::Value;

/// A function that replaces Lua's own, or is new.
const REPLACED: &[(&str, &str, lua_CFunction)] = &[
    ("", "load", compile::load),
    ("", "loadstring", compile::loadstring),
    ("", "next", base_library::next),
    ("", "pcall", base_library::pcall),
    ("", "rawget", base_library::rawget),
    ("", "rawset", base_library::rawset),
    ("", "setmetatable", base_library::setmetatable),
    ("", "tostring", base_library::tostring),
    ("", "unpack", base_library::unpack),
    ("", "xpcall", base_library::xpcall),
    ("coroutine", "resume", base_library::coroutine_resume),
    ("math", "random", base_library::math_random),
    ("math", "randomseed", base_library::math_randomseed),
    ("os", "clock", base_library::os_clock),
    ("redis", "acl_check_cmd", redis::redis_acl_check_cmd),
    ("redis", "breakpoint", redis::redis_breakpoint),
    ("redis", "call", redis_call::redis_call),
    ("redis", "debug", redis::redis_debug),
    ("redis", "error_reply", redis::redis_error_reply),
    ("redis", "log", redis::redis_log),
    ("redis", "pcall", redis_call::redis_pcall),
    ("redis", "register_function", register::redis_register_function),
    ("redis", "replicate_commands", redis::redis_replicate_commands),
    ("redis", "set_repl", redis::redis_set_repl),
    ("redis", "setresp", redis::redis_setresp),
    ("redis", "sha1hex", redis::redis_sha1hex),
    ("redis", "status_reply", redis::redis_status_reply),
    ("string", "find", patterns::string_find),
    ("string", "gfind", patterns::string_gmatch),
    ("string", "gmatch", patterns::string_gmatch),
    ("string", "gsub", patterns::string_gsub),
    ("string", "lower", string_library::string_lower),
    ("string", "match", patterns::string_match),
    ("string", "rep", string_library::string_rep),
    ("string", "reverse", string_library::string_reverse),
    ("string", "upper", string_library::string_upper),
    ("table", "concat", table_library::table_concat),
    ("table", "foreach", table_library::table_foreach),
    ("table", "foreachi", table_library::table_foreachi),
    ("table", "insert", table_library::table_insert),
    ("table", "maxn", table_library::table_maxn),
    ("table", "remove", table_library::table_remove),
    ("table", "sort", table_library::table_sort),
];

/// Opens Lua's libraries and builds the environment of scripts from them. May raise.
pub(super) unsafe fn install(lua: *mut lua_State, version: &str) {
    // SAFETY: may raise, owns nothing; called once, protected.
    unsafe {
        let bridge = bridge(lua);
        for open in [
            ffi::luaopen_base,
            ffi::luaopen_math,
            ffi::luaopen_os,
            ffi::luaopen_string,
            ffi::luaopen_table,
        ] {
            ffi::lua_settop(lua, 0);
            ffi::lua_pushcclosure(lua, open, 0);
            ffi::lua_call(lua, 0, 0);
        }
        keep_lua_functions(lua, &bridge.lua_functions);
        redis_call::make_names(lua, bridge);
        ffi::lua_settop(lua, 0);
        ffi::lua_createtable(lua, 0, 64);
        let base = 1;
        for name in sandbox::BASE {
            push_allowed(lua, "", name);
            set_field(lua, base, name);
        }
        for (library, names) in sandbox::LIBRARIES {
            ffi::lua_createtable(lua, 0, names.len() as c_int);
            for name in *names {
                push_allowed(lua, library, name);
                set_field(lua, 2, name);
            }
            seal(lua, base, library);
        }
        ffi::lua_createtable(lua, 0, 32);
        for name in sandbox::REDIS {
            push_allowed(lua, "redis", name);
            set_field(lua, 2, name);
        }
        if bridge.kind == StateKind::Scripts {
            for name in sandbox::REDIS_OF_SCRIPTS {
                push_allowed(lua, "redis", name);
                set_field(lua, 2, name);
            }
        }
        install_redis_constants(lua, bridge, sandbox::redis_constants(version));
        seal(lua, base, "redis");
        for library in libs::LIBRARIES {
            install_library(lua, library);
            seal(lua, base, library.name);
        }
        install_globals(lua, bridge);
        if bridge.kind == StateKind::Scripts {
            install_plain_base(lua, bridge);
        }
        if bridge.kind == StateKind::Libraries {
            install_loading_base(lua, bridge, version);
        }
    }
}

/// Pushes the constants of `redis`, which the bridge state owns meanwhile. May raise.
unsafe fn install_redis_constants(
    lua: *mut lua_State,
    bridge: &BridgeState,
    constants: Vec<(&'static str, Value)>,
) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        let mut names = [""; 16];
        let mut values = Vec::new();
        for (slot, (name, value)) in names.iter_mut().zip(constants) {
            *slot = name;
            values.push(value);
        }
        bridge.set_values(values);
        for (name, value) in names.iter().zip(&*bridge.values.get()) {
            push(lua, value);
            set_field(lua, 2, name);
        }
    }
}

/// Leaves a table with a library's functions and constants. May raise.
unsafe fn install_library(lua: *mut lua_State, library: &'static libs::RustLibrary) {
    // SAFETY: may raise, owns nothing; the upvalue is a static.
    unsafe {
        ffi::lua_createtable(lua, 0, library.functions.len() as c_int);
        for function in library.functions {
            ffi::lua_pushlightuserdata(lua, ptr::from_ref(function).cast_mut().cast());
            ffi::lua_pushcclosure(lua, library_function, 1);
            set_field(lua, -2, function.name);
        }
        if library.name == "cjson" {
            ffi::lua_pushcclosure(lua, cjson_new, 0);
            set_field(lua, -2, "new");
        }
        for (name, constant) in library.constants {
            match constant {
                Constant::Text(text) => push_bytes(lua, text.as_bytes()),
                Constant::Null => ffi::lua_pushlightuserdata(lua, ptr::null_mut()),
            }
            set_field(lua, -2, name);
        }
    }
}

/// Expects the base table at 1. Makes it the globals, frozen, with Redis's error for missing names;
/// freezes the metatable of strings; anchors KEYS and ARGV. May raise.
unsafe fn install_globals(lua: *mut lua_State, bridge: &BridgeState) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::lua_settop(lua, 1);
        push_bytes(lua, b"Lua 5.1");
        set_field(lua, 1, "_VERSION");
        if bridge.kind == StateKind::Scripts {
            make_tables(lua, &bridge.tables);
            for (table, name) in bridge.tables.named() {
                ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, table.anchor());
                set_field(lua, 1, name);
            }
        }
        // Strings find the frozen library through a frozen metatable.
        push_bytes(lua, b"");
        ffi::lua_getmetatable(lua, -1);
        get_field(lua, 1, "string");
        ffi::lua_pushvalue(lua, -1);
        set_field(lua, 3, "__index");
        ffi::lua_createtable(lua, 0, 1);
        ffi::lua_insert(lua, -2);
        set_field(lua, -2, "__index");
        freeze(lua);
        set_field(lua, 3, "__metatable");
        ffi::lua_settop(lua, 1);
        // A name that is not in the base table is an error.
        ffi::lua_createtable(lua, 0, 1);
        ffi::lua_pushcclosure(lua, missing_global, 0);
        set_field(lua, 2, "__index");
        ffi::lua_setmetatable(lua, 1);
        ffi::lua_pushvalue(lua, 1);
        bridge.base.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
        ffi::lua_pushvalue(lua, 1);
        freeze(lua);
        ffi::lua_pushvalue(lua, -1);
        set_field(lua, 1, "_G");
        ffi::lua_replace(lua, ffi::LUA_GLOBALSINDEX);
        // The tables the libraries came in are reachable from nowhere else.
        ffi::lua_pushnil(lua);
        ffi::lua_setfield(lua, ffi::LUA_REGISTRYINDEX, c"_LOADED".as_ptr());
    }
}

/// Expects the base table at 1. Makes the table that harmless scripts use, which is read directly.
/// May raise.
unsafe fn install_plain_base(lua: *mut lua_State, bridge: &BridgeState) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::lua_settop(lua, 1);
        ffi::lua_createtable(lua, 0, GLOBALS.len() as c_int + 2);
        let mut libraries = [ptr::null(); PLAIN_LIBRARIES];
        let mut free = libraries.iter_mut();
        for name in GLOBALS.iter().chain([&TABLE, &"redis"]) {
            get_field(lua, 1, name);
            let frozen = ffi::lua_topointer(lua, 3);
            thaw(lua, 3);
            let table = ffi::lua_topointer(lua, 3);
            if table != frozen {
                *free.next().expect("room for every library") = table;
            }
            set_field(lua, 2, name);
        }
        get_field(lua, 2, "redis");
        get_field(lua, -1, "call");
        bridge.plain_call.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
        bridge.plain_redis.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
        bridge.plain_libraries.set(libraries);
        bridge.plain_base.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
    }
}

/// Makes the table that a library uses while it is loaded: a part of `redis` and nothing else. May
/// raise.
unsafe fn install_loading_base(lua: *mut lua_State, bridge: &BridgeState, version: &str) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::lua_settop(lua, 0);
        ffi::lua_createtable(lua, 0, 1);
        ffi::lua_createtable(lua, 0, 16);
        for name in sandbox::REDIS_WHILE_LOADING {
            push_allowed(lua, "redis", name);
            set_field(lua, 2, name);
        }
        let constants = sandbox::redis_constants(version).into_iter();
        let constants = constants.filter(|(name, _)| !name.starts_with("REPL_")).collect();
        install_redis_constants(lua, bridge, constants);
        for table in [2, 1] {
            ffi::lua_createtable(lua, 0, 1);
            ffi::lua_pushcclosure(lua, missing_global, 0);
            set_field(lua, -2, "__index");
            ffi::lua_setmetatable(lua, table);
        }
        seal(lua, 1, "redis");
        bridge.loading_base.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
    }
}

/// Makes the globals read from the table behind `anchor`. May raise.
pub(super) unsafe fn use_base(lua: *mut lua_State, anchor: c_int) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::lua_pushvalue(lua, ffi::LUA_GLOBALSINDEX);
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, anchor);
        read_from(lua);
    }
}

unsafe extern "C-unwind" fn missing_global(lua: *mut lua_State) -> c_int {
    // SAFETY: may raise, owns nothing.
    unsafe {
        if ffi::lua_isstring(lua, 2) == 0 {
            raise(lua, "Second argument to luaProtectedTableError must be a string or number");
        }
        ffi::luaL_where(lua, 1);
        push_bytes(lua, b"Script attempted to access nonexistent global variable '");
        ffi::lua_pushvalue(lua, 2);
        push_bytes(lua, b"'");
        ffi::lua_concat(lua, 4);
        ffi::lua_error(lua)
    }
}

/// Freezes the table on top and makes it the base table's field `name`. May raise.
unsafe fn seal(lua: *mut lua_State, base: c_int, name: &str) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        freeze(lua);
        set_field(lua, base, name);
    }
}

/// Pushes one function or constant: our replacement if there is one, else Lua's. May raise.
unsafe fn push_allowed(lua: *mut lua_State, library: &str, name: &str) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        if (library, name) == ("", "pairs") {
            ffi::lua_pushcclosure(lua, base_library::next, 0);
            ffi::lua_pushcclosure(lua, base_library::pairs, 1);
            return;
        }
        let ours = REPLACED.iter().find(|row| (row.0, row.1) == (library, name));
        match ours {
            Some(row) => ffi::lua_pushcclosure(lua, row.2, 0),
            None => push_original(lua, library, name),
        }
    }
}

/// Pushes a value of Lua's own libraries. May raise.
unsafe fn push_original(lua: *mut lua_State, library: &str, name: &str) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::lua_pushvalue(lua, ffi::LUA_GLOBALSINDEX);
        if !library.is_empty() {
            get_field(lua, -1, library);
            ffi::lua_replace(lua, -2);
        }
        get_field(lua, -1, name);
        ffi::lua_replace(lua, -2);
    }
}

unsafe fn keep_lua_functions(lua: *mut lua_State, lua_functions: &LuaFunctions) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        for (library, name, slot) in [
            ("", "next", &lua_functions.next),
            ("", "rawget", &lua_functions.rawget),
            ("", "rawset", &lua_functions.rawset),
            ("", "setmetatable", &lua_functions.setmetatable),
            ("", "tostring", &lua_functions.tostring),
            ("coroutine", "resume", &lua_functions.resume),
        ] {
            push_original(lua, library, name);
            slot.set(ffi::lua_tocfunction(lua, -1));
            ffi::lua_settop(lua, -2);
        }
    }
}
