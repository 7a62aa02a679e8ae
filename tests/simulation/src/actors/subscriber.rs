//! A client that subscribes to messages, keyspace events and invalidations of marks.

use lockwheel_compat::wire::frame::Frame;

use super::marks::CHANNEL;
use super::{Actor, text};
use crate::core::{Core, Notice};

/// A client that receives messages.
pub struct Subscriber {
    /// The connection for messages; that for invalidations follows.
    connection: usize,
}

impl Subscriber {
    pub fn new(core: &mut Core, client: usize) -> Subscriber {
        let connection = core.connect(client, 0, 0);
        core.connect(client, 1, 0);
        Subscriber { connection }
    }
}

impl Actor for Subscriber {
    fn notice(&mut self, core: &mut Core, notice: Notice) {
        match notice {
            Notice::Connected(0) => {
                core.send(self.connection, &["SUBSCRIBE", CHANNEL]);
                core.send(self.connection, &["PSUBSCRIBE", "__keyevent@0__:*"]);
            }
            Notice::Connected(_) => {
                let invalidations = self.connection + 1;
                core.send(invalidations, &["HELLO", "3"]);
                let prefix = ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "mark:"];
                core.send(invalidations, &prefix);
            }
            Notice::Received(_, frame) => receive(core, &frame),
            Notice::Lost(..) | Notice::Timer(_) => {}
        }
    }
}

/// Notes what a message says of a mark.
pub fn receive(core: &mut Core, message: &Frame) {
    let now_us = core.now_us;
    let words: Vec<String> = message.items.iter().map(text).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["message", CHANNEL, line] => match line.split_once(' ') {
            Some(("written", mark)) => core.facts.note_written(mark, now_us, "a message"),
            Some(("deleted", mark)) => core.facts.note_deleted(mark, now_us, "a message"),
            _ => {}
        },
        ["pmessage", _, event, mark] if mark.starts_with("mark:") => {
            let event = event.rsplit(':').next().unwrap_or_default();
            match event {
                "set" => core.facts.note_written(mark, now_us, "a keyspace event"),
                "del" => core.facts.note_deleted(mark, now_us, "a keyspace event"),
                _ => {}
            }
        }
        ["invalidate", _] => {
            for mark in &message.items[1].items {
                core.facts.note_written(&text(mark), now_us, "an invalidation");
            }
        }
        _ => {}
    }
}
