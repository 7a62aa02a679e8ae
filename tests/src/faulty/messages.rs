//! Faults of `PUBLISH` and of subscriptions.

use std::time::Duration;

use bytes::BytesMut;
use lockwheel_engine::sessions::ClientId;
use lockwheel_resp::{Reply, decode};

use super::{Answer, Fault, FaultyEngine, Request};

/// How long a message or a confirmation is delayed.
const HELD: Duration = Duration::from_millis(40);

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "messages-get-lost",
        what: "every third message does not arrive",
        found_by: &["Messages arrive in the order in which they were sent"],
        also: &["The lock is free when the message of an unlock arrives"],
        rewrite_message: Some(|server, _, frame| match is_message(frame) && server.once_in(3) {
            true => Vec::new(),
            false => frame.to_vec(),
        }),
        ..Fault::NONE
    },
    Fault {
        name: "messages-come-twice",
        what: "every third message arrives twice",
        found_by: &["Messages arrive in the order in which they were sent"],
        rewrite_message: Some(|server, _, frame| match is_message(frame) && server.once_in(3) {
            true => [frame, frame].concat(),
            false => frame.to_vec(),
        }),
        ..Fault::NONE
    },
    Fault {
        name: "messages-change-places",
        what: "of two messages in short order the second arrives first",
        found_by: &[
            "Messages arrive in the order in which they were sent",
            "All subscribers receive messages in the same order",
        ],
        rewrite_message: Some(messages_change_places),
        ..Fault::NONE
    },
    Fault {
        name: "messages-before-the-confirmation",
        what: "a subscriber receives messages before the confirmation",
        found_by: &["In RESP3 pipelined messages and replies keep their order"],
        run: Some(messages_before_the_confirmation),
        ..Fault::NONE
    },
    Fault {
        name: "publish-counts-zero",
        what: "PUBLISH always replies 0",
        found_by: &["PUBLISH returns the number of receivers"],
        run: Some(publish_counts_zero),
        ..Fault::NONE
    },
    Fault {
        name: "patterns-hide-the-channel",
        what: "messages of a pattern subscription do not name the pattern",
        found_by: &["A pattern receives messages of every matching channel"],
        rewrite_message: Some(patterns_hide_the_channel),
        ..Fault::NONE
    },
    Fault {
        name: "unsubscribe-does-nothing",
        what: "UNSUBSCRIBE is confirmed, and messages go on arriving",
        found_by: &["Messages published after UNSUBSCRIBE are not received"],
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

fn messages_change_places(server: &mut FaultyEngine, client: ClientId, frame: &[u8]) -> Vec<u8> {
    if !is_message(frame) {
        return frame.to_vec();
    }
    let held = server.take_postponed(client);
    if held.is_empty() {
        server.send_later(client, frame, HELD);
        return Vec::new();
    }
    [frame, &held].concat()
}

fn messages_before_the_confirmation(server: &mut FaultyEngine, request: &Request) -> Answer {
    let mut answer = server.run(request);
    if request.is_any(&["subscribe", "psubscribe"]) {
        server.send_later(request.client, &answer.bytes, HELD);
        answer.bytes = BytesMut::new();
    }
    answer
}

fn publish_counts_zero(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Integer(_) if request.is("publish") => server.answer(request, &Reply::Integer(0)),
        _ => answer,
    }
}

fn patterns_hide_the_channel(server: &mut FaultyEngine, client: ClientId, frame: &[u8]) -> Vec<u8> {
    match &items(frame)[..] {
        [kind, _, channel, text] if *kind == Reply::bulk("pmessage") => {
            let message = vec![Reply::bulk("message"), channel.clone(), text.clone()];
            server.encoded(client, &Reply::Push(message))
        }
        _ => frame.to_vec(),
    }
}

fn unsubscribe_does_nothing(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    if request.is("unsubscribe") {
        let mut subscribe = request.argv.clone();
        subscribe[0] = b"SUBSCRIBE".to_vec();
        if subscribe.len() > 1 {
            server.run_as(request, &subscribe);
        }
    }
    answer
}
