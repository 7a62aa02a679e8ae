//! Clients that write marks, and clients that read them: see [`crate::facts`].

use std::collections::{BTreeSet, VecDeque};

use lockwheel_compat::random::Random;
use lockwheel_compat::wire::frame::Frame;

use super::{Actor, REPLY_TIMEOUT_US, is_missing, report_late_reply, text};
use crate::core::{Core, Notice};
use crate::plan::Durability;

/// The channel of messages about marks.
pub const CHANNEL: &str = "marks";

/// Script that writes a mark and publishes that, as one unit.
const WRITE: &str = "redis.call('set', KEYS[1], ARGV[1]) \
    redis.call('publish', ARGV[2], 'written ' .. KEYS[1]) return redis.status_reply('OK')";

const DELETE: &str = "redis.call('del', KEYS[1]) \
    redis.call('publish', ARGV[1], 'deleted ' .. KEYS[1]) return redis.status_reply('OK')";

/// Writes marks, and deletes them after a while.
pub struct MarkWriter {
    client: usize,
    connection: usize,
    random: Random,
    count: u64,
    /// The number of marks that are not deleted.
    kept: usize,
    /// Marks that are written and not deleted.
    written: VecDeque<String>,
    pending: Option<(Step, String, i64)>,
    is_connected: bool,
    timer: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Write,
    Delete,
    /// Replies of a transaction before the last one.
    Transaction(u8, bool),
    Confirm,
}

impl MarkWriter {
    pub fn new(core: &mut Core, client: usize) -> MarkWriter {
        let mut random = Random::of(core.plan.seed, core.plan.roles[client].0);
        let kept = *random.pick(&[3, 3, 60]);
        MarkWriter {
            client,
            connection: core.connect(client, 0, 0),
            random,
            count: 0,
            kept,
            written: VecDeque::new(),
            pending: None,
            is_connected: false,
            timer: 0,
        }
    }

    fn set_timer(&mut self, core: &mut Core, after_us: i64) {
        self.timer += 1;
        core.set_timer(self.client, after_us, self.timer);
    }

    fn act(&mut self, core: &mut Core) {
        if !self.is_connected || core.is_ending {
            return;
        }
        let deletes = self.written.len() > self.kept && self.random.once_in(2);
        let oldest = if deletes { self.written.pop_front() } else { None };
        let mark = match oldest {
            Some(mark) => mark,
            None => {
                self.count += 1;
                let (id, _) = core.plan.roles[self.client];
                let mark = format!("mark:{id}:{:04}", self.count);
                core.facts.note_write_sent(&mark);
                mark
            }
        };
        let value = "x".repeat(self.random.below(40) as usize * self.random.below(40) as usize);
        let (script, words, command): (_, Vec<&str>, _) = if deletes {
            core.facts.note_delete_sent(&mark);
            (DELETE, vec![CHANNEL], vec!["DEL", &mark])
        } else {
            (WRITE, vec![&value, CHANNEL], vec!["SET", &mark, &value])
        };
        let mut step = if deletes { Step::Delete } else { Step::Write };
        match self.random.below(4) {
            0 => {
                let message = format!("{} {mark}", if deletes { "deleted" } else { "written" });
                step = Step::Transaction(3, deletes);
                core.send(self.connection, &["MULTI"]);
                core.send(self.connection, &command);
                core.send(self.connection, &["PUBLISH", CHANNEL, &message]);
                core.send(self.connection, &["EXEC"]);
            }
            1 => core.send(self.connection, &command),
            _ => core.send(self.connection, &[&["EVAL", script, "1", &mark], &words[..]].concat()),
        }
        self.pending = Some((step, mark, core.now_us));
        self.set_timer(core, REPLY_TIMEOUT_US);
    }

    fn replied(&mut self, core: &mut Core, reply: &Frame) {
        let Some((step, mark, asked_us)) = self.pending.take() else { return };
        if let Step::Transaction(left @ 1.., deletes) = step {
            self.pending = Some((Step::Transaction(left - 1, deletes), mark, asked_us));
            return;
        }
        let succeeded = reply.kind != b'-';
        if succeeded {
            core.note_answer(self.connection, asked_us);
        }
        let deletes = matches!(step, Step::Delete | Step::Transaction(_, true));
        let is_confirmed_only = core.plan.durability == Durability::Confirmed;
        if succeeded && is_confirmed_only && step != Step::Confirm && !deletes {
            core.send(self.connection, &["WAITAOF", "1", "0", "3000"]);
            self.pending = Some((Step::Confirm, mark, core.now_us));
            return self.set_timer(core, REPLY_TIMEOUT_US);
        }
        let flushed = || reply.items.first().is_some_and(|number| number.text == b"1");
        if succeeded && (step != Step::Confirm || flushed()) {
            if deletes && !is_confirmed_only {
                core.facts.note_deleted(&mark, core.now_us, "the reply");
            } else if !deletes {
                core.facts.note_written(&mark, core.now_us, "the reply");
                self.written.push_back(mark);
            }
        }
        let after_us = self.random.between(0, 30_000);
        self.set_timer(core, after_us);
    }
}

impl Actor for MarkWriter {
    fn notice(&mut self, core: &mut Core, notice: Notice) {
        match notice {
            Notice::Connected(_) => {
                self.is_connected = true;
                self.set_timer(core, 1_000);
            }
            Notice::Lost(..) => (self.is_connected, self.pending) = (false, None),
            Notice::Received(_, frame) => self.replied(core, &frame),
            Notice::Timer(timer) if timer == self.timer => match &self.pending {
                Some((_, mark, asked_us)) => {
                    if self.is_connected {
                        report_late_reply(core, *asked_us, &format!("the change of {mark}"));
                    }
                    core.lose(self.connection);
                }
                None => self.act(core),
            },
            Notice::Timer(_) => {}
        }
    }
}

/// The last marks that are read together.
const NAMES_READ: usize = 8;

/// The marks that are looked for among all names.
const NAMES_CHECKED: usize = 40;

/// The mark that its writer writes next.
fn next(mark: &str) -> String {
    let (writer, number) = mark.rsplit_once(':').unwrap_or_default();
    format!("{writer}:{:04}", number.parse::<u64>().unwrap_or_default() + 1)
}

/// Reads marks in several ways; in the end, all of them.
pub struct MarkReader {
    client: usize,
    connection: usize,
    random: Random,
    pending: VecDeque<(Reading, i64)>,
    is_connected: bool,
    timer: u64,
    /// Whether it has begun to read all marks, and whether it has ended.
    reads_all: bool,
    has_read_all: bool,
    /// The marks that it still has to read.
    unread: VecDeque<String>,
    /// Whether the mark existed that is watched.
    watched_exists: bool,
    watched: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reading {
    Exists(String),
    Names,
    /// A transaction that is aborted if the mark changes, and its next step.
    Watch(String, u8),
}

impl MarkReader {
    pub fn new(core: &mut Core, client: usize) -> MarkReader {
        let random = Random::of(core.plan.seed, core.plan.roles[client].0);
        MarkReader {
            client,
            connection: core.connect(client, 0, 0),
            random,
            pending: VecDeque::new(),
            is_connected: false,
            timer: 0,
            reads_all: false,
            has_read_all: false,
            unread: VecDeque::new(),
            watched_exists: false,
            watched: None,
        }
    }

    fn set_timer(&mut self, core: &mut Core, after_us: i64) {
        self.timer += 1;
        core.set_timer(self.client, after_us, self.timer);
    }

    fn ask(&mut self, core: &mut Core, words: &[&str], reading: Reading) {
        core.send(self.connection, words);
        self.pending.push_back((reading, core.now_us));
    }

    fn act(&mut self, core: &mut Core) {
        if !self.is_connected || !self.pending.is_empty() {
            return;
        }
        self.set_timer(core, REPLY_TIMEOUT_US);
        if let Some(mark) = self.watched.take() {
            self.ask(core, &["MULTI"], Reading::Watch(mark.clone(), 2));
            self.ask(core, &["PING"], Reading::Watch(mark.clone(), 2));
            return self.ask(core, &["EXEC"], Reading::Watch(mark, 3));
        }
        if core.is_ending {
            if self.unread.is_empty() && !std::mem::replace(&mut self.reads_all, true) {
                self.unread = core.facts.names().into();
            }
            for mark in self.unread.iter().take(100).cloned().collect::<Vec<String>>() {
                self.ask(core, &["EXISTS", &mark], Reading::Exists(mark.clone()));
            }
            if self.unread.is_empty() && !std::mem::replace(&mut self.has_read_all, true) {
                core.unread -= 1;
            }
            return;
        }
        let mut recent = core.facts.recent(NAMES_READ);
        // Those that are deleted next may be older.
        recent.extend((0..4).filter_map(|_| core.facts.older(&mut self.random)));
        if recent.is_empty() || core.plan.durability == Durability::Confirmed {
            return self.set_timer(core, 10_000);
        }
        let mark = self.random.pick(&recent).clone();
        match self.random.below(8) {
            0 => self.ask(core, &["KEYS", "mark:*"], Reading::Names),
            1..4 => {
                let mark = if self.random.once_in(2) { mark } else { next(&recent[0]) };
                self.ask(core, &["EXISTS", &mark], Reading::Exists(mark.clone()));
                self.ask(core, &["WATCH", &mark], Reading::Watch(mark.clone(), 1));
            }
            _ => {
                // The newest one last: its reply may wait for the log.
                for mark in recent.into_iter().rev() {
                    self.ask(core, &["EXISTS", &mark], Reading::Exists(mark.clone()));
                }
            }
        }
    }

    fn replied(&mut self, core: &mut Core, reply: &Frame) {
        let Some((reading, asked_us)) = self.pending.pop_front() else { return };
        let now_us = core.now_us;
        if matches!(reading, Reading::Exists(_) | Reading::Names) && reply.kind != b'-' {
            core.note_answer(self.connection, asked_us);
        }
        match reading {
            _ if reply.kind == b'-' => {}
            Reading::Exists(mark) => {
                if self.unread.front() == Some(&mark) {
                    self.unread.pop_front();
                }
                let exists = reply.text == b"1";
                self.watched_exists = exists;
                let wrong = core.facts.answered(&mark, exists, asked_us, now_us, "EXISTS");
                wrong.into_iter().for_each(|text| core.report("mark", text));
            }
            Reading::Names => {
                let found: BTreeSet<String> = reply.items.iter().map(text).collect();
                for mark in core.facts.recent(NAMES_CHECKED) {
                    let exists = found.contains(&mark);
                    let wrong = core.facts.answered(&mark, exists, asked_us, now_us, "KEYS");
                    wrong.into_iter().for_each(|text| core.report("mark", text));
                }
            }
            Reading::Watch(mark, 1) => self.watched = Some(mark),
            Reading::Watch(mark, 3) if is_missing(reply) => {
                // It has changed since it was read.
                if self.watched_exists {
                    core.facts.note_deleted(&mark, now_us, "an aborted transaction");
                } else {
                    core.facts.note_written(&mark, now_us, "an aborted transaction");
                }
            }
            Reading::Watch(..) => {}
        }
        if self.pending.is_empty() {
            let after_us = self.random.between(0, 10_000);
            self.set_timer(core, after_us);
        }
    }
}

impl Actor for MarkReader {
    fn notice(&mut self, core: &mut Core, notice: Notice) {
        match notice {
            Notice::Connected(_) => {
                self.is_connected = true;
                self.set_timer(core, 0);
            }
            Notice::Lost(..) => {
                self.is_connected = false;
                self.watched = None;
                self.pending.clear();
            }
            Notice::Received(_, frame) => self.replied(core, &frame),
            Notice::Timer(timer) if timer == self.timer => match self.pending.front() {
                Some((_, asked_us)) => {
                    if self.is_connected && core.now_us - asked_us >= REPLY_TIMEOUT_US {
                        report_late_reply(core, *asked_us, "a question for a mark");
                    }
                    core.lose(self.connection);
                }
                None => self.act(core),
            },
            Notice::Timer(_) => {}
        }
    }
}
