//! Compares Lua and its libraries with the replies of redis-server. A line of a table is a script,
//! a tab, and the reply; `SHA` is replaced by the script's digest.

mod host;

use host::{MapHost, eval_in, interpreter, show};

fn check(table: &str) {
    let mut lua = interpreter();
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in table.lines() {
        let (script, expected) = line.split_once('\t').expect("a script, a tab, a reply");
        // A script is bytes: each char of the notation is one.
        let script: String = script.bytes().map(char::from).collect();
        let got = show(&eval_in(&mut lua, &mut MapHost::default(), &script));
        if got != expected {
            wrong.push(format!("{script}\n     got {got}\nexpected {expected}"));
        }
        count += 1;
    }
    assert!(count > 10, "the table is empty");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn bit_matches_redis() {
    check(include_str!("golden/bit.txt"));
}

#[test]
fn cjson_matches_redis() {
    check(include_str!("golden/cjson.txt"));
}

#[test]
fn cmsgpack_matches_redis() {
    check(include_str!("golden/cmsgpack.txt"));
}

#[test]
fn conversions_match_redis() {
    check(include_str!("golden/conversions.txt"));
}

#[test]
fn errors_match_redis() {
    check(include_str!("golden/errors.txt"));
}

#[test]
fn redis_matches_redis() {
    check(include_str!("golden/redis.txt"));
}

#[test]
fn lua_matches_redis() {
    check(include_str!("golden/lua.txt"));
}

#[test]
fn struct_matches_redis() {
    check(include_str!("golden/struct.txt"));
}

#[test]
fn tables_and_strings_match_redis() {
    check(include_str!("golden/table.txt"));
}
