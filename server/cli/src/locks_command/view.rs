//! What the screen of `lockwheel locks --watch` shows: the last state, in the order, with the
//! filter and at the place that the user has chosen. It uses neither the terminal nor the server.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::reading::{Details, Lock, LockId};

/// The locks at one time.
pub(super) struct State {
    /// The time of this machine, in milliseconds since 1970.
    pub(super) at_ms: i64,
    /// The time on the lease clock of the server.
    pub(super) now_ms: i64,
    /// On a follower, the address of its leader.
    pub(super) leader: Option<String>,
    /// The role and the version of the server; empty if the user may not see them.
    pub(super) role: String,
    pub(super) locks: Vec<Lock>,
    /// The lock whose details are open.
    pub(super) details: Option<(LockId, Details)>,
}

/// What the locks can be sorted by.
const ORDERS: [&str; 4] = ["key", "lease", "waiting", "held longest"];

/// The details of a lock, which may not have been read yet.
pub(super) struct Opened {
    pub(super) id: LockId,
    pub(super) key: String,
    pub(super) details: Option<Details>,
}

/// What is shown.
pub(super) struct View {
    pub(super) address: String,
    pub(super) state: State,
    /// Why the present state is not known, if it is not.
    pub(super) lost: Option<String>,
    /// What the locks are sorted by.
    pub(super) order: &'static str,
    pub(super) filter: String,
    /// Whether characters are added to the filter.
    pub(super) is_typing: bool,
    /// The places of the locks that match the filter.
    pub(super) rows: Vec<usize>,
    /// The row that is selected. The first one stays selected; another one as long as it is there.
    pub(super) selected: usize,
    selected_id: Option<LockId>,
    /// The first line that is shown, of the table or of the details, and how many fit.
    pub(super) top: usize,
    pub(super) page: usize,
    pub(super) opened: Option<Opened>,
    /// When a client was first seen to wait for a lock, on the lease clock.
    waits: BTreeMap<(LockId, u64), i64>,
    /// The time of the first state.
    began_ms: i64,
}

impl View {
    pub(super) fn new(address: String, state: State) -> View {
        let mut view = View {
            address,
            lost: None,
            order: ORDERS[0],
            filter: String::new(),
            is_typing: false,
            rows: Vec::new(),
            selected: 0,
            selected_id: None,
            top: 0,
            page: 1,
            opened: None,
            waits: BTreeMap::new(),
            began_ms: state.now_ms,
            state,
        };
        view.note_waits();
        view.arrange();
        view
    }

    /// Shows another state, which is the present one.
    pub(super) fn update(&mut self, mut state: State) {
        if let (Some(opened), Some((id, details))) = (&mut self.opened, state.details.take())
            && opened.id == id
        {
            opened.details = Some(details);
        }
        (self.state, self.lost) = (state, None);
        self.note_waits();
        self.arrange();
    }

    /// The number of clients that wait, and the longest wait so far. That is `true` for a wait
    /// that may have begun before the first state.
    pub(super) fn waiting(&self) -> (usize, Option<(i64, bool)>) {
        let first = self.waits.values().min();
        let longest = first.map(|&from| (self.state.now_ms - from, from == self.began_ms));
        (self.state.locks.iter().map(|lock| lock.waiters.len()).sum(), longest)
    }

    /// The lock whose details are open.
    pub(super) fn opened_id(&self) -> Option<&LockId> {
        self.opened.as_ref().map(|opened| &opened.id)
    }

    /// Does what a key means. Returns whether the program goes on.
    pub(super) fn press(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return key.code != KeyCode::Char('c');
        }
        let page = self.page.max(1).cast_signed();
        match key.code {
            KeyCode::Char(char) if self.is_typing => self.change_filter(|it| it.push(char)),
            KeyCode::Backspace if self.is_typing => self.change_filter(|it| _ = it.pop()),
            KeyCode::Enter if self.is_typing => self.is_typing = false,
            KeyCode::Esc if self.opened.is_some() => self.close(),
            KeyCode::Esc => {
                self.is_typing = false;
                self.change_filter(String::clear);
            }
            KeyCode::Char('q') => return false,
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::PageUp => self.scroll(-page),
            KeyCode::PageDown => self.scroll(page),
            KeyCode::Home => self.scroll(isize::MIN),
            KeyCode::End => self.scroll(isize::MAX),
            _ if self.opened.is_some() => {}
            KeyCode::Enter => self.open(),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') => {
                let place = ORDERS.iter().position(|order| *order == self.order);
                self.order = ORDERS[place.map_or(0, |place| (place + 1) % ORDERS.len())];
                self.arrange();
            }
            _ => {}
        }
        true
    }

    fn change_filter(&mut self, change: impl FnOnce(&mut String)) {
        change(&mut self.filter);
        self.arrange();
    }

    /// Moves the selection, or the lines of the details; the screen limits these.
    fn scroll(&mut self, lines: isize) {
        if self.opened.is_some() {
            self.top = self.top.saturating_add_signed(lines);
            return;
        }
        let last = self.rows.len().saturating_sub(1);
        self.select(self.selected.saturating_add_signed(lines).min(last));
    }

    fn select(&mut self, row: usize) {
        self.selected = row;
        let place = self.rows.get(row).filter(|_| row > 0);
        self.selected_id = place.map(|&place| self.state.locks[place].id());
    }

    fn open(&mut self) {
        let Some(&place) = self.rows.get(self.selected) else { return };
        let lock = &self.state.locks[place];
        self.opened = Some(Opened { id: lock.id(), key: lock.key.clone(), details: None });
        self.top = 0;
    }

    fn close(&mut self) {
        self.opened = None;
        self.top = 0;
    }

    /// Puts the locks in order, and finds the selected one.
    fn arrange(&mut self) {
        let locks = &mut self.state.locks;
        locks.sort_by(|a, b| (&a.key, a.database).cmp(&(&b.key, b.database)));
        match self.order {
            "lease" => locks.sort_by_key(|lock| lock.lease_ms.unwrap_or(i64::MAX)),
            "waiting" => locks.sort_by_key(|lock| Reverse(lock.waiters.len())),
            "held longest" => locks.sort_by_key(|lock| lock.since_ms),
            _ => {}
        }
        let wanted = self.filter.to_lowercase();
        let all = self.state.locks.iter().enumerate();
        self.rows = all.filter(|(_, lock)| matches(lock, &wanted)).map(|(at, _)| at).collect();
        let is_selected =
            |id: &LockId| self.rows.iter().position(|&place| self.state.locks[place].id() == *id);
        match self.selected_id.as_ref().and_then(is_selected) {
            Some(row) => self.selected = row,
            None => self.select(self.selected.min(self.rows.len().saturating_sub(1))),
        }
    }

    /// Notes which clients wait now, and since when.
    fn note_waits(&mut self) {
        let mut waits = BTreeMap::new();
        for lock in &self.state.locks {
            for waiter in &lock.waiters {
                let wait = (lock.id(), waiter.client);
                let from = self.waits.get(&wait).copied().unwrap_or(self.state.now_ms);
                waits.insert(wait, from);
            }
        }
        self.waits = waits;
    }
}

/// Whether the text is a part of the key, or of the name, owner or address of a holder.
fn matches(lock: &Lock, text: &str) -> bool {
    let of_holders = lock.holders.iter().flat_map(|holder| {
        [Some(&holder.name), holder.owner.as_ref(), Some(&holder.address)].into_iter().flatten()
    });
    let mut texts = of_holders.chain([&lock.key]);
    text.is_empty() || texts.any(|it| it.to_lowercase().contains(text))
}
