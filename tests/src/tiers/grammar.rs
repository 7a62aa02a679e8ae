//! Scripts of the subset that plans are made of, drawn by chance, and what to call them with.
//!
//! Most are sensible; some of everything is not, for then both tiers must fail alike.

use std::fmt::Write as _;

/// Chance: a number below the given one.
pub type Dice<'d> = &'d mut dyn FnMut(usize) -> usize;

/// Keys that are named; each is set to something else by [`WORLD`].
pub const KEYS: [&str; 6] = ["s", "h", "l", "z", "n", "none"];

/// What is done before the scripts are run.
pub const WORLD: [&str; 8] = [
    "SET s owner PX 30000",
    "HSET h owner 1 mode read other 2",
    "PEXPIRE h 30000",
    "RPUSH l a b owner 7",
    "ZADD z 1 a 1.5 owner 1700000030000 b",
    "SET n 41",
    "PEXPIRE n 10",
    "DEL none",
];

/// Arguments that mean something.
pub const WORDS: [&str; 24] = [
    "owner",
    "other",
    "30000",
    "1",
    "0",
    "-1",
    "2",
    "7",
    "1.5",
    "-0",
    " 7",
    "0x10",
    "1e3",
    "abc",
    "",
    "mode",
    "read",
    "publish",
    "get",
    "inf",
    "99999999999999",
    "123456789012345678",
    "PX",
    "a",
];

const COMMANDS: [&str; 44] = [
    "'get', K",
    "'set', K, T",
    "'set', K, T, 'px', N",
    "'set', K, T, 'nx', 'px', N",
    "'del', K",
    "'del', K, K",
    "'exists', K",
    "'hexists', K, T",
    "'hincrby', K, T, N",
    "'hget', K, T",
    "'hset', K, T, A",
    "'hdel', K, T",
    "'hlen', K",
    "'hkeys', K",
    "'hgetall', K",
    "'pexpire', K, N",
    "'pttl', K",
    "'incrby', K, N",
    "'incr', K",
    "'decrby', K, A",
    "'publish', T, A",
    "'rpush', K, A",
    "'lrange', K, 0, -1",
    "'lindex', K, N",
    "'lpop', K",
    "'zadd', K, N, T",
    "'zscore', K, T",
    "'zrange', K, 0, -1",
    "'zrange', K, 0, 0, 'WITHSCORES'",
    "'zrangebyscore', K, 0, N",
    "'type', K",
    "'TYPE', K",
    "'mget', K, K",
    "'time'",
    "'sadd', K, T",
    "'smembers', K",
    "'getrange', K, 0, N",
    "'unlink', K",
    "'no such'",
    "'get'",
    "'get', A",
    "A, K",
    "'object', 'encoding', K",
    "'del', unpack(KEYS)",
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Number,
    Text,
    Truth,
    List,
    Any,
}

struct Writer<'d> {
    dice: Dice<'d>,
    text: String,
    locals: Vec<(String, Kind)>,
    names: usize,
    loops: usize,
    /// Loops over lists, within which a list that grows has no end.
    walks: usize,
    room: usize,
}

/// A script.
pub fn script(dice: Dice<'_>) -> String {
    let room = 2 + dice(10);
    let mut writer = Writer {
        dice,
        text: String::new(),
        locals: Vec::new(),
        names: 0,
        loops: 0,
        walks: 0,
        room,
    };
    writer.block(0);
    if writer.chance(3, 4) {
        writer.returned();
    }
    writer.text
}

/// The request that runs a script with so many keys and arguments drawn by chance.
pub fn request(script: &str, dice: Dice<'_>) -> Vec<String> {
    let keys = if dice(4) > 0 { 3 } else { dice(5) };
    let mut argv = vec!["EVAL".to_owned(), script.to_owned(), keys.to_string()];
    argv.extend((0..keys).map(|_| KEYS[dice(KEYS.len())].to_owned()));
    let words = if dice(4) > 0 { 5 } else { dice(7) };
    argv.extend((0..words).map(|_| WORDS[dice(WORDS.len())].to_owned()));
    argv
}

impl Writer<'_> {
    fn chance(&mut self, wins: usize, of: usize) -> bool {
        (self.dice)(of) < wins
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[(self.dice)(all.len())]
    }

    fn line(&mut self, line: &str) {
        let end = self.pick(&["\n", "\n", "\n", ";", " ", " -- so\n"]);
        self.text.push_str(line);
        self.text.push_str(end);
    }

    /// A line behind which a statement begins.
    fn head(&mut self, line: &str) {
        let end = self.pick(&["\n", " "]);
        self.text.push_str(line);
        self.text.push_str(end);
    }

    fn block(&mut self, depth: usize) {
        let visible = self.locals.len();
        for _ in 0..1 + (self.dice)(3) {
            if self.room == 0 {
                break;
            }
            self.room -= 1;
            self.statement(depth);
        }
        self.locals.truncate(visible);
        if depth > 0 && self.loops > 0 && self.chance(1, 8) {
            self.line("do break end");
        } else if depth > 0 && self.chance(1, 6) {
            self.returned();
        }
    }

    fn statement(&mut self, depth: usize) {
        match (self.dice)(if depth < 3 { 16 } else { 10 }) {
            0..=2 => self.local(),
            3 => self.assignment(),
            4..=6 => {
                let call = self.call(0);
                self.line(&call);
            }
            7 => self.grow(),
            8 => {
                let (one, other) = (self.value(Kind::Any, 1), self.value(Kind::Text, 1));
                let (first, second) = (self.name(), self.name());
                self.line(&format!("local {first}, {second} = {one}, {other}"));
                self.locals.push((first, Kind::Any));
                self.locals.push((second, Kind::Text));
            }
            9 => {
                let given = self.value(Kind::Truth, 1);
                self.line(&format!("assert({given} or 1, 'so')"));
            }
            10..=12 => self.branch(depth),
            13 => self.counted(depth),
            14 => self.each(depth),
            _ => self.repeated(depth),
        }
    }

    fn name(&mut self) -> String {
        self.names += 1;
        // Now and then a name that stands for something else as well.
        match self.chance(1, 40) {
            true => self.pick(&["KEYS", "redis", "tonumber", "unpack"]).to_owned(),
            false => format!("v{}", self.names),
        }
    }

    fn local(&mut self) {
        let kind = match (self.dice)(10) {
            0..=3 => Kind::Any,
            4..=5 => Kind::Number,
            6..=7 => Kind::Text,
            8 => Kind::Truth,
            _ => Kind::List,
        };
        let value = match kind {
            Kind::Any => self.call(0),
            Kind::List if self.chance(1, 2) => "{}".to_owned(),
            kind => self.value(kind, 0),
        };
        let name = self.name();
        self.line(&format!("local {name} = {value}"));
        self.locals.push((name, kind));
    }

    fn assignment(&mut self) {
        let Some((name, kind)) = self.known(None) else { return };
        let value = self.value(kind, 0);
        self.line(&format!("{name} = {value}"));
    }

    fn grow(&mut self) {
        let Some((list, _)) = self.known(Some(Kind::List)).filter(|_| self.walks == 0) else {
            return;
        };
        let value = self.value(Kind::Any, 1);
        match (self.dice)(3) {
            0 => self.line(&format!("{list}[#{list} + 1] = {value}")),
            1 => self.line(&format!("{list}[1] = {value}")),
            _ => self.line(&format!("table.insert({list}, {value})")),
        }
    }

    fn branch(&mut self, depth: usize) {
        let condition = self.value(Kind::Truth, 0);
        self.head(&format!("if {condition} then"));
        self.block(depth + 1);
        if self.chance(1, 4) {
            let condition = self.value(Kind::Truth, 0);
            self.head(&format!("elseif {condition} then"));
            self.block(depth + 1);
        }
        if self.chance(1, 2) {
            self.head("else");
            self.block(depth + 1);
        }
        self.line("end");
    }

    fn counted(&mut self, depth: usize) {
        let (from, to) = (self.small(), self.small());
        let step = self.pick(&["", "", ", 1", ", -1", ", 2", ", 0.5", ", '2'"]);
        let name = self.name();
        self.head(&format!("for {name} = {from}, {to}{step} do"));
        self.in_loop(depth, &[(name, Kind::Number)]);
    }

    fn each(&mut self, depth: usize) {
        let list = match self.known(Some(Kind::List)) {
            Some((list, _)) if self.chance(1, 2) => list,
            _ => self.pick(&["KEYS", "ARGV", "{1, 'x', false}"]).to_owned(),
        };
        let (index, value) = (self.name(), self.name());
        self.head(&format!("for {index}, {value} in ipairs({list}) do"));
        self.walks += 1;
        self.in_loop(depth, &[(index, Kind::Number), (value, Kind::Text)]);
        self.walks -= 1;
    }

    /// A loop that has an end.
    fn repeated(&mut self, depth: usize) {
        self.names += 1;
        let turns = format!("w{}", self.names);
        let condition = self.value(Kind::Truth, 1);
        self.line(&format!("local {turns} = 0"));
        self.line(&format!("while {turns} < 3 and ({condition}) do {turns} = {turns} + 1"));
        self.in_loop(depth, &[]);
    }

    fn in_loop(&mut self, depth: usize, names: &[(String, Kind)]) {
        let visible = self.locals.len();
        self.locals.extend(names.iter().cloned());
        self.loops += 1;
        self.block(depth + 1);
        self.loops -= 1;
        self.locals.truncate(visible);
        self.line("end");
    }

    fn returned(&mut self) {
        let value = match (self.dice)(14) {
            0 => String::new(),
            1 => "redis.status_reply('FINE')".to_owned(),
            2 => format!("{{ok = {}}}", self.value(Kind::Text, 1)),
            3 => self.pick(&["{err = 'MINE no'}", "redis.error_reply('no')"]).to_owned(),
            4..=5 => self.value(Kind::List, 0),
            6..=8 => self.call(0),
            _ => self.value(Kind::Any, 0),
        };
        self.line(&format!("do return {value} end"));
    }

    /// A visible local, of a kind if it matters.
    fn known(&mut self, kind: Option<Kind>) -> Option<(String, Kind)> {
        let fits = |local: &&(String, Kind)| kind.is_none_or(|kind| local.1 == kind);
        let count = self.locals.iter().filter(fits).count();
        if count == 0 {
            return None;
        }
        let chosen = (self.dice)(count);
        self.locals.iter().filter(fits).nth(chosen).cloned()
    }

    fn call(&mut self, depth: usize) -> String {
        let arguments = self.pick(&COMMANDS);
        let name = if self.chance(1, 12) { "pcall" } else { "call" };
        let mut call = format!("redis.{name}(");
        for letter in arguments.chars() {
            match letter {
                'K' if !call.ends_with("unpack(") => {
                    let key = self.key(arguments);
                    call.push_str(&key);
                }
                'T' if call.ends_with(' ') => {
                    let text = self.value(Kind::Text, depth + 2);
                    call.push_str(&text);
                }
                'N' if call.ends_with(' ') => {
                    let number = self.value(Kind::Number, depth + 2);
                    call.push_str(&number);
                }
                'A' if call.ends_with([' ', '(']) => {
                    let word = format!("ARGV[{}]", 1 + (self.dice)(5));
                    call.push_str(&word);
                }
                letter => call.push(letter),
            }
        }
        call.push(')');
        call
    }

    /// A key, mostly of the type that the command works on.
    fn key(&mut self, command: &str) -> String {
        let of_its_type = match command.as_bytes()[1] {
            b'h' => "'h'",
            b'l' | b'r' => "'l'",
            b'z' => "'z'",
            b'i' | b'd' => "'n'",
            _ => "'s'",
        };
        match (self.dice)(16) {
            0..=8 => of_its_type.to_owned(),
            9..=13 => format!("KEYS[{}]", 1 + (self.dice)(3)),
            14 => format!("'{}'", KEYS[(self.dice)(KEYS.len())]),
            _ => format!("KEYS[1] .. ':' .. {}", 1 + (self.dice)(3)),
        }
    }

    fn small(&mut self) -> String {
        match (self.dice)(8) {
            0 => "#KEYS".to_owned(),
            1 => "#ARGV".to_owned(),
            2 => "'3'".to_owned(),
            3 => "-1".to_owned(),
            4 => "2.5".to_owned(),
            _ => (self.dice)(5).to_string(),
        }
    }

    fn value(&mut self, kind: Kind, depth: usize) -> String {
        // What fits nowhere.
        if self.chance(1, 60) {
            return self.pick(&["nil", "false", "true", "{}", "'x'", "12", "KEYS"]).to_owned();
        }
        if let Some((name, _)) = self.known(Some(kind))
            && self.chance(1, 3)
        {
            return name;
        }
        if depth > 3 {
            return self.pick(&["1", "'owner'", "ARGV[1]", "KEYS[1]", "0"]).to_owned();
        }
        match kind {
            Kind::Number => self.number(depth + 1),
            Kind::Text => self.text(depth + 1),
            Kind::Truth => self.truth(depth + 1),
            Kind::List => self.list(depth + 1),
            Kind::Any => match (self.dice)(6) {
                0 => self.number(depth + 1),
                1 => self.truth(depth + 1),
                2 => self.call(depth),
                3 => self.list(depth + 1),
                _ => self.text(depth + 1),
            },
        }
    }

    fn number(&mut self, depth: usize) -> String {
        let other = if self.chance(1, 6) { Kind::Any } else { Kind::Number };
        let mut inner = |kind| self.value(kind, depth);
        match (inner(Kind::Number), inner(other), (self.dice)(22)) {
            (one, other, 0) => format!("({one} + {other})"),
            (one, _, 1) => format!("{one} - 1"),
            (one, other, 2) => format!("{one} * {other}"),
            (one, _, 3) => format!("({one}) / 2"),
            (one, _, 4) => format!("({one}) % 3"),
            (one, _, 5) => format!("-({one})"),
            (one, other, 6) => format!("math.max({one}, {other})"),
            (one, other, 7) => format!("math.min({one}, {other}, 5)"),
            (one, _, 8) => format!("math.floor({one})"),
            (_, other, 9) => format!("tonumber({other})"),
            (_, _, 10) => format!("tonumber(ARGV[{}])", 1 + (self.dice)(4)),
            (_, _, 11) => "#KEYS".to_owned(),
            (_, _, 12) => format!("#({})", self.value(Kind::List, depth)),
            (_, _, 13) => "string.len(ARGV[1])".to_owned(),
            (_, _, 14) if self.chance(1, 4) => format!("ARGV[{}]", 1 + (self.dice)(4)),
            (_, _, 14) => "redis.call('pttl', 's')".to_owned(),
            (_, _, 15) => "1.25".to_owned(),
            (_, _, 16) => "30000".to_owned(),
            _ => (self.dice)(12).to_string(),
        }
    }

    fn text(&mut self, depth: usize) -> String {
        match (self.dice)(12) {
            0 => format!("{} .. ':' .. {}", self.value(Kind::Text, depth), self.small()),
            1 => {
                format!("({}) .. ({})", self.value(Kind::Any, depth), self.value(Kind::Text, depth))
            }
            // Not of a table: it has another address each time.
            2 => match self.chance(1, 2) {
                true => format!("tostring(tonumber({}))", self.value(Kind::Number, depth)),
                false => format!("tostring(not ({}))", self.value(Kind::Any, depth)),
            },
            3 => format!("type({})", self.value(Kind::Any, depth)),
            4 => format!("string.sub(ARGV[1], {}, -1)", self.small()),
            5 => self.pick(&["'owner'", "\"a\\tb\\0651\"", "''", "'mode'", "'30000'"]).to_owned(),
            6 => format!("ARGV[{}] or 'none'", 1 + (self.dice)(5)),
            7 => "(redis.call('type', KEYS[1])).ok".to_owned(),
            8 => format!("KEYS[{}]", 1 + (self.dice)(3)),
            9 => "'other'".to_owned(),
            _ => format!("ARGV[{}]", 1 + (self.dice)(5)),
        }
    }

    fn truth(&mut self, depth: usize) -> String {
        let equals = self.pick(&["==", "==", "~="]);
        let order = self.pick(&["<", "<=", ">", ">="]);
        match (self.dice)(12) {
            0..=3 => format!("{} {equals} {}", self.call(depth), self.value(Kind::Any, depth)),
            4 => format!(
                "{} {equals} {}",
                self.value(Kind::Any, depth),
                self.value(Kind::Any, depth)
            ),
            5..=6 => {
                let (one, other) =
                    (self.value(Kind::Number, depth), self.value(Kind::Number, depth));
                format!("({one}) {order} ({other})")
            }
            7 => format!("not {}", self.value(Kind::Any, depth)),
            8 => {
                format!("({}) and {}", self.value(Kind::Truth, depth), self.value(Kind::Any, depth))
            }
            9 => {
                format!("{} or ({})", self.value(Kind::Truth, depth), self.value(Kind::Any, depth))
            }
            _ => format!("{} == false", self.call(depth)),
        }
    }

    fn list(&mut self, depth: usize) -> String {
        if self.chance(1, 5) {
            return self.pick(&["KEYS", "ARGV", "redis.call('lrange', 'l', 0, -1)"]).to_owned();
        }
        let mut text = "{".to_owned();
        for _ in 0..(self.dice)(4) {
            let item = self.value(Kind::Any, depth);
            // Writing to a string does not fail.
            let _ = write!(text, "{item}, ");
        }
        text + "}"
    }
}
