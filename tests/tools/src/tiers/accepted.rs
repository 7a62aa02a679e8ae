//! The accepted differences between Lockwheel and Redis 7.0, each as narrow as possible: see
//! `docs/differences.md`.

use lockwheel_compat::fuzz::known::seventeen_digits;
use lockwheel_resp::format_double;
use lockwheel_scripting::Sha;

/// An accepted difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AcceptedDifference {
    /// Redis 7.0 prints scores, and numbers that a script passes to a command, with 17 digits, and
    /// minus zero with its sign. Each number must be the same, in exactly these two forms.
    Digits,
    /// Another effect of such a number, passed to a command. There must be no difference once the
    /// script passes the numbers as text, in the form of 7.2, and that must change nothing here.
    NumbersHanded,
    /// A script has used the address of a table or function. There must be no difference once
    /// `tostring` shows no addresses.
    Addresses,
    /// `cmsgpack.pack` or `cjson.encode` of a library, which is an empty table here. There must be
    /// no difference once libraries are kept from these functions.
    PackedLibraries,
    /// Redis's handler of errors turns the error of `load` into a table. There must be no
    /// difference once it is the message again, and that must change nothing here.
    LoadErrors,
    /// The length of a reply that has nulls in RESP3: Lua does not define the length of a table
    /// with holes. There must be no difference once tables are filled as Redis fills them, and that
    /// must change nothing there.
    Holes,
    /// `redis.set_repl` has other error messages in 7.0.
    SetRepl,
    /// An error that is a read-only table: Redis's handler cannot add the position of the error to
    /// it.
    FrozenError,
    /// Redis ends the text of an error at a zero byte. The text before it and the position must be
    /// the same.
    ZeroByte,
    /// An error that is a function: Redis shows its address.
    FunctionError,
}

/// Defines `redis_call` and `redis_pcall`, which pass numbers as text in the form of 7.2.
const NUMBERS_AS_TEXT: &str = "local redis_call, redis_pcall \
    do \
      local type, tonumber, format, floor = type, tonumber, string.format, math.floor \
      local redis, select, unpack, abs, huge = redis, select, unpack, math.abs, math.huge \
      local function shown(it) \
        if type(it) ~= 'number' or it ~= it or abs(it) == huge then return it end \
        if it == 0 then return '0' end \
        if abs(it) <= 2 ^ 62 and floor(it) == it then return format('%.0f', it) end \
        for digits = 1, 17 do \
          local text = format('%.' .. digits .. 'g', it) \
          if tonumber(text) == it then return text end \
        end \
      end \
      local function with(call) \
        return function(...) \
          local all, count = {...}, select('#', ...) \
          for at = 1, count do all[at] = shown(all[at]) end \
          return call(unpack(all, 1, count)) \
        end \
      end \
      redis_call, redis_pcall = with(redis.call), with(redis.pcall) \
    end ";

/// Defines a `tostring` that shows no addresses.
const NO_ADDRESSES: &str = "local tostring = (function(tostring, type, plain) \
      return function(...) \
        if plain[type((...))] ~= false then return tostring(...) end \
        return type((...)) .. ': 0x1' \
      end \
    end)(tostring, type, {table = false, ['function'] = false, thread = false, userdata = false}) ";

/// Defines functions that pack an empty table in place of a library.
const NO_LIBRARIES: &str = "local cmsgpack_pack, cjson_encode \
    do \
      local libraries = {} \
      for _, it in ipairs({redis, cjson, cmsgpack, bit, struct, string, table, math, coroutine, \
          _G}) do libraries[it] = true end \
      local type, pairs, select, unpack = type, pairs, select, unpack \
      local function without(it, depth) \
        if type(it) ~= 'table' or depth > 8 then return it end \
        if libraries[it] then return {} end \
        for key, value in pairs(it) do \
          if type(value) == 'table' then it[key] = without(value, depth + 1) end \
        end \
        return it \
      end \
      local function with(pack) \
        return function(...) \
          local all, count = {...}, select('#', ...) \
          for at = 1, count do all[at] = without(all[at], 0) end \
          return pack(unpack(all, 1, count)) \
        end \
      end \
      cmsgpack_pack, cjson_encode = with(cmsgpack.pack), with(cjson.encode) \
    end ";

/// Defines a `load` that returns the message of an error as its second result.
const LOAD_MESSAGES: &str = "local load = (function(load, type, sub) \
      return function(...) \
        local chunk, message = load(...) \
        if chunk then return chunk end \
        if type(message) == 'table' and message.source and message.err then \
          message = sub(message.err, 5) \
        end \
        return chunk, message \
      end \
    end)(load, type, string.sub) ";

/// Defines `redis_call` and `redis_pcall` that fill their tables one item at a time.
const FILLED_TABLES: &str = "local redis_call, redis_pcall \
    do \
      local type, maxn = type, table.maxn \
      local function filled(it) \
        if type(it) ~= 'table' or maxn(it) == 0 then return it end \
        local copy = {} \
        for at = 1, maxn(it) do copy[at] = filled(it[at]) end \
        return copy \
      end \
      local function with(call) \
        return function(...) return filled(call(...)) end \
      end \
      redis_call, redis_pcall = with(redis.call), with(redis.pcall) \
    end ";

/// Runs a script on both servers and returns their replies, ours first.
pub(crate) type Run<'a> = &'a mut dyn FnMut(&str) -> Option<[Vec<String>; 2]>;

/// The accepted difference that explains why two servers differ on a script, if there is one. `run`
/// runs another script in the same way.
pub(crate) fn accepted_difference(
    script: &str,
    ours: &[String],
    theirs: &[String],
    run: Run<'_>,
) -> Option<AcceptedDifference> {
    accepted_by_text(script, ours, theirs)
        .or_else(|| is_of_numbers(script, ours, run).then_some(AcceptedDifference::NumbersHanded))
        .or_else(|| is_of_loading(script, ours, run).then_some(AcceptedDifference::LoadErrors))
        .or_else(|| is_of_holes(script, theirs, run).then_some(AcceptedDifference::Holes))
        .or_else(|| is_of_libraries(script, run).then_some(AcceptedDifference::PackedLibraries))
        .or_else(|| {
            is_of_addresses(script, ours, theirs, run).then_some(AcceptedDifference::Addresses)
        })
}

/// Does the same as [`accepted_difference`] for differences that show in the replies alone.
pub(crate) fn accepted_by_text(
    script: &str,
    ours: &[String],
    theirs: &[String],
) -> Option<AcceptedDifference> {
    if ours.len() != theirs.len() {
        return None;
    }
    let same_but = |known: &dyn Fn(&str, &str) -> bool| {
        ours.iter().zip(theirs).all(|(ours, theirs)| ours == theirs || known(ours, theirs))
    };
    let sha = Sha::of(script.as_bytes());
    let frozen = format!(
        "ERR err_handler_def:10: Attempt to modify a readonly table script: {}, on \
         @err_handler_def:10.",
        sha.as_str()
    );
    let unknown = format!("ERR unknown error script: {}, on @user_script:", sha.as_str());
    match () {
        () if same_but(&same_but_digits) => Some(AcceptedDifference::Digits),
        () if same_but(&|ours, theirs| {
            let (one, two) = ("set_repl() requires one argument.", "requires two arguments.");
            ours.contains(one) && ours.replace(one, &format!("set_repl() {two}")) == theirs
        }) =>
        {
            Some(AcceptedDifference::SetRepl)
        }
        () if same_but(&|ours, theirs| {
            ours.split_once(&unknown).is_some_and(|(before, behind)| {
                let rest = behind
                    .trim_start_matches(|it: char| it.is_ascii_digit())
                    .strip_prefix('.')
                    .unwrap_or_default();
                format!("{before}{frozen}{rest}") == theirs
            })
        }) =>
        {
            Some(AcceptedDifference::FrozenError)
        }
        () if same_but(&same_but_zero_byte) => Some(AcceptedDifference::ZeroByte),
        () if same_but(&|ours, theirs| {
            theirs.split_once("-ERR function: 0x").is_some_and(|(before, behind)| {
                let rest = behind.trim_start_matches(|it: char| it.is_ascii_hexdigit());
                format!("{before}-ERR function{rest}") == ours
            })
        }) =>
        {
            Some(AcceptedDifference::FunctionError)
        }
        () => None,
    }
}

/// Whether our error goes on after a zero byte at which that of Redis ends.
fn same_but_zero_byte(ours: &str, theirs: &str) -> bool {
    ours.starts_with('-')
        && ours.split_once("\\x00").is_some_and(|(text, behind)| {
            let place = behind.find(" script: ").map_or("", |at| &behind[at..]);
            format!("{text}{place}") == theirs
        })
}

fn is_of_numbers(script: &str, ours: &[String], run: Run<'_>) -> bool {
    let text = with_own_calls(script);
    if text == script {
        return false;
    }
    let text = format!("{NUMBERS_AS_TEXT}{text}");
    let Some([ours_then, theirs_then]) = run(&text) else { return false };
    let is_agreed = ours_then == theirs_then
        || accepted_by_text(&text, &ours_then, &theirs_then) == Some(AcceptedDifference::Digits);
    is_agreed && without_places(&ours_then) == without_places(ours)
}

fn is_of_holes(script: &str, theirs: &[String], run: Run<'_>) -> bool {
    let text = with_own_calls(script);
    script.contains("redis.setresp(3)")
        && agreed(&format!("{FILLED_TABLES}{text}"), run)
            .is_some_and(|then| without_places(&then) == without_places(theirs))
}

fn is_of_loading(script: &str, ours: &[String], run: Run<'_>) -> bool {
    script.contains("load")
        && agreed(&format!("{LOAD_MESSAGES}{script}"), run)
            .is_some_and(|then| without_places(&then) == without_places(ours))
}

fn is_of_libraries(script: &str, run: Run<'_>) -> bool {
    let text = script.replace("cmsgpack.pack", "cmsgpack_pack");
    let text = text.replace("cjson.encode(", "cjson_encode(");
    text != script && agreed(&format!("{NO_LIBRARIES}{text}"), run).is_some()
}

fn is_of_addresses(script: &str, ours: &[String], theirs: &[String], run: Run<'_>) -> bool {
    if !script.contains("tostring") {
        return false;
    }
    let Some(then) = agreed(&format!("{NO_ADDRESSES}{script}"), run) else { return false };
    // The script did use an address.
    let has_looked = |replies: &[String]| {
        replies.iter().zip(&then).any(|(reply, then)| no_place(reply) != no_place(then))
    };
    has_looked(ours) || has_looked(theirs)
}

/// The script with `redis_call` and `redis_pcall` in place of Redis's functions.
fn with_own_calls(script: &str) -> String {
    script.replace("redis.call", "redis_call").replace("redis.pcall", "redis_pcall")
}

/// The replies of both servers to a script, if they are equal.
fn agreed(script: &str, run: Run<'_>) -> Option<Vec<String>> {
    run(script).filter(|[ours, theirs]| ours == theirs).map(|[ours, _]| ours)
}

fn without_places(replies: &[String]) -> Vec<String> {
    replies.iter().map(|reply| no_place(reply)).collect()
}

/// A reply without the digests of scripts and the positions of errors, which change with the text
/// of the script.
fn no_place(reply: &str) -> String {
    let mut out = String::new();
    let mut rest = reply;
    while let Some((before, behind)) = rest.split_once(" script: ") {
        out.push_str(before);
        rest = behind
            .split_once(", on ")
            .map_or(behind, |(_, place)| place.split_once('.').map_or(place, |(_, rest)| rest));
    }
    out.push_str(rest);
    // The reply to `SCRIPT LOAD`.
    let is_digest =
        |text: &str| text.len() == 42 && text[1..41].bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_digest(&out) { String::new() } else { out }
}

/// Whether two replies differ only in numbers, which Redis 7.0 writes in its format and Lockwheel
/// in that of 7.2.
fn same_but_digits(ours: &str, theirs: &str) -> bool {
    let (mut ours, mut theirs) = (ours, theirs);
    loop {
        let begins = |text: &str| text.find(number_begins).unwrap_or(text.len());
        let (one, other) = (begins(ours), begins(theirs));
        if ours[..one] != theirs[..other] {
            return false;
        }
        (ours, theirs) = (&ours[one..], &theirs[other..]);
        if ours.is_empty() || theirs.is_empty() {
            return ours == theirs;
        }
        let (mine, other) = (number_length(ours), number_length(theirs));
        let is_same = ours[..mine] == theirs[..other]
            || ours[..mine].parse::<f64>().is_ok_and(|number| {
                let number = if theirs[..other] == *"-0" { -number } else { number };
                in_full(number) == ours[..mine] && seventeen_digits(number) == theirs[..other]
            });
        if !is_same {
            return false;
        }
        (ours, theirs) = (&ours[mine..], &theirs[other..]);
    }
}

fn number_begins(letter: char) -> bool {
    letter == '-' || letter.is_ascii_digit()
}

/// A number in the format of 7.2.
fn in_full(number: f64) -> String {
    let is_whole = number.abs() <= (1_i64 << 62) as f64 && number.fract() == 0.0;
    if is_whole {
        (number as i64).to_string()
    } else {
        String::from_utf8_lossy(format_double(number).as_bytes()).into_owned()
    }
}

/// The length of the number at the start of a text, or of a sign alone.
fn number_length(text: &str) -> usize {
    let sign = usize::from(text.starts_with('-'));
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut length = sign + digits(sign);
    if text[length..].starts_with('.') && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
    }
    if length > sign && text[length..].starts_with('e') {
        let sign = usize::from(text[length + 1..].starts_with(['+', '-']));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    length
}
