//! Runs whole scripts with a small host.

mod host;

use host::{MapHost, eval, show};
use lockwheel_resp::Reply;
use lockwheel_scripting::Interpreter;

/// The tables cannot hold line ends and escape characters.
#[test]
fn errors_outside_golden_tables_match_redis() {
    for (script, expected) in [
        (
            "\u{1b}Lua",
            "-ERR Error compiling script (new function): user_script:1: \
             unexpected symbol near 'char(27)'",
        ),
        (
            "# a\nreturn 1",
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'",
        ),
        ("#!lua\nreturn 1", ":1"),
        (
            "#!lua flags=no-writes\n\nreturn x",
            "-ERR user_script:3: Script attempted to access nonexistent global variable 'x' \
             script: SHA, on @user_script:3.",
        ),
        (
            "\nlocal function f()\n error({err='A b'})\nend\n\nreturn f()",
            "-A b script: SHA, on @user_script:3.",
        ),
    ] {
        assert_eq!(show(&eval(&mut MapHost::default(), script)), expected, "{script}");
    }
}

#[test]
fn each_run_has_its_own_keys_and_arguments() {
    let mut host = MapHost::default();
    let mut lua = host::interpreter();
    let mut run = |script: &str, keys: &[&[u8]], args: &[&[u8]]| {
        let sha = lua.load(script.as_bytes()).expect("compiles");
        show(&lua.run(sha.as_bytes(), keys, args, &mut host))
    };
    let many: Vec<&[u8]> = vec![b"x"; 100];
    let report =
        "return {#KEYS, #ARGV, KEYS[1] or 'none', ARGV[#ARGV] or 'none', ARGV.x or 'none'}";
    assert_eq!(run(report, &[b"a", b"b"], &[b"c"]), "[:2 :1 'a' 'c' 'none']");
    assert_eq!(run(report, &[], &[]), "[:0 :0 'none' 'none' 'none']");
    assert_eq!(run(report, &many, &many), "[:100 :100 'x' 'x' 'none']");
    assert_eq!(run(report, &[b"a"], &[b"c", b"d"]), "[:1 :2 'a' 'd' 'none']");
    run("table.remove(ARGV,1) table.remove(ARGV,1) KEYS[3]=1", &[b"a"], &[b"1", b"2", b"3"]);
    assert_eq!(run(report, &[b"a"], &[b"c", b"d"]), "[:1 :2 'a' 'd' 'none']");
    run("ARGV.x=1 KEYS[0]=7 KEYS[-1]=2 KEYS[1.5]=2", &[], &[]);
    assert_eq!(run(report, &[b"a"], &[]), "[:1 :0 'a' 'none' 'none']");
    assert_eq!(run("return {KEYS[0] or 'none', KEYS[1.5] or 'none'}", &[], &[]), "['none' 'none']");
    run("setmetatable(ARGV,{__index=function() return 'leak' end})", &[], &[]);
    assert_eq!(run(report, &[b"a"], &[]), "[:1 :0 'a' 'none' 'none']");
    let all = "local n=0 for k,v in pairs(ARGV) do n=n+1 end return n";
    assert_eq!(run(all, &[], &[b"1", b"2"]), ":2");
}

#[test]
fn keys_hold_nothing_of_previous_run() {
    let mut lua = host::interpreter();
    let mut run = |script: &str, keys: &[&[u8]]| {
        let sha = lua.load(script.as_bytes()).expect("it compiles");
        show(&lua.run(sha.as_bytes(), keys, keys, &mut MapHost::default()))
    };
    let looks = "local function at(list, i) return list[i] or 'none' end \
        return {#KEYS, at(KEYS, 1), at(KEYS, 3), at(KEYS, 9), #ARGV, at(ARGV, 1), at(ARGV, 'x')}";
    // A script that writes a table has other globals than one that only reads.
    let looks_and_writes = format!("local seen = {{}} seen.x = KEYS[3] {looks}");
    let befores = [
        "return KEYS[1]",
        "error('x')",
        "KEYS[1] = 'lost' KEYS[9] = 'left' ARGV.x = 1",
        "table.insert(KEYS, 'left') table.remove(ARGV)",
        "rawset(KEYS, 3, 'left') rawset(ARGV, -1, 'left')",
        "setmetatable(KEYS, {__index = function() return 'left' end})",
        "loadstring('KEYS[3] = 7 ARGV[1] = nil')()",
        "local keys = KEYS pcall(function() keys[3] = 'left' error('x') end)",
        "_G.KEYS[3] = 'left'",
    ];
    for before in befores {
        for look in [looks, &looks_and_writes] {
            run(before, &[b"x", b"y"]);
            assert_eq!(run(look, &[b"a"]), "[:1 'a' 'none' 'none' :1 'a' 'none']", "{before}");
            run(before, &[b"x", b"y"]);
            let expected = "[:3 'a' 'c' 'none' :3 'a' 'none']";
            assert_eq!(run(look, &[b"a", b"b", b"c"]), expected, "{before}");
            assert_eq!(run(look, &[]), "[:0 'none' 'none' 'none' :0 'none' 'none']", "{before}");
        }
    }
}

#[test]
fn harmless_and_other_scripts_behave_alike() {
    let cases = [
        "return type(redis) .. type(math) .. type(string) .. #redis .. type(KEYS)",
        "return redis",
        "return {redis.leak == nil, math.leak == nil, redis.LOG_WARNING, math.huge > 1}",
        "return {pcall(redis), pcall(error, redis)}",
        "return redis.leak()",
        "return redis .. ''",
        "return redis < math",
        "return redis.call(redis)",
        "return unpack(redis)",
        "local names = '' for name in pairs(redis) do names = names .. name end return names",
        "return {next(math) ~= nil, next(string) ~= nil}",
        "return ('x'):rep(3) .. string.rep('y', 2) .. math.floor(1.5)",
        "return leak",
        "local function f() return leak end return f()",
        "return select('#', ipairs(KEYS))",
        "return {#KEYS, unpack(ARGV, 1, #ARGV)}",
        "return -KEYS",
        "return ARGV + 1",
        "return 1 + #KEYS + KEYS",
        "return 'x' .. KEYS .. 'y'",
        "return KEYS()",
        "return KEYS(redis)",
        "return redis(KEYS)",
        "return {pcall(KEYS)}",
        "return KEYS < ARGV",
        "return KEYS == ARGV or redis == KEYS",
        "for i = KEYS, 1 do end",
        "return KEYS[1].x.y",
        "return KEYS[1] + 1",
        "return KEYS.x.y",
        "return KEYS:none()",
        "return redis.none()",
        "return redis.none.x",
        "return redis.call + 1",
        "return redis.call(1, KEYS and -ARGV)",
        "return redis:call()",
        "local keys = KEYS return keys + keys",
        "local keys, args = KEYS, ARGV return {#keys, keys + args}",
        "local function f() return KEYS + 1 end return f()",
        "local function f() return {#KEYS, KEYS[1] + 1} end return f()",
        "local function f() return redis.none() end return f()",
        "local function f(...) return select('#', ...), KEYS[1] end return {f(1, 2)}",
        "return select('#', ...)",
        "return {...}",
        "return KEYS[1] -- the end",
        "(redis.call)(KEYS)",
    ];
    for script in cases {
        let shown = |script: &str| {
            let shown = show(&eval(&mut MapHost::default(), script));
            // An error names the script.
            shown.split(" script: ").next().unwrap_or_default().to_owned()
        };
        let writes = format!("local seen = {{}} seen.x = 1 {script}");
        assert_eq!(shown(script), shown(&writes), "{script}");
    }
}

/// A script that only reads has tables of its own, and values they hold already are not set again.
#[test]
fn repeated_and_changed_arguments_are_both_found() {
    let mut lua = host::interpreter();
    let mut run = |script: &str, args: &[&[u8]]| {
        let sha = lua.load(script.as_bytes()).expect("it compiles");
        lua.run(sha.as_bytes(), args, args, &mut MapHost::default())
    };
    let (long, longer, other) = ([b'x'; 48], [b'x'; 49], [b'y'; 49]);
    let many: Vec<&[u8]> = vec![b"m"; 33];
    let given: [&[&[u8]]; 14] = [
        &[],
        &[b""],
        &[b"m"],
        &[b"n"],
        &[b"m", b"n"],
        &[b"m", b"o"],
        &[b"n", b"n"],
        &[b"m", b"", b"", b"n"],
        &[&long, b"n"],
        &[&longer, b"n"],
        &[&other, b"n"],
        &[&long[1..], b"n"],
        &many[..32],
        &many,
    ];
    for end in ["", "table.insert(KEYS, 'left') table.insert(ARGV, 'left')", "error('x')"] {
        let script = format!("if #ARGV == 1 then {end} end return {{#KEYS, unpack(ARGV)}}");
        for (before, args) in given.iter().flat_map(|before| given.map(|args| (before, args))) {
            run(&script, before);
            if args.len() == 1 {
                continue;
            }
            let mut expected = vec![Reply::Integer(args.len() as i64)];
            expected.extend(args.iter().map(Reply::bulk));
            assert_eq!(run(&script, args), Reply::Array(expected), "{before:?} {args:?}");
        }
    }
}

/// Redisson's scripts: the lock is acquired, acquired again, released once and then completely.
#[test]
fn redisson_scripts_run() {
    const LOCK: &str = "if ((redis.call('exists', KEYS[1]) == 0) \
        or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then \
        redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); \
        return nil; end; return redis.call('pttl', KEYS[1]);";
    const UNLOCK: &str = "local val = redis.call('get', KEYS[3]); \
        if val ~= false then return tonumber(val);end; \
        if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; \
        local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); \
        if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); \
        redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0; \
        else redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); \
        redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end;";
    let mut lua = host::interpreter();
    let mut host = MapHost::default();
    let lock = lua.load(LOCK.as_bytes()).expect("compiles");
    let unlock = lua.load(UNLOCK.as_bytes()).expect("compiles");
    let take = |lua: &mut Interpreter, host: &mut MapHost, owner: &[u8]| {
        show(&lua.run(lock.as_bytes(), &[b"lock"], &[b"30000", owner], host))
    };
    let release = |lua: &mut Interpreter, host: &mut MapHost, owner: &[u8], latch: &[u8]| {
        let args: [&[u8]; 5] = [b"0", b"30000", owner, b"publish", b"13500"];
        show(&lua.run(unlock.as_bytes(), &[b"lock", b"channel", latch], &args, host))
    };
    assert_eq!(take(&mut lua, &mut host, b"a:1"), "null");
    assert_eq!(take(&mut lua, &mut host, b"a:1"), "null");
    assert_eq!(take(&mut lua, &mut host, b"b:1"), ":30000");
    assert_eq!(release(&mut lua, &mut host, b"b:1", b"latch:0"), "null");
    assert_eq!(release(&mut lua, &mut host, b"a:1", b"latch:1"), ":0");
    assert_eq!(release(&mut lua, &mut host, b"a:1", b"latch:2"), ":1");
    assert_eq!(release(&mut lua, &mut host, b"a:1", b"latch:2"), ":1");
    assert!(host.calls.contains(&"publish channel 0".to_owned()));
    assert!(host.calls.contains(&"hincrby lock a:1 -1".to_owned()));
    assert_eq!(take(&mut lua, &mut host, b"b:1"), "null");
}

#[test]
fn script_is_compiled_once() {
    let mut lua = host::interpreter();
    let first = lua.load(b"return 1").expect("compiles");
    let before = lua.memory_bytes();
    assert_eq!(lua.load(b"return 1"), Ok(first));
    assert_eq!((lua.len(), lua.memory_bytes()), (1, before));
    let upper = first.as_str().to_uppercase();
    assert!(lua.find(upper.as_bytes()).is_some());
    let mut host = MapHost::default();
    assert_eq!(lua.run(upper.as_bytes(), &[], &[], &mut host), Reply::Integer(1));
    lua.flush();
    assert!(lua.is_empty() && lua.find(first.as_bytes()).is_none());
}

#[test]
fn panic_of_host_reaches_caller_and_state_stays_usable() {
    let mut lua = host::interpreter();
    let script = "pcall(function() redis.call('panic') end) return 1";
    let sha = lua.load(script.as_bytes()).expect("compiles");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        lua.run(sha.as_bytes(), &[], &[], &mut MapHost::default())
    }));
    assert!(panicked.is_err());
    let sha = lua.load(b"return 2").expect("compiles");
    assert_eq!(lua.run(sha.as_bytes(), &[], &[], &mut MapHost::default()), Reply::Integer(2));
}
