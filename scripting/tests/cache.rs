//! Tests the cache of scripts: which scripts it keeps and evicts, and the memory of a script.

mod host;

use host::{LIMITS, MapHost, eval_in, interpreter, show};
use lockwheel_resp::Reply;
use lockwheel_scripting::{Interpreter, Limits, MathRandom, Sha};

/// A script of some hundred bytes that only Lua runs.
fn text(name: &str, number: usize) -> String {
    format!("local text = '{name} {number}' -- {}\nreturn (text:gsub('^', ''))", "x".repeat(500))
}

fn run(lua: &mut Interpreter, script: &str) -> Reply {
    lua.run(Sha::of(script.as_bytes()).as_bytes(), &[], &[], &mut MapHost::default())
}

fn load(lua: &mut Interpreter, script: &str) {
    lua.load(script.as_bytes()).expect("room for it");
}

/// `EVAL script 0`.
fn eval(lua: &mut Interpreter, script: &str) -> Reply {
    match lua.load_evaluated(script.as_bytes()) {
        Ok(sha) => lua.run(sha.as_bytes(), &[], &[], &mut MapHost::default()),
        Err(refusal) => refusal,
    }
}

/// Frees all garbage.
fn tidy(lua: &mut Interpreter) {
    let steps = (0..1_000_000).take_while(|_| lua.tidy()).count();
    assert!(steps < 1_000_000, "collection ends");
}

fn small() -> Limits {
    Limits {
        memory_bytes_max: 1 << 20,
        loaded_bytes_max: 4 << 20,
        compiled_bytes_max: 256 << 10,
        ..LIMITS
    }
}

#[test]
fn loaded_scripts_take_no_memory_from_running_script() {
    let mut lua = Interpreter::new(small(), "7.2.4", MathRandom::new(0)).expect("memory for Lua");
    let hungry = "return #string.rep('x', 300000)";
    assert_eq!(eval(&mut lua, hungry), Reply::Integer(300_000));
    for i in 0..2_000 {
        load(&mut lua, &text("loaded", i));
    }
    assert_eq!(eval(&mut lua, hungry), Reply::Integer(300_000));
    for i in 0..499 {
        assert_eq!(eval(&mut lua, &text("evaluated", i)), Reply::bulk(format!("evaluated {i}")));
    }
    let evaluated = ["evaluated 0", "evaluated 498"].map(Reply::bulk);
    let found = [0, 498].map(|i| run(&mut lua, &text("evaluated", i)));
    assert_eq!(found, evaluated, "scripts that came with EVAL are cached");
    for i in 0..2_000 {
        assert_eq!(run(&mut lua, &text("loaded", i)), Reply::bulk(format!("loaded {i}")));
    }
    assert_eq!(lua.len(), 2_500);
    assert!(lua.lua_bytes() < 4 << 20, "{lua:?}");
    assert!(lua.memory_bytes() > 2_500 * 500, "{lua:?}");
}

#[test]
fn loading_too_many_scripts_is_an_error() {
    let mut lua = Interpreter::new(small(), "7.2.4", MathRandom::new(0)).expect("memory for Lua");
    let refused = (0..100_000).find_map(|i| lua.load(text("loaded", i).as_bytes()).err());
    let expected =
        "ERR Too many scripts loaded (the limit is 4194304 bytes). SCRIPT FLUSH removes them.";
    assert_eq!(refused, Some(Reply::error(expected)));
    assert_eq!(
        run(&mut lua, &text("loaded", 0)),
        Reply::bulk("loaded 0"),
        "no loaded script is evicted"
    );
    assert!(lua.load(text("loaded", 0).as_bytes()).is_ok(), "the script is loaded already");
    for i in 0..1_000 {
        assert_eq!(eval(&mut lua, &text("evaluated", i)), Reply::bulk(format!("evaluated {i}")));
    }
    let refusal = lua.load(text("evaluated", 999).as_bytes());
    assert_eq!(refusal, Err(Reply::error(expected)), "a script that came with EVAL is not loaded");
    lua.flush();
    load(&mut lua, &text("loaded", 0));
    assert_eq!(lua.len(), 1);
}

#[test]
fn flushed_scripts_are_freed_in_steps() {
    let mut lua = interpreter();
    let empty = lua.memory_bytes();
    for i in 0..5_000 {
        load(&mut lua, &text("loaded", i));
        eval(&mut lua, &text("evaluated", i));
    }
    let full = lua.memory_bytes();
    lua.flush();
    let missing = Reply::error("NOSCRIPT No matching script. Please use EVAL.");
    assert_eq!(run(&mut lua, &text("loaded", 0)), missing);
    assert!(lua.memory_bytes() > full - full / 4, "nothing is freed before the first step");
    load(&mut lua, &text("loaded", 1));
    tidy(&mut lua);
    assert!(lua.memory_bytes() < empty + (2 << 20), "{lua:?}");
    assert_eq!(run(&mut lua, &text("loaded", 1)), Reply::bulk("loaded 1"));
}

#[test]
fn garbage_does_not_count_against_next_script() {
    let mut lua = interpreter();
    let empty = lua.lua_bytes();
    let large = "local t = {} for i = 1, 40 do t[i] = string.rep(i, 500000) end return #t";
    let failing = "local t = {} for i = 1, 400 do t[i] = string.rep(i, 500000) end return #t";
    for _ in 0..3 {
        assert_eq!(eval(&mut lua, large), Reply::Integer(40));
        assert!(show(&eval(&mut lua, failing)).contains("not enough memory"));
    }
    assert!(lua.lua_bytes() < 4 * LIMITS.memory_bytes_max, "{lua:?}");
    tidy(&mut lua);
    assert!(lua.lua_bytes() < empty + (2 << 20), "{lua:?}");
}

#[test]
fn script_keeps_no_memory_after_its_end() {
    let mut lua = interpreter();
    let empty = lua.lua_bytes();
    for i in 0..10 {
        let large = format!("string.rep('{i:03}', 1000000)");
        for script in [
            format!("table.insert(KEYS, {large}) return #KEYS"),
            format!("table.insert(ARGV, 5, {large}) return 1"),
            format!("table.insert(KEYS, {large}) error('x')"),
        ] {
            eval_in(&mut lua, &mut MapHost::default(), &script);
        }
        tidy(&mut lua);
    }
    assert!(lua.lua_bytes() < empty + (2 << 20), "{lua:?}");
}
