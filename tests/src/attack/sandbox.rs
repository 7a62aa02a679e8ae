//! Runs scripts that try to escape the sandbox, and mutations of them: the next script must find an
//! unchanged environment, and a script that does not end must be killable.

use std::io;
use std::time::Duration;

use lockwheel_compat::random::Random;
use lockwheel_compat::time;
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::frame::{Frame, quoted};

use super::Report;
use super::attack_target::AttackTarget;

/// The corpus, one script per line; the tests of the sandbox run it too.
const ESCAPES: &str = include_str!("../../../scripting/tests/escapes.txt");
/// The server's `busy-reply-threshold`, after which a script can be killed.
const SLOW_MS: &str = "20";
/// A script without a reply after this time is killed.
const KILL_DELAY: Duration = Duration::from_millis(40);
/// The number of kills after which a script counts as unkillable.
const KILLS_MAX: usize = 600;
/// The time-out of all other replies, also on a busy machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The growth of memory that is allowed: all scripts, and the memory that the allocator keeps.
const KEPT_BYTES_MAX: u64 = 512 << 20;
/// The largest size of a mutated script.
const SCRIPT_BYTES_MAX: usize = 4096;

/// Arguments that may overflow library functions.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "7",
    "255",
    "256",
    "1000",
    "65536",
    "1e5",
    "2147483647",
    "-2147483648",
    "4294967296",
    "2^53",
    "1e308",
    "-1e308",
    "(0/0)",
    "(1/0)",
    "''",
    "nil",
    "{}",
    "true",
    "'x'",
    "function() end",
    "redis.call",
    "setmetatable({}, {__index = function() error('x') end})",
];

/// Returns a digest of all global names and their types, and the results of some functions.
const CANARY: &str = "
    local names, seen = {}, {}
    local function walk(path, of)
        if seen[of] then return end
        seen[of] = true
        for name, value in pairs(of) do
            names[#names + 1] = path .. tostring(name) .. ':' .. type(value)
            if type(value) == 'table' and value ~= KEYS and value ~= ARGV then
                walk(path .. tostring(name) .. '.', value)
            end
        end
    end
    walk('', _G)
    table.sort(names)
    local works = {
        string.format('%5.2f|%q|%x', 1.5, 'a\"b', 255), ('x'):rep(3), #ARGV, #KEYS,
        tostring(rawget(_G, 'leak')), tostring(('').leak),
        tostring(getmetatable('').__index == string),
        tostring(getmetatable(_G)), tostring(getmetatable(redis)), math.floor(2.7),
        select('#', unpack({1, 2, 3})), table.concat({3, 1, 2}, ','), tostring(tonumber('0x10')),
        cjson.encode({1, 'a', true}), cjson.encode(1 / 3), cjson.decode('[[[1]]]')[1][1][1],
        tostring(pcall(cjson.decode, ('['):rep(1001) .. (']'):rep(1001))),
        cmsgpack.unpack(cmsgpack.pack('a')), struct.unpack('>I2', struct.pack('>I2', 513)),
        bit.band(255, 15), redis.sha1hex(''), ('abc'):gsub('b', 'x'), string.find('abc', 'c'),
        tostring(pcall(error, 'x')), (math.randomseed(1)) or math.random(1000),
        tostring(redis.pcall('nothing').err),
        redis.call('get', 'canary'), type(coroutine.create(function() end)), next({1}),
    }
    for at, value in ipairs(works) do works[at] = tostring(value) end
    return {redis.sha1hex(table.concat(names, ' ')), works}";

/// Runs the corpus and this number of mutations of its scripts.
pub fn attack(mutations: u64, seed: u64, progress: &mut dyn FnMut(u64, usize)) -> Report {
    let server = AttackTarget::start(&["--busy-reply-threshold", SLOW_MS]);
    let mut attack = Attack {
        wire: server.try_connect(2, REPLY_TIMEOUT).expect("it is there"),
        killer: server.try_connect(2, REPLY_TIMEOUT).expect("it is there"),
        canary: Frame::whole(b"$-1\r\n").expect("a reply"),
        slowest_kill_us: 0,
        slowest: String::new(),
        killed: 0,
        report: Report::default(),
    };
    attack.killer.call(&["SET", "canary", "sings"]).expect("it is there");
    attack.canary = attack.wire.call(&["EVAL", CANARY, "0"]).expect("it is there");
    assert_ne!(attack.canary.kind, b'-', "{}", attack.canary.notation());
    let begin = server.held();
    let corpus = corpus();
    let mut run = 0;
    let mutated = (0..mutations).map(|number| mutation(&corpus, seed, number));
    let scripts = corpus.iter().map(|script| script.as_bytes().to_vec()).chain(mutated);
    for script in scripts {
        // A script that has written cannot be killed, so only the corpus itself may write.
        let name = if run < corpus.len() as u64 { "EVAL" } else { "EVAL_RO" };
        run += 1;
        if let Err(error) = attack.run(name, &script) {
            attack.report.add_problem(format!("{error} at {name} {}", quoted(&script)));
            break;
        }
        progress(run, attack.report.problems.len());
    }
    let Attack { mut report, killed, slowest_kill_us, slowest, .. } = attack;
    report.figures.push(format!("{run} scripts, seed {seed}: {killed} were killed"));
    report.figures.push(format!("the slowest kill took {slowest_kill_us} us: {slowest}"));
    let end = server.held();
    report.figures.push(format!("{end:?}"));
    if end.resident_bytes > begin.resident_bytes + KEPT_BYTES_MAX {
        report.add_problem(format!("too much memory is held: {begin:?}, {end:?}"));
    }
    if let Some(problem) = server.end(REPLY_TIMEOUT) {
        report.add_problem(problem);
    }
    report
}

fn corpus() -> Vec<&'static str> {
    ESCAPES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

struct Attack {
    /// The connection that runs scripts.
    wire: Wire,
    /// The connection that kills them.
    killer: Wire,
    /// The last reply of the canary.
    canary: Frame,
    slowest_kill_us: i64,
    slowest: String,
    killed: u64,
    report: Report,
}

impl Attack {
    /// Runs a script to its end or kills it, then runs the canary.
    fn run(&mut self, name: &str, script: &[u8]) -> io::Result<()> {
        self.wire.send(&[name.as_bytes(), script, b"0"])?;
        if self.wire.read_within(KILL_DELAY)?.is_none() {
            self.kill(script)?;
        }
        let canary = self.wire.call(&["EVAL", CANARY, "0"])?;
        if canary != self.canary {
            self.report.add_problem(format!(
                "left something behind: {}\n  {}\n  {}",
                quoted(script),
                canary.notation(),
                self.canary.notation()
            ));
            self.canary = canary;
        }
        Ok(())
    }

    fn kill(&mut self, script: &[u8]) -> io::Result<()> {
        let begin_us = time::now_us();
        for _ in 0..KILLS_MAX {
            let reply = self.killer.call(&["SCRIPT", "KILL"])?;
            self.killed += u64::from(reply.kind == b'+');
            if self.wire.read_within(KILL_DELAY)?.is_some() {
                let took = time::now_us() - begin_us;
                if took > self.slowest_kill_us {
                    self.slowest_kill_us = took;
                    self.slowest = String::from_utf8_lossy(script).into_owned();
                }
                return Ok(());
            }
        }
        Err(io::Error::other("a script that cannot be killed"))
    }
}

/// A mutation of scripts of the corpus.
fn mutation(corpus: &[&str], seed: u64, number: u64) -> Vec<u8> {
    let mut random = Random::of(seed, number);
    let mut words = words(random.pick::<&str>(corpus));
    for _ in 0..=random.below(4) {
        let other = self::words(random.pick::<&str>(corpus));
        let at = random.below(words.len() as u64 + 1) as usize;
        let from = random.below(other.len() as u64) as usize;
        let numbers: Vec<usize> = (0..words.len())
            .filter(|at| words[*at].starts_with(|c: char| c.is_ascii_digit()))
            .collect();
        match random.below(10) {
            0..4 if !numbers.is_empty() => {
                words[*random.pick(&numbers)] = (*random.pick(NUMBERS)).to_owned();
            }
            4 if at < words.len() => words[at].clone_from(&other[from]),
            5 if at < words.len() => drop(words.remove(at)),
            6 => words.insert(at, other[from].clone()),
            7 => {
                words.push(" ".to_owned());
                words.extend(other);
            }
            8 => {
                words.truncate(at);
                words.extend_from_slice(&other[from..]);
            }
            _ => {
                let whole = words.concat();
                let wrapped = match random.below(6) {
                    0 => format!("return pcall(function() {whole} end)"),
                    1 => format!("return coroutine.wrap(function() {whole} end)()"),
                    2 => format!("return xpcall(function() {whole} end, function() {whole} end)"),
                    3 => format!("return loadstring({})()", quoted(whole.as_bytes())),
                    4 => format!("for i = 1, 3 do pcall(function() {whole} end) end"),
                    _ => format!("return ('x'):gsub('x', function() {whole} end)"),
                };
                words = self::words(&wrapped);
            }
        }
    }
    let mut script = words.concat().into_bytes();
    if random.once_in(20) && !script.is_empty() {
        let at = random.below(script.len() as u64) as usize;
        script[at] = random.bits() as u8;
    }
    script.truncate(SCRIPT_BYTES_MAX);
    script
}

/// Splits a script into names and numbers, blanks, and single other characters.
fn words(script: &str) -> Vec<String> {
    let class = |sign: char| match sign {
        sign if sign.is_ascii_alphanumeric() || sign == '_' => 0,
        ' ' => 1,
        _ => 2,
    };
    let mut words: Vec<String> = Vec::new();
    let mut before = 2;
    for sign in script.chars() {
        let now = class(sign);
        match words.last_mut() {
            Some(word) if now == before && now != 2 => word.push(sign),
            _ => words.push(sign.to_string()),
        }
        before = now;
    }
    words
}
