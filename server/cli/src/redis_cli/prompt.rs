//! Runs the commands of standard input, one per line: from a terminal with a prompt, or from a
//! pipe.

use std::io::{self, IsTerminal};

use lockwheel_resp::words::split;

use super::connection::Address;
use super::lines::Lines;
use super::session::{ExitWith, Session, write_out};

const HELP: &str = "\
A line is a command and its arguments. Quote arguments with spaces: \"a\\n b\\x00\" or 'a b'.
A number before a command repeats it. These commands are not sent to the server:
  connect <host> <port>    connect to another server
  clear                    clear the screen
  help, ?                  print this help
  quit, exit               end the program

The arrow keys edit the line and go through the history, which ~/.rediscli_history keeps
(REDISCLI_HISTFILE names another file; /dev/null keeps none). Lines with a password are not kept.

COMMAND DOCS describes the server's commands; commands with subcommands have a HELP subcommand.
";

/// Reads lines until the input ends or a line is `quit`.
pub(super) fn run(session: &mut Session) -> Result<(), ExitWith> {
    let is_terminal = io::stdin().is_terminal();
    session.connect();
    let mut lines =
        if is_terminal { Lines::of_terminal()? } else { Lines::Pipe(io::stdin().lock()) };
    while let Some(line) = lines.next(&session.prompt()) {
        match split(&line) {
            None => write_out(b"Invalid argument(s)\n")?,
            Some(words) if words.is_empty() => {}
            Some(words) if is_end(&words[0]) => return Ok(()),
            Some(words) => {
                lines.remember(&line, &words);
                run_line(session, &words)?;
            }
        }
    }
    if is_terminal { write_out(b"\n") } else { Ok(()) }
}

fn is_end(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"quit") || word.eq_ignore_ascii_case(b"exit")
}

fn run_line(session: &mut Session, words: &[Vec<u8>]) -> Result<(), ExitWith> {
    let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
    if is("help") || is("?") {
        return write_out(HELP.as_bytes());
    }
    if is("clear") && words.len() == 1 {
        return write_out(b"\x1b[H\x1b[2J");
    }
    if is("connect") && words.len() == 3 {
        let port = std::str::from_utf8(&words[2]).ok().and_then(|port| port.parse().ok());
        let host = String::from_utf8_lossy(&words[1]).into_owned();
        session.settings.address = Address::Tcp(host, port.unwrap_or(0));
        session.connect();
        return Ok(());
    }
    let number = lockwheel_resp::parse_integer(&words[0]).filter(|_| words.len() > 1);
    match number {
        Some(times) if times > 0 => session.send_repeatedly(&words[1..], times)?,
        Some(_) => {
            return write_out(b"Invalid redis-cli repeat command option value.\n");
        }
        None => session.send_repeatedly(words, 1)?,
    };
    Ok(())
}
