//! Tests that plans do the same as Lua: the same calls and the same reply, however they end; and
//! that the scripts that should have plans have them.

mod host;

use host::{LIMITS, MapHost, interpreter, show};
use lockwheel_resp::Reply;
use lockwheel_scripting::{Interpreter, Limits, Sha, Tiers, outside_of_plans};

const KEYS: &[&[u8]] = &[b"k", b"h"];
const ARGS: &[&[u8]] = &[b"30000", b"owner", b"1.5", b"abc"];

/// Which tier has run a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Plan,
    /// The plan has left.
    Both,
    Lua,
}

/// Runs a script. Returns its reply, its calls, and the tier that has run it.
fn run(script: &str, has_plans: bool, polls_max: Option<u32>) -> (String, Vec<String>, By) {
    let mut host = MapHost { polls_max, ..MapHost::default() };
    host.strings.insert(b"k".to_vec(), b"owner".to_vec());
    host.hashes.entry(b"h".to_vec()).or_default().insert(b"owner".to_vec(), b"1".to_vec());
    let mut lua = interpreter();
    lua.set_plans(has_plans);
    let sha = lua.load(script.as_bytes()).expect("a script that compiles");
    let reply = lua.run(sha.as_bytes(), KEYS, ARGS, &mut host);
    let by = match lua.tiers() {
        Tiers { planned: 1, left: 0, lua: 0, disagreed: 0 } => By::Plan,
        Tiers { planned: 0, left: 1, lua: 0, disagreed: 0 } => By::Both,
        _ => By::Lua,
    };
    let text = show(&reply).replace(Sha::of(script.as_bytes()).as_str(), "SHA");
    (text, host.calls, by)
}

fn check(cases: &[(&str, By, &str)]) {
    for (script, by, reply) in cases {
        let (planned, calls, tier) = run(script, true, None);
        let (plain, plain_calls, lua) = run(script, false, None);
        assert_eq!((&planned, &calls), (&plain, &plain_calls), "{script}");
        assert_eq!(lua, By::Lua, "{script}");
        let outside = outside_of_plans(script.as_bytes(), &LIMITS);
        assert_eq!(tier, *by, "{script}: {outside:?}");
        assert_eq!(planned, *reply, "{script}");
    }
}

#[test]
fn usual_scripts_are_planned() {
    check(&[
        ("return 1", By::Plan, ":1"),
        ("", By::Plan, "null"),
        ("return redis.call('get', KEYS[1]) == ARGV[2]", By::Plan, ":1"),
        (
            "if redis.call('get', KEYS[1]) == ARGV[2] then return redis.call('del', KEYS[1]) end \
          return 0",
            By::Plan,
            ":1",
        ),
        (
            "return {KEYS[1], ARGV[1], 1, false, true, redis.call('get', 'no'), {2}}",
            By::Plan,
            "['k' '30000' :1 null :1 null [:2]]",
        ),
        ("return {KEYS, #ARGV}", By::Plan, "[['k' 'h'] :4]"),
        ("local a, b = 1 return {a, b == nil}", By::Plan, "[:1 :1]"),
        ("local a, b = 1, 2 a, b = b, a return a * 10 + b", By::Plan, ":21"),
        ("local n = 0 for i = 10, 1, -3 do n = n + i end return n", By::Plan, ":22"),
        (
            "local n = '' for i, v in ipairs(ARGV) do n = n .. i .. v end return n",
            By::Plan,
            "'1300002owner31.54abc'",
        ),
        (
            "local n = 0 while true do n = n + 1 if n > 5 then break end end return n",
            By::Plan,
            ":6",
        ),
        (
            "local t = {} for i = 1, 3 do table.insert(t, i) t[#t + 1] = 'x' end return t",
            By::Plan,
            "[:1 'x' :2 'x' :3 'x']",
        ),
        ("return redis.call('set', 'a', 'b')", By::Plan, "+OK"),
        ("return redis.call('set', 'a', 'b').ok", By::Plan, "'OK'"),
        ("return redis.call('set', 'a', 'b')['err']", By::Plan, "null"),
        ("return redis.status_reply('FINE')", By::Plan, "+FINE"),
        ("return {ok = 'a\\nb'}", By::Plan, "+a b"),
        ("return redis.call('hgetall', 'h')", By::Plan, "['owner' '1']"),
        ("return redis.call('hgetall', 'h')[2] + 1", By::Plan, ":2"),
        ("return redis.call('echo', unpack(ARGV, 2))", By::Plan, "[:3]"),
        ("return tonumber(ARGV[1]) + ARGV[3]", By::Plan, ":30001"),
        ("return tonumber('write') == nil", By::Plan, ":1"),
        ("return math.max(1, ARGV[1], -5) + math.min(3, 2) + math.floor(2.7)", By::Plan, ":30004"),
        ("return string.sub('owner', 2, -2) .. string.len(ARGV[2])", By::Plan, "'wne5'"),
        (
            "return type(nil) .. type(1) .. type('x') .. type({}) .. type(true)",
            By::Plan,
            "'nilnumberstringtableboolean'",
        ),
        ("return tostring(nil) .. tostring(12) .. tostring(false)", By::Plan, "'nil12false'"),
        ("return 7 % 3 + -7 % 3", By::Plan, ":3"),
        ("return not nil == true and 2 ^ 1 or 1", By::Lua, ":2"),
        ("return 1 .. 2 == '12'", By::Plan, ":1"),
        ("return 2 - 1 - 1", By::Plan, ":0"),
        ("return 1 < 2 == true", By::Plan, ":1"),
        ("return '\\065\\n\\\"' -- comment", By::Plan, "'A\\n\"'"),
        ("local redis = {1, 2} return redis[2]", By::Plan, ":2"),
        ("local x = 1 do local x = 2 end return x", By::Plan, ":1"),
        ("local x = 1 local x = x + 1 return x", By::Plan, ":2"),
        ("redis.replicate_commands() return assert(5, 'no')", By::Plan, ":5"),
        ("local n for i = ARGV[3], 3 do n = i end return tostring(n * 2)", By::Plan, "'5'"),
        ("return redis.call('hincrby', 'h', 'owner', 1.0)", By::Plan, ":2"),
    ]);
}

#[test]
fn numbers_are_equal_as_in_lua() {
    check(&[
        ("return 0.1 + 0.2 == 0.3", By::Plan, "null"),
        ("return 0.1 + 0.2 ~= 0.3", By::Plan, ":1"),
        ("return ARGV[3] + 0.1 == 1.6", By::Plan, ":1"),
        ("return not (0.1 + 0.2 == 0.3)", By::Plan, ":1"),
        ("local a = 0.1 + 0.2 if a == 0.3 then return 1 end return 2", By::Plan, ":2"),
        ("return 0.1 + 0.2 == 0.3 and 1 or 2", By::Plan, ":2"),
        ("local n = 0 for i = 1, 10 do n = n + 0.1 end return n == 1", By::Plan, "null"),
        // Adjacent integers that a double can distinguish, and that it cannot.
        ("return 1 == 1.000000000001", By::Plan, "null"),
        ("return 0.000000000001 == 0", By::Plan, "null"),
        ("local n = 1000000000 * 1000000 return n == n + 1", By::Plan, "null"),
        ("local n = 1000000000 * 1000000 return n == n + 0.125", By::Plan, "null"),
        ("local n = 9007199254740 * 1000 + 991 return n == n + 1", By::Plan, "null"),
        ("local n = 9007199254740 * 1000 + 992 return n == n - 1", By::Plan, "null"),
        ("local n = 9007199254740 * 1000 + 992 return n == n + 1", By::Plan, ":1"),
        ("local zero = 0 return -zero == zero", By::Plan, ":1"),
        ("return '1' == 1", By::Plan, "null"),
        ("return '1.0' == '1'", By::Plan, "null"),
        ("return tonumber('1.0') == tonumber('1')", By::Plan, ":1"),
        ("return tonumber('1.0') == tonumber('1.00000001')", By::Plan, "null"),
    ]);
}

#[test]
fn numbers_are_ordered_as_in_lua() {
    check(&[
        (
            "local a = 0.1 + 0.2 return {a < 0.3, a <= 0.3, a > 0.3, a >= 0.3, 0.3 < a}",
            By::Plan,
            "[null null :1 :1 :1]",
        ),
        (
            "local a = 9007199254740 * 1000 + 991 local b = a + 1 return {a < b, a >= b}",
            By::Plan,
            "[:1 null]",
        ),
        ("return {1 <= 1, 1 < 1, 1 >= 1, 1 > 1}", By::Plan, "[:1 null :1 null]"),
        ("return math.max(0.3, 0.1 + 0.2) == 0.3", By::Plan, "null"),
        ("return math.min(0.3, 0.1 + 0.2) == 0.3", By::Plan, ":1"),
        ("return math.floor(2.999999999999)", By::Plan, ":2"),
        // A limit that is missed by the last bit ends the loop.
        ("local n = 0 for i = 0, 0.3, 0.1 do n = n + 1 end return n", By::Plan, ":3"),
        ("local n = 0 for i = 0, 1, 0.1 do n = n + 1 end return n", By::Plan, ":11"),
    ]);
}

#[test]
fn arguments_are_computed_from_all_kinds_of_expressions() {
    check(&[
        (
            "for i = 1, #ARGV do redis.call('set', KEYS[1], ARGV[i]) end \
             return redis.call('get', 'k')",
            By::Plan,
            "'abc'",
        ),
        ("local n = 0 return redis.call('get', KEYS[n + 1])", By::Plan, "'owner'"),
        ("local n = 0 return redis.call('get', KEYS[1 + n])", By::Plan, "'owner'"),
        ("local n = 2 return redis.call('get', KEYS[n - 1])", By::Plan, "'owner'"),
        ("local n = 1.5 return redis.call('get', KEYS[n - 0.5])", By::Plan, "'owner'"),
        (
            "local n = 3 return redis.call('echo', KEYS[1], ARGV[n - 1], ARGV[n + 1])",
            By::Plan,
            "[:3]",
        ),
        ("local n = '1' return redis.call('set', ARGV[n + 1], ARGV[n + 2])", By::Plan, "+OK"),
        ("local n = '1' return tostring(ARGV[n])", By::Plan, "'nil'"),
        ("local n = true return tostring(KEYS[n])", By::Plan, "'nil'"),
        ("local n = 1 return tostring(KEYS[n + 1.5])", By::Plan, "'nil'"),
        (
            "local n = 1 return {tostring(KEYS[n - 1]), tostring(KEYS[n + 2]), \
             tostring(ARGV[n + 4])}",
            By::Plan,
            "['nil' 'nil' 'nil']",
        ),
        (
            "return {tostring(KEYS[0]), tostring(KEYS[1.5]), tostring(KEYS[3]), tostring(ARGV[5])}",
            By::Plan,
            "['nil' 'nil' 'nil' 'nil']",
        ),
        ("return redis.call('echo', 1, 2.5, -3)", By::Plan, "[:3]"),
        ("local n = 2.5 return redis.call('set', n, n + 1)", By::Plan, "+OK"),
        ("local n = 1 / 0 return redis.call('echo', n)", By::Both, "[:1]"),
        ("local n = 1 return redis.call('echo', n, n, n, n, n, n, n, n, n)", By::Plan, "[:9]"),
        ("return redis.call('echo', unpack(ARGV))", By::Plan, "[:4]"),
        ("return redis.call('echo', 'a', unpack(ARGV))", By::Plan, "[:5]"),
        ("return redis.call('echo', unpack(redis.call('set', 'a', 'b')))", By::Both, "[:0]"),
        ("return redis.call('echo', KEYS[1] .. KEYS[2])", By::Plan, "[:1]"),
    ]);
    for argument in ["{}", "true", "nil", "KEYS[3]", "KEYS"] {
        let script = format!("local n = 3 return redis.call('echo', {argument})");
        let (planned, calls, by) = run(&script, true, None);
        assert_eq!((&planned, &calls), (&run(&script, false, None).0, &vec![]), "{script}");
        assert!(planned.starts_with("-ERR Lua redis lib command arguments must be"), "{planned}");
        assert_eq!(by, By::Both);
    }
}

#[test]
fn replies_of_every_kind_become_lua_values() {
    check(&[
        ("return redis.call('reply', 'null array') == false", By::Plan, ":1"),
        ("return redis.call('reply', 'boolean') + 1", By::Plan, ":2"),
        ("return redis.call('reply', 'double')", By::Plan, "'1.5'"),
        ("return redis.call('reply', 'large')", By::Plan, ":9007199254740992"),
        (
            "return redis.call('reply', 'nested')",
            By::Plan,
            "[:9007199254740992 null +a b [null ['c']]]",
        ),
        ("local s = redis.call('set', 'a', 'b') return s == s", By::Plan, ":1"),
        ("return redis.call('set', 'a', 'b') == redis.call('set', 'a', 'b')", By::Plan, "null"),
        (
            "local a = redis.call('hgetall', 'h') return {a == a, a == redis.call('hgetall', 'h')}",
            By::Plan,
            "[:1 null]",
        ),
        (
            "local t = {} return {t == t, t == {}, KEYS == KEYS, KEYS == ARGV}",
            By::Plan,
            "[:1 null :1 null]",
        ),
    ]);
}

#[test]
fn replies_are_replayed_after_plan_leaves() {
    check(&[
        ("local n = redis.call('incr', 'n') error('so ' .. n)", By::Both, &raised("so 1")),
        ("local v = redis.call('get', KEYS[1]) error('so ' .. v)", By::Both, &raised("so owner")),
        ("local v = redis.call('get', 'no') error(type(v))", By::Both, &raised("boolean")),
    ]);
}

fn raised(text: &str) -> String {
    format!("-ERR user_script:1: {text} script: SHA, on @user_script:1.")
}

#[test]
fn literals_are_read_as_in_lua() {
    check(&[
        ("return '\\a\\b\\f\\r\\t\\v'", By::Plan, "'\\x07\\x08\\x0c\\r\\t\\x0b'"),
        ("--[ x\nreturn 2", By::Plan, ":2"),
        ("-- [x]\n--=x\nreturn 2", By::Plan, ":2"),
        ("--[[\nreturn 1 ]] return 2", By::Lua, ":2"),
        ("--[==[\nreturn 1 ]==] return 2", By::Lua, ":2"),
        ("return 1.", By::Lua, ":1"),
        ("return tonumber('-5')", By::Plan, ":-5"),
        ("return tonumber('-1.5') * 2", By::Plan, ":-3"),
        ("return tonumber('1e5')", By::Both, ":100000"),
        ("return tonumber('1.')", By::Both, ":1"),
        ("return tonumber('123456789012345678')", By::Both, ":123456789012345680"),
        ("return tonumber(5) + 1", By::Plan, ":6"),
        ("return tostring(tonumber(true))", By::Plan, "'nil'"),
        ("return tostring(true) .. tostring(ARGV[2])", By::Plan, "'trueowner'"),
        ("return type(tostring({}))", By::Both, "'string'"),
        ("return string.sub('owner', 2)", By::Plan, "'wner'"),
        ("return string.sub('owner', 0, 2) .. '|' .. string.sub('owner', 1, 0)", By::Plan, "'ow|'"),
    ]);
    assert_eq!(
        outside_of_plans(b"\n\nreturn #{...}", &LIMITS).map(|outside| outside.line),
        Some(3)
    );
}

#[test]
fn statements_and_operators_behave_as_in_lua() {
    check(&[
        ("if KEYS[9] then return 1 else return 2 end", By::Plan, ":2"),
        ("if KEYS[9] then return 1 elseif KEYS[1] then return 2 else return 3 end", By::Plan, ":2"),
        ("do return end", By::Plan, "null"),
        ("return;", By::Plan, "null"),
        ("return 1;", By::Plan, ":1"),
        ("return {1; 2}", By::Plan, "[:1 :2]"),
        ("local a = 1, 2 return a", By::Plan, ":1"),
        ("local a a, a = 1, 2 return a", By::Lua, ":1"),
        ("local n = 0 for i = 1, 2, 0 do n = n + 1 end return n", By::Plan, ":0"),
        ("local a = 2 return -a", By::Plan, ":-2"),
        ("return {1 ~= 2, 2 ~= 2, 'a' ~= 'b', 'a' ~= 'a'}", By::Plan, "[:1 null :1 null]"),
        (
            "local a, b = 1, false return {a and 2, b and 2, a or 2, b or 2}",
            By::Plan,
            "[:2 null :1 :2]",
        ),
        ("local a = 1 if a == 2 or a == 1 then return 1 end return 2", By::Plan, ":1"),
        ("local a = 1 if a == 2 and a == 1 then return 1 end return 2", By::Plan, ":2"),
        // The first of two equal values that differ in their sign.
        ("local z = 0 return 1 / math.max(z, z * -1) > 0", By::Plan, ":1"),
        ("local z = 0 return 1 / math.min(z, z * -1) > 0", By::Plan, ":1"),
        // Operations that are not exact at every step.
        ("local a = 5.5 return a % 2 == 1.5", By::Both, ":1"),
        ("local a = 5 return a % 2.5 == 0", By::Both, ":1"),
        ("local a, b = 5, 0 return a % b == a % b", By::Both, "null"),
        ("local a = 2147483648 return a % 3", By::Both, ":2"),
        ("local s = 'x' return tostring(s[1])", By::Both, "'nil'"),
        ("return tostring(KEYS.x)", By::Plan, "'nil'"),
        ("local t = {1} t[1] = nil return t", By::Both, "[]"),
        ("local t = {1} t[1] = {2} return t", By::Both, "[[:2]]"),
    ]);
    let (reply, _, by) = run("local s = 1 return s[1]", true, None);
    assert!(reply.contains("attempt to index local 's' (a number value)"), "{reply}");
    assert_eq!(by, By::Both);
}

/// The limits of the fast tier, each at its greatest value and one above.
#[test]
fn scripts_beyond_limits_of_plans_are_left_to_lua() {
    let chain = |links: usize| format!("local a = 1 return a{}", " + a".repeat(links));
    let pieces = |count: usize| format!("return 'a'{}", " .. 'a'".repeat(count - 1));
    let values = |count: usize| {
        let list = |item: fn(usize) -> String| (1..=count).map(item).collect::<Vec<_>>().join(", ");
        format!("local {} = {} return a{count}", list(|n| format!("a{n}")), list(|n| n.to_string()))
    };
    let arguments =
        |count: usize| format!("return redis.call('echo'{})", ", 'a'".repeat(count - 1));
    let calls = |count: usize| {
        format!("for i = 1, {count} do redis.call('incr', 'n') end return redis.call('get', 'n')")
    };
    check(&[
        (&chain(48), By::Plan, ":49"),
        (&chain(49), By::Lua, ":50"),
        (&pieces(8), By::Plan, "'aaaaaaaa'"),
        (&pieces(9), By::Lua, "'aaaaaaaaa'"),
        (&values(8), By::Plan, ":8"),
        (&values(9), By::Lua, ":9"),
        (&arguments(128), By::Plan, "[:127]"),
        (&arguments(129), By::Lua, "[:128]"),
        (&calls(511), By::Plan, "'511'"),
        (&calls(512), By::Both, "'512'"),
    ]);
}

/// Lua needs far more memory for a value than a plan.
#[test]
fn plan_is_limited_to_small_part_of_lua_memory() {
    let limits = Limits { memory_bytes_max: 4 << 20, ..LIMITS };
    let mut lua = Interpreter::new(limits, "7.2.4", 0).expect("memory for Lua");
    let sha = lua.load(b"return #ARGV").expect("a script that compiles");
    for (bytes, left) in [(200 << 10, 0), (300 << 10, 1)] {
        let argument = vec![b'x'; bytes];
        lua.run(sha.as_bytes(), &[], &[&argument], &mut MapHost::default());
        assert_eq!((lua.tiers().planned, lua.tiers().left), (1, left));
    }
}

/// A script that is killed while Lua repeats the calls of its plan does not count as a mismatch.
#[test]
fn kill_during_replay_is_no_mismatch() {
    let script = "for i = 1, 400 do redis.call('get', 'a') for j = 1, 20 do end end \
                  return redis.pcall('no').err";
    for polls_max in 34..40 {
        let (reply, calls, by) = run(script, true, Some(polls_max));
        assert!(reply.starts_with("-ERR Script killed by user"), "{reply}");
        assert_eq!((calls.len(), by), (401, By::Both), "{polls_max}");
    }
}

#[test]
fn unsupported_constructs_are_left_to_lua() {
    let wrong = "-ERR Unknown Redis command called from script script: SHA, on @user_script:2.";
    check(&[
        ("redis.call('set', 'a', 'b')\nredis.call('no')", By::Both, wrong),
        (
            "redis.call('incr', 'n') return redis.pcall('no').err",
            By::Both,
            "'ERR Unknown Redis command called from script'",
        ),
        ("redis.call('incr', 'n') return redis.error_reply('MINE no')", By::Both, "-MINE no"),
        ("redis.call('incr', 'n') return {err = 'MINE no'}", By::Both, "-MINE no"),
        (
            "redis.call('incr', 'n') error('so')",
            By::Both,
            "-ERR user_script:1: so script: SHA, on @user_script:1.",
        ),
        (
            "redis.call('incr', 'n') assert(false, 'so')",
            By::Both,
            "-ERR user_script:1: so script: SHA, on @user_script:1.",
        ),
        (
            "local n = redis.call('incr', 'n') return n .. nil",
            By::Both,
            "-ERR user_script:1: attempt to concatenate a nil value \
             script: SHA, on @user_script:1.",
        ),
        (
            "redis.call('incr', 'n') return ARGV[4] + 1",
            By::Both,
            "-ERR user_script:1: attempt to perform arithmetic on field '?' (a string value) \
          script: SHA, on @user_script:1.",
        ),
        ("return 1.5 .. ''", By::Both, "'1.5'"),
        ("return 100000000000000 .. ''", By::Both, "'1e+14'"),
        ("local zero = 0 return zero * -1 .. ''", By::Both, "'-0'"),
        ("return tonumber('0x10')", By::Both, ":16"),
        ("return tonumber(' 7 ')", By::Both, ":7"),
        ("return 'a' < 'b'", By::Both, ":1"),
        ("return ('x').y", By::Both, "null"),
        ("local t = {1, nil, 3} return t", By::Both, "[:1]"),
        (
            "for i = 1, 600 do redis.call('incr', 'n') end return redis.call('get', 'n')",
            By::Both,
            "'600'",
        ),
    ]);
}

/// Lua has to catch up with the plan before the script can be killed.
#[test]
fn long_running_script_is_left_to_lua() {
    check(&[
        ("for i = 1, 9000 do end return 1", By::Plan, ":1"),
        ("for i = 1, 11000 do end return 1", By::Both, ":1"),
        ("local n = 0 while n < 11000 do n = n + 1 end return n", By::Both, ":11000"),
        (
            "local n = 0 for i = 1, 6000 do for j in ipairs(KEYS) do n = n + j end end return n",
            By::Both,
            ":18000",
        ),
    ]);
}

#[test]
fn unsupported_script_is_parsed_once() {
    check(&[
        ("return #{...}", By::Lua, ":0"),
        ("local f = redis.call return f('get', KEYS[1])", By::Lua, "'owner'"),
        ("local function f() return 1 end return f()", By::Lua, ":1"),
        ("return 0x10", By::Lua, ":16"),
        ("return 1e3", By::Lua, ":1000"),
        ("return [[x]]", By::Lua, "'x'"),
        ("return ('x'):rep(2)", By::Lua, "'xx'"),
        ("return {a = 1}", By::Lua, "[]"),
        ("repeat local x = 1 until x == 1 return 2", By::Lua, ":2"),
        ("KEYS[1] = 'z' return KEYS[1]", By::Lua, "'z'"),
        ("return redis.sha1hex('')", By::Lua, "'da39a3ee5e6b4b0d3255bfef95601890afd80709'"),
        ("return 1, 2", By::Lua, ":1"),
        ("return tostring(-0)", By::Lua, "'-0'"),
    ]);
}

/// `assert` returns all its arguments. Where Lua adjusts them to one value, a plan may call it; at
/// the end of a list all of them are used.
#[test]
fn call_of_several_values_is_not_last_of_list_in_plan() {
    check(&[
        (
            "return redis.call('get', assert(KEYS[1], 'no'))",
            By::Lua,
            "-ERR Unknown Redis command called from script script: SHA, on @user_script:1.",
        ),
        ("return redis.call('set', 'a', assert(ARGV[1], 'NX'))", By::Lua, "+OK"),
        ("return {assert('a', 'b')}", By::Lua, "['a' 'b']"),
        ("return {1, assert('a', 'b'),}", By::Lua, "[:1 'a' 'b']"),
        ("local a, b = assert('a', 'b') return b", By::Lua, "'b'"),
        ("local a, b a, b = assert('a', 'b') return b", By::Lua, "'b'"),
        ("local t = {} table.insert(t, assert(1, 'b')) return t", By::Lua, "['b']"),
        ("return tonumber(assert('10', 16))", By::Lua, ":16"),
        (
            "return tonumber(assert('10', 'x'))",
            By::Lua,
            "-ERR user_script:1: bad argument #2 to 'tonumber' (number expected, got string) \
             script: SHA, on @user_script:1.",
        ),
        ("return math.max(assert(1, 2))", By::Lua, ":2"),
        ("return math.min(3, assert(2, 1))", By::Lua, ":1"),
        ("return string.sub('abc', assert(1, 2))", By::Lua, "'ab'"),
        ("return redis.call('echo', unpack(assert(ARGV, 3)))", By::Lua, "[:2]"),
        ("return type(assert(assert(1, 2)))", By::Lua, "'number'"),
        ("for i, v in ipairs(assert(KEYS, 1)) do return v end", By::Lua, "'k'"),
        (
            "return redis.status_reply(assert('a', 'b'))",
            By::Lua,
            "-ERR wrong number or type of arguments",
        ),
        // Adjusted to one.
        ("return redis.call('get', (assert(KEYS[1], 'no')))", By::Plan, "'owner'"),
        ("return redis.call('set', assert('a', 'x'), 'b')", By::Plan, "+OK"),
        ("return {assert('a', 'b'), 1}", By::Plan, "['a' :1]"),
        ("return {(assert('a', 'b'))}", By::Plan, "['a']"),
        ("return {assert('a', 'b') .. 'c', assert({'a'}, 1)[1]}", By::Plan, "['ac' 'a']"),
        ("local a = assert('a', 'b') return a", By::Plan, "'a'"),
        ("local a, b = 1, assert('a', 'b') return b", By::Plan, "'a'"),
        ("local a a = assert('a', 'b') return a", By::Plan, "'a'"),
        ("local t = {} t[1] = assert('a', 'b') return t", By::Plan, "['a']"),
        ("if assert(1, 2) and not assert(true, 2) then return 1 end return 2", By::Plan, ":2"),
        (
            "for i = assert(1, 9), assert(2, 9), assert(1, 9) do if i == 2 then return i end end",
            By::Plan,
            ":2",
        ),
        ("return assert('a', 'b')", By::Plan, "'a'"),
        ("return {ok = assert('a', 'b')}", By::Plan, "+a"),
    ]);
}

/// A call as a statement must be allowed by Lua and supported by plans.
#[test]
fn plan_supports_some_calls_as_statements() {
    check(&[
        ("assert(1) redis.replicate_commands() redis.pcall('get', 'a') return 1", By::Plan, ":1"),
        ("tonumber(1) return 1", By::Lua, ":1"),
        ("type(1) return 1", By::Lua, ":1"),
        ("math.max(1) return 1", By::Lua, ":1"),
        ("unpack({}) return 1", By::Lua, ":1"),
        ("return table.insert({}, 1)", By::Lua, "null"),
        ("redis.status_reply('a') return 1", By::Lua, ":1"),
        ("return {redis.status_reply('a')}", By::Lua, "[+a]"),
    ]);
}

/// Lua computes `0 * -1` at compile time, and may use a constant 0 of the text for it.
#[test]
fn constant_negative_zero_is_left_to_lua() {
    check(&[
        ("local zero = 0 return 1 / (0 * -1) < 0", By::Lua, "null"),
        ("return 1 / (0 * -1) < 0", By::Lua, ":1"),
        ("local zero = 0 return 1 / -(1 - 1) < 0", By::Lua, "null"),
        ("local zero = 0 return 1 / (zero * -1) < 0", By::Plan, ":1"),
        ("return 3 - 1 * 3 == 0 and 2 * 3 + 1", By::Plan, ":7"),
        ("local a = -1 * 0 return 1 / 0 < 0", By::Lua, ":1"),
        ("local a = -(2 * 0) return 1 / 0 < 0", By::Lua, ":1"),
        ("local a = -(nil or 0) return 1 / 0 < 0", By::Lua, ":1"),
        ("local a = -1 * ('x' and 0) return 1 / 0 < 0", By::Lua, ":1"),
        ("local a = -((KEYS[9] or 1) and 0) return 1 / 0 < 0", By::Lua, ":1"),
        ("local a = -((KEYS[1] and nil) or 0) return 1 / 0 < 0", By::Lua, ":1"),
        ("local a = -(2 ^ 40 % 2 ^ 40) return 1 / 0 < 0", By::Lua, ":1"),
        ("local a = -(1099511627776 % 1099511627776) return 1 / 0 < 0", By::Lua, ":1"),
        ("local a = -(KEYS[1] and 0) return 1 / 0 < 0", By::Lua, "null"),
        ("local a = -(KEYS[1] and 0 or nil) return 1 / 0 < 0", By::Plan, "null"),
        ("return 2 * 0 + 1 * (KEYS[1] and 3 + 4)", By::Lua, ":7"),
    ]);
}

/// Runs a script twice, the second time with the plan of `planned`.
fn run_wrong_plan(text: &str, planned: &str) -> (String, Vec<String>, Vec<u8>, [Tiers; 2]) {
    let mut host = MapHost::default();
    host.strings.insert(b"k".to_vec(), b"owner".to_vec());
    let mut lua = interpreter();
    let sha = lua.load(text.as_bytes()).expect("a script that compiles");
    lua.replace_plan(&sha, planned.as_bytes(), &mut host);
    let reply = lua.run(sha.as_bytes(), KEYS, ARGS, &mut host);
    let tiers = lua.tiers();
    let calls = std::mem::take(&mut host.calls);
    // One of the scripts does not end.
    host.polls_max = Some(10);
    lua.run(sha.as_bytes(), KEYS, ARGS, &mut host);
    let logged = host.logged.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join(&b'\n');
    (show(&reply), calls, logged, [tiers, lua.tiers()])
}

/// A wrong plan ends only its script: Lua adds nothing to the effects of the plan.
#[test]
fn script_ends_where_lua_disagrees_with_plan() {
    let cases = [
        // Another argument, of the same length.
        ("redis.call('set', 'a', 'x') error('no')", "redis.call('set', 'a', 'y') error('no')"),
        ("redis.call('set', 'a', 'x') error('no')", "redis.call('set', 'b', 'x') error('no')"),
        // One argument more, one fewer, other lengths.
        ("redis.call('set', 'a') error('no')", "redis.call('set', 'a', 'x') error('no')"),
        ("redis.call('set', 'ab', 'c') error('no')", "redis.call('set', 'a', 'bc') error('no')"),
        // Lua makes fewer calls, or ends in another way.
        ("return 1", "redis.call('set', 'a', 'x') error('no')"),
        ("error('other')", "redis.call('set', 'a', 'x') error('no')"),
        (
            "pcall(redis.call, 'set', 'b', 'x') return redis.call('set', 'c', 'x')",
            "redis.call('set', 'a', 'x') error('no')",
        ),
        (
            "while true do redis.pcall('set', 'b', 'x') end",
            "redis.call('set', 'a', 'x') error('no')",
        ),
    ];
    for (text, planned) in cases {
        let (reply, calls, logged, [first, second]) = run_wrong_plan(text, planned);
        assert!(
            reply.starts_with("-ERR Internal error: the fast path and Lua disagree"),
            "{reply}"
        );
        assert_eq!(calls.len(), 1, "{text}: {calls:?}");
        assert_eq!((first.left, first.disagreed), (1, 1), "{text}");
        assert_eq!((second.left, second.lua, second.disagreed), (1, 1, 1), "{text}");
        let logged = String::from_utf8_lossy(&logged).into_owned();
        assert!(logged.contains(Sha::of(text.as_bytes()).as_str()), "{logged}");
    }
}

/// A script that had a wrong plan gets none when it is loaded again after a flush.
#[test]
fn distrusted_script_stays_distrusted() {
    let mut host = MapHost::default();
    let mut lua = interpreter();
    let text = b"redis.call('get', 'a') return redis.pcall('no').err";
    let sha = lua.load(text).expect("a script that compiles");
    lua.replace_plan(&sha, b"redis.call('get', 'b') error('no')", &mut host);
    assert!(lua.run(sha.as_bytes(), &[], &[], &mut host).is_error());
    lua.flush();
    let sha = lua.load(text).expect("a script that compiles");
    assert!(!lua.run(sha.as_bytes(), &[], &[], &mut host).is_error());
    assert_eq!(lua.tiers(), Tiers { planned: 0, left: 1, lua: 1, disagreed: 1 });
}

#[test]
fn nested_lists_count_all_their_items() {
    let (reply, _, by) = run("local t = {} for i = 1, 30 do t = {t, t} end return t", true, None);
    assert_eq!(by, By::Both);
    assert!(reply.contains("too many values"), "{reply}");
}

/// If the host ends the script, it ends at the same point in both tiers.
#[test]
fn script_is_killed_in_either_tier() {
    let scripts = [
        "while true do end",
        "local n = 0\nwhile true do\nn = n + 1 end",
        "local n = 0\nfor i = 1, 3000 do n = n + i end redis.call('set', 'x', 'y') return n",
        "redis.call('set', 'a', 'b')\nwhile true do redis.call('get', 'a') end",
        "for i = 1, 2000 do redis.call('get', 'a') end return redis.call('set', 'x', 'y')",
        "local t = {}\nfor i = 1, 1000000 do\nfor j, k in ipairs(KEYS) do t[1] = i\nend end",
    ];
    for script in scripts {
        for polls_max in [0, 1, 3] {
            let (planned, calls, by) = run(script, true, Some(polls_max));
            let (plain, ..) = run(script, false, Some(polls_max));
            assert_eq!(by, By::Both, "{script}");
            for reply in [&planned, &plain] {
                let killed = "-ERR Script killed by user with SCRIPT KILL... script: SHA, on @";
                assert!(reply.starts_with(killed), "{script}: {reply}");
            }
            assert!(!calls.contains(&"set x y".to_owned()), "{script}");
            if !script.contains('\n') {
                assert_eq!(planned, plain);
            }
        }
    }
}

/// The line in the error is the line the script had reached, not the one of Lua's first poll.
#[test]
fn killed_script_ends_in_its_loop() {
    let script = "local n = 0\nlocal m = 1\nwhile true do n = n + 1 end";
    assert!(run(script, true, Some(0)).0.ends_with("on @user_script:3."));
    let script = "redis.call('get', 'a')\nlocal n = 0\nwhile true do n = n + 1 end";
    assert!(run(script, true, Some(2)).0.ends_with("on @user_script:3."));
}

#[test]
fn script_that_often_leaves_its_plan_is_run_by_lua() {
    let mut lua = interpreter();
    let sha = lua.load(b"return redis.pcall('no').err").expect("a script that compiles");
    for _ in 0..100 {
        lua.run(sha.as_bytes(), &[], &[], &mut MapHost::default());
    }
    let Tiers { planned, left, lua, .. } = lua.tiers();
    assert!(planned == 0 && left < 20 && left + lua == 100, "{left} {lua}");
}

#[test]
fn runs_of_plan_share_no_values() {
    let mut lua = interpreter();
    let mut host = MapHost::default();
    let text = b"local t = {} table.insert(t, ARGV[1]) return {t, redis.call('get', 'k') .. 'x'}";
    let sha = lua.load(text).expect("a script that compiles");
    host.strings.insert(b"k".to_vec(), b"v".to_vec());
    let expected =
        |word: &str| Reply::Array(vec![Reply::Array(vec![Reply::bulk(word)]), Reply::bulk("vx")]);
    for word in ["a", "b"] {
        let reply = lua.run(sha.as_bytes(), &[], &[word.as_bytes()], &mut host);
        assert_eq!(reply, expected(word));
    }
    host.strings.clear();
    assert!(lua.run(sha.as_bytes(), &[], &[b"c"], &mut host).is_error());
    host.strings.insert(b"k".to_vec(), b"v".to_vec());
    assert_eq!(lua.run(sha.as_bytes(), &[], &[b"d"], &mut host), expected("d"));
    assert_eq!(lua.tiers(), Tiers { planned: 3, left: 1, lua: 0, disagreed: 0 });
}
