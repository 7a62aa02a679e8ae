//! Builds the world a script sees, once, from what `sandbox` allows.
//!
//! What must hold: a script reaches nothing that is not on the lists there, and everything shared
//! between scripts but KEYS and ARGV is frozen for whatever script could write it.

use std::ffi::c_int;
use std::ptr;

use mlua::ffi::{self, lua_CFunction, lua_State};

use super::freeze::{freeze, read_from, thaw};
use super::harmless::{GLOBALS, TABLE};
use super::libraries::{cjson_new, library_function};
use super::tables::make_tables;
use super::values::{get_field, push, push_bytes, raise, set_field};
use super::{
    Context, Originals, PLAIN_LIBRARIES, World, base, call, compile, context, patterns, redis,
    register, table, text,
};
use crate::libs::{self, Constant};
use crate::sandbox;
use crate::value::Value;

/// A function that takes the place of Lua's own, or is new.
const REPLACED: &[(&str, &str, lua_CFunction)] = &[
    ("", "load", compile::load),
    ("", "loadstring", compile::loadstring),
    ("", "next", base::next),
    ("", "pcall", base::pcall),
    ("", "rawget", base::rawget),
    ("", "rawset", base::rawset),
    ("", "setmetatable", base::setmetatable),
    ("", "unpack", base::unpack),
    ("", "xpcall", base::xpcall),
    ("coroutine", "resume", base::coroutine_resume),
    ("math", "random", base::math_random),
    ("math", "randomseed", base::math_randomseed),
    ("redis", "acl_check_cmd", redis::redis_acl_check_cmd),
    ("redis", "breakpoint", redis::redis_breakpoint),
    ("redis", "call", call::redis_call),
    ("redis", "debug", redis::redis_debug),
    ("redis", "error_reply", redis::redis_error_reply),
    ("redis", "log", redis::redis_log),
    ("redis", "pcall", call::redis_pcall),
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
    ("string", "lower", text::string_lower),
    ("string", "match", patterns::string_match),
    ("string", "rep", text::string_rep),
    ("string", "reverse", text::string_reverse),
    ("string", "upper", text::string_upper),
    ("table", "concat", table::table_concat),
    ("table", "foreach", table::table_foreach),
    ("table", "foreachi", table::table_foreachi),
    ("table", "insert", table::table_insert),
    ("table", "maxn", table::table_maxn),
    ("table", "remove", table::table_remove),
    ("table", "sort", table::table_sort),
];

/// Opens Lua's libraries and builds from them the world a script sees. Plain.
pub(super) unsafe fn install(lua: *mut lua_State, version: &str) {
    // SAFETY: plain; called once, protected.
    unsafe {
        let context = context(lua);
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
        keep_originals(lua, &context.originals);
        call::make_names(lua, context);
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
        if context.world == World::Scripts {
            for name in sandbox::REDIS_OF_SCRIPTS {
                push_allowed(lua, "redis", name);
                set_field(lua, 2, name);
            }
        }
        install_redis_constants(lua, context, sandbox::redis_constants(version));
        seal(lua, base, "redis");
        for library in libs::LIBRARIES {
            install_library(lua, library);
            seal(lua, base, library.name);
        }
        install_globals(lua, context);
        if context.world == World::Scripts {
            install_plain_base(lua, context);
        }
        if context.world == World::Libraries {
            install_loading_base(lua, context, version);
        }
    }
}

/// Plain: the constants are kept in the context while they are pushed.
unsafe fn install_redis_constants(
    lua: *mut lua_State,
    context: &Context,
    constants: Vec<(&'static str, Value)>,
) {
    // SAFETY: plain.
    unsafe {
        let mut names = [""; 16];
        let mut values = Vec::new();
        for (slot, (name, value)) in names.iter_mut().zip(constants) {
            *slot = name;
            values.push(value);
        }
        context.set_values(values);
        for (name, value) in names.iter().zip(&*context.values.get()) {
            push(lua, value);
            set_field(lua, 2, name);
        }
    }
}

/// Leaves a table with a library's functions and constants. Plain.
unsafe fn install_library(lua: *mut lua_State, library: &'static libs::Library) {
    // SAFETY: plain; the upvalue is a static.
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

/// With the base table at 1: makes it the globals, frozen, with Redis's error for what is not
/// there; freezes the metatable of strings; anchors KEYS and ARGV. Plain.
unsafe fn install_globals(lua: *mut lua_State, context: &Context) {
    // SAFETY: plain.
    unsafe {
        ffi::lua_settop(lua, 1);
        push_bytes(lua, b"Lua 5.1");
        set_field(lua, 1, "_VERSION");
        if context.world == World::Scripts {
            make_tables(lua, &context.tables);
            for (table, name) in context.tables.named() {
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
        // What is not in the base table is an error.
        ffi::lua_createtable(lua, 0, 1);
        ffi::lua_pushcclosure(lua, missing_global, 0);
        set_field(lua, 2, "__index");
        ffi::lua_setmetatable(lua, 1);
        ffi::lua_pushvalue(lua, 1);
        context.base.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
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

/// With the base table at 1: makes what harmless scripts see, read without a detour. Plain.
unsafe fn install_plain_base(lua: *mut lua_State, context: &Context) {
    // SAFETY: plain.
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
        context.plain_call.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
        context.plain_redis.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
        context.plain_libraries.set(libraries);
        context.plain_base.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
    }
}

/// Makes what a library sees while it is loaded: `redis` alone, and little of that. Plain.
unsafe fn install_loading_base(lua: *mut lua_State, context: &Context, version: &str) {
    // SAFETY: plain.
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
        install_redis_constants(lua, context, constants);
        for table in [2, 1] {
            ffi::lua_createtable(lua, 0, 1);
            ffi::lua_pushcclosure(lua, missing_global, 0);
            set_field(lua, -2, "__index");
            ffi::lua_setmetatable(lua, table);
        }
        seal(lua, 1, "redis");
        context.loading_base.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
    }
}

/// Makes the globals read from the table behind `anchor`. Plain.
pub(super) unsafe fn use_base(lua: *mut lua_State, anchor: c_int) {
    // SAFETY: plain.
    unsafe {
        ffi::lua_pushvalue(lua, ffi::LUA_GLOBALSINDEX);
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, anchor);
        read_from(lua);
    }
}

unsafe extern "C-unwind" fn missing_global(lua: *mut lua_State) -> c_int {
    // SAFETY: plain.
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

/// Freezes the table on top and makes it the base table's field `name`. Plain.
unsafe fn seal(lua: *mut lua_State, base: c_int, name: &str) {
    // SAFETY: plain.
    unsafe {
        freeze(lua);
        set_field(lua, base, name);
    }
}

/// Pushes one function or constant: ours if we have one, else Lua's. Plain.
unsafe fn push_allowed(lua: *mut lua_State, library: &str, name: &str) {
    // SAFETY: plain.
    unsafe {
        if (library, name) == ("", "pairs") {
            ffi::lua_pushcclosure(lua, base::next, 0);
            ffi::lua_pushcclosure(lua, base::pairs, 1);
            return;
        }
        let ours = REPLACED.iter().find(|row| (row.0, row.1) == (library, name));
        match ours {
            Some(row) => ffi::lua_pushcclosure(lua, row.2, 0),
            None => push_original(lua, library, name),
        }
    }
}

/// Pushes what Lua's libraries hold. Plain.
unsafe fn push_original(lua: *mut lua_State, library: &str, name: &str) {
    // SAFETY: plain.
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

unsafe fn keep_originals(lua: *mut lua_State, originals: &Originals) {
    // SAFETY: plain.
    unsafe {
        for (library, name, slot) in [
            ("", "next", &originals.next),
            ("", "rawget", &originals.rawget),
            ("", "rawset", &originals.rawset),
            ("", "setmetatable", &originals.setmetatable),
            ("coroutine", "resume", &originals.resume),
        ] {
            push_original(lua, library, name);
            slot.set(ffi::lua_tocfunction(lua, -1));
            ffi::lua_settop(lua, -2);
        }
    }
}
