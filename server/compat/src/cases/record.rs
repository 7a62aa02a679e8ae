//! Writes a server's replies into a case: most cases are first recorded.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::case::{Action, Case, expand_keys};
use super::player::script_named;
use super::tidy::Tidy;
use crate::cases;
use crate::time;
use crate::wire::Wire;
use crate::wire::target::Target;

/// How long to wait for a reply that may or may not come.
const LISTENING: Duration = Duration::from_millis(60);

/// Sends the requests of a case, in RESP3, and returns its text with the received replies in the
/// place of the expected ones. Key names get the run's prefix while the case is played, and the
/// keys are removed afterwards; in the text they keep their names in brackets.
pub fn record(target: &Target, case: &Case) -> io::Result<String> {
    let tidy = Tidy::new(target, std::slice::from_ref(case));
    let text = play(target, case)?;
    tidy.finish()?;
    Ok(text.replace(&target.prefix, ""))
}

fn play(target: &Target, case: &Case) -> io::Result<String> {
    let key = |name: &str| format!("{}<{name}>", target.prefix);
    let script = |name: &str| cases::script(name).map(str::to_owned);
    let expand = |word: &Vec<u8>| {
        let named = script_named(word, &script).map_err(io::Error::other)?;
        Ok(named.unwrap_or_else(|| expand_keys(word, &key)))
    };
    let mut connections: BTreeMap<&str, Wire> = BTreeMap::new();
    let mut out = format!("== {}\n", case.name);
    for step in &case.steps {
        match &step.action {
            Action::Expect(..) | Action::Closed(_) | Action::Waits(_) => continue,
            _ => out.push_str(&format!("{}\n", step.line)),
        }
        match &step.action {
            Action::Send(client, words) => {
                let words: io::Result<Vec<_>> = words.iter().map(expand).collect();
                client_of(&mut connections, target, client)?.send(&words?)?;
            }
            Action::Raw(client, bytes) => {
                let bytes = expand_keys(bytes, &key);
                client_of(&mut connections, target, client)?.send_bytes(&bytes)?;
            }
            Action::HangUp(client) => drop(connections.remove(client.as_str())),
            Action::Connect(client, mode) => {
                if let Ok(wire) = target.connect_as(*mode) {
                    connections.insert(client, wire);
                }
            }
            Action::Pass(span) => time::sleep(*span),
            _ => {}
        }
        for (name, wire) in &mut connections {
            while let Ok(Some(frame)) = wire.read_within(LISTENING) {
                out.push_str(&format!("{name}< {}\n", frame.notation()));
            }
        }
    }
    Ok(out)
}

fn client_of<'c, 'n>(
    connections: &'c mut BTreeMap<&'n str, Wire>,
    target: &Target,
    name: &'n str,
) -> io::Result<&'c mut Wire> {
    if !connections.contains_key(name) {
        connections.insert(name, target.connect(3)?);
    }
    connections.get_mut(name).ok_or_else(|| io::ErrorKind::NotConnected.into())
}
