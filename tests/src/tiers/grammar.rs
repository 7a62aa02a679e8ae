//! Generates random scripts from the grammar of Lua 5.1 and the functions that Redis gives to
//! scripts: [`builtins`](super::builtins). The subset of the plans has no influence, with one
//! exception: statements and functions that lock scripts use are generated more often, so that many
//! scripts have plans and others are just outside the subset.
//!
//! Statements and expressions are templates. A `$` and a letter are replaced as follows:
//!
//! | letters | replacement |
//! |---|---|
//! | `N I S D B t` | a number, a small one, a text, digits, a base, a condition |
//! | `X V M` | a suitable value, any value, a value to compare with |
//! | `L T F` | a list, a table, a function |
//! | `P Q R U J W C A` | arguments of libraries: a pattern, a replacement, formats, JSON, packed
//! values, code, a byte |
//! | `K r w` | a key, `redis.call` or `redis.pcall`, the words of a command |
//! | `q k` | a call of a command |
//! | `E G g x , z y` | the call in focus of a statement, its function, the first word of that, its
//! arguments, those after a comma, its argument without parentheses as a string or table |
//! | `H1 H2 H3` | a function that takes one, two or three arguments |
//! | `a b c d f i j` | new locals |
//! | `o l u` | the final values of `a b c`, of the list `a`, of `i` |
//! | `s v` | a statement; a local that exists already |

use lockwheel_scripting::Sha;

use super::builtins::{ARGUMENTS_MAX, BUILTINS, Builtin, EVERYDAY, POSITIONS};

/// A source of random numbers: returns one below its argument.
pub type RandomBelow<'d> = &'d mut dyn FnMut(usize) -> usize;

/// Keys that scripts name; [`INITIAL_KEYS`] sets each to another type of value.
pub const KEYS: [&str; 9] = ["s", "h", "l", "z", "n", "none", "m", "x", "out"];

/// The commands that are run before the scripts.
pub const INITIAL_KEYS: [&str; 11] = [
    "SET s owner PX 30000000",
    "HSET h owner 1 mode read other 2",
    "PEXPIRE h 30000000",
    "RPUSH l a b owner 7",
    "ZADD z 1 a 1.5 owner 1700000030000 b",
    "SET n 41",
    "SADD m owner",
    "XADD x 1-1 field value",
    "XADD x 2-1 field other",
    "DEL none",
    "DEL out",
];

/// Arguments that scripts treat in different ways.
pub const WORDS: [&str; 30] = [
    "owner",
    "other",
    "30000",
    "1",
    "0",
    "-1",
    "2",
    "7",
    "10",
    "1.5",
    "-0",
    " 5 ",
    "0x10",
    "1e3",
    "abc",
    "",
    "mode",
    "read",
    "publish",
    "get",
    "inf",
    "nan",
    "99999999999999",
    "123456789012345678",
    "9007199254740993",
    "PX",
    "NX",
    "a",
    "set",
    "pexpire",
];

/// A cell of the table of coverage: a function, its position and its number of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Index in [`BUILTINS`].
    pub builtin: usize,
    /// Index in [`POSITIONS`].
    pub position: usize,
    /// The number of arguments.
    pub count: usize,
}

/// A script and its content.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// The Lua text.
    pub text: String,
    /// The functions that were chosen for a position.
    pub cells: Vec<Cell>,
}

/// How a script is run.
#[derive(Clone, Debug)]
pub struct Request {
    /// The commands that run it.
    pub form: Form,
    /// The keys.
    pub keys: Vec<String>,
    /// The arguments.
    pub words: Vec<String>,
}

/// The commands that run a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `EVAL`
    Eval,
    /// `EVAL_RO`
    ReadOnly,
    /// `SCRIPT LOAD` and `EVALSHA`
    Sha,
    /// `MULTI`, `EVAL`, `EXEC`
    Transaction,
}

impl Request {
    /// The requests to send, each as words.
    pub fn commands(&self, script: &str) -> Vec<Vec<String>> {
        let words = |name: &str, script: &str| {
            let mut argv = vec![name.to_owned(), script.to_owned(), self.keys.len().to_string()];
            argv.extend(self.keys.iter().chain(&self.words).cloned());
            argv
        };
        let word = |word: &str| vec![word.to_owned()];
        match self.form {
            Form::Eval => vec![words("EVAL", script)],
            Form::ReadOnly => vec![words("EVAL_RO", script)],
            Form::Sha => vec![
                ["SCRIPT", "LOAD", script].map(str::to_owned).to_vec(),
                words("EVALSHA", Sha::of(script.as_bytes()).as_str()),
            ],
            Form::Transaction => vec![word("MULTI"), words("EVAL", script), word("EXEC")],
        }
    }
}

/// The content that a script may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Everything.
    All,
    /// Only constructs for which every server gives the same replies at any time.
    Exact,
}

/// Generates a script; if a cell is given, the script contains it.
pub fn script(selection: Selection, about: Option<Cell>, random: RandomBelow<'_>) -> Script {
    let common = random(6) < 5;
    let mut writer = ScriptWriter {
        random,
        selection,
        common,
        cells: Vec::new(),
        scope: Vec::new(),
        names: 0,
        nesting: 0,
        statements_left: 24,
        depth: 0,
    };
    let mut text = String::new();
    if writer.below(2) == 0 {
        writer.statement(&mut text);
    }
    if let Some(cell) = about {
        writer.call_in(cell, &mut text);
    }
    for _ in 0..writer.below(4) {
        writer.statement(&mut text);
    }
    writer.end(&mut text);
    Script { text, cells: writer.cells }
}

/// Generates a request to run a script.
pub fn request(random: RandomBelow<'_>) -> Request {
    let form = match random(16) {
        0 => Form::ReadOnly,
        1 => Form::Sha,
        2 => Form::Transaction,
        _ => Form::Eval,
    };
    let keys = if random(4) > 0 { 3 } else { random(5) };
    let keys = (0..keys).map(|_| KEYS[random(KEYS.len())].to_owned()).collect();
    let words = if random(4) > 0 { 5 } else { random(7) };
    let words = (0..words).map(|_| WORDS[random(WORDS.len())].to_owned()).collect();
    Request { form, keys, words }
}

/// Statements of lock scripts that contain other statements or have no call in focus.
const COMMON_STATEMENTS: &[&str] = &[
    "$q",
    "$q",
    "local $a = $k\n$o",
    "local $a = $k\n$o",
    "local $a = $X\n$o",
    "local $a, $b = $X, $X\n$o",
    "local $a, $b = $V\n$o",
    "local $a, $b = $X, $V\n$a, $b = $b, $a\n$o",
    "local $a = {$V, $V, $V}\n$l",
    "local $a = {$X, $N, $S}\n$a[1], $a[2] = $a[2], $a[1]\n$l",
    "local $a = $X\n$a = $V\n$o",
    "local $a\n$o",
    "local $a, $b, $c = $V, $V\n$o",
    "$v = $X",
    "if $t then\n$s\nend",
    "if $t then\n$s\nelse\n$s\nend",
    "if $t then\n$s\nelseif $t then\n$s\nelse\n$s\nend",
    "do\n$s\n$s\nend",
    "for $i = $I, $I do\n$u\n$s\nend",
    "for $i = 3, 1, -1 do\n$u\n$s\nend",
    "for $i = 1, 2, 0.5 do\n$u\n$s\nend",
    "for $i, $j in ipairs(KEYS) do\n$u\n$s\nend",
    "for $i, $j in ipairs(ARGV) do\nredis.call('rpush', 'out', $j)\nif $t then\nbreak\nend\n$s\nend",
    "for $i, $j in ipairs($L) do\n$u\n$s\nend",
    "for $i, $j in ipairs({$V, $V, $V}) do\n$u\n$s\nend",
    "for $i = 1, #ARGV do\nlocal $a = ARGV[$i]\n$o\nend",
    "local $a = 0\nwhile $a < 3 do\n$a = $a + 1\n$s\nif $t then\nbreak\nend\nend",
    "local $a = $I\nwhile $a > 0 do\n$s\n$a = $a - 1\nend",
    "local $a = $X\ndo\nlocal $a = $V\n$o\nend\n$o",
    "local $a = $X\nif $a == $X then\nlocal $b = $a\n$s\nend",
    "if $k == ARGV[1] then\n$q\nreturn $k\nelse\nreturn 0\nend",
    "if $k then\nreturn nil\nend",
    "do return $k end",
    "do return end",
    "local $a = {}\nfor $i = 1, $I do\ntable.insert($a, ($X))\nend\n$l",
    "local $a = {}\nfor $i, $j in ipairs(ARGV) do\n$a[$i] = $j\nend\n$l",
    "local $a = {}\nfor $i = 1, 3 do\n$a[#$a + 1] = $i * 2\nend\n$l",
    "local $a = {$V, nil, $V, nil}\n$l",
    "local $a = {$X, nil}\n$a[#$a + 1] = $X\n$l",
    "local $a = {1, 2, 3, 4}\n$a[$I] = nil\nlocal $b = #$a\n$o",
    "local $a = $k\nlocal $b = $a[1]\n$o",
    "local $a = $k\nlocal $b = $a and $a[2] or $X\n$o",
    "local $a = 'one'; local $b = \"two\" ;$o",
    "local $a = 'a\\n\\t\\\\\\'\\\"\\065\\0z' .. \"it's\"\n$o",
    "-- a comment\nlocal $a = $X -- another\n--[[ a long\ncomment ]] $o",
    "local $a = redis.pcall($w)\nif type($a) == 'table' and $a.err then\nreturn $a\nend\n$s",
    "local $a = $N + $N * $N - $N\n$o",
    "local $a = $N / $N % $N\n$o",
    "local $a = ($N + $N) * - $N\n$o",
    "local $a = $N .. $S .. $N\n$o",
    "local $a = $S .. $N .. ''\n$o",
    "local $a = not $X == $X\n$o",
    "local $a = $N < $N == $t\n$o",
    "local $a = $X and $X or $X\n$o",
    "local $a = $X or $X and $X\n$o",
    "local $a = - $N - - $N\n$o",
    "local $a = #$S + #$L\n$o",
];

/// Such statements that lock scripts seldom contain.
const OTHER_STATEMENTS: &[&str] = &[
    "local $a = $V * $V\n$o",
    "local $a = 2 ^ 3 ^ 2 .. -2 ^ 2\n$o",
    "local $a = $N ^ - $N\n$o",
    "repeat\nlocal $a = $t\n$s\nuntil $a or true",
    "local $a = 0\nrepeat\nlocal $b = $a\n$a = $a + 1\n$s\nuntil $b >= 2",
    "local $a = 0\nrepeat\n$a = $a + 1\nif $t then break end\nlocal $b = $a\nuntil $b > 3\n$o",
    "local function $f($a, $b)\nreturn $b, $a\nend\nlocal $c, $d = $f($V, $V)\nredis.call('rpush', 'out', type($c), type($d))",
    "local $f\n$f = function(...)\nlocal $a, $b = ...\n$o\nreturn ...\nend\nlocal $c, $d = $f($X, $X, $X)",
    "local function $f($a)\nif $a > 0 then\nreturn $f($a - 1)\nend\n$s\nreturn $V\nend\nlocal $b = $f($I)",
    "local $a = 0\nlocal $f = function() $a = $a + 1 return $a end\n$f() $f()\n$o",
    "local $f = function(...)\nreturn select('#', ...), select(2, ...)\nend\nlocal $a, $b, $c = $f($V, $V, $V)\n$o",
    "local $a = {}\nfor $i = 1, 3 do\n$a[$i] = function() return $i end\nend\nlocal $b, $c = $a[1](), $a[3]()\n$o",
    "local $a = {x = $X, [2] = $X, $X; y = {$X}}\nlocal $b, $c = $a.x, $a.y[1]\n$o",
    "local $a = {x = {}}\nfunction $a.x.f(p) return p end\nfunction $a:m(p) return self.x.f(p) end\nlocal $b = $a:m($X)\n$o",
    "for $i, $j in pairs({$X, $X}) do\n$u\nend",
    "for $i, $j in pairs($T) do\n$u\nend",
    "for $i, $j in next, {$X, $X} do\n$u\nend",
    "for $i in function(s, c) if c < s then return c + 1 end end, 2, 0 do\n$u\nend",
    "for $i in string.gmatch('a,b,c', '%a') do\n$u\nend",
    "local $a = 0\nfor $i = 1, $V do\n$a = $a + 1\nif $a > 2 then break end\nend\n$o",
    "local $a = 0\nfor $i = 1, 3, $V do\n$a = $a + 1\nif $a > 2 then break end\nend\n$o",
    "local $a = [[long\n]bracket]] .. [==[\n]]]==]\n$o",
    "local $a = '\\a\\b\\f\\r\\v\\\nnext' .. \"\\9\\255\"\n$o",
    "local $a = 0x10 + 0XfF + 1e2 + .5 + 3. + 1E-1 + 2e+1\n$o",
    "local $a = 1 --[==[ ]] ]==] + 1\n$o",
    "local assert = $H1\nlocal $a, $b = assert($V, $V)\n$o",
    "local tonumber = tostring\nlocal $a, $b = tonumber($V, $V)\n$o",
    "do\nlocal redis = {call = function(...) return select('#', ...) end}\nlocal $a, $b = redis.call($V, $V)\nif $a then return $a end\nend",
    "do\nlocal math, string = string, math\nlocal $a = math.len('xyz')\n$o\nend",
    "do\nlocal KEYS, ARGV = ARGV, KEYS\nlocal $a, $b = KEYS[1], ARGV[1]\n$o\nend",
    "do\nlocal type = $V\nlocal $a = type\nredis.call('rpush', 'out', tostring($a))\nend",
    "local function unpack(...) return 'mine', ... end\nlocal $a, $b, $c = unpack($V, $V)\n$o",
    "local error = redis.error_reply\nlocal $a = error('x').err\n$o",
    "KEYS[1] = $X\nlocal $a = KEYS[1]\n$o",
    "ARGV[#ARGV + 1] = $X\nlocal $a = #ARGV\n$o",
    "table.insert(KEYS, ($X))\nlocal $a = #KEYS\n$o",
    "ARGV = $L\nlocal $a = #ARGV\n$o",
    "KEYS = {'p', 'q'}\nlocal $a = KEYS[$I]\n$o",
    "redis.setresp(3)\nlocal $a = $k\n$o",
    "redis.setresp(3)\nlocal $a = redis.call('hgetall', 'h')\nlocal $b = type($a.map)\n$o",
    "do return {double = $N} end",
    "do return {map = {x = $X}} end",
    "do return {set = {x = true}} end",
    "do return {big_number = {'12345'}, verbatim_string = {string = $S, format = 'txt'}} end",
    "do return {big_number = '123'} end",
    "do return {verbatim_string = {string = $S, format = 'txt'}} end",
    "do return {ok = $S, err = $S} end",
    "do return {err = $S, 1} end",
    "local $a, $b = pcall(redis.call, $w)\nlocal $b = type($b)\n$o",
    "local $a, $b = pcall(function()\n$s\nreturn $X\nend)\n$o",
    "local $a, $b = pcall(error, $V)\n$o",
    "local $a, $b = pcall(error, {err = $S})\n$o",
    "local $a = #$V\n$o",
    "local $a, $b = $V == $V, $V ~= $V\n$o",
    "local $a = $V < $V\n$o",
    "local $a = $V .. $V\n$o",
    "local $a = ($V)[$V]\n$o",
    "undefined = $V",
    "local $a = undefined",
    "local $a = $S:upper():rep(2)\n$o",
    "local $a = ('%d %s'):format($I, $S)\n$o",
    "local $a = setmetatable({}, {__index = function(t, k) return k end, __call = function(self, x) return x end})\nlocal $b, $c = $a.x, $a($X)\n$o",
    "local $a = setmetatable({}, {__add = function(x, y) return 'sum' end, __concat = function() return 'cat' end, __eq = function() return true end, __len = function() return 9 end})\nlocal $b, $c = $a + 1, #$a\n$o",
    "local $a = _G\nlocal $b = type($a.redis)\n$o",
    "local $a = math.pi > 3 and math.huge\n$o",
    "local $a = redis.LOG_WARNING\n$o",
    "redis.log(redis.LOG_NOTICE, $S, $V)",
    "do return end",
    "goto_ = 1",
    "local $a = cjson.null\nlocal $b = $a == nil\nlocal $a = type($a)\n$o",
];

/// The words of commands, by their number: 1 to 5 or more.
const COMMANDS: [&[&str]; 5] = [
    &["'ping'", "'dbsize'", "'time'", "'get'", "'no such'", "'multi'", "$V", "'exec'"],
    &[
        "'get', $K",
        "'get', 's'",
        "'del', $K",
        "'exists', $K",
        "'incr', 'n'",
        "'incr', $K",
        "'decr', 'n'",
        "'hlen', 'h'",
        "'hkeys', 'h'",
        "'hgetall', 'h'",
        "'hvals', 'h'",
        "'pttl', $K",
        "'ttl', $K",
        "'lpop', 'l'",
        "'rpop', $K",
        "'llen', 'l'",
        "'type', $K",
        "'TYPE', $K",
        "'smembers', 'm'",
        "'scard', 'm'",
        "'zcard', 'z'",
        "'persist', $K",
        "'unlink', $K",
        "'strlen', 's'",
        "'echo', $S",
        "'echo', $N",
        "'GeT', 's'",
        "'pexpiretime', $K",
        "'echo', $V",
        "'get', $V",
        "'hget', $K",
        "'ping', $S",
        "'getdel', $K",
        "'mget', $K",
    ],
    &[
        "'set', $K, $S",
        "'set', 's', ARGV[1]",
        "'set', $K, $N",
        "'hget', 'h', $S",
        "'hget', 'h', 'owner'",
        "'hexists', 'h', $S",
        "'hdel', 'h', $S",
        "'hdel', 'h', 'owner'",
        "'pexpire', $K, $Y",
        "'pexpire', 's', ARGV[1]",
        "'expire', $K, 30000",
        "'incrby', 'n', $I",
        "'incrby', 'n', $N",
        "'decrby', 'n', $D",
        "'setnx', $K, $S",
        "'getset', 's', $S",
        "'publish', $S, $S",
        "'publish', 'c', ARGV[1]",
        "'rpush', 'l', $S",
        "'lpush', $K, $V",
        "'lindex', 'l', $I",
        "'del', $K, $K",
        "'exists', $K, $K",
        "'mget', $K, $K",
        "'zscore', 'z', 'owner'",
        "'zscore', 'z', $S",
        "'zrem', 'z', $S",
        "'zrank', 'z', 'b'",
        "'sadd', 'm', 'owner'",
        "'sismember', 'm', $S",
        "'srem', 'm', $S",
        "'append', $K, $S",
        "'getbit', 's', $I",
        "'rename', $K, 'none'",
        "'object', 'encoding', 's'",
        "'mset', $K, $S",
        "'lpop', 'l', $I",
        "'hmget', 'h', $S",
        "'set', $V, $V",
        "'get', $V, $V",
        "'copy', 's', 'out2'",
        "'incrbyfloat', 'n', 0.5",
    ],
    &[
        "'set', $K, $S, 'NX'",
        "'set', $K, $S, 'XX'",
        "'set', $K, $S, 'GET'",
        "'set', 's', 'new', 'NX'",
        "'set', $K, $S, 'KEEPTTL'",
        "'set', $K, ARGV[1], ARGV[2]",
        "'hset', 'h', $S, $S",
        "'hset', 'h', 'owner', $N",
        "'hincrby', 'h', 'owner', $I",
        "'hincrby', 'h', $S, $D",
        "'hsetnx', 'h', $S, $S",
        "'lrange', 'l', 0, -1",
        "'lrange', 'l', $I, $I",
        "'zrange', 'z', 0, -1",
        "'zadd', 'z', $I, $S",
        "'zadd', 'z', 2.5, $S",
        "'zrangebyscore', 'z', 0, $I",
        "'zremrangebyscore', 'z', 0, $I",
        "'zincrby', 'z', 1.5, 'a'",
        "'psetex', $K, $Y, $S",
        "'setex', $K, 30000, $S",
        "'getrange', 's', $I, $I",
        "'setrange', 's', $I, 'xy'",
        "'lrem', 'l', $I, 'a'",
        "'lset', 'l', $I, $S",
        "'ltrim', 'l', $I, $I",
        "'rpush', $K, $V, $V",
        "'del', $K, $K, $K",
        "'xrange', 'x', '-', '+'",
        "'hmget', 'h', 'owner', $S",
        "'pexpire', $K, $Y, 'NX'",
        "'setbit', 's', $I, 1",
        "'lmove', 'l', 'out', 'LEFT'",
        "'set', $V, $V, $V",
        "'smove', 'm', 'm2', 'owner'",
        "'mget', $K, $K, $K",
    ],
    &[
        "'set', $K, $S, 'PX', $Y",
        "'set', $K, ARGV[1], 'PX', 30000000",
        "'set', 's', $S, 'EX', 30000",
        "'zadd', 'z', 'NX', $I, $S",
        "'zadd', 'z', 'GT', 'CH', 3, 'a'",
        "'zrange', 'z', 0, 0, 'WITHSCORES'",
        "'zrange', 'z', 0, -1, 'WITHSCORES'",
        "'linsert', 'l', 'BEFORE', 'a', $S",
        "'hset', 'h', $S, $S, $S, $S",
        "'set', $K, $S, 'NX', 'PX', $Y",
        "'set', $K, ARGV[1], 'NX', 'PX', 30000000",
        "'rpush', $K, $S, $N, $V, $X",
        "'set', 'none', ARGV[1], ARGV[2], 'PX', 30000000",
        "'lmove', 'l', 'out', 'LEFT', 'RIGHT'",
        "'xadd', 'x', '3-1', 'f', $S",
        "'mget', unpack(KEYS)",
        "'del', unpack($L)",
        "'rpush', 'out', unpack(ARGV)",
        "'hmget', 'h', unpack(ARGV, 1, 2)",
        "'sort', 'l', 'ALPHA', 'LIMIT', 0, 2",
        "'zrangebyscore', 'z', '-inf', $N, 'LIMIT', 0, 1",
        "'exists', unpack(KEYS, 2)",
    ],
];

const NUMBERS: [&str; 16] = [
    "1", "0", "2", "3", "-1", "7", "10", "16", "1.5", "0.5", "-0.25", "41", "100", "30000", "2.75",
    "5",
];
/// Numbers that are not converted to an integer argument of a command, or not without a loss.
const ODD_NUMBERS: [&str; 20] = [
    "1.1",
    "-0.1",
    "1000000",
    "4294967296",
    "2147483648",
    "-2147483649",
    "9007199254740993",
    "123456789012345678",
    "99999999999999",
    "(0/0)",
    "(1/0)",
    "(-1/0)",
    "-0",
    "0.30000000000000004",
    "1e3",
    "0x10",
    "1e15",
    "1e300",
    "100000000000000000000",
    "3.0",
];
const TEXTS: [&str; 20] = [
    "'a'", "'owner'", "'other'", "'x'", "'mode'", "'abc'", "\"read\"", "'10'", "'7'", "'1.5'",
    "''", "'NX'", "'b'", "'0'", "'-1'", "' 5 '", "'0x10'", "'1e3'", "'-0'", "'OK'",
];
const ODD_TEXTS: [&str; 12] = [
    "'inf'",
    "'nan'",
    "'-inf'",
    "'0x'",
    "'1e'",
    "'1 2'",
    "'12345678901234567890'",
    "'a\\0b'",
    "'\\255\\254'",
    "'ERR no'",
    "'line\\r\\nbreak'",
    "'9007199254740993'",
];
/// Replies of every type.
const REPLIES: [&str; 24] = [
    "redis.call('get', 's')",
    "redis.call('get', 'none')",
    "redis.call('incr', 'n')",
    "redis.call('type', 's')",
    "redis.call('set', 'out2', 'v')",
    "redis.call('set', 's', 'v', 'NX')",
    "redis.call('lrange', 'l', 0, -1)",
    "redis.call('hgetall', 'h')",
    "redis.call('mget', 's', 'none', 'n')",
    "redis.call('zrange', 'z', 0, -1, 'WITHSCORES')",
    "redis.call('xrange', 'x', '-', '+')",
    "redis.call('exists', 'h')",
    "redis.call('lrange', 'none', 0, -1)",
    "redis.call('echo', '7')",
    "redis.call('hget', 'h', 'owner')",
    "redis.call('ping')",
    "redis.pcall('incr', 'h')",
    "redis.pcall('no such')",
    "redis.pcall('get')",
    "redis.pcall('get', 'l')",
    "redis.call('zscore', 'z', 'owner')",
    "redis.call('publish', 'c', 'm')",
    "redis.call('lpop', 'l')",
    "redis.call('hget', 'h', 'no')",
];
const TABLES: [&str; 12] = [
    "{}",
    "{1, 2, 3}",
    "{'a', 'b'}",
    "{1, nil, 3}",
    "{false, true}",
    "{'x', {1, 2}, 'y'}",
    "{nil, 2}",
    "{nil}",
    "{'10', '16'}",
    "{{}}",
    "{1.5, -1}",
    "{2, 3, nil}",
];
const ODD_TABLES: [&str; 6] = [
    "{x = 1}",
    "{1, 2, x = 3}",
    "{[2] = 'b', [1] = 'a'}",
    "{err = 'MY error'}",
    "{ok = 'fine'}",
    "{[1.5] = 2}",
];
const FUNCTIONS: [&str; 10] = [
    "function(...) return ... end",
    "function() end",
    "function() return nil, 2 end",
    "function(a, b) return b end",
    "function() error('mine') end",
    "function(a, b) return tostring(a) < tostring(b) end",
    "tostring",
    "type",
    "redis.call",
    "assert",
];
/// Ends of scripts that raise an error, after commands were run.
const FAILURES: [&str; 14] = [
    "error('x')",
    "error({err = 'MY x'})",
    "redis.call('incr', 'h')",
    "redis.call('no such')",
    "redis.call('get')",
    "return redis.error_reply('MY x')",
    "return {err = 'MY x'}",
    "local x = nil + 1",
    "local x = nil .. 'x'",
    "return #nil",
    "assert(false, 'x')",
    "assert(redis.call('get', 'none'))",
    "return redis.call(1, {})",
    "return undefined",
];

/// Writes one script.
struct ScriptWriter<'d> {
    random: RandomBelow<'d>,
    selection: Selection,
    /// Whether the script mostly consists of constructs of lock scripts.
    common: bool,
    cells: Vec<Cell>,
    /// Visible locals.
    scope: Vec<String>,
    /// Number of locals that have names.
    names: usize,
    /// The depth of nested statements.
    nesting: usize,
    /// Number of statements that may still be written.
    statements_left: usize,
    /// The depth of nested expressions.
    depth: usize,
}

/// The call in focus of a statement.
#[derive(Clone, Copy)]
struct Focus {
    builtin: &'static Builtin,
    count: usize,
}

/// The names of the new locals of one statement.
#[derive(Default)]
struct Names {
    /// The names for `a b c d f i j`.
    new: [Option<String>; 10],
}

impl ScriptWriter<'_> {
    fn below(&mut self, bound: usize) -> usize {
        (self.random)(bound)
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    /// Whether to choose a rare construct: once in `times`, and eight times less often in common
    /// scripts.
    fn chooses_rare(&mut self, times: usize) -> bool {
        let times = if self.common { times * 8 } else { times };
        self.below(times) == times - 1
    }

    fn statement(&mut self, out: &mut String) {
        if self.statements_left == 0 {
            return;
        }
        self.statements_left -= 1;
        if self.below(2) == 0 {
            self.call_somewhere(out);
            return;
        }
        let text = match self.chooses_rare(3) {
            false => self.pick(COMMON_STATEMENTS),
            true => self.pick(OTHER_STATEMENTS),
        };
        if self.selection == Selection::Exact && text.contains("redis.log") {
            // The log of the other server is not compared.
            return;
        }
        self.write(text, None, out);
        self.end_line(out);
    }

    /// Writes a call of a random function in a random position.
    fn call_somewhere(&mut self, out: &mut String) {
        let common = !self.chooses_rare(2);
        let builtin = self.pick_builtin(common, |_| true);
        let position = loop {
            let position = self.below(POSITIONS.len());
            // In scripts that are not common, rare positions are as frequent as others.
            if POSITIONS[position].common || self.chooses_rare(1) {
                break position;
            }
        };
        let function = &BUILTINS[builtin];
        let counts = POSITIONS[position].counts.clone();
        let sensible = function.least..=function.takes.len().max(function.least);
        let mut count = counts.start() + self.below(counts.end() - counts.start() + 1);
        if self.below(3) > 0 && !function.takes.is_empty() && counts.contains(sensible.start()) {
            count = sensible.start() + self.below(sensible.end() - sensible.start() + 1);
            count = count.min(*counts.end());
        }
        self.call_in(Cell { builtin, position, count }, out);
    }

    fn call_in(&mut self, cell: Cell, out: &mut String) {
        self.cells.push(cell);
        let focus = Focus { builtin: &BUILTINS[cell.builtin], count: cell.count };
        self.write(&POSITIONS[cell.position].text, Some(focus), out);
        self.end_line(out);
    }

    /// Chooses one of the functions that fit; returns its index in [`BUILTINS`].
    fn pick_builtin(&mut self, common: bool, fits: impl Fn(&Builtin) -> bool) -> usize {
        let exact = self.selection == Selection::Exact;
        let fits = |at: &usize| {
            let builtin = &BUILTINS[*at];
            fits(builtin) && (builtin.common || !common) && (builtin.exact || !exact)
        };
        let end = if common && self.below(3) > 0 { EVERYDAY } else { BUILTINS.len() };
        let all: Vec<usize> = (0..end).filter(fits).collect();
        if all.is_empty() { 0 } else { all[self.below(all.len())] }
    }

    fn end_line(&mut self, out: &mut String) {
        let end = match self.below(16) {
            14 => ";\n",
            15 => " -- so\n",
            _ => "\n",
        };
        out.push_str(end);
    }

    /// Writes the end of a script: it returns the final values of locals, raises an error, or does
    /// nothing.
    fn end(&mut self, out: &mut String) {
        match self.below(8) {
            0 => {}
            1..=2 => {
                let failure = self.pick(&FAILURES);
                out.push_str(failure);
            }
            3 => {
                let call = self.command(None);
                out.push_str(&format!("return {call}"));
            }
            _ => {
                let names = self.scope.iter().rev().take(6).cloned().collect::<Vec<_>>();
                out.push_str(&format!("return {{{}}}", names.join(", ")));
            }
        }
    }

    /// Writes a statement from a template.
    fn write(&mut self, template: &str, focus: Option<Focus>, out: &mut String) {
        let mut names = Names::default();
        let visible = self.scope.len();
        let mut letters = template.chars().peekable();
        let mut declared = Vec::new();
        while let Some(letter) = letters.next() {
            if letter != '$' {
                out.push(letter);
                continue;
            }
            let Some(letter) = letters.next() else { break };
            match letter {
                'a'..='d' | 'f' | 'i' | 'j' => {
                    let at = "abcdfij".find(letter).unwrap_or_default();
                    if names.new[at].is_none() {
                        self.names += 1;
                        names.new[at] = Some(format!("{letter}{}", self.names));
                        if !matches!(letter, 'f') {
                            declared.push(at);
                        }
                    }
                    out.push_str(names.new[at].as_deref().unwrap_or("nil"));
                }
                'H' => {
                    let count = letters.next().and_then(|digit| digit.to_digit(10)).unwrap_or(1);
                    let helper = self.helper(count);
                    out.push_str(helper);
                }
                'E' => {
                    let call = self.focus_call(focus);
                    out.push_str(&call);
                }
                'G' => out.push_str(focus.map_or("type", |focus| focus.builtin.name)),
                'g' => {
                    let name = focus.map_or("type", |focus| focus.builtin.name);
                    out.push_str(name.split('.').next().unwrap_or(name));
                }
                'x' | ',' => {
                    let arguments = self.focus_arguments(focus);
                    if letter == ',' && !arguments.is_empty() {
                        out.push_str(", ");
                    }
                    out.push_str(&arguments);
                }
                'z' => {
                    let text = self.pick(&TEXTS);
                    out.push_str(text);
                }
                'y' => {
                    let table = self.table();
                    out.push_str(&table);
                }
                'o' => {
                    let seen: Vec<String> = names.new[..3].iter().flatten().cloned().collect();
                    let opaque = focus.is_some_and(|focus| focus.builtin.gives == 'O');
                    self.observe(&seen, opaque, out);
                }
                'l' => {
                    let list = names.new[0].clone().unwrap_or_default();
                    self.observe_list(&list, out);
                }
                'u' => {
                    let name = names.new[5].clone().unwrap_or_default();
                    out.push_str(&format!("redis.call('rpush', 'out', {name})"));
                }
                's' => {
                    // The counter of a loop must not be changed in its body: it might not end.
                    let own = ["ij", "a"][usize::from(template.starts_with("local $a = $X"))];
                    let own = own.chars().filter_map(|letter| "abcdfij".find(letter));
                    let own: Vec<String> = own.flat_map(|at| names.new[at].clone()).collect();
                    self.scope.extend(own);
                    if self.nesting < 3 {
                        self.nesting += 1;
                        self.statement(out);
                        self.nesting -= 1;
                    }
                }
                letter => {
                    let text = self.letter(letter);
                    out.push_str(&text);
                }
            }
        }
        self.scope.truncate(visible);
        // The locals of a block, a loop or a function are not visible after it.
        if self.nesting == 0 && template.starts_with("local $a") {
            self.scope.extend(
                declared.into_iter().filter(|at| *at < 3).flat_map(|at| names.new[at].clone()),
            );
        }
    }

    /// Writes a statement that shows the final values of locals.
    fn observe(&mut self, names: &[String], opaque: bool, out: &mut String) {
        let show = |name: &String| match opaque {
            true => format!("type({name})"),
            false => format!("type({name}) == 'table' and #{name} or tostring({name})"),
        };
        let all: Vec<String> = names.iter().map(show).collect();
        let line = match self.below(8) {
            0..=3 => format!("redis.call('rpush', 'out', {})", all.join(", ")),
            4 => format!("do return {{{}}} end", names.join(", ")),
            5 if self.chooses_rare(1) => format!("do return {} end", names.join(", ")),
            5 => format!("do return {} end", names.first().map_or("nil", String::as_str)),
            6 => {
                let mut lines = Vec::new();
                for name in names {
                    lines.push(format!(
                        "if type({name}) == 'number' or type({name}) == 'string' then redis.call('rpush', 'out', {name}) end"
                    ));
                }
                lines.join("\n")
            }
            _ => format!("if {} then redis.call('incr', 'n') end", names.join(" and ")),
        };
        out.push_str(&line);
    }

    /// Writes a statement that shows the elements of a list.
    fn observe_list(&mut self, name: &str, out: &mut String) {
        let item = |at: usize| {
            format!("type({name}[{at}]) == 'table' and #{name}[{at}] or tostring({name}[{at}])")
        };
        let line = match self.below(6) {
            0..=1 => format!("redis.call('rpush', 'out', #{name}, {}, {})", item(1), item(2)),
            2 => format!("do return {name} end"),
            3 => format!("do return {{#{name}, {name}[1], {name}[2], {name}[3]}} end"),
            4 => {
                format!("for i, v in ipairs({name}) do redis.call('rpush', 'out', i, type(v)) end")
            }
            _ => format!("do return redis.call('rpush', 'out', 'list', unpack({name})) end"),
        };
        out.push_str(&line);
    }

    /// A function that takes `count` arguments.
    fn helper(&mut self, count: u32) -> &'static str {
        if self.chooses_rare(6) {
            return match count {
                1 => self.pick(&[
                    "next",
                    "pcall",
                    "select",
                    "string.upper",
                    "cjson.encode",
                    "unpack",
                ]),
                2 => self.pick(&["rawequal", "select", "rawget", "math.fmod", "pcall"]),
                _ => self.pick(&["select", "string.format", "math.max", "pcall", "string.gsub"]),
            };
        }
        match count {
            1 => self.pick(&[
                "type",
                "tostring",
                "tonumber",
                "assert",
                "math.floor",
                "string.len",
                "math.max",
            ]),
            2 => self.pick(&[
                "assert",
                "math.max",
                "math.min",
                "tonumber",
                "string.sub",
                "redis.pcall",
            ]),
            _ => self.pick(&["assert", "math.max", "string.sub", "redis.pcall", "math.min"]),
        }
    }

    fn focus_call(&mut self, focus: Option<Focus>) -> String {
        let Some(focus) = focus else { return self.letter('X') };
        format!("{}({})", focus.builtin.name, self.focus_arguments(Some(focus)))
    }

    fn focus_arguments(&mut self, focus: Option<Focus>) -> String {
        let Some(Focus { builtin, count }) = focus else { return String::new() };
        let is_sensible = self.below(4) > 0;
        self.arguments(builtin, count, is_sensible)
    }

    fn arguments(&mut self, builtin: &Builtin, count: usize, is_sensible: bool) -> String {
        if matches!(builtin.name, "redis.call" | "redis.pcall") && (is_sensible || count > 3) {
            return self.command_words(Some(count));
        }
        let mut all = Vec::new();
        for at in 0..count {
            let fitting = builtin.takes.chars().nth(at);
            // With larger arguments, these functions would take too long.
            let is_bound = matches!(
                builtin.name,
                "string.rep" | "table.insert" | "table.remove" | "table.concat" | "math.ldexp"
            );
            let letter = match fitting {
                Some(letter) if is_sensible || is_bound && at > 0 => letter,
                _ if is_bound && at > 0 => 'I',
                _ => 'V',
            };
            let is_last = at + 1 == count;
            let text = match is_last && letter != 'I' && self.below(12) == 0 {
                true => self.several(),
                false => self.letter(letter),
            };
            all.push(text);
        }
        all.join(", ")
    }

    /// An expression with any number of values.
    fn several(&mut self) -> String {
        match self.below(4) {
            0 => format!("assert({}, {})", self.letter('X'), self.letter('V')),
            1 => format!("unpack({})", self.letter('L')),
            2 => format!("unpack({{{}, {}}})", self.letter('V'), self.letter('X')),
            _ => format!("({})", self.letter('V')),
        }
    }

    /// A call of a command with `count` words, or with any number of them.
    fn command(&mut self, count: Option<usize>) -> String {
        let name = if self.below(10) == 9 { "pcall" } else { "call" };
        format!("redis.{name}({})", self.command_words(count))
    }

    fn command_words(&mut self, count: Option<usize>) -> String {
        let count = count.unwrap_or_else(|| 2 + self.below(4));
        let Some(known) = count.checked_sub(1).map(|at| COMMANDS[at.min(4)]) else {
            return String::new();
        };
        let text = loop {
            let text = self.pick(known);
            let is_loose = ["'time'", "'pttl'", "pexpiretime", "smembers", "'object'"];
            if self.selection == Selection::All || is_loose.iter().all(|word| !text.contains(word))
            {
                break text;
            }
            if self.below(16) == 0 {
                break "'ping'";
            }
        };
        self.fill(text)
    }

    /// Fills in a template of an expression.
    fn fill(&mut self, template: &str) -> String {
        let mut out = String::new();
        let mut letters = template.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '$' => {
                    let text = letters.next().map(|letter| self.letter(letter));
                    out.push_str(&text.unwrap_or_default());
                }
                letter => out.push(letter),
            }
        }
        out
    }

    /// The replacement of a letter.
    fn letter(&mut self, letter: char) -> String {
        if self.depth > 3 {
            return self.leaf(letter).to_owned();
        }
        self.depth += 1;
        let text = self.tree(letter);
        self.depth -= 1;
        text
    }

    /// The replacement of a letter, without nested expressions.
    fn leaf(&mut self, letter: char) -> &'static str {
        match letter {
            'N' | 'D' => self.pick(&NUMBERS),
            'I' | 'B' | 'A' => self.pick(&["1", "2", "3", "10"]),
            'S' => self.pick(&TEXTS),
            't' => self.pick(&["true", "false", "nil", "KEYS[1]", "KEYS[9]"]),
            'L' | 'T' => self.pick(&["KEYS", "ARGV", "{'a', 'b'}"]),
            'F' => self.pick(&FUNCTIONS),
            'K' => self.pick(&["'s'", "'n'", "KEYS[1]"]),
            'q' | 'k' => self.pick(&["redis.call('incr', 'n')", "redis.call('get', 's')"]),
            'w' => self.pick(&["'incr', 'n'", "'get', 's'"]),
            _ => self.pick(&["1", "'x'", "nil", "true", "ARGV[1]"]),
        }
    }

    /// One of the visible locals.
    fn local(&mut self) -> Option<String> {
        if self.scope.is_empty() {
            return None;
        }
        let at = self.below(self.scope.len());
        Some(self.scope[at].clone())
    }

    /// A call, with suitable arguments, of a function whose result is of this kind: see
    /// [`Builtin::gives`].
    fn call_of(&mut self, gives: char) -> String {
        let common = !self.chooses_rare(3);
        let at = self
            .pick_builtin(common, |builtin| builtin.gives == gives && builtin.name != "redis.call");
        let builtin = &BUILTINS[at];
        let most = builtin.takes.len().max(builtin.least);
        let count = builtin.least + self.below(most - builtin.least + 1);
        if builtin.name == "error" {
            return "nil".to_owned();
        }
        format!("{}({})", builtin.name, self.arguments(builtin, count, true))
    }

    /// The replacement of a letter, with nested expressions.
    fn tree(&mut self, letter: char) -> String {
        match letter {
            'N' => match self.below(16) {
                0..=6 => self.pick(&NUMBERS).to_owned(),
                7 if self.chooses_rare(1) => self.pick(&ODD_NUMBERS).to_owned(),
                7..=8 => format!("#{}", self.letter('L')),
                9..=11 => self.call_of('N'),
                12 => {
                    let sign = self.pick(&["+", "-", "*", "/", "%"]);
                    format!("({} {sign} {})", self.letter('N'), self.letter('N'))
                }
                13 => self
                    .pick(&[
                        "redis.call('incr', 'n')",
                        "redis.call('exists', 's')",
                        "redis.call('hlen', 'h')",
                    ])
                    .to_owned(),
                14 => format!("ARGV[{}]", 1 + self.below(5)),
                _ => format!("- {}", self.letter('N')),
            },
            'I' => match self.below(8) {
                0..=5 => self.pick(&["1", "2", "0", "-1", "3", "4", "-2", "10"]).to_owned(),
                6 => self.pick(&["1.5", "'2'", "'0x2'", "2.9", "-1.5"]).to_owned(),
                _ => "#KEYS".to_owned(),
            },
            'D' => match self.below(4) {
                0 => self.letter('N'),
                1 => format!("ARGV[{}]", 1 + self.below(5)),
                2 if self.chooses_rare(1) => self.pick(&ODD_TEXTS).to_owned(),
                _ => self.pick(&TEXTS).to_owned(),
            },
            'B' => {
                self.pick(&["10", "16", "2", "36", "8", "'10'", "1", "37", "0", "10.5"]).to_owned()
            }
            'Y' => match self.selection {
                Selection::All => match self.below(4) {
                    0 => self.letter('N'),
                    1 => self.pick(&["1", "5", "'100'", "0", "-1", "ARGV[3]"]).to_owned(),
                    _ => "30000".to_owned(),
                },
                Selection::Exact => {
                    self.pick(&["30000000", "'60000000'", "45000000", "0", "-1"]).to_owned()
                }
            },
            'S' => match self.below(16) {
                0..=6 => self.pick(&TEXTS).to_owned(),
                7 => self.pick(&ODD_TEXTS).to_owned(),
                8..=9 => format!("ARGV[{}]", 1 + self.below(5)),
                10 => format!("KEYS[{}]", 1 + self.below(3)),
                11..=12 => self.call_of('S'),
                13 => format!("({} .. {})", self.letter('S'), self.letter('N')),
                14 => self
                    .pick(&[
                        "redis.call('get', 's')",
                        "redis.call('hget', 'h', 'owner')",
                        "redis.call('lindex', 'l', 0)",
                    ])
                    .to_owned(),
                _ => format!("({} .. {})", self.letter('S'), self.letter('S')),
            },
            't' => match self.below(12) {
                0 => "true".to_owned(),
                1 => "false".to_owned(),
                2..=4 => {
                    let sign = self.pick(&["==", "~=", "<", ">", "<=", ">="]);
                    format!("{} {sign} {}", self.letter('N'), self.letter('N'))
                }
                5 => {
                    let sign = self.pick(&["==", "~=", "<", ">", "<=", ">="]);
                    format!("{} {sign} {}", self.letter('S'), self.letter('S'))
                }
                6 => {
                    let sign = self.pick(&["==", "~="]);
                    format!("{} {sign} {}", self.letter('X'), self.letter('X'))
                }
                7 => format!("not {}", self.letter('X')),
                8 => {
                    let word = self.pick(&["and", "or"]);
                    format!("({} {word} {})", self.letter('t'), self.letter('t'))
                }
                9 => self.command(None),
                _ => self.letter('X'),
            },
            'X' => match self.below(12) {
                0..=1 => self.letter('N'),
                2..=3 => self.letter('S'),
                4 => self.pick(&["nil", "true", "false"]).to_owned(),
                5 => self.letter('L'),
                6..=7 => self.local().unwrap_or_else(|| "ARGV[1]".to_owned()),
                8 => self.command(None),
                9 => self.pick(&REPLIES).to_owned(),
                10 => self.call_of('X'),
                _ => format!("({})", self.letter('X')),
            },
            'V' => match self.below(16) {
                0..=1 => "nil".to_owned(),
                2 => self.pick(&["true", "false"]).to_owned(),
                3 => self.pick(&NUMBERS).to_owned(),
                4 if self.chooses_rare(1) => self.pick(&ODD_NUMBERS).to_owned(),
                5..=6 => self.pick(&TEXTS).to_owned(),
                7 => self.pick(&ODD_TEXTS).to_owned(),
                8 => self.table(),
                9 => self.pick(&REPLIES).to_owned(),
                10 => self
                    .pick(&[
                        "KEYS[1]",
                        "KEYS[9]",
                        "ARGV[1]",
                        "ARGV[2]",
                        "ARGV[0]",
                        "ARGV[99]",
                        "#ARGV",
                        "KEYS['1']",
                    ])
                    .to_owned(),
                11 => self.pick(&["KEYS", "ARGV"]).to_owned(),
                12 if self.chooses_rare(1) => self.pick(&FUNCTIONS).to_owned(),
                13 => self.several(),
                14 => self.local().unwrap_or_else(|| "'x'".to_owned()),
                _ => self.letter('X'),
            },
            'M' => {
                let letter = ['N', 'N', 'S', 'V'][self.below(4)];
                self.letter(letter)
            }
            'L' => match self.below(6) {
                0 => "KEYS".to_owned(),
                1 => "ARGV".to_owned(),
                2 => self
                    .pick(&[
                        "redis.call('lrange', 'l', 0, -1)",
                        "redis.call('hgetall', 'h')",
                        "redis.call('mget', 's', 'none', 'n')",
                    ])
                    .to_owned(),
                3 => format!("{{{}, {}}}", self.letter('X'), self.letter('X')),
                _ => self.pick(&TABLES).to_owned(),
            },
            'T' => self.table(),
            'F' => self.pick(&FUNCTIONS).to_owned(),
            'K' => match self.below(4) {
                0 => format!("KEYS[{}]", 1 + self.below(3)),
                _ => format!("'{}'", self.pick(&KEYS)),
            },
            'q' | 'k' => self.command(None),
            'w' => self.command_words(None),
            'r' => self.pick(&["redis.call", "redis.call", "redis.call", "redis.pcall"]).to_owned(),
            'v' => self.local().unwrap_or_else(|| "local v".to_owned()),
            'P' => self
                .pick(&[
                    "'a'", "'.'", "'%d+'", "'^o(w)'", "'[a-c]*'", "'%s*$'", "'()'", "'(.)(.)'",
                    "'x-'", "'%'", "'[a'", "'%bxy'", "''", "'%f[%a]'",
                ])
                .to_owned(),
            'Q' => self
                .pick(&[
                    "'x'",
                    "'%1%0'",
                    "'%2'",
                    "{a = 'b'}",
                    "function(x) return x end",
                    "''",
                    "'%'",
                    "7",
                    "nil",
                ])
                .to_owned(),
            'R' => self
                .pick(&[
                    "'%s'",
                    "'%d'",
                    "'%5.2f|%s'",
                    "'%q'",
                    "'%x %o'",
                    "'%c'",
                    "'%g'",
                    "'%e'",
                    "'%%'",
                    "'%i %u'",
                    "'%10.3s|'",
                    "'%-5d|'",
                    "'%y'",
                    "'%'",
                    "'plain'",
                    "'%.14g'",
                    "'%+d'",
                ])
                .to_owned(),
            'U' => self
                .pick(&[
                    "'>I2'", "'<i4'", "'b'", "'BHL'", "'s'", "'c0'", "'c3'", "'d'", "'f'",
                    "'!4i8'", "'x'", "'>'", "'y'", "'I3'", "'i33'",
                ])
                .to_owned(),
            'J' => self
                .pick(&[
                    "'[1,2,3]'",
                    "'{\"a\":1}'",
                    "'null'",
                    "'[null,true]'",
                    "'\"x\"'",
                    "'1.5e3'",
                    "'{'",
                    "''",
                    "'[]'",
                    "'{\"1\":[{}]}'",
                    "'nan'",
                    "' 7 '",
                ])
                .to_owned(),
            'W' => self
                .pick(&[
                    "cmsgpack.pack(1, 'a', {1, 2})",
                    "'\\1\\2'",
                    "cmsgpack.pack(nil)",
                    "cmsgpack.pack(1.5)",
                    "'\\145\\1'",
                    "'\\255'",
                    "''",
                    "'\\193'",
                    "cmsgpack.pack({x = 1})",
                ])
                .to_owned(),
            'C' => self
                .pick(&[
                    "'return 1, 2'",
                    "'x ='",
                    "'return ...'",
                    "'redis.call(\"incr\", \"n\") return KEYS[1]'",
                    "''",
                    "'error(\"e\")'",
                    "'return undefined'",
                ])
                .to_owned(),
            'A' => self.pick(&["65", "0", "255", "'66'", "97.9", "256", "-1"]).to_owned(),
            'E' => self.letter('X'),
            _ => self.letter('V'),
        }
    }

    fn table(&mut self) -> String {
        match self.chooses_rare(1) {
            false => self.pick(&TABLES).to_owned(),
            true => self.pick(&ODD_TABLES).to_owned(),
        }
    }
}

/// All cells of a selection.
pub fn cells(selection: Selection) -> impl Iterator<Item = Cell> {
    // Without arguments, every inexact function except `math.random` only raises an error.
    let fits =
        |builtin: &Builtin, count| builtin.exact || count == 0 && builtin.name != "math.random";
    all_cells().filter(move |cell| {
        selection == Selection::All || fits(&BUILTINS[cell.builtin], cell.count)
    })
}

fn all_cells() -> impl Iterator<Item = Cell> {
    (0..BUILTINS.len()).flat_map(|builtin| {
        (0..POSITIONS.len()).flat_map(move |position| {
            (0..=ARGUMENTS_MAX)
                .filter(move |count| POSITIONS[position].counts.contains(count))
                .map(move |count| Cell { builtin, position, count })
        })
    })
}
