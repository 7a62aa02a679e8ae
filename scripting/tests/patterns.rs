//! Compares the bounded matcher with Lua's own: for any subject and pattern both find the same, or
//! fail with the same message.

mod host;

use host::{MapHost, interpreter, show};
use proptest::prelude::*;

/// Calls every function that takes a pattern, and returns the results as one line.
const SCRIPT: &str = r"
local function join(...)
  local t = {}
  for i = 1, select('#', ...) do t[i] = tostring((select(i, ...))) end
  return table.concat(t, '|')
end
local function all(subject, pattern)
  local t = {}
  for a, b in string.gmatch(subject, pattern) do
    t[#t + 1] = join(a, b)
    if #t > 50 then break end
  end
  return table.concat(t, '/')
end
local subject, pattern, replacement = ARGV[1], ARGV[2], ARGV[3]
return table.concat({
  join(pcall(string.find, subject, pattern)),
  join(pcall(string.find, subject, pattern, -3)),
  join(pcall(string.find, subject, pattern, 2, true)),
  join(pcall(string.match, subject, pattern)),
  join(pcall(string.match, subject, pattern, 3)),
  join(pcall(string.gsub, subject, pattern, replacement)),
  join(pcall(string.gsub, subject, pattern, replacement, 1)),
  join(pcall(string.gsub, subject, pattern, {a = 'table', b = false})),
  join(pcall(string.gsub, subject, pattern, function(...) return join(...) end)),
  join(pcall(all, subject, pattern)),
}, '\n')
";

/// The results of Lua itself.
fn reference(lua: &mlua::Lua, words: &[&[u8]]) -> Vec<u8> {
    let strings: Vec<_> =
        words.iter().map(|word| lua.create_string(word).expect("memory")).collect();
    lua.globals().set("ARGV", strings).expect("memory");
    let text: mlua::LuaString = lua.load(SCRIPT).set_name("@user_script").eval().expect("runs");
    text.as_bytes().to_vec()
}

const REPLACEMENTS: &[&str] = &["", "x", "%0", "%1", "<%1%2>", "%%", "%", "%a", "%9"];

fn pattern() -> impl Strategy<Value = Vec<u8>> {
    const PARTS: &[&str] = &[
        "a", "b", "c", ".", "%a", "%d", "%s", "%w", "%p", "%x", "%u", "%l", "%c", "%z", "%A", "%S",
        "%W", "%.", "%%", "[ab]", "[^ab]", "[a-c]", "[%a%d]", "[^%s]", "[]]", "[^]]", "[a-]",
        "[%-x]", "(", ")", "()", "(a", ".)", "*", "+", "-", "?", "^", "$", "%b()", "%bxy",
        "%f[%a]", "%f[^%a]", "%1", "%2", "%0", "[", "]", "%", "%f", "%b", "\0", " ", "1",
    ];
    let part = prop::sample::select(PARTS);
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn matcher_agrees_with_lua(
        subject in "[abcABC 01().xy%\u{0}-]{0,14}",
        pattern in pattern(),
        replacement in prop::sample::select(REPLACEMENTS),
    ) {
        thread_local! {
            static PLAIN: mlua::Lua = mlua::Lua::new();
        }
        let words = [subject.as_bytes(), &pattern[..], replacement.as_bytes()];
        let expected = PLAIN.with(|lua| reference(lua, &words));
        let mut lua = interpreter();
        let sha = lua.load(SCRIPT.as_bytes()).expect("compiles");
        let reply = lua.run(sha.as_bytes(), &[], &words, &mut MapHost::default());
        prop_assert_eq!(show(&reply), show(&lockwheel_resp::Reply::bulk(expected)));
    }
}
