//! Writes what a server answers into a case: how most cases begin.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::case::{Action, Case};
use super::cases;
use super::stage::sha1_hex;
use super::target::Target;
use super::wire::Wire;
use super::{PATIENCE, time};

/// For how long a reply is waited for where one may come or not.
const LISTENING: Duration = Duration::from_millis(60);

/// Plays what the case says, in RESP3, and returns its text with what was heard in the place of
/// what it expects. Keys keep their names, brackets and all, and are removed afterwards.
pub fn record(target: &Target, case: &Case) -> io::Result<String> {
    let mut cast: BTreeMap<&str, Wire> = BTreeMap::new();
    let mut out = format!("== {}\n", case.name);
    for step in &case.steps {
        match &step.action {
            Action::Hear(..) | Action::Closed(_) | Action::Waits(_) => continue,
            _ => out.push_str(&format!("{}\n", step.line)),
        }
        match &step.action {
            Action::Say(client, words) => {
                let words: Vec<_> = words.iter().map(|word| script(word)).collect();
                client_of(&mut cast, target, client)?.send(&words)?;
            }
            Action::Raw(client, bytes) => {
                client_of(&mut cast, target, client)?.send_bytes(bytes)?;
            }
            Action::HangUp(client) => drop(cast.remove(client.as_str())),
            Action::Pass(span) => time::sleep(*span),
            _ => {}
        }
        for (name, wire) in &mut cast {
            wire.set_patience(LISTENING)?;
            while let Ok(frame) = wire.read() {
                out.push_str(&format!("{name}< {}\n", frame.notation()));
            }
            wire.set_patience(PATIENCE)?;
        }
    }
    remove_keys(target)?;
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

/// The text of a script where it is named.
fn script(word: &[u8]) -> Vec<u8> {
    let Some(name) = word.strip_prefix(b"@") else { return word.to_vec() };
    let name = String::from_utf8_lossy(name);
    let digest = name.strip_suffix(".sha1").and_then(cases::script).map(sha1_hex);
    let text = cases::script(&name).map(str::to_owned);
    digest.or(text).map_or(word.to_vec(), String::into_bytes)
}

fn remove_keys(target: &Target) -> io::Result<()> {
    let mut wire = target.connect(2)?;
    for key in wire.call(&["KEYS", "*<*>*"])?.items {
        wire.call(&[b"DEL", &key.text[..]])?;
    }
    Ok(())
}
