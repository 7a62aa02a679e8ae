//! Tests libraries of functions: the environment while they are loaded and when they are called,
//! and that a failure leaves nothing behind.

mod host;

use host::{LIMITS, MapHost, show};
use lockwheel_resp::Reply;
use lockwheel_scripting::{Functions, MathRandom, Policy};

fn functions() -> Functions {
    Functions::new(LIMITS, "7.2.4", MathRandom::new(0))
}

/// Loads a library, replacing the one of its name. Returns its name, or the error.
fn load(functions: &mut Functions, name: &str, text: &str) -> String {
    let code = format!("#!lua name={name}\n{text}");
    match functions.load(code.as_bytes(), true, &mut MapHost::default()) {
        Ok(name) => name,
        Err(refusal) => show(&refusal),
    }
}

fn call(functions: &mut Functions, name: &str) -> String {
    show(&functions.run(name.as_bytes(), &[b"k"], &[b"a", b"b"], &mut MapHost::default()))
}

/// The reply of a function with this body.
fn answer(body: &str) -> String {
    let mut functions = functions();
    let text = format!("redis.register_function('f', function(keys, args) {body} end)");
    assert_eq!(load(&mut functions, "l", &text), "l", "{body}");
    call(&mut functions, "f")
}

#[test]
fn function_gets_keys_and_arguments() {
    assert_eq!(answer("return {keys, args}"), "[['k'] ['a' 'b']]");
    assert_eq!(
        answer("return KEYS"),
        "-ERR user_function:2: Script attempted to access \
        nonexistent global variable 'KEYS' script: f, on @user_function:2."
    );
    assert_eq!(answer("redis.call('set', keys[1], args[1]) return redis.call('get', 'k')"), "'a'");
}

#[test]
fn library_keeps_its_locals_and_changes_no_globals() {
    let mut functions = functions();
    let text = "local n = 0 redis.register_function('count', function() n = n + 1 return n end)";
    load(&mut functions, "l", text);
    load(&mut functions, "m", &text.replace("count", "other"));
    let counted = ["count", "count", "other", "count"].map(|name| call(&mut functions, name));
    assert_eq!(counted, [":1", ":2", ":1", ":3"]);
    load(&mut functions, "l", text);
    assert_eq!(call(&mut functions, "count"), ":1");
    for change in [
        "x = 1",
        "_G.x = 1",
        "rawset(_G, 'x', 1)",
        "setmetatable(_G, {})",
        "redis.x = 1",
        "string.format = nil",
        "getmetatable('').__index = {}",
    ] {
        let answer = answer(change);
        assert!(answer.contains("Attempt to modify a readonly table"), "{change}: {answer}");
    }
}

#[test]
fn library_has_restricted_environment_while_loading() {
    let mut functions = functions();
    for name in ["_G", "pairs", "pcall", "load", "string", "cjson", "KEYS", "os"] {
        let said = load(&mut functions, "l", &format!("local x = {name}"));
        assert!(said.ends_with(&format!("nonexistent global variable '{name}'")), "{said}");
    }
    for name in ["call", "pcall", "setresp", "REPL_ALL"] {
        let said = load(&mut functions, "l", &format!("local x = redis.{name}"));
        assert!(said.ends_with(&format!("nonexistent global variable '{name}'")), "{said}");
    }
    for change in ["x = 1", "redis.x = 1", "redis.log = nil", "redis = nil"] {
        let said = load(&mut functions, "l", change);
        assert!(said.ends_with("Attempt to modify a readonly table"), "{said}");
    }
    let kept = "local early = redis redis.register_function('f', function() \
                local names = {} for name in pairs(early) do names[#names + 1] = name end \
                table.sort(names) return {names, rawget(early, 'call') == nil, \
                tostring(getmetatable(early)), early ~= redis, redis.call ~= nil} end)";
    assert_eq!(load(&mut functions, "l", kept), "l");
    assert_eq!(
        call(&mut functions, "f"),
        "[['LOG_DEBUG' 'LOG_NOTICE' 'LOG_VERBOSE' 'LOG_WARNING' 'REDIS_VERSION' \
         'REDIS_VERSION_NUM' 'log' 'register_function'] :1 'false' :1 :1]"
    );
}

#[test]
fn functions_are_registered_only_while_loading() {
    let mut functions = functions();
    let text = "local early = redis redis.register_function('f', function() \
                early.register_function('g', early.log) end)";
    load(&mut functions, "l", text);
    let refused = "-ERR redis.register_function can only be called on FUNCTION LOAD command \
                   script: f, on @user_function:2.";
    assert_eq!(call(&mut functions, "f"), refused);
    assert_eq!(functions.count(), 1);
}

#[test]
fn failed_load_changes_nothing() {
    let mut functions = functions();
    load(&mut functions, "l", "redis.register_function('f', function() return 1 end)");
    for (name, text) in [
        ("l", "x x"),
        ("l", "redis.register_function('g', function() end) x = 1"),
        ("l", "return 1"),
        (
            "m",
            "redis.register_function('g', function() end) redis.register_function('F', redis.log)",
        ),
        (
            "m",
            "redis.register_function('g', function() end) redis.register_function('G', redis.log)",
        ),
    ] {
        let said = load(&mut functions, name, text);
        assert!(said.starts_with("-ERR "), "{text}: {said}");
        assert_eq!(call(&mut functions, "f"), ":1", "{text}");
        assert_eq!((functions.libraries().len(), functions.count()), (1, 1), "{text}");
    }
}

#[test]
fn restore_loads_all_libraries_or_none() {
    let library = |name: &str, function: &str| {
        let text = format!("redis.register_function('{function}', function() return 2 end)");
        format!("#!lua name={name}\n{text}").into_bytes()
    };
    let restore = |functions: &mut Functions, codes: &[Vec<u8>], policy| {
        let done = functions.restore(codes, policy, &mut MapHost::default());
        done.map_or_else(|refusal| show(&refusal), |()| "OK".to_owned())
    };
    let with_l = || {
        let mut functions = functions();
        load(&mut functions, "l", "redis.register_function('f', function() return 1 end)");
        functions
    };
    let names = |functions: &Functions| {
        functions.libraries().map(|library| library.name.clone()).collect::<Vec<_>>().join(" ")
    };
    let [l, m, n] = [library("l", "g"), library("m", "h"), library("n", "f")];
    for (codes, policy, said, left) in [
        (vec![m.clone()], Policy::Append, "OK", "l m"),
        (vec![m.clone(), l.clone()], Policy::Append, "-ERR Library l already exists", "l"),
        (vec![m.clone(), l.clone()], Policy::Replace, "OK", "l m"),
        (vec![m.clone(), n.clone()], Policy::Replace, "-ERR Function f already exists", "l"),
        (vec![m.clone(), n.clone()], Policy::Flush, "OK", "m n"),
        (vec![m.clone(), m.clone()], Policy::Flush, "-ERR Library 'm' already exists", "l"),
        (vec![m.clone(), b"x".to_vec()], Policy::Flush, "-ERR Missing library metadata", "l"),
        (vec![], Policy::Flush, "OK", ""),
    ] {
        let mut functions = with_l();
        assert_eq!(restore(&mut functions, &codes, policy), said);
        assert_eq!(names(&functions), left);
        let kept = left == "l" || policy == Policy::Append;
        assert_eq!(call(&mut functions, "f") == ":1", kept, "{said}");
    }
}

#[test]
fn kill_ends_functions_and_loading_libraries() {
    let mut functions = functions();
    let endless = "redis.register_function('f', function() while true do end end)";
    load(&mut functions, "l", endless);
    let killing_host = || MapHost { polls_max: Some(5), ..MapHost::default() };
    let killed = functions.run(b"f", &[], &[], &mut killing_host());
    assert_eq!(
        show(&killed),
        "-ERR Script killed by user with SCRIPT KILL... script: f, on @user_function:2."
    );
    let code = b"#!lua name=m\nwhile true do end";
    let refused =
        functions.load(code, true, &mut killing_host()).expect_err("the library has no end");
    assert_eq!(show(&refused), "-ERR Error registering functions: ERR FUNCTION LOAD timeout");
    load(&mut functions, "l", "redis.register_function('f', function() return _G ~= nil end)");
    assert_eq!(call(&mut functions, "f"), ":1");
}

#[test]
fn memory_is_limited_and_freed_with_library() {
    let mut functions = functions();
    let hoard = "local held = {} redis.register_function('f', function() \
                 while true do held[#held + 1] = string.rep(#held, 1000) end end)";
    load(&mut functions, "l", hoard);
    let said = call(&mut functions, "f");
    assert!(said.contains("not enough memory"), "{said}");
    let small = "redis.register_function('g', function() return 1 end)";
    assert_eq!(load(&mut functions, "l", small), "l", "its memory is freed with the library");
    assert_eq!(call(&mut functions, "g"), ":1");
    let many = "local i = 0 while true do i = i + 1 \
                redis.register_function('f' .. i, function() end) end";
    let said = load(&mut functions, "m", many);
    assert!(said.ends_with("too many functions in the library"), "{said}");
    assert!(functions.delete(b"l") && !functions.delete(b"m"));
    assert_eq!(
        functions.run(b"g", &[], &[], &mut MapHost::default()),
        Reply::error("ERR Function not found")
    );
}

#[test]
fn replaced_libraries_leave_no_memory() {
    let mut functions = functions();
    let text = "n = n .. '' ".repeat(500);
    let text = |number: usize| {
        format!("redis.register_function('f', function() local n = '{number}' {text} return n end)")
    };
    load(&mut functions, "l", &text(0));
    let before = functions.memory_bytes();
    for number in 1..2_000 {
        assert_eq!(load(&mut functions, "l", &text(number)), "l");
    }
    assert!(functions.memory_bytes() < before + (4 << 20), "{}", functions.memory_bytes());
    while functions.tidy() {}
    assert!(functions.memory_bytes() < before + (2 << 20), "{}", functions.memory_bytes());
    let reply = functions.run(b"f", &[], &[], &mut MapHost::default());
    assert_eq!(show(&reply), "'1999'");
}
