//! Faults of `PUBLISH` and of those who listen.

use std::time::Duration;

use bytes::BytesMut;
use lockwheel_engine::session::ClientId;
use lockwheel_resp::{Reply, decode};

use super::{Answer, Fault, Request, World};

/// For how long a message or a confirmation is held back.
const HELD: Duration = Duration::from_millis(40);

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "messages-get-lost",
        what: "every third message does not arrive",
        found_by: &["Messages come in the order they were sent"],
        also: &["When the message of an unlock arrives the lock is free"],
        tell: Some(|world, _, frame| match is_message(frame) && world.once_in(3) {
            true => Vec::new(),
            false => frame.to_vec(),
        }),
        ..Fault::NONE
    },
    Fault {
        name: "messages-come-twice",
        what: "every third message arrives twice",
        found_by: &["Messages come in the order they were sent"],
        tell: Some(|world, _, frame| match is_message(frame) && world.once_in(3) {
            true => [frame, frame].concat(),
            false => frame.to_vec(),
        }),
        ..Fault::NONE
    },
    Fault {
        name: "messages-change-places",
        what: "of two messages in short order the second arrives first",
        found_by: &[
            "Messages come in the order they were sent",
            "All subscribers hear the same order",
        ],
        tell: Some(messages_change_places),
        ..Fault::NONE
    },
    Fault {
        name: "messages-before-the-confirmation",
        what: "a subscriber hears messages before it hears that it has subscribed",
        found_by: &["In a pipeline of RESP3 messages and replies keep their order"],
        run: Some(messages_before_the_confirmation),
        ..Fault::NONE
    },
    Fault {
        name: "publish-counts-nobody",
        what: "PUBLISH answers 0, whoever has heard it",
        found_by: &["PUBLISH tells how many heard it"],
        run: Some(publish_counts_nobody),
        ..Fault::NONE
    },
    Fault {
        name: "patterns-hide-the-channel",
        what: "whoever listens to a pattern is not told the pattern",
        found_by: &["A pattern hears every channel that fits"],
        tell: Some(patterns_hide_the_channel),
        ..Fault::NONE
    },
    Fault {
        name: "unsubscribe-does-nothing",
        what: "UNSUBSCRIBE is confirmed, and messages go on arriving",
        found_by: &["What is published after unsubscribing is not heard"],
        run: Some(unsubscribe_does_nothing),
        ..Fault::NONE
    },
];

fn items(frame: &[u8]) -> Vec<Reply> {
    match decode(frame) {
        Ok(Some((Reply::Array(items) | Reply::Push(items), _))) => items,
        _ => Vec::new(),
    }
}

fn is_message(frame: &[u8]) -> bool {
    let kinds = ["message", "pmessage", "smessage"].map(Reply::bulk);
    items(frame).first().is_some_and(|kind| kinds.contains(kind))
}

fn messages_change_places(world: &mut World, client: ClientId, frame: &[u8]) -> Vec<u8> {
    if !is_message(frame) {
        return frame.to_vec();
    }
    let held = world.take_postponed(client);
    if held.is_empty() {
        world.send_later(client, frame, HELD);
        return Vec::new();
    }
    [frame, &held].concat()
}

fn messages_before_the_confirmation(world: &mut World, request: &Request) -> Answer {
    let mut answer = world.run(request);
    if request.is_any(&["subscribe", "psubscribe"]) {
        world.send_later(request.client, &answer.bytes, HELD);
        answer.bytes = BytesMut::new();
    }
    answer
}

fn publish_counts_nobody(world: &mut World, request: &Request) -> Answer {
    let answer = world.run(request);
    match answer.reply() {
        Reply::Integer(_) if request.is("publish") => world.answer(request, &Reply::Integer(0)),
        _ => answer,
    }
}

fn patterns_hide_the_channel(world: &mut World, client: ClientId, frame: &[u8]) -> Vec<u8> {
    match &items(frame)[..] {
        [kind, _, channel, text] if *kind == Reply::bulk("pmessage") => {
            let message = vec![Reply::bulk("message"), channel.clone(), text.clone()];
            world.encoded(client, &Reply::Push(message))
        }
        _ => frame.to_vec(),
    }
}

fn unsubscribe_does_nothing(world: &mut World, request: &Request) -> Answer {
    let answer = world.run(request);
    if request.is("unsubscribe") {
        for channel in &request.argv[1..] {
            let kind = lockwheel_engine::pubsub::Subscription::Channel;
            world.engine.subscribe(request.client, kind, channel);
        }
    }
    answer
}
