//! The lines of standard input: from a terminal with editing and a history, or from a pipe.

use std::ffi::OsString;
use std::io::{BufRead, StdinLock};
use std::path::PathBuf;

use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use super::session::{ExitWith, print_error};

/// The variable that names the file of the history, as for `redis-cli`.
const HISTORY_VARIABLE: &str = "REDISCLI_HISTFILE";

/// The file of the history in the home directory, which `redis-cli` uses too.
const HISTORY_FILE: &str = ".rediscli_history";

/// Where lines come from.
pub(super) enum Lines {
    /// A terminal.
    Terminal(Box<Terminal>),
    /// A pipe or a file.
    Pipe(StdinLock<'static>),
}

/// A terminal, and the file of its history.
pub(super) struct Terminal {
    editor: Editor<(), FileHistory>,
    history: Option<PathBuf>,
}

impl Lines {
    /// The lines that are typed.
    pub(super) fn of_terminal() -> Result<Lines, ExitWith> {
        let config = Config::builder().auto_add_history(false).build();
        let mut editor = Editor::with_config(config).map_err(|error| {
            print_error(&format!("Error: {error}"));
            ExitWith(1)
        })?;
        let history = history_file(&|name| std::env::var_os(name));
        if let Some(path) = &history {
            // There is no file yet, or it cannot be read: the history begins empty.
            let _ = editor.load_history(path);
        }
        Ok(Lines::Terminal(Box::new(Terminal { editor, history })))
    }

    /// The next line; `None` at the end of the input, or if the user ends the program.
    pub(super) fn next(&mut self, prompt: &str) -> Option<Vec<u8>> {
        match self {
            Lines::Terminal(terminal) => {
                terminal.editor.readline(prompt).ok().map(String::into_bytes)
            }
            Lines::Pipe(input) => {
                let mut line = Vec::new();
                (input.read_until(b'\n', &mut line).unwrap_or(0) > 0).then_some(line)
            }
        }
    }

    /// Adds a line to the history, unless it has a password.
    pub(super) fn remember(&mut self, line: &[u8], words: &[Vec<u8>]) {
        let Lines::Terminal(terminal) = self else { return };
        if has_password(words) {
            return;
        }
        let added = terminal.editor.add_history_entry(String::from_utf8_lossy(line));
        if let (Ok(true), Some(path)) = (added, &terminal.history) {
            // The history of the terminal still has it.
            let _ = terminal.editor.append_history(path);
        }
    }
}

/// `None` if no history is kept.
fn history_file(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    match variable(HISTORY_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) if path == "/dev/null" => None,
        Some(path) => Some(path.into()),
        None => variable("HOME").map(|home| PathBuf::from(home).join(HISTORY_FILE)),
    }
}

/// Whether the command has a password among its arguments: the rules of `redis-cli` 7.2.
fn has_password(words: &[Vec<u8>]) -> bool {
    // The number of repetitions.
    let is_repeated = words.len() > 1 && lockwheel_resp::parse_integer(&words[0]).is_some();
    let words = &words[usize::from(is_repeated)..];
    let is = |place: usize, word: &str| {
        words.get(place).is_some_and(|it| it.eq_ignore_ascii_case(word.as_bytes()))
    };
    let names_auth = || (1..words.len()).any(|place| is(place, "auth") || is(place, "auth2"));
    let is_secret = |word: &Vec<u8>| {
        ["masterauth", "masteruser", "requirepass", "tls-key-file-pass", "tls-client-key-file-pass"]
            .iter()
            .any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    is(0, "auth")
        || is(0, "acl") && ["setuser", "deluser", "getuser"].iter().any(|word| is(1, word))
        || is(0, "config") && is(1, "set") && words.iter().skip(2).any(is_secret)
        || is(0, "sentinel") && (is(1, "set") || is(1, "config") && is(2, "set"))
        || (is(0, "hello") || is(0, "migrate")) && names_auth()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{has_password, history_file};

    #[test]
    fn lines_with_passwords_are_not_kept() {
        let check = |line: &str, expected: bool| {
            let words: Vec<Vec<u8>> =
                line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(has_password(&words), expected, "{line}");
        };
        check("AUTH secret", true);
        check("acl SETUSER a >secret", true);
        check("CONFIG SET maxmemory 1gb requirepass secret", true);
        check("HELLO 3 AUTH user secret", true);
        check("MIGRATE h 1 k 0 1 AUTH secret", true);
        check("2 AUTH secret", true);
        check("SENTINEL SET m auth-pass secret", true);
        check("SENTINEL CONFIG SET sentinel-pass secret", true);
        check("ACL LIST", false);
        check("CONFIG GET requirepass", false);
        check("SET auth x", false);
        check("HELLO 3", false);
    }

    #[test]
    fn history_is_where_redis_cli_keeps_it() {
        let file = |variable: Option<&'static str>| {
            history_file(&|name| match name {
                "HOME" => Some("/users/a".into()),
                _ => variable.map(Into::into),
            })
        };
        assert_eq!(file(None).as_deref(), Some(Path::new("/users/a/.rediscli_history")));
        assert_eq!(file(Some("h")).as_deref(), Some(Path::new("h")));
        assert_eq!(file(Some("/dev/null")), None);
    }
}
