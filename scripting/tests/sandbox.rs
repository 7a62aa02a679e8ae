//! Tests every known escape from the sandbox. A script here either behaves as in Redis, or fails
//! and has no effect on the next script.

mod host;

use std::collections::BTreeSet;

use host::{LIMITS, MapHost, eval_in, interpreter, show};
use lockwheel_resp::Reply;
use lockwheel_scripting::{Interpreter, Limits, MathRandom};

/// A script that checks that earlier ones have changed nothing.
const INTACT: &str = "return {string.format('%d', 3), #('x'):rep(3), \
                      tostring(redis.sha1hex ~= nil), \
                      tostring(getmetatable('').__index.anything), tostring(rawget(_G, 'leak')), \
                      tostring(string.leak), tostring(redis.leak), math.floor(1.5), type(pcall)}";
const INTACT_REPLY: &str = "['3' :3 'true' 'nil' 'nil' 'nil' 'nil' :1 'function']";

/// Runs each script in one interpreter; `expected` is a part of its reply.
fn check(cases: &[(&str, &str)]) {
    let mut lua = interpreter();
    for (script, expected) in cases {
        let got = show(&eval_in(&mut lua, &mut MapHost::default(), script));
        assert!(got.contains(expected), "{script}\n     got {got}\nexpected {expected}");
        let after = show(&eval_in(&mut lua, &mut MapHost::default(), INTACT));
        assert_eq!(after, INTACT_REPLY, "after {script}");
    }
}

#[test]
fn globals_are_those_of_the_allow_list() {
    let script = "local t = {} for k, v in pairs(_G) do t[#t+1] = k \
                  if type(v) == 'table' and k ~= '_G' and k ~= 'KEYS' and k ~= 'ARGV' then \
                  for name in pairs(v) do t[#t+1] = k .. '.' .. name end end end return t";
    let reply = eval_in(&mut interpreter(), &mut MapHost::default(), script);
    let Reply::Array(names) = reply else { panic!("{reply:?}") };
    let names: BTreeSet<String> = names.iter().map(show).collect();
    let names: Vec<&str> = names.iter().map(|name| name.trim_matches('\'')).collect();
    let expected: Vec<&str> = include_str!("golden/globals.txt").lines().collect();
    assert_eq!(names, expected);
}

#[test]
fn bytecode_is_refused() {
    check(&[
        ("return string.dump", "null"),
        ("return string.dump(function() end)", "attempt to call field 'dump' (a nil value)"),
        ("local f, e = loadstring('\\27Lua') return {tostring(f), e}", "near 'char(27)'"),
        ("\u{1b}LuaQ\0", "unexpected symbol near 'char(27)'"),
        (
            "local n=0 local f, e = load(function() n=n+1 return ({'\\27','Lua'})[n] end) \
             return {tostring(f), e}",
            "near 'char(27)'",
        ),
        ("return loadstring('return 7')()", ":7"),
        ("local n=0 return load(function() n=n+1 return ({'return ','7'})[n] end)()", ":7"),
    ]);
}

#[test]
fn shared_tables_are_read_only() {
    let readonly = "Attempt to modify a readonly table";
    check(&[
        ("getmetatable('').__index = function() return 'pwned' end", readonly),
        ("getmetatable('').anything = 1", readonly),
        ("getmetatable('').__index.anything = 1", readonly),
        ("rawset(getmetatable('').__index, 'anything', 1)", readonly),
        ("setmetatable(getmetatable(''), {})", readonly),
        ("string.format = nil", readonly),
        ("redis.call = nil", readonly),
        ("redis.leak = 1", readonly),
        ("_G.leak = 1", readonly),
        ("leak = 1", readonly),
        ("redis = nil", readonly),
        ("KEYS = nil", readonly),
        ("rawset(_G, 'leak', 1)", readonly),
        ("rawset(string, 'leak', 1)", readonly),
        ("table.insert(redis, 1)", readonly),
        ("table.insert(string, 1, 'leak')", readonly),
        ("table.insert(math, 'leak')", readonly),
        ("local insert = table.insert insert(table, 'leak')", readonly),
        ("setmetatable(_G, {})", readonly),
        ("setmetatable(string, {__index = function() return 'pwned' end})", readonly),
        ("setmetatable(string, nil)", readonly),
        ("table.sort(string) table.remove(string) return 'harmless'", "harmless"),
        ("for k in pairs(string) do string[k] = nil end", readonly),
        ("local _, t = pairs(string) t.format = nil", readonly),
        ("local mt = getmetatable(string) if mt then mt.__index.leak = 1 end return 1", ":1"),
        ("return tostring(getmetatable(redis))", "'false'"),
        ("next(string, nil) return rawget(_G, 'string') == string", ":1"),
        ("for i, v in ipairs(string) do return v end return 'none'", "none"),
        ("table.foreach(string, function(k) string[k] = 1 end) return 1", ":1"),
        ("cjson.null = 1", readonly),
        ("cjson.new().encode = 1", readonly),
        ("loadstring('leak = 1')()", readonly),
        ("coroutine.wrap(function() leak = 1 end)()", readonly),
    ]);
}

#[test]
fn dangerous_functions_do_not_exist() {
    let names = "setfenv getfenv newproxy collectgarbage gcinfo print dofile loadfile require \
                 module package io debug";
    for name in names.split_whitespace() {
        let expected = format!("nonexistent global variable '{name}'");
        check(&[(&format!("return {name}"), &expected)]);
    }
    check(&[
        ("return os.exit", "null"),
        ("return os.execute", "null"),
        ("return type(os.clock())", "'number'"),
    ]);
}

#[test]
fn tostring_numbers_objects_instead_of_showing_addresses() {
    check(&[
        ("return tostring({})", "'table: 0x7f0000000040'"),
        (
            "local t, f = {}, function() end return {tostring(f), tostring(t), tostring(f)}",
            "['function: 0x7f0000000040' 'table: 0x7f0000000080' 'function: 0x7f0000000040']",
        ),
        ("return tostring(coroutine.create(function() end))", "'thread: 0x7f0000000040'"),
        ("return tostring(setmetatable({}, {__tostring = function() return 'own' end}))", "'own'"),
        (
            "return {tostring(nil), tostring(1.5), tostring(true), tostring('x')}",
            "['nil' '1.5' 'true' 'x']",
        ),
        ("return tostring()", "bad argument #1 to 'tostring' (value expected)"),
        ("for i = 1, 3e5 do tostring({}) end return tostring({})", "'table: 0x7f000124f840'"),
    ]);
}

#[test]
fn table_is_returned_in_an_order_that_does_not_depend_on_addresses() {
    check(&[(
        "redis.setresp(3) local set = {} \
         for _, name in ipairs({'d', 'a', 'e', 'c', 'b'}) do set[{ok = name}] = true end \
         set.text = true set[7] = true return {set = set}",
        "~[:7 'text' +a +b +c +d +e]",
    )]);
}

#[test]
fn os_clock_is_the_same_in_every_run_and_advances_in_a_loop() {
    check(&[
        ("return tostring(os.clock())", "'0'"),
        ("local begin = os.clock() while os.clock() < begin + 0.01 do end return 1", ":1"),
        ("return tostring(os.clock())", "'0'"),
    ]);
}

#[test]
fn values_of_script_are_gone_in_next() {
    check(&[
        ("math.randomseed(0) return tostring(math.random())", "'0.17082803611217'"),
        ("cjson.encode_number_precision(3) return cjson.encode(1/3)", "'0.333'"),
        ("return cjson.encode(1/3)", "'0.33333333333333'"),
        ("redis.setresp(3) return true", "#t"),
        ("return true", ":1"),
        ("table.insert(KEYS, 'leak') table.insert(ARGV, 'leak') return #KEYS", ":1"),
        ("return #KEYS + #ARGV", ":0"),
        ("KEYS.leak = 1 ARGV[1] = 2 return 1", ":1"),
        ("return {tostring(KEYS.leak), tostring(ARGV[1])}", "['nil' 'nil']"),
    ]);
}

/// Each of these would run for ever; each must end soon after the host kills it.
#[test]
fn kill_ends_every_script() {
    let forever = [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function() end) end",
        "xpcall(function() while true do end end, function() while true do end end)",
        "xpcall(function() error('a') end, function() while true do end end)",
        "coroutine.wrap(function() while true do end end)()",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "while true do pcall(coroutine.wrap(function() while true do end end)) end",
        "local function f() while true do pcall(f) end end f()",
        "while true do local ok = pcall(error, 'a') end",
        "while true do redis.pcall('get', 'a') end",
        "while true do pcall(string.rep, 'x', 1000000) end",
        "while true do load(function() while true do end end) end",
        "table.sort({3, 2, 1}, function(a, b) while true do end end)",
        "string.gsub('a', 'a', function() while true do end end)",
        "return setmetatable({}, {__index = function() while true do end end}).x",
        "local t = setmetatable({}, {__tostring = function() while true do end end}) tostring(t)",
        "string.find(string.rep('a', 40), string.rep('a?', 40) .. string.rep('a', 40))",
        "while true do pcall(string.find, string.rep('a', 40), string.rep('a?', 40) .. 'b') end",
        "local t = {} for i = 1, 100000 do t[i] = i end \
         while true do table.insert(t, 1, 1) table.remove(t, 1) end",
        "local s = string.rep('x', 1000000) while true do local t = s .. s end",
        "table.insert({}, -2^31, 1)",
        "local t = {} for i = 1, 300 do t[i] = i * 7919 % 1009 end local n = 0 \
         table.sort(t, function() n = n + 1 return n % 7 < 3 end)",
        "local t = {} for i = 1, 1000 do t[i] = i end while true do cmsgpack.pack(t) end",
        "coroutine.wrap(function() local t = {} for i = 1, 1000 do t[i] = i end \
         while true do cjson.encode(t) end end)()",
    ];
    let mut lua = interpreter();
    for script in forever {
        let mut host = MapHost { polls_max: Some(5), ..MapHost::default() };
        let got = show(&eval_in(&mut lua, &mut host, script));
        let killed =
            "-ERR Script killed by user with SCRIPT KILL... script: SHA, on @user_script:1.";
        assert_eq!(got, killed, "{script}");
        assert_eq!(host.polls, 6, "asked again after the kill: {script}");
        let after = show(&eval_in(&mut lua, &mut MapHost::default(), INTACT));
        assert_eq!(after, INTACT_REPLY, "after {script}");
    }
}

/// One call that takes long. The host is polled within it, at least once for this number of its
/// items or bytes, and can end it there.
#[test]
fn host_is_polled_within_long_calls() {
    const NUMBERS: &str = "local t = {} for i = 1, 50000 do t[i] = i * 7919 % 50021 end ";
    const TEXTS: &str = "local t = {} for i = 1, 50000 do t[i] = 'x' end ";
    const TEXT: &str = "local s = string.rep('x', 200000) ";
    for (before, call, questions) in [
        (NUMBERS, "table.sort(t)", 500),
        (NUMBERS, "table.sort(t, rawequal)", 500),
        (NUMBERS, "table.concat(t)", 20),
        (NUMBERS, "table.insert(t, 1, 1)", 20),
        (NUMBERS, "table.insert(t, -50000, 1)", 40),
        (NUMBERS, "table.remove(t, 1)", 20),
        (NUMBERS, "table.maxn(t)", 20),
        (NUMBERS, "table.foreach(t, math.randomseed)", 20),
        (NUMBERS, "table.foreachi(t, math.randomseed)", 20),
        (NUMBERS, "cmsgpack.pack(t)", 100),
        (NUMBERS, "cmsgpack.unpack(cmsgpack.pack(t))", 300),
        (NUMBERS, "cjson.encode(t)", 100),
        (NUMBERS, "cjson.decode(cjson.encode(t))", 300),
        (NUMBERS, "return t", 100),
        (TEXTS, "table.concat(t, 'x')", 20),
        (TEXT, "string.rep('x', 200000)", 6),
        (TEXT, "string.upper(s)", 6),
        (TEXT, "string.lower(s)", 6),
        (TEXT, "string.reverse(s)", 6),
        (TEXT, "string.gsub(s, 'x', string.upper)", 200),
        (TEXT, "string.gsub(s, 'x', 'y')", 200),
        (TEXT, "string.find(s, 'x*y')", 100),
        (TEXT, "redis.sha1hex(s)", 20),
        (TEXT, "cjson.encode(s)", 15),
        (TEXT, "cjson.decode('\"' .. s .. '\"')", 15),
        (TEXT, "cjson.decode(string.rep(' ', 200000) .. '1')", 15),
        (TEXT, "cmsgpack.pack(s)", 2),
        (TEXT, "struct.pack(s)", 50),
        (TEXT, "struct.size(s)", 50),
        (TEXT, "struct.unpack(s, s)", 50),
        ("local s = string.rep('a = 1 ', 20000) ", "loadstring(s)", 50),
    ] {
        let polls_of = |script: &str, polls_max| {
            let mut host = MapHost { polls_max, ..MapHost::default() };
            let mut lua = interpreter();
            lua.set_plans(false);
            let reply = show(&eval_in(&mut lua, &mut host, script));
            (host.polls, reply)
        };
        let (without, _) = polls_of(before, None);
        let script = format!("{before} {call}");
        let (with, _) = polls_of(&script, None);
        assert!(with >= without + questions, "{call}: {without}, then {with}");
        let killed = "Script killed by user";
        let (last, reply) = polls_of(&script, Some(without + questions / 2));
        assert!(reply.contains(killed), "{call}: {reply}");
        assert_eq!(last, without + questions / 2 + 1, "{call}");
    }
}

#[test]
fn host_is_polled_more_often_with_full_memory() {
    let polls_while_holding = |bytes: usize| {
        let mut host = MapHost::default();
        let script =
            format!("local held = string.rep('x', {bytes}) for i = 1, 100000 do end return #held");
        eval_in(&mut interpreter(), &mut host, &script);
        host.polls
    };
    let (little, much) = (polls_while_holding(1 << 10), polls_while_holding(16 << 20));
    assert!(little >= 100, "{little}");
    assert!(much > little * 10, "{little} while holding little, {much} while holding much");
}

#[test]
fn search_is_limited_even_without_kill() {
    check(&[
        (
            "return string.find(string.rep('a', 40), string.rep('a?', 40) .. string.rep('a', 40))",
            "pattern matching takes too long",
        ),
        ("return string.find(string.rep('a', 1000), string.rep('.-', 30) .. 'b')", "too long"),
        ("return string.find('a', string.rep('(', 40))", "too many captures"),
        ("return string.match(string.rep('x', 300), string.rep('x?', 300))", "pattern too complex"),
        ("return #string.gsub(string.rep('a', 1000000), 'a', 'b')", ":1000000"),
    ]);
}

#[test]
fn memory_is_limited() {
    let memory = "not enough memory";
    check(&[
        ("return #string.rep('x', 1e9)", memory),
        ("local t = {} while true do t[#t+1] = string.rep(#t, 200) end", memory),
        ("local s = 'x' while true do s = s .. s end", memory),
        ("local t = {} for i = 1, 1e9 do t[i] = i end", memory),
        ("return #string.gsub(string.rep('a', 1000000), 'a', string.rep('b', 100))", memory),
        ("return {pcall(string.rep, 'x', 1e9)}", "[null 'not enough memory']"),
        ("return #table.concat({string.rep('x', 3e7), string.rep('x', 3e7)})", memory),
        ("local t = {} for i = 1, 30 do t = {t, t} end return t", "too many values"),
        ("local t = {} for i = 1, 30 do t = {t, t} end return cjson.encode(t)", "too many values"),
        ("local t = {} t[1] = t return t", "reached lua stack limit"),
        ("local t = {} t[t] = 1 return t", "[]"),
        ("local t = {} for i = 1, 900 do t = {[t] = 1} end return t", "[]"),
        ("local t = {} for i = 1, 900 do t = {[t] = 1} end return cjson.encode(t)", ""),
        ("local t = {} for i = 1, 900 do t = {[t] = t} end return cmsgpack.pack(t)", ""),
        ("cjson.encode_sparse_array(true, 0, 0) return #cjson.encode({[2e9] = 1})", memory),
        ("return cmsgpack.unpack(string.rep('\\192', 2e7))", "too many return values"),
        ("return cmsgpack.unpack('\\221\\1\\0\\0\\0' .. string.rep('\\192', 16777216))", memory),
        ("return cmsgpack.unpack(string.rep('\\145', 1e6))", "stack overflow"),
    ]);
}

/// A script that makes many large strings holds at most three at a time.
#[test]
fn large_strings_are_freed_in_time() {
    let limits = Limits { memory_bytes_max: 4 << 20, ..LIMITS };
    for one in [
        "s:upper()",
        "s:reverse()",
        "string.rep('y', #s)",
        "local t = s .. i",
        "table.concat({s, i})",
        "string.format('%s%d', s, i)",
        "redis.sha1hex(s) local t = i .. s",
    ] {
        let mut lua =
            Interpreter::new(limits, "7.2.4", MathRandom::new(0)).expect("an interpreter");
        let script = format!("local s = string.rep('x', 600000) for i = 1, 40 do {one} end");
        assert_eq!(show(&eval_in(&mut lua, &mut MapHost::default(), &script)), "null", "{one}");
    }
}

#[test]
fn no_script_overflows_stack() {
    check(&[
        ("local function f() return 1 + f() end return f()", "stack overflow"),
        ("local function f() return pcall(f) end return tostring(f())", ""),
        ("local function f() coroutine.wrap(f)() end f()", "overflow"),
        (
            "local s = string.rep('(', 300) .. string.rep(')', 300) \
             return loadstring('return ' .. s)",
            "null",
        ),
        ("return loadstring(string.rep('do ', 500) .. string.rep(' end', 500))", "null"),
        ("return select('#', unpack({}, 1, 1e6))", "too many results to unpack"),
        ("return select('#', unpack({}, -2^31, 2^31 - 1))", "too many results to unpack"),
        ("return select('#', unpack({}, 1, 2^31 - 1))", "too many results to unpack"),
        // Only the low 32 bits count.
        ("return select('#', unpack({}, -2^31, 2^31))", ":1"),
        ("return select('#', unpack({}, 1, 2^53))", ":0"),
        ("return select('#', unpack({}, 1, 7000))", ":7000"),
        (
            "local t = {} for i = 1, 20000 do t = {t} end return cjson.encode(t)",
            "excessive nesting",
        ),
        ("local t = {} for i = 1, 20000 do t = {t} end return t", "reached lua stack limit"),
        (
            "cjson.decode_max_depth(1e6) return cjson.decode(string.rep('[', 1e5))",
            "too many nested",
        ),
        (
            "local f = tostring \
             for i = 1, 300 do local g = f f = function(x) return g(x) end end return f(1)",
            "'1'",
        ),
        ("return loadstring('return [' .. string.rep('=', 100000) .. '[a]]')", "null"),
    ]);
}

#[test]
fn interpreter_is_not_created_without_memory() {
    let limits = Limits { memory_bytes_max: 4_096, ..LIMITS };
    assert!(Interpreter::new(limits, "7.2.4", MathRandom::new(0)).is_err());
    let limits = Limits { memory_bytes_max: 256 << 10, ..LIMITS };
    assert!(Interpreter::new(limits, "7.2.4", MathRandom::new(0)).is_ok());
}

/// Whatever an escape does, the next script finds everything unchanged.
#[test]
fn every_known_escape_fails() {
    let mut lua = interpreter();
    let escapes = include_str!("escapes.txt").lines();
    for script in escapes.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut host = MapHost { polls_max: Some(50), ..MapHost::default() };
        eval_in(&mut lua, &mut host, script);
        let after = show(&eval_in(&mut lua, &mut MapHost::default(), INTACT));
        assert_eq!(after, INTACT_REPLY, "after {script}");
    }
}
