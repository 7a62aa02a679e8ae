//! Whole scripts against a small host: what Redis answers is in the tables.

mod host;

use host::{MapHost, eval, show};
use leasehold_resp::Reply;

fn check(cases: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (script, expected) in cases {
        let got = show(&eval(&mut MapHost::default(), script));
        if got != *expected {
            wrong.push(format!("{script}\n     got {got}\nexpected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn returned_values_become_replies() {
    check(&[
        ("return 1", ":1"),
        ("return 3.7", ":3"),
        ("return -0.5", ":0"),
        ("return", "null"),
        ("return nil", "null"),
        ("return true", ":1"),
        ("return false", "null"),
        ("return 'a\\0b'", "'a\\x00b'"),
        ("return {1,2,{3,'x'},nil,4}", "[:1 :2 [:3 'x']]"),
        ("return {false,1.9,true,nil,2}", "[null :1 :1]"),
        ("return {['1']=2}", "[]"),
        ("return {1,2,x=3}", "[:1 :2]"),
        ("return {ok='x\\ny'}", "+x y"),
        ("return {err='MY x\\r\\ny'}", "-MY x  y"),
        ("return {err='-x'}", "--x"),
        ("return {err='x',ok='y'}", "-x"),
        ("return {err=1}", "[]"),
        ("return {ok=1}", "[]"),
        ("return {double=3.5}", ",3.5"),
        ("return {double='3'}", "[]"),
        ("return {big_number='1\\r\\n2'}", "(1  2"),
        ("return {big_number=12}", "[]"),
        ("return {map={a=1}}", "%{'a': :1}"),
        ("return {map={a={map={b=1}}}}", "%{'a': %{'b': :1}}"),
        ("return {map=1}", "[]"),
        ("return {set={a=true}}", "~['a']"),
        ("return {verbatim_string={format='txt',string='abc'}}", "=txt:'abc'"),
        ("return {verbatim_string={format='text',string='abc'}}", "=tex:'abc'"),
        ("return {verbatim_string={format='txt'}}", "[]"),
        (
            "return {3.99,-3.99,1e300,0/0,-1e300,2^53,2^63,-2^63,2^62,1/0}",
            "[:3 :-3 :-9223372036854775808 :-9223372036854775808 :-9223372036854775808 \
             :9007199254740992 :-9223372036854775808 :-9223372036854775808 \
             :4611686018427387904 :-9223372036854775808]",
        ),
        ("return coroutine.create(function() end)", "null"),
        ("return setmetatable({},{__index=function(t,i) if i==1 then return 5 end end})", "[]"),
        ("redis.setresp(3) return true", "#t"),
        ("redis.setresp(3) return {true,false,1}", "[#t #f :1]"),
        ("redis.setresp(3) return nil", "null"),
    ]);
}

#[test]
fn errors_read_as_in_redis() {
    check(&[
        (
            "return x",
            "-ERR user_script:1: Script attempted to access nonexistent global variable 'x' script: SHA, on @user_script:1.",
        ),
        (
            "x=1",
            "-ERR user_script:1: Attempt to modify a readonly table script: SHA, on @user_script:1.",
        ),
        ("error('x')", "-ERR user_script:1: x script: SHA, on @user_script:1."),
        ("error({err='MY err'})", "-MY err script: SHA, on @user_script:1."),
        ("error({err='-MY err'})", "--MY err script: SHA, on @user_script:1."),
        ("assert(false,'msg')", "-ERR user_script:1: msg script: SHA, on @user_script:1."),
        ("error()", "-ERR nil script: SHA, on @user_script:1."),
        ("error(true)", "-ERR true script: SHA, on @user_script:1."),
        ("error(12)", "-ERR user_script:1: 12 script: SHA, on @user_script:1."),
        ("error({err=1})", "-1 script: SHA, on @user_script:1."),
        ("error('x',0)", "-ERR x script: SHA, on @user_script:1."),
        ("error('x',2)", "-ERR x script: SHA, on @user_script:1."),
        ("error('a\\nb')", "-ERR user_script:1: a b script: SHA, on @user_script:1."),
        (
            "foo(",
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'",
        ),
        (
            "\u{1b}Lua",
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near 'char(27)'",
        ),
        (
            "# a\nreturn 1",
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'",
        ),
        ("#!lua\nreturn 1", ":1"),
        (
            "#!lua flags=no-writes\n\nreturn x",
            "-ERR user_script:3: Script attempted to access nonexistent global variable 'x' script: SHA, on @user_script:3.",
        ),
        (
            "return 1+nil",
            "-ERR user_script:1: attempt to perform arithmetic on a nil value script: SHA, on @user_script:1.",
        ),
        (
            "\nlocal function f()\n error({err='A b'})\nend\n\nreturn f()",
            "-A b script: SHA, on @user_script:3.",
        ),
        (
            "local function f() return f()+1 end return f()",
            "-ERR user_script:1: stack overflow script: SHA, on @user_script:1.",
        ),
        (
            "coroutine.wrap(function() error('a') end)()",
            "-ERR user_script:1: user_script:1: a script: SHA, on @user_script:1.",
        ),
        (
            "return {coroutine.resume(coroutine.create(function() error('a') end))}",
            "[null 'user_script:1: a']",
        ),
        (
            "loadstring('error(\"a\")')()",
            "-ERR [string \"error(\"a\")\"]:1: a script: SHA, on error(\"a\"):1.",
        ),
        (
            "table.foreach({1},function() error({err='A b'}) end)",
            "-A b script: SHA, on @user_script:1.",
        ),
        ("next({},1)", "-ERR invalid key to 'next' script: SHA, on @user_script:1."),
        ("return {pcall(error,'x')}", "[null 'x']"),
        ("return {pcall(function() error({err='a'}) end)}", "[null 'a']"),
        ("return {pcall()}", "[null 'attempt to call a boolean value']"),
        ("return {pcall(1)}", "[null 'attempt to call a number value']"),
        ("return {pcall(function() return 1,2 end)}", "[:1 :1 :2]"),
        (
            "return xpcall()",
            "-ERR user_script:1: bad argument #2 to 'xpcall' (value expected) script: SHA, on @user_script:1.",
        ),
        (
            "return {xpcall(function() error('a',0) end, function(m) return m..'!' end)}",
            "[null 'a!']",
        ),
        (
            "unpack({},1,1e8)",
            "-ERR user_script:1: too many results to unpack script: SHA, on @user_script:1.",
        ),
        ("error({})", "-ERR unknown error script: SHA, on @user_script:1."),
    ]);
}

#[test]
fn the_functions_of_redis() {
    check(&[
        (
            "return redis.call()",
            "-ERR Please specify at least one argument for this redis lib call script: SHA, on @user_script:1.",
        ),
        (
            "return redis.pcall()",
            "-ERR Please specify at least one argument for this redis lib call",
        ),
        (
            "return redis.call({})",
            "-ERR Lua redis lib command arguments must be strings or integers script: SHA, on @user_script:1.",
        ),
        (
            "return redis.call('get',true)",
            "-ERR Lua redis lib command arguments must be strings or integers script: SHA, on @user_script:1.",
        ),
        (
            "return redis.call('nosuch')",
            "-ERR Unknown Redis command called from script script: SHA, on @user_script:1.",
        ),
        ("return redis.pcall('nosuch')", "-ERR Unknown Redis command called from script"),
        (
            "local ok,t=pcall(redis.call,'nosuch') return {type(t),t}",
            "['string' 'ERR Unknown Redis command called from script']",
        ),
        (
            "local t=redis.pcall('nosuch') return {t.err,tostring(t.source),tostring(t.ignore_error_stats_update)}",
            "['ERR Unknown Redis command called from script' 'nil' 'true']",
        ),
        (
            "local ok,t=xpcall(redis.log,function(e) return e end) return {type(t),t.err}",
            "['table' 'ERR redis.log() requires two arguments or more.']",
        ),
        (
            "return {coroutine.resume(coroutine.create(function() redis.call('nosuch') end))}",
            "[null -ERR Unknown Redis command called from script]",
        ),
        ("return redis.error_reply('x')", "-ERR x"),
        ("return redis.error_reply('-x y')", "-x y"),
        ("return redis.error_reply('- x y')", "- x y"),
        ("return redis.error_reply('xx y')", "-xx y"),
        ("return redis.error_reply('')", "-ERR "),
        ("return redis.error_reply()", "-ERR wrong number or type of arguments"),
        ("return redis.error_reply(1)", "-ERR wrong number or type of arguments"),
        ("return redis.status_reply('x')", "+x"),
        ("return redis.status_reply()", "-ERR wrong number or type of arguments"),
        (
            "return redis.sha1hex()",
            "-ERR wrong number of arguments script: SHA, on @user_script:1.",
        ),
        ("return redis.sha1hex('a')", "'86f7e437faa5a7fce15d1ddcb9eaeaea377667b8'"),
        ("return redis.sha1hex(1)", "'356a192b7913b04c54574d18c28d46e6395428ab'"),
        ("return redis.sha1hex(nil)", "'da39a3ee5e6b4b0d3255bfef95601890afd80709'"),
        (
            "return redis.log(1)",
            "-ERR redis.log() requires two arguments or more. script: SHA, on @user_script:1.",
        ),
        ("return redis.log(9,'a')", "-ERR Invalid debug level. script: SHA, on @user_script:1."),
        (
            "return redis.log('x','a')",
            "-ERR First argument must be a number (log level). script: SHA, on @user_script:1.",
        ),
        ("return redis.log(redis.LOG_WARNING,'a','b')", "null"),
        (
            "return redis.setresp()",
            "-ERR redis.setresp() requires one argument. script: SHA, on @user_script:1.",
        ),
        (
            "return redis.setresp(4)",
            "-ERR RESP version must be 2 or 3. script: SHA, on @user_script:1.",
        ),
        ("return redis.setresp('3')", "null"),
        ("return redis.replicate_commands()", ":1"),
        (
            "return redis.set_repl()",
            "-ERR redis.set_repl() requires two arguments. script: SHA, on @user_script:1.",
        ),
        (
            "return redis.set_repl(9)",
            "-ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE. script: SHA, on @user_script:1.",
        ),
        ("return redis.set_repl(redis.REPL_ALL)", "null"),
        ("return redis.breakpoint()", "null"),
        ("return redis.debug(1)", "null"),
        ("return redis.nosuch", "null"),
        (
            "return {redis.REDIS_VERSION, redis.REDIS_VERSION_NUM, _VERSION}",
            "['7.2.4' :459268 'Lua 5.1']",
        ),
    ]);
}

#[test]
fn replies_become_values() {
    check(&[
        ("return redis.call('get','no')==false", ":1"),
        ("return redis.call('set','a','b').ok", "'OK'"),
        ("return redis.call('set','a','b')", "+OK"),
        ("redis.call('set','k',1.5) return redis.call('get','k')", "'1.5'"),
        ("redis.call('set','k',2^53) return redis.call('get','k')", "'9007199254740992'"),
        ("redis.call('set','k',1e15) return redis.call('get','k')", "'1000000000000000'"),
        ("redis.call('set',1,0.1) return redis.call('get','1')", "'0.10000000000000001'"),
        ("return redis.call('echo',1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18.5)", "[:18]"),
        ("return type(redis.call('hgetall','none'))", "'table'"),
        ("redis.call('hset','h','f','v') return redis.call('hgetall','h')", "['f' 'v']"),
        (
            "redis.call('hset','h','f','v') redis.setresp(3) return redis.call('hgetall','h')",
            "%{'f': 'v'}",
        ),
        (
            "redis.call('hset','h','f','v') redis.setresp(3) return redis.call('hgetall','h').map.f",
            "'v'",
        ),
        ("redis.setresp(3) return type(redis.call('get','no'))", "'nil'"),
    ]);
}

#[test]
fn keys_and_arguments_are_the_runs_own() {
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
fn a_script_is_compiled_once() {
    let mut lua = host::interpreter();
    let first = lua.load(b"return 1").expect("compiles");
    let before = lua.memory_bytes();
    assert_eq!(lua.load(b"return 1"), Ok(first));
    assert_eq!((lua.len(), lua.memory_bytes()), (1, before));
    let upper = first.as_str().to_uppercase();
    assert!(lua.get(upper.as_bytes()).is_some());
    let mut host = MapHost::default();
    assert_eq!(lua.run(upper.as_bytes(), &[], &[], &mut host), Reply::Integer(1));
    lua.flush();
    assert_eq!((lua.len(), lua.get(first.as_bytes())), (0, None));
    assert!(lua.memory_bytes() <= before, "a forgotten script is freed");
}

#[test]
fn a_panic_of_the_host_reaches_the_caller_and_leaves_the_state_usable() {
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
