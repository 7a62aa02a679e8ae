//! Leaves a server as it was: removes the keys of a run, and restores settings, functions, users
//! and pauses if a case ended before the line that does so.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::case::{Action, Case};
use crate::wire::Wire;
use crate::wire::frame::{Frame, show};
use crate::wire::target::Target;

/// The COUNT of the SCAN for the keys of a run.
const SCAN_COUNT: &str = "1000";
/// Most steps of a SCAN: a broken server never ends a longer one.
const SCAN_STEPS_MAX: usize = 1_000_000;

type Names = BTreeSet<Vec<u8>>;

/// The state before a run of everything shared that its cases may change. Restores it when dropped.
pub struct Tidy<'a> {
    target: &'a Target,
    databases: BTreeSet<u32>,
    settings: BTreeMap<Vec<u8>, Vec<u8>>,
    libraries: Option<(Names, Vec<u8>)>,
    users: Option<Names>,
    may_pause: bool,
    /// Restores the settings if a case ended while they let no new connection in.
    open: RefCell<Option<Wire>>,
    is_done: bool,
}

impl<'a> Tidy<'a> {
    /// Saves the state that these cases may change. State that a server does not report cannot be
    /// restored.
    pub fn new(target: &'a Target, cases: &[Case]) -> Tidy<'a> {
        let changes = Changes::of(cases);
        let mut tidy = Tidy {
            target,
            databases: changes.databases,
            settings: BTreeMap::new(),
            libraries: None,
            users: None,
            may_pause: changes.pauses,
            open: RefCell::new(None),
            is_done: false,
        };
        // A server that does not reply to one request is not asked further.
        let _ = tidy.save(changes.settings, changes.functions, changes.users);
        tidy
    }

    fn save(&mut self, settings: Names, functions: bool, has_users: bool) -> io::Result<()> {
        let mut wire = self.target.connect(2)?;
        for name in settings {
            if let Some(value) = get(&mut wire, &name)? {
                self.settings.insert(name, value);
            }
        }
        if functions {
            self.libraries = libraries(&mut wire)?.zip(dump(&mut wire)?);
        }
        if has_users {
            self.users = users(&mut wire)?;
        }
        *self.open.get_mut() = Some(wire);
        Ok(())
    }

    /// Restores shared state. Cases that change it are played alone, so this may be called
    /// between any two of them.
    pub fn put_back(&self) -> io::Result<()> {
        let mut wire = match self.target.connect(2) {
            Ok(wire) => wire,
            Err(error) => self.open.take().ok_or(error)?,
        };
        if self.may_pause {
            wire.call(&["CLIENT", "UNPAUSE"])?;
        }
        for (name, value) in &self.settings {
            if get(&mut wire, name)?.is_some_and(|now| now != *value) {
                wire.call(&[&b"CONFIG"[..], b"SET", name, value])?;
            }
        }
        if let Some((before, dump)) = &self.libraries
            && let Some(now) = libraries(&mut wire)?
        {
            for name in now.difference(before) {
                wire.call(&[&b"FUNCTION"[..], b"DELETE", name])?;
            }
            if before.difference(&now).next().is_some() {
                wire.call(&[&b"FUNCTION"[..], b"RESTORE", dump, b"REPLACE"])?;
            }
        }
        if let Some(before) = &self.users
            && let Some(now) = users(&mut wire)?
        {
            for name in now.difference(before) {
                wire.call(&[&b"ACL"[..], b"DELUSER", name])?;
            }
        }
        Ok(())
    }

    /// Restores shared state and removes the keys of the run.
    pub fn finish(mut self) -> io::Result<()> {
        self.clean_up()
    }

    fn clean_up(&mut self) -> io::Result<()> {
        self.is_done = true;
        let settled = self.put_back();
        let own = self.target.address.database.unwrap_or(0);
        let others = self.databases.iter().copied().filter(|database| *database != own);
        for database in [own].into_iter().chain(others) {
            self.remove_keys(database, database == own)?;
        }
        settled
    }

    /// Removes every key whose name contains the prefix of the run. The database may not exist.
    fn remove_keys(&self, database: u32, must_be: bool) -> io::Result<()> {
        let mut wire = self.target.connect(2)?;
        if !must_be && wire.call(&["SELECT", &database.to_string()])?.kind != b'+' {
            return Ok(());
        }
        let pattern = format!("*{}*", self.target.prefix);
        let mut cursor = b"0".to_vec();
        for _ in 0..SCAN_STEPS_MAX {
            let scan = [b"SCAN", &cursor[..], b"MATCH", pattern.as_bytes(), b"COUNT"];
            let page = wire.call(&[&scan[..], &[SCAN_COUNT.as_bytes()]].concat())?;
            let [next, keys] = &page.items[..] else {
                return remove_listed(&mut wire, &pattern);
            };
            remove(&mut wire, keys)?;
            cursor.clone_from(&next.text);
            if cursor == b"0" {
                return Ok(());
            }
        }
        Err(io::Error::other("SCAN does not end"))
    }
}

impl Drop for Tidy<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // Another error is already being returned.
            let _ = self.clean_up();
        }
    }
}

/// The shared state that the cases of a run may change.
#[derive(Default)]
struct Changes {
    databases: BTreeSet<u32>,
    settings: Names,
    functions: bool,
    users: bool,
    pauses: bool,
}

impl Changes {
    fn of(cases: &[Case]) -> Changes {
        let mut changes = Changes::default();
        for step in cases.iter().flat_map(|case| &case.steps) {
            if let Action::Send(_, words) = &step.action {
                let words: Vec<_> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                changes.note(&words);
            }
        }
        changes
    }

    fn note(&mut self, words: &[&[u8]]) {
        let number = |word: &&[u8]| std::str::from_utf8(word).ok()?.parse::<u32>().ok();
        match words {
            [b"CONFIG", b"SET", pairs @ ..] => {
                let names = pairs.iter().step_by(2).map(|name| name.to_ascii_lowercase());
                self.settings.extend(names);
            }
            [b"FUNCTION", ..] => self.functions = true,
            [b"ACL", ..] => self.users = true,
            [b"CLIENT", b"PAUSE", ..] => self.pauses = true,
            [b"SELECT" | b"SWAPDB", numbers @ ..] => {
                self.databases.extend(numbers.iter().filter_map(number));
            }
            [b"MOVE", _, to] => self.databases.extend(number(to)),
            [b"COPY", .., b"DB", to] | [b"COPY", .., b"DB", to, _] => {
                self.databases.extend(number(to));
            }
            _ => {}
        }
    }
}

/// Removes keys on a server without SCAN.
fn remove_listed(wire: &mut Wire, pattern: &str) -> io::Result<()> {
    let keys = wire.call(&["KEYS", pattern])?;
    match keys.kind {
        b'*' => remove(wire, &keys),
        _ => Err(io::Error::other(format!("KEYS: {}", show(&keys.text)))),
    }
}

/// Removes the keys in an array reply.
pub(crate) fn remove(wire: &mut Wire, keys: &Frame) -> io::Result<()> {
    if !keys.items.is_empty() {
        let keys = keys.items.iter().map(|key| key.text.as_slice());
        let del: Vec<&[u8]> = [&b"DEL"[..]].into_iter().chain(keys).collect();
        wire.call(&del)?;
    }
    Ok(())
}

fn get(wire: &mut Wire, setting: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let reply = wire.call(&[&b"CONFIG"[..], b"GET", setting])?;
    Ok(match &reply.items[..] {
        [_, value] => Some(value.text.clone()),
        _ => None,
    })
}

fn libraries(wire: &mut Wire) -> io::Result<Option<Names>> {
    let list = wire.call(&["FUNCTION", "LIST"])?;
    let name = |library: &Frame| {
        let mut pairs = library.items.chunks_exact(2);
        let pair = pairs.find(|pair| pair[0].text == b"library_name")?;
        Some(pair[1].text.clone())
    };
    let names = || list.items.iter().filter_map(name).collect();
    Ok((list.kind == b'*').then(names))
}

fn dump(wire: &mut Wire) -> io::Result<Option<Vec<u8>>> {
    let reply = wire.call(&["FUNCTION", "DUMP"])?;
    Ok(Some(reply.text).filter(|_| reply.kind == b'$'))
}

fn users(wire: &mut Wire) -> io::Result<Option<Names>> {
    let list = wire.call(&["ACL", "USERS"])?;
    Ok((list.kind == b'*').then(|| list.items.into_iter().map(|user| user.text).collect()))
}
