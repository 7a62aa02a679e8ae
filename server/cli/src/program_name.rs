//! Chooses the subcommand: by the name that the program was started with, then by its first
//! argument.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The subcommand, or the Redis program that this program replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramName {
    /// `redis-server` or `redis-sentinel`; the configuration distinguishes them by the name.
    Server,
    /// `redis-cli`
    Cli,
    /// `lockwheel compat`
    Compat,
    /// `lockwheel config`
    Config,
    /// `lockwheel help`
    Help,
    /// `lockwheel judge`
    Judge,
    /// `lockwheel lock`
    Lock,
    /// `lockwheel locks`
    Locks,
    /// `lockwheel log`
    Log,
    /// `lockwheel prove`
    Prove,
    /// `lockwheel raft`
    Raft,
    /// `lockwheel run`
    Run,
}

/// The subcommands by the words that select them.
const SUBCOMMANDS: [(&str, ProgramName); 12] = [
    ("cli", ProgramName::Cli),
    ("compat", ProgramName::Compat),
    ("config", ProgramName::Config),
    ("help", ProgramName::Help),
    ("judge", ProgramName::Judge),
    ("lock", ProgramName::Lock),
    ("locks", ProgramName::Locks),
    ("log", ProgramName::Log),
    ("prove", ProgramName::Prove),
    ("raft", ProgramName::Raft),
    ("run", ProgramName::Run),
    ("server", ProgramName::Server),
];

/// The words that select a subcommand.
pub(crate) fn subcommands() -> Vec<&'static str> {
    SUBCOMMANDS.iter().map(|(word, _)| *word).collect()
}

/// Chooses the subcommand, and removes the words that selected it from the arguments; the first is
/// the program's name.
pub(crate) fn choose(args: &mut Vec<OsString>) -> ProgramName {
    if let Some(name) = args.first().and_then(|name| of_name(name)) {
        return name;
    }
    let Some(word) = args.get(1) else { return ProgramName::Server };
    if let Some(name) = of_name(word) {
        // The word is treated as the name under which the program was started.
        args.remove(0);
        return name;
    }
    let chosen = SUBCOMMANDS.iter().find(|(known, _)| word == known);
    let Some((_, name)) = chosen else { return ProgramName::Server };
    args.remove(1);
    *name
}

fn of_name(program: &OsStr) -> Option<ProgramName> {
    match Path::new(program).file_name()?.to_str()? {
        "redis-server" | "valkey-server" | "redis-sentinel" | "valkey-sentinel" => {
            Some(ProgramName::Server)
        }
        "redis-cli" | "valkey-cli" => Some(ProgramName::Cli),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, name: ProgramName, left: &str) {
        let mut args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        assert_eq!(choose(&mut args), name, "{line}");
        assert_eq!(args.join(OsStr::new(" ")), OsStr::new(left), "{line}");
    }

    #[test]
    fn program_name_has_precedence_over_first_argument() {
        let same = |line, name| check(line, name, line);
        same("lockwheel", ProgramName::Server);
        same("/opt/lockwheel --port 0", ProgramName::Server);
        same("/usr/bin/redis-server cli", ProgramName::Server);
        same("valkey-sentinel run", ProgramName::Server);
        same("/usr/bin/redis-cli run", ProgramName::Cli);
        same("valkey-cli", ProgramName::Cli);
        same("lockwheel run.conf", ProgramName::Server);
    }

    #[test]
    fn first_argument_chooses_if_program_name_does_not() {
        check("lockwheel cli ping", ProgramName::Cli, "lockwheel ping");
        check("lockwheel server run", ProgramName::Server, "lockwheel run");
        check("lockwheel compat --list", ProgramName::Compat, "lockwheel --list");
        check("lockwheel config check a", ProgramName::Config, "lockwheel check a");
        check("lockwheel help", ProgramName::Help, "lockwheel");
        check("lockwheel judge a.json", ProgramName::Judge, "lockwheel a.json");
        check("lockwheel lock a -- true", ProgramName::Lock, "lockwheel a -- true");
        check("lockwheel locks --json", ProgramName::Locks, "lockwheel --json");
        check("lockwheel log check a", ProgramName::Log, "lockwheel check a");
        check("lockwheel prove --demo lockwheel", ProgramName::Prove, "lockwheel --demo lockwheel");
        check("lockwheel raft status", ProgramName::Raft, "lockwheel status");
        check("lockwheel run -- true", ProgramName::Run, "lockwheel -- true");
        check("lockwheel redis-cli ping", ProgramName::Cli, "redis-cli ping");
        check("lockwheel redis-sentinel a.conf", ProgramName::Server, "redis-sentinel a.conf");
    }
}
