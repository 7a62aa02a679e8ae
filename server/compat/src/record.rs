//! Writes what a server answers into a case: how most cases begin.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::case::{Action, Case, expand_keys};
use super::cases;
use super::stage::script_named;
use super::target::Target;
use super::tidy::Tidy;
use super::time;
use super::wire::Wire;

/// For how long a reply is waited for where one may come or not.
const LISTENING: Duration = Duration::from_millis(60);

/// Plays what the case says, in RESP3, and returns its text with what was heard in the place of
/// what it expects. Keys are the target's own while it is played, and are removed afterwards; in
/// the text they have their names, brackets and all.
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
    let mut cast: BTreeMap<&str, Wire> = BTreeMap::new();
    let mut out = format!("== {}\n", case.name);
    for step in &case.steps {
        match &step.action {
            Action::Hear(..) | Action::Closed(_) | Action::Waits(_) => continue,
            _ => out.push_str(&format!("{}\n", step.line)),
        }
        match &step.action {
            Action::Say(client, words) => {
                let words: io::Result<Vec<_>> = words.iter().map(expand).collect();
                client_of(&mut cast, target, client)?.send(&words?)?;
            }
            Action::Raw(client, bytes) => {
                let bytes = expand_keys(bytes, &key);
                client_of(&mut cast, target, client)?.send_bytes(&bytes)?;
            }
            Action::HangUp(client) => drop(cast.remove(client.as_str())),
            Action::Pass(span) => time::sleep(*span),
            _ => {}
        }
        for (name, wire) in &mut cast {
            while let Ok(Some(frame)) = wire.read_within(LISTENING) {
                out.push_str(&format!("{name}< {}\n", frame.notation()));
            }
        }
    }
    Ok(out)
}

fn client_of<'c, 'n>(
    cast: &'c mut BTreeMap<&'n str, Wire>,
    target: &Target,
    name: &'n str,
) -> io::Result<&'c mut Wire> {
    if !cast.contains_key(name) {
        cast.insert(name, target.connect(3)?);
    }
    cast.get_mut(name).ok_or_else(|| io::ErrorKind::NotConnected.into())
}
