//! Which of its faces the program shows: by the name it was started as, then by its first word.

use std::ffi::{OsStr, OsString};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// `redis-server`, or `redis-sentinel`: the configuration knows them apart by the name.
    Server,
    /// `redis-cli`
    Cli,
    /// `lockwheel compat`
    Compat,
    /// `lockwheel run`
    Run,
}

/// Chooses one, and leaves of the arguments, the program's name first, what is for it.
pub(crate) fn choose(args: &mut Vec<OsString>) -> Face {
    if let Some(face) = args.first().and_then(|name| of_name(name)) {
        return face;
    }
    let Some(word) = args.get(1) else { return Face::Server };
    if let Some(face) = of_name(word) {
        // As if it had been started as that.
        args.remove(0);
        return face;
    }
    let face = match word.to_str() {
        Some("server") => Face::Server,
        Some("cli") => Face::Cli,
        Some("compat") => Face::Compat,
        Some("run") => Face::Run,
        _ => return Face::Server,
    };
    args.remove(1);
    face
}

fn of_name(program: &OsStr) -> Option<Face> {
    match Path::new(program).file_name()?.to_str()? {
        "redis-server" | "valkey-server" | "redis-sentinel" | "valkey-sentinel" => {
            Some(Face::Server)
        }
        "redis-cli" | "valkey-cli" => Some(Face::Cli),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, face: Face, left: &str) {
        let mut args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        assert_eq!(choose(&mut args), face, "{line}");
        assert_eq!(args.join(OsStr::new(" ")), OsStr::new(left), "{line}");
    }

    #[test]
    fn a_name_comes_before_a_word() {
        let same = |line, face| check(line, face, line);
        same("lockwheel", Face::Server);
        same("/opt/lockwheel --port 0", Face::Server);
        same("/usr/bin/redis-server cli", Face::Server);
        same("valkey-sentinel run", Face::Server);
        same("/usr/bin/redis-cli run", Face::Cli);
        same("valkey-cli", Face::Cli);
        same("lockwheel run.conf", Face::Server);
    }

    #[test]
    fn a_word_chooses_where_the_name_does_not() {
        check("lockwheel cli ping", Face::Cli, "lockwheel ping");
        check("lockwheel server run", Face::Server, "lockwheel run");
        check("lockwheel compat --list", Face::Compat, "lockwheel --list");
        check("lockwheel run -- true", Face::Run, "lockwheel -- true");
        check("lockwheel redis-cli ping", Face::Cli, "redis-cli ping");
        check("lockwheel redis-sentinel a.conf", Face::Server, "redis-sentinel a.conf");
    }
}
