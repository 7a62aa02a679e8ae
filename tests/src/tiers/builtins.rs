//! The functions a script may call, and the positions an expression may have, from the reference
//! manual of Lua 5.1 (sections 2 and 5) and Redis's page on scripts. Nothing here comes from the
//! plans: constructs that they leave out or get wrong must be generated as well.
//!
//! Texts are templates: `$` and a letter are replaced by something random, see [`super::grammar`].

use std::sync::LazyLock;

/// A function.
pub struct Builtin {
    /// Its name in a script.
    pub name: &'static str,
    /// A letter for each parameter, for suitable arguments.
    pub takes: &'static str,
    /// The number of required arguments.
    pub least: usize,
    /// Its result: a letter as for a parameter, or `O` for a value without a stable text.
    pub gives: char,
    /// Whether lock scripts use it: generated more often.
    pub common: bool,
    /// Whether the result on Redis is the same in every run.
    pub exact: bool,
}

const fn builtin(name: &'static str, takes: &'static str, least: usize, gives: char) -> Builtin {
    Builtin { name, takes, least, gives, common: false, exact: true }
}

const fn common(name: &'static str, takes: &'static str, least: usize, gives: char) -> Builtin {
    Builtin { common: true, ..builtin(name, takes, least, gives) }
}

/// A function that returns something that depends on the server, or on earlier commands.
const fn loose(name: &'static str, takes: &'static str, least: usize, gives: char) -> Builtin {
    Builtin { exact: false, ..builtin(name, takes, least, gives) }
}

/// The number of functions that lock scripts consist of; they come first.
pub const EVERYDAY: usize = 11;

/// All functions.
pub const BUILTINS: &[Builtin] = &[
    common("assert", "XXXX", 1, 'X'),
    common("tonumber", "DB", 1, 'N'),
    common("tostring", "X", 1, 'S'),
    common("type", "X", 1, 'S'),
    common("math.floor", "N", 1, 'N'),
    common("math.max", "NNNN", 1, 'N'),
    common("math.min", "NNNN", 1, 'N'),
    common("string.len", "S", 1, 'N'),
    common("string.sub", "SII", 2, 'S'),
    common("redis.call", "", 1, 'X'),
    common("redis.pcall", "", 1, 'X'),
    common("error", "XI", 1, 'X'),
    common("ipairs", "L", 1, 'O'),
    common("unpack", "LII", 1, 'X'),
    common("table.insert", "LX", 2, 'X'),
    common("redis.status_reply", "S", 1, 'T'),
    common("redis.error_reply", "S", 1, 'T'),
    common("redis.replicate_commands", "", 0, 'X'),
    builtin("next", "TX", 1, 'X'),
    builtin("pairs", "T", 1, 'O'),
    builtin("pcall", "FXXX", 1, 'X'),
    builtin("xpcall", "FF", 2, 'X'),
    builtin("rawequal", "XX", 2, 'X'),
    builtin("rawget", "TX", 2, 'X'),
    builtin("rawset", "TXX", 3, 'O'),
    builtin("select", "IXXX", 1, 'X'),
    loose("getmetatable", "X", 1, 'O'),
    builtin("setmetatable", "TT", 2, 'O'),
    builtin("loadstring", "C", 1, 'O'),
    builtin("load", "F", 1, 'O'),
    builtin("coroutine.create", "F", 1, 'O'),
    builtin("coroutine.resume", "FX", 1, 'X'),
    builtin("coroutine.running", "", 0, 'O'),
    builtin("coroutine.status", "F", 1, 'S'),
    builtin("coroutine.wrap", "F", 1, 'O'),
    builtin("coroutine.yield", "X", 0, 'X'),
    builtin("math.abs", "N", 1, 'N'),
    builtin("math.acos", "N", 1, 'N'),
    builtin("math.asin", "N", 1, 'N'),
    builtin("math.atan", "N", 1, 'N'),
    builtin("math.atan2", "NN", 2, 'N'),
    builtin("math.ceil", "N", 1, 'N'),
    builtin("math.cos", "N", 1, 'N'),
    builtin("math.cosh", "N", 1, 'N'),
    builtin("math.deg", "N", 1, 'N'),
    builtin("math.exp", "N", 1, 'N'),
    builtin("math.fmod", "NN", 2, 'N'),
    builtin("math.frexp", "N", 1, 'N'),
    builtin("math.ldexp", "NI", 2, 'N'),
    builtin("math.log", "N", 1, 'N'),
    builtin("math.log10", "N", 1, 'N'),
    builtin("math.mod", "NN", 2, 'N'),
    builtin("math.modf", "N", 1, 'N'),
    builtin("math.pow", "NN", 2, 'N'),
    builtin("math.rad", "N", 1, 'N'),
    loose("math.random", "II", 0, 'N'),
    builtin("math.randomseed", "I", 1, 'X'),
    builtin("math.sin", "N", 1, 'N'),
    builtin("math.sinh", "N", 1, 'N'),
    builtin("math.sqrt", "N", 1, 'N'),
    builtin("math.tan", "N", 1, 'N'),
    builtin("math.tanh", "N", 1, 'N'),
    builtin("string.byte", "SII", 1, 'N'),
    builtin("string.char", "AAAA", 0, 'S'),
    builtin("string.find", "SPIX", 2, 'N'),
    builtin("string.format", "RXXX", 1, 'S'),
    builtin("string.gmatch", "SP", 2, 'O'),
    builtin("string.gfind", "SP", 2, 'O'),
    builtin("string.gsub", "SPQI", 3, 'S'),
    builtin("string.lower", "S", 1, 'S'),
    builtin("string.match", "SPI", 2, 'S'),
    builtin("string.rep", "SI", 2, 'S'),
    builtin("string.reverse", "S", 1, 'S'),
    builtin("string.upper", "S", 1, 'S'),
    builtin("table.concat", "LSII", 1, 'S'),
    builtin("table.foreach", "TF", 2, 'X'),
    builtin("table.foreachi", "LF", 2, 'X'),
    builtin("table.getn", "L", 1, 'N'),
    builtin("table.maxn", "L", 1, 'N'),
    builtin("table.remove", "LI", 1, 'X'),
    builtin("table.setn", "LI", 2, 'X'),
    builtin("table.sort", "LF", 1, 'X'),
    builtin("redis.sha1hex", "S", 1, 'S'),
    loose("redis.log", "IXX", 2, 'X'),
    builtin("redis.setresp", "I", 1, 'X'),
    builtin("redis.set_repl", "I", 1, 'X'),
    builtin("redis.breakpoint", "", 0, 'X'),
    builtin("redis.debug", "X", 0, 'X'),
    builtin("redis.acl_check_cmd", "SK", 1, 'X'),
    builtin("cjson.encode", "X", 1, 'S'),
    builtin("cjson.decode", "J", 1, 'T'),
    loose("cjson.encode_sparse_array", "XII", 0, 'X'),
    loose("cjson.encode_max_depth", "I", 0, 'X'),
    loose("cjson.decode_max_depth", "I", 0, 'X'),
    loose("cjson.encode_number_precision", "I", 0, 'X'),
    loose("cjson.encode_keep_buffer", "X", 0, 'X'),
    loose("cjson.encode_invalid_numbers", "X", 0, 'X'),
    loose("cjson.decode_invalid_numbers", "X", 0, 'X'),
    builtin("cmsgpack.pack", "XXXX", 1, 'S'),
    builtin("cmsgpack.unpack", "W", 1, 'X'),
    builtin("cmsgpack.unpack_one", "WI", 1, 'X'),
    builtin("cmsgpack.unpack_limit", "WII", 2, 'X'),
    builtin("struct.pack", "UNNN", 1, 'S'),
    builtin("struct.unpack", "USI", 2, 'X'),
    builtin("struct.size", "U", 1, 'N'),
    builtin("bit.tobit", "N", 1, 'N'),
    builtin("bit.tohex", "NI", 1, 'S'),
    builtin("bit.bnot", "N", 1, 'N'),
    builtin("bit.bor", "NNNN", 1, 'N'),
    builtin("bit.band", "NNNN", 1, 'N'),
    builtin("bit.bxor", "NNNN", 1, 'N'),
    builtin("bit.lshift", "NI", 2, 'N'),
    builtin("bit.rshift", "NI", 2, 'N'),
    builtin("bit.arshift", "NI", 2, 'N'),
    builtin("bit.rol", "NI", 2, 'N'),
    builtin("bit.ror", "NI", 2, 'N'),
    builtin("bit.bswap", "N", 1, 'N'),
];

/// A position of an expression. `$E` is the expression.
pub struct ExpressionPosition {
    /// A description for people.
    pub name: String,
    /// The statements around it.
    pub text: String,
    /// The numbers of arguments that can be written here: `f"x"` has one.
    pub counts: std::ops::RangeInclusive<usize>,
    /// Whether lock scripts have expressions there: generated more often.
    pub common: bool,
}

/// The greatest number of arguments of a generated call.
pub const ARGUMENTS_MAX: usize = 4;

const COMMON: &[(&str, &str)] = &[
    ("only argument", "local $a = $H1($E)\n$o"),
    ("first argument", "local $a, $b = $H2($E, $V)\n$o"),
    ("middle argument", "local $a, $b, $c = $H3($V, $E, $V)\n$o"),
    ("last argument", "local $a, $b, $c = $H2($V, $E)\n$o"),
    ("argument in parentheses", "local $a, $b, $c = $H1(($E))\n$o"),
    ("command's name", "local $a = $r($E)\n$o"),
    ("command's first argument", "local $a = $r('get', $E)\n$o"),
    ("command's middle argument", "local $a = $r('rpush', 'out', $E, 'x')\n$o"),
    ("command's last argument", "local $a = $r('rpush', 'out', $E)\n$o"),
    ("command's arguments", "local $a = $r('rpush', 'out', $V, ($E), $E)\n$o"),
    ("word of SET", "local $a = redis.call('set', $K, $S, $E)\n$o"),
    ("deadline of SET", "local $a = redis.call('set', $K, $S, 'PX', $E)\n$o"),
    ("only item", "local $a = {$E}\n$l"),
    ("first item", "local $a = {$E, $V}\n$l"),
    ("last item", "local $a = {$V, $E}\n$l"),
    ("item before a trailing comma", "local $a = {$V, $E,}\n$l"),
    ("item in parentheses", "local $a = {($E)}\n$l"),
    ("item of an inner list", "local $a = {{$V, $E}, {$E}}\n$l"),
    ("one local", "local $a = $E\n$o"),
    ("two locals", "local $a, $b = $E\n$o"),
    ("three locals", "local $a, $b, $c = $E\n$o"),
    ("local, more values than names", "local $a = $E, $V\n$o"),
    ("first of the locals' values", "local $a, $b = $E, $V\n$o"),
    ("last of the locals' values", "local $a, $b, $c = $V, $E\n$o"),
    ("local in parentheses", "local $a, $b = ($E)\n$o"),
    ("assignment", "local $a = $V\n$a = $E\n$o"),
    ("assignment to two", "local $a, $b = $V, $V\n$a, $b = $E\n$o"),
    ("first assigned", "local $a, $b = $V, $V\n$a, $b = $E, $V\n$o"),
    ("last assigned", "local $a, $b, $c = $V, $V, $V\n$a, $b, $c = $V, $E\n$o"),
    ("assignment to an item", "local $a = {$V, $V}\n$a[1] = $E\n$l"),
    ("assignment behind the items", "local $a = {$V}\n$a[#$a + 1] = $E\n$l"),
    (
        "inserted",
        "local $a = {$V}\nlocal $b = tonumber(tostring(($E))) or 0\nif $b < 99999 and $b > -99999 then\ntable.insert($a, $E)\nend\n$l",
    ),
    ("index", "local $a = {'p', 'q', 'r'}\nlocal $b = $a[$E]\n$o"),
    ("index of KEYS", "local $a = KEYS[$E]\n$o"),
    ("index of ARGV", "local $a = ARGV[$E]\n$o"),
    ("returned", "do return $E end"),
    ("returned in parentheses", "do return ($E) end"),
    ("returned in a list", "do return {$E} end"),
    ("returned last in a list", "do return {$V, $E} end"),
    ("returned first in a list", "do return {$E, $V} end"),
    ("returned as a status", "do return {ok = $E} end"),
    ("returned by status_reply", "do return redis.status_reply($E) end"),
    ("returned as an error", "do return {err = $E} end"),
    ("returned by error_reply", "do return redis.error_reply($E) end"),
    ("raised", "error($E)"),
    ("condition of if", "local $a = 'no'\nif $E then\n$a = 'yes'\nend\n$o"),
    (
        "condition of elseif",
        "local $a = 0\nif $t then\n$a = 1\nelseif $E then\n$a = 2\nelse\n$a = 3\nend\n$o",
    ),
    ("condition of if not", "if not $E then\n$q\nelse\n$q\nend"),
    ("condition of while", "local $a = 0\nwhile $a < 2 and $E do\n$a = $a + 1\n$q\nend\n$o"),
    ("whole condition", "while $E do\n$q\nbreak\nend"),
    ("left of and", "local $a, $b = $E and $X\n$o"),
    ("right of and", "local $a, $b = $X and $E\n$o"),
    ("left of or", "local $a, $b = $E or $X\n$o"),
    ("right of or", "local $a, $b = $t or $E\n$o"),
    ("operand of not", "local $a, $b = not $E\n$o"),
    ("operand of minus", "local $a = - $E\n$o"),
    ("operand of #", "local $a = #$E\n$o"),
    ("operand of tostring and ..", "local $a = 'x' .. tostring($E) .. 'y'\n$o"),
    ("compared with nil", "local $a, $b = $E == nil, nil ~= $E\n$o"),
    ("compared with false", "local $a, $b = $E == false, $E ~= false\n$o"),
    ("compared with itself", "local $a, $b = $E == $E, $E ~= $E\n$o"),
    ("in parentheses twice", "local $a, $b = (($E))\n$o"),
    ("statement", "$E"),
    (
        "beginning of a loop",
        "local $a = 0\nfor $i = $E, 5 do\n$a = $a + 1\n$u\nif $a > 3 then\nbreak\nend\nend\n$o",
    ),
    (
        "end of a loop",
        "local $a = 0\nfor $i = 1, $E do\n$a = $a + $i\n$u\nif $a > 3 then\nbreak\nend\nend\n$o",
    ),
    (
        "step of a loop",
        "local $a = 0\nfor $i = 1, 5, $E do\n$a = $a + $i\n$u\nif $a > 4 or $a < 2 then\nbreak\nend\nend\n$o",
    ),
    (
        "all bounds of a loop",
        "local $a = 0\nfor $i = $E do\n$a = $a + 1\nif $a > 3 then\nbreak\nend\nend\n$o",
    ),
    (
        "list of ipairs",
        "local $a, $b = 0\nfor $i, $j in ipairs($E) do\n$a = $a + $i\n$b = $j\nend\n$o",
    ),
    ("arguments of ipairs", "local $a = 0\nfor $i in ipairs($L, $E) do\n$a = $a + $i\nend\n$o"),
    ("list of unpack", "local $a, $b, $c = unpack($E)\n$o"),
    ("bound of unpack", "local $a, $b, $c = unpack({'p', 'q', 'r'}, $E)\n$o"),
    ("unpacked into a command", "local $a = $r('mget', unpack($E))\n$o"),
    (
        "bound of what is unpacked into a command",
        "local $a = $r('del', unpack({'p', 'q', 'r'}, $E))\n$o",
    ),
    (
        "bounds of what is unpacked into a command",
        "local $a = $r('rpush', 'out', unpack({'p', 'q', 'r'}, 1, $E))\n$o",
    ),
    ("nested in itself", "local $a, $b = $G($E)\n$o"),
    ("nested in itself, last", "local $a, $b = $G($V, $E)\n$o"),
    ("nested in another", "local $a, $b, $c = $H3($V, $V, $H2($V, $E))\n$o"),
    ("indexed", "local $a = $E[1]\n$o"),
    ("indexed in parentheses", "local $a = ($E)[$I]\n$o"),
    ("indexed by a name", "local $a = $E.err\n$o"),
    ("indexed twice", "local $a = $E[1][2]\n$o"),
];

const OTHER: &[(&str, &str)] = &[
    ("keyed item", "local $a = {[1] = $E, x = $V}\n$l"),
    ("named item", "local $a = {x = $E, $V}\nlocal $b = $a.x\n$o"),
    ("key of an item", "local $a = {[$E] = 1, 2}\n$l"),
    ("item before a semicolon", "local $a = {$V; $E;}\n$l"),
    ("all but the last item keyed", "local $a = {n = 1, $E}\n$l"),
    ("assignment to an item and a local", "local $a, $b = {}\n$a[2], $b = $E\n$o"),
    ("key assigned to", "local $a = {}\n$a[$E] = $V\n$l"),
    ("field assigned to", "local $a = {}\n$a.x = $E\nlocal $b = $a.x\n$o"),
    ("returned first of two", "do return $E, $V end"),
    ("returned last of two", "do return $V, $E end"),
    ("returned in the middle", "do return $V, $E, $V end"),
    ("condition of until", "local $a = 0\nrepeat\n$a = $a + 1\n$q\nuntil $a > 1 or $E\n$o"),
    (
        "whole condition of until",
        "local $a = 0\nrepeat\nlocal $b = $V\n$a = $a + 1\nif $a > 2 then\nbreak\nend\nuntil $E\n$o",
    ),
    ("table of pairs", "local $a = 0\nfor $i, $j in pairs($E) do\n$a = $a + 1\nend\n$o"),
    (
        "table of next",
        "local $a = 0\nfor $i, $j in next, $E do\n$a = $a + 1\nif $a > 9 then\nbreak\nend\nend\n$o",
    ),
    (
        "iterator",
        "local $a = 0\nfor $i, $j in $E do\n$a = $a + 1\nif $a > 3 then\nbreak\nend\nend\n$o",
    ),
    ("method", "local $a, $b = $E:len()\n$o"),
    ("method in parentheses", "local $a, $b = ($E):sub(1, 2)\n$o"),
    ("argument of a method", "local $a, $b = ('xyz'):sub($E)\n$o"),
    ("last argument of a method", "local $a, $b, $c = ('abcabc'):find('b', $E)\n$o"),
    ("called", "local $a, $b = $E()\n$o"),
    ("called with a string", "local $a, $b = $E'x'\n$o"),
    ("argument of a call with a table", "local $a, $b = $H1{$E}\n$o"),
    ("upvalue", "local $f = function() return $E end\nlocal $a, $b, $c = $f()\n$o"),
    (
        "in parentheses in a function",
        "local $f = function() return ($E) end\nlocal $a, $b, $c = $f()\n$o",
    ),
    (
        "in a list that a function returns",
        "local function $f() return $V, $E end\nlocal $a, $b, $c = $f()\n$o",
    ),
    (
        "varargs",
        "local $f = function(...) return select('#', ...), ... end\nlocal $a, $b, $c = $f($E)\n$o",
    ),
    (
        "varargs after another",
        "local $f = function(x, ...) return select('#', ...), ... end\nlocal $a, $b, $c = $f($V, $E)\n$o",
    ),
    ("varargs in a list", "local $f = function(...) return {...} end\nlocal $a = $f($E)\n$l"),
    ("parameters", "local $f = function(x, y) return y, x end\nlocal $a, $b, $c = $f($E)\n$o"),
    ("protected", "local $a, $b, $c = pcall(function() return $E end)\n$o"),
    ("protected, by name", "local $a, $b, $c = pcall($G$,)\n$o"),
    (
        "protected, with a handler",
        "local $a, $b, $c = xpcall(function() return $E end, function(e) return 'caught' end)\n$o",
    ),
    ("counted by select", "local $a, $b = select('#', $E)\n$o"),
    ("taken by select", "local $a, $b = select(2, $E)\n$o"),
    ("behind another name", "local $f = $G\nlocal $a, $b, $c = $f($x)\n$o"),
    (
        "behind a shadow of itself",
        "local $d = $g\nlocal $g = function(...) return $d and ... end\nlocal $a, $b, $c = $G($x)\n$o",
    ),
    (
        "coroutine",
        "local $f = coroutine.wrap(function() coroutine.yield($E) return 1 end)\nlocal $a, $b, $c = $f()\n$o",
    ),
    ("in a table of functions", "local $f = {go = $G}\nlocal $a, $b, $c = $f.go($x)\n$o"),
    ("by rawget", "local $a, $b = rawget({'p', 'q'}, $E)\n$o"),
    ("encoded", "local $a = cjson.encode({$E})\n$o"),
    ("packed", "local $a = cmsgpack.unpack(cmsgpack.pack($E))\n$o"),
    ("formatted", "local $a = string.format('%s|%q', tostring($E), 'x')\n$o"),
    ("on two lines", "local $a, $b =\n $E -- so\n$o"),
];

/// Calls with exactly one argument, which is written without parentheses.
const WITHOUT_PARENTHESES: &[(&str, &str)] = &[
    ("with a string", "local $a, $b = $G$z\n$o"),
    ("with a table", "local $a, $b = $G$y\n$o"),
    ("with a string, as an argument", "local $a, $b, $c = $H2($V, $G$z)\n$o"),
    ("with a string, as a statement", "$G$z"),
    ("with a string, last in a list", "local $a = {$V, $G$z}\n$l"),
];

const ARITHMETIC: [&str; 6] = ["+", "-", "*", "/", "%", "^"];
const COMPARISON: [&str; 6] = ["==", "~=", "<", ">", "<=", ">="];

/// All positions.
pub static POSITIONS: LazyLock<Vec<ExpressionPosition>> =
    LazyLock::new(|| {
        let position = |name: &str, text: &str, common| ExpressionPosition {
            name: name.to_owned(),
            text: text.to_owned(),
            counts: 0..=ARGUMENTS_MAX,
            common,
        };
        let mut all: Vec<ExpressionPosition> =
            COMMON.iter().map(|(name, text)| position(name, text, true)).collect();
        let mut operators: Vec<(&str, char)> = ARITHMETIC.iter().map(|sign| (*sign, 'N')).collect();
        operators.push(("..", 'S'));
        operators.extend(COMPARISON.iter().map(|sign| (*sign, 'M')));
        for (sign, other) in operators {
            let common = sign != "^";
            let left = format!("local $a, $b = $E {sign} ${other}\n$o");
            all.push(position(&format!("left of {sign}"), &left, common));
            let right = format!("local $a, $b = ${other} {sign} $E\n$o");
            all.push(position(&format!("right of {sign}"), &right, common));
        }
        all.extend(OTHER.iter().map(|(name, text)| position(name, text, false)));
        all.extend(WITHOUT_PARENTHESES.iter().map(|(name, text)| ExpressionPosition {
            counts: 1..=1,
            ..position(name, text, false)
        }));
        all
    });
