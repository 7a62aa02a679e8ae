//! Tests that plans do the same as Lua: the same calls and the same reply, however they end; and
//! that the scripts that should have plans have them.

mod host;

use host::{LIMITS, MapHost, interpreter, show};
use lockwheel_resp::Reply;
use lockwheel_scripting::{Interpreter, Limits, MathRandom, Sha, Tiers, outside_of_plans};

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

/// The scripts of `plans.txt`.
#[test]
fn plans_do_the_same_as_lua() {
    for line in include_str!("plans.txt").lines() {
        if line.is_empty() || line.starts_with(['#', '=']) {
            continue;
        }
        let [by, script, reply] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("a tier, a script and a reply: {line}")
        };
        let by = match by {
            "plan" => By::Plan,
            "both" => By::Both,
            "lua" => By::Lua,
            other => panic!("no tier: {other}"),
        };
        check(&[(&script.replace('$', "\n"), by, reply)]);
    }
}

#[test]
fn arguments_that_are_no_text_end_plan() {
    for argument in ["{}", "true", "nil", "KEYS[3]", "KEYS"] {
        let script = format!("local n = 3 return redis.call('echo', {argument})");
        let (planned, calls, by) = run(&script, true, None);
        assert_eq!((&planned, &calls), (&run(&script, false, None).0, &vec![]), "{script}");
        assert!(planned.starts_with("-ERR Lua redis lib command arguments must be"), "{planned}");
        assert_eq!(by, By::Both);
    }
}

#[test]
fn line_outside_of_plans_is_reported() {
    assert_eq!(
        outside_of_plans(b"\n\nreturn #{...}", &LIMITS).map(|outside| outside.line),
        Some(3)
    );
}

#[test]
fn index_of_number_ends_plan() {
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
    let mut lua = Interpreter::new(limits, "7.2.4", MathRandom::new(0)).expect("memory for Lua");
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

/// A wrong plan that runs to its end is found in the first runs of its script: the reply and the
/// effects of the plan remain, Lua adds none, and Lua alone runs the script from then on.
#[test]
fn plan_that_finishes_is_compared_with_lua() {
    let cases = [
        // Another reply, of the same and of another type.
        ("return redis.call('get', 'k')", "redis.call('get', 'k') return 1", ":1"),
        ("return {1, 'a'}", "return {1, 'b'}", "[:1 'b']"),
        ("return 'x'", "return {ok = 'x'}", "+x"),
        // Another call, one fewer, one more.
        ("redis.call('set', 'a', 'x')", "redis.call('set', 'a', 'y')", "null"),
        ("redis.call('set', 'a', 'x') redis.call('set', 'b', 'x')", "return nil", "null"),
        ("return nil", "redis.call('set', 'a', 'x')", "null"),
        // Lua fails, catches its failure, logs, or does not end.
        ("return redis.call('no')", "redis.call('set', 'a', 'x') return 1", ":1"),
        ("return pcall(redis.call, 'no') and 1", "redis.call('set', 'a', 'x') return 1", ":1"),
        ("redis.log(redis.LOG_WARNING, 'logged') return 1", "return 2", ":2"),
        ("while true do end", "return 1", ":1"),
        ("while true do redis.pcall('set', 'b', 'x') end", "return 1", ":1"),
    ];
    for (text, planned, expected) in cases {
        let (reply, calls, logged, [first, second]) = run_wrong_plan(text, planned);
        assert_eq!(reply, expected, "{text}");
        assert_eq!(calls.len(), planned.matches("redis.call").count(), "{text}: {calls:?}");
        assert_eq!((first.planned, first.lua, first.disagreed), (1, 0, 1), "{text}");
        assert_eq!((second.planned, second.lua, second.disagreed), (1, 1, 1), "{text}");
        let logged = String::from_utf8_lossy(&logged).into_owned();
        assert!(logged.contains(Sha::of(text.as_bytes()).as_str()), "{logged}");
        assert_eq!(logged.matches("disagree").count(), 1, "{logged}");
    }
}

/// The first four runs of a script are compared, then one in 1,024.
#[test]
fn later_runs_are_compared_by_sample() {
    let mut host = MapHost::default();
    let mut lua = interpreter();
    let sha = lua.load(b"return ARGV[1]").expect("a script that compiles");
    for right in 0..=4 {
        let mut lua = interpreter();
        lua.load(b"return ARGV[1]").expect("a script that compiles");
        for _ in 0..right {
            lua.run(sha.as_bytes(), &[], ARGS, &mut host);
        }
        lua.replace_plan(&sha, b"return 'wrong'", &mut host);
        lua.run(sha.as_bytes(), &[], ARGS, &mut host);
        assert_eq!(lua.tiers().disagreed, u64::from(right < 4), "{right}");
    }
    for _ in 0..1_023 {
        lua.run(sha.as_bytes(), &[], ARGS, &mut host);
    }
    lua.replace_plan(&sha, b"return 'wrong'", &mut host);
    let reply = lua.run(sha.as_bytes(), &[], ARGS, &mut host);
    assert_eq!((show(&reply).as_str(), lua.tiers().disagreed), ("'wrong'", 1));
    let reply = lua.run(sha.as_bytes(), &[], ARGS, &mut host);
    assert_eq!(reply, Reply::bulk(ARGS[0]));
}

/// A check has no effect: no command is run again, nothing is logged, and no poll is made.
#[test]
fn check_of_a_plan_cannot_be_observed() {
    let script = b"for i = 1, 300 do redis.call('set', 'a', i) end return redis.call('get', 'a')";
    let mut lua = interpreter();
    let sha = lua.load(script).expect("a script that compiles");
    let mut observed = Vec::new();
    for _ in 0..6 {
        let mut host = MapHost::default();
        let reply = lua.run(sha.as_bytes(), &[], &[], &mut host);
        observed.push((show(&reply), host.calls, host.polls, host.logged.len()));
    }
    assert_eq!(lua.tiers(), Tiers { planned: 6, left: 0, lua: 0, disagreed: 0 });
    assert!(observed.iter().all(|run| *run == observed[5]));
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
