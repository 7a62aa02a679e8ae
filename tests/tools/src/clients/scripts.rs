//! Records the requests of the libraries on a real Redis with `MONITOR`, runs them on two engines,
//! one with plans and one without, which must agree, and lists the scripts in `scripts.txt` with
//! the tier that runs each. Independent of the libraries.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread::{self, JoinHandle};

use lockwheel_engine::limits::SCRIPTS;
use lockwheel_scripting::{Sha, outside_of_plans};
use lockwheel_tests::tiers::Pair;
use lockwheel_tests::words;

/// The head of the list.
const HEAD: &str = "\
# The scripts that the libraries send, and what runs them: a plan, or Lua, and then why. Known by
# the suite, the first digits of the SHA-1, and how the text begins. Written by tests/clients/run.
";
const DIGITS: usize = 12;
/// The length of the beginning of a script in the list.
const SHOWN_BYTES: usize = 60;

/// Commands that are not run again: they concern the connection or the server, or block.
const LEFT_OUT: &[&str] = &[
    "auth",
    "client",
    "cluster",
    "config",
    "debug",
    "discard",
    "exec",
    "hello",
    "info",
    "monitor",
    "multi",
    "psubscribe",
    "punsubscribe",
    "quit",
    "reset",
    "role",
    "select",
    "shutdown",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
    "unwatch",
    "wait",
    "waitaof",
    "watch",
    "command",
    "latency",
    "memory",
    "slowlog",
];

/// The text of each script, by its digest.
type Scripts = BTreeMap<String, Vec<u8>>;

/// Monitors several servers.
pub(crate) struct Listeners(Vec<JoinHandle<Result<Scripts, String>>>);

impl Listeners {
    /// Starts monitoring.
    pub(crate) fn start(servers: impl Iterator<Item = SocketAddr>) -> Result<Listeners, String> {
        let listen = |server| {
            let monitor = monitor(server).map_err(|error| format!("MONITOR: {error}"))?;
            Ok(thread::spawn(move || hear(monitor)))
        };
        Ok(Listeners(servers.map(listen).collect::<Result<_, String>>()?))
    }

    /// The recorded scripts, once the servers have ended, and the differences between the engines.
    pub(crate) fn finish(self) -> (Scripts, Vec<String>) {
        let (mut scripts, mut problems) = (Scripts::new(), Vec::new());
        for listener in self.0 {
            match listener.join() {
                Ok(Ok(recorded)) => scripts.extend(recorded),
                Ok(Err(problem)) => problems.push(problem),
                Err(_) => problems.push("the thread that records scripts has failed".to_owned()),
            }
        }
        (scripts, problems)
    }
}

fn monitor(server: SocketAddr) -> std::io::Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(server)?;
    stream.write_all(b"MONITOR\r\n")?;
    let mut reader = BufReader::new(stream);
    // All requests from here on are recorded.
    reader.read_line(&mut String::new())?;
    Ok(reader)
}

/// Runs the requests of a server until the server ends.
fn hear(mut monitor: BufReader<TcpStream>) -> Result<Scripts, String> {
    let mut again = Again { pair: Pair::new(), scripts: Scripts::new(), now_ms: 0, database: 0 };
    let mut line = String::new();
    while monitor.read_line(&mut line).is_ok_and(|length| length > 0) {
        let compared = catch_unwind(AssertUnwindSafe(|| again.run(line.trim_end())));
        compared.map_err(|_| format!("the two tiers of scripts differ: {line}"))?;
        line.clear();
    }
    let compared = catch_unwind(AssertUnwindSafe(|| again.pair.compare()));
    compared.map_err(|_| "the two tiers of scripts leave other keys".to_owned())?;
    Ok(again.scripts)
}

/// The requests of one server, run again.
struct Again {
    pair: Pair,
    scripts: Scripts,
    now_ms: i64,
    database: u32,
}

impl Again {
    /// Runs the request of a line: `+SECONDS.MICROSECONDS [DATABASE ADDRESS] "COMMAND" ...`.
    fn run(&mut self, line: &str) {
        let Some((moment, rest)) = line.trim_start_matches('+').split_once(" [") else { return };
        let Some((origin, request)) = rest.split_once("] ") else { return };
        let Some((database, address)) = origin.split_once(' ') else { return };
        let argv = words(request);
        let name = argv.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        let name = String::from_utf8_lossy(&name).into_owned();
        // The calls of a script are part of the script.
        if address == "lua" || LEFT_OUT.contains(&name.as_str()) || waits(&name, &argv) {
            return;
        }
        self.advance(moment);
        self.select(database);
        let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
        self.note(&name, &argv);
        self.pair.run(&argv);
    }

    fn advance(&mut self, moment: &str) {
        let Ok(seconds) = moment.parse::<f64>() else { return };
        let now_ms = (seconds * 1e3) as i64;
        if self.now_ms > 0 && now_ms > self.now_ms {
            self.pair.advance(now_ms - self.now_ms);
        }
        self.now_ms = self.now_ms.max(now_ms);
    }

    fn select(&mut self, database: &str) {
        let number = database.parse().unwrap_or(0);
        if number != self.database {
            self.database = number;
            self.pair.run_words(&format!("SELECT {database}"));
        }
    }

    fn note(&mut self, name: &str, argv: &[&[u8]]) {
        let text = match (name, argv) {
            ("eval" | "eval_ro", [_, text, ..]) => text,
            ("script", [_, what, text]) if what.eq_ignore_ascii_case(b"load") => text,
            _ => return,
        };
        let digest = Sha::of(text).as_str()[..DIGITS].to_owned();
        self.scripts.entry(digest).or_insert_with(|| text.to_vec());
    }
}

/// Whether a command may block its client.
fn waits(name: &str, argv: &[Vec<u8>]) -> bool {
    const WAITING: [&str; 8] =
        ["blpop", "brpop", "blmove", "blmpop", "brpoplpush", "bzpopmin", "bzpopmax", "bzmpop"];
    let may_block = argv.iter().any(|word| word.eq_ignore_ascii_case(b"block"));
    WAITING.contains(&name) || may_block && name.starts_with("xread")
}

/// The list of scripts by suite and digest: the tier that runs each, and its beginning.
pub(crate) struct List(BTreeMap<(String, String), (String, String)>);

impl List {
    /// Reads the list; empty if there is none.
    pub(crate) fn read(path: &Path) -> List {
        let text = fs::read_to_string(path).unwrap_or_default();
        let entry = |line: &str| {
            let [suite, digest, tier, begin] = line.splitn(4, " | ").collect::<Vec<_>>()[..] else {
                return None;
            };
            Some(((suite.to_owned(), digest.to_owned()), (tier.to_owned(), begin.to_owned())))
        };
        List(text.lines().filter_map(entry).collect())
    }

    /// Adds the scripts of a suite. Returns those with a changed tier; prints new ones.
    pub(crate) fn add(&mut self, suite: &str, scripts: &Scripts) -> Vec<String> {
        let mut problems = Vec::new();
        for (digest, text) in scripts {
            let tier = match outside_of_plans(text, &SCRIPTS) {
                None => "plan".to_owned(),
                Some(reason) => format!("Lua: {} (line {})", reason.what, reason.line),
            };
            let entry = (tier, begin(text));
            let place = (suite.to_owned(), digest.clone());
            match self.0.insert(place, entry.clone()) {
                None => println!("{suite}: a script that was not known: {digest} {entry:?}"),
                Some(known) if known != entry => {
                    problems.push(format!("{suite}: the script {digest}: {known:?} -> {entry:?}"));
                }
                Some(_) => {}
            }
        }
        problems
    }

    /// The number of scripts of a suite with a plan, and of all its scripts.
    pub(crate) fn count(&self, suite: &str) -> (usize, usize) {
        let of_suite = || self.0.iter().filter(|((it, _), _)| it == suite);
        (of_suite().filter(|(_, (tier, _))| tier == "plan").count(), of_suite().count())
    }

    /// Writes the list.
    pub(crate) fn write(&self, path: &Path) -> std::io::Result<()> {
        let line = |((suite, digest), (tier, begin)): (&(String, String), &(String, String))| {
            format!("{suite} | {digest} | {tier} | {begin}\n")
        };
        fs::write(path, HEAD.to_owned() + &self.0.iter().map(line).collect::<String>())
    }
}

/// The beginning of a text, on one line.
fn begin(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let whole = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = whole.chars().map(|letter| if letter.is_ascii() { letter } else { '?' });
    shown.take(SHOWN_BYTES).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use lockwheel_scripting::Sha;

    use super::{Again, DIGITS, List, Scripts};
    use lockwheel_tests::tiers::Pair;

    const LOCK: &str = "return redis.call('set', KEYS[1], ARGV[1], 'nx')";

    #[test]
    fn monitored_commands_are_run_again() {
        let mut again =
            Again { pair: Pair::new(), scripts: Scripts::new(), now_ms: 0, database: 0 };
        for line in [
            "OK",
            "+1700000000.000001 [0 127.0.0.1:5] \"HELLO\" \"3\"",
            &format!("+1700000000.000001 [3 127.0.0.1:5] \"EVAL\" \"{LOCK}\" \"1\" \"k\" \"v\\n\""),
            "+1700000000.000001 [3 lua] \"set\" \"k\" \"v\\n\" \"nx\"",
            "+1700000000.000001 [3 127.0.0.1:5] \"PEXPIRE\" \"k\" \"10\"",
            "+1700000000.000001 [3 127.0.0.1:5] \"BLPOP\" \"nothing\" \"0\"",
            "+1700000000.009001 [3 127.0.0.1:5] \"script\" \"load\" \"return {1, 2}\"",
        ] {
            again.run(line);
        }
        assert_eq!(again.pair.run_words("GET k"), b"$2\r\nv\n\r\n");
        again.run("+1700000000.011001 [3 127.0.0.1:5] \"PING\"");
        assert_eq!(again.pair.run_words("GET k"), b"$-1\r\n");
        let texts: Vec<_> =
            again.scripts.values().map(|text| text.escape_ascii().to_string()).collect();
        assert!(texts.len() == 2 && texts.iter().any(|text| text == "return {1, 2}"), "{texts:?}");
        assert_eq!(again.pair.tiers().planned, 1);
    }

    #[test]
    fn tier_that_differs_from_the_list_is_a_problem() {
        let digest = |text: &str| Sha::of(text.as_bytes()).as_str()[..DIGITS].to_owned();
        let plain = (digest(LOCK), LOCK.as_bytes().to_vec());
        let text = "return\n#{...}";
        let odd = (digest(text), text.as_bytes().to_vec());
        let mut list = List::read("/no/such/list".as_ref());
        let scripts = Scripts::from([plain.clone(), odd.clone()]);
        assert_eq!(list.add("go", &scripts), Vec::<String>::new());
        assert_eq!((list.count("go"), list.count("java")), ((1, 2), (0, 0)));
        let folder = lockwheel_tests::daemon::Folder::new();
        let path = folder.path("scripts.txt");
        list.write(path.as_ref()).expect("it is written");
        let written = std::fs::read_to_string(&path).expect("a list");
        assert!(written.contains("| plan | return redis.call("), "{written}");
        assert!(written.contains("(line 2) | return #{...}\n"), "{written}");
        assert_eq!(List::read(path.as_ref()).add("go", &scripts), Vec::<String>::new());
        let changed = written.replace("| plan |", "| Lua: some reason (line 1) |");
        std::fs::write(&path, changed).expect("a file");
        assert_eq!(List::read(path.as_ref()).add("go", &scripts).len(), 1);
    }
}
