//! The allow list of scripts. A script can use nothing that is not named here.

use crate::value::Value;

/// The global functions.
pub(crate) const BASE: &[&str] = &[
    "assert",
    "error",
    "getmetatable",
    "ipairs",
    "load",
    "loadstring",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "xpcall",
];

/// The libraries of Lua, with the functions and constants that scripts may use.
pub(crate) const LIBRARIES: &[(&str, &[&str])] = &[
    ("coroutine", &["create", "resume", "running", "status", "wrap", "yield"]),
    (
        "math",
        &[
            "abs",
            "acos",
            "asin",
            "atan",
            "atan2",
            "ceil",
            "cos",
            "cosh",
            "deg",
            "exp",
            "floor",
            "fmod",
            "frexp",
            "huge",
            "ldexp",
            "log",
            "log10",
            "max",
            "min",
            "mod",
            "modf",
            "pi",
            "pow",
            "rad",
            "random",
            "randomseed",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
        ],
    ),
    ("os", &["clock"]),
    (
        "string",
        &[
            "byte", "char", "find", "format", "gfind", "gmatch", "gsub", "len", "lower", "match",
            "rep", "reverse", "sub", "upper",
        ],
    ),
    (
        "table",
        &["concat", "foreach", "foreachi", "getn", "insert", "maxn", "remove", "setn", "sort"],
    ),
];

/// The functions of `redis`.
pub(crate) const REDIS: &[&str] = &[
    "acl_check_cmd",
    "call",
    "error_reply",
    "log",
    "pcall",
    "set_repl",
    "setresp",
    "sha1hex",
    "status_reply",
];

/// The functions of `redis` that scripts have and functions of libraries do not have.
pub(crate) const REDIS_OF_SCRIPTS: &[&str] = &["breakpoint", "debug", "replicate_commands"];

/// The functions of `redis` that a library can use while it is loaded. It can use nothing else.
pub(crate) const REDIS_WHILE_LOADING: &[&str] = &["log", "register_function"];

/// The constants of `redis`. `version` is `major.minor.patch`.
pub(crate) fn redis_constants(version: &str) -> Vec<(&'static str, Value)> {
    let mut number = 0_u32;
    for part in version.split('.').take(3) {
        number = number << 8 | part.parse::<u32>().unwrap_or(0) & 0xFF;
    }
    let integer = |n: u32| Value::Number(f64::from(n));
    vec![
        ("LOG_DEBUG", integer(0)),
        ("LOG_VERBOSE", integer(1)),
        ("LOG_NOTICE", integer(2)),
        ("LOG_WARNING", integer(3)),
        ("REPL_NONE", integer(0)),
        ("REPL_AOF", integer(1)),
        ("REPL_SLAVE", integer(2)),
        ("REPL_REPLICA", integer(2)),
        ("REPL_ALL", integer(3)),
        ("REDIS_VERSION", Value::Bytes(version.as_bytes().to_vec().into())),
        ("REDIS_VERSION_NUM", integer(number)),
    ]
}
