//! Faults of `PUBLISH` and of subscriptions.

use std::time::Duration;

use bytes::BytesMut;
use lockwheel_engine::sessions::ClientId;
use lockwheel_resp::{Reply, decode};

use super::{Answer, FaultyEngine, Request, SeededFault};

/// How long a message or a confirmation is delayed.
const HELD: Duration = Duration::from_millis(40);

pub(super) const FAULTS: &[SeededFault] = &[
    SeededFault {
        name: "messages-get-lost",
        description: "every third message does not arrive",
        found_by: &["Messages arrive in the order in which they were sent"],
        also: &["The lock is free when the message of an unlock arrives"],
        rewrite_message: Some(|server, _, frame| match is_message(frame) && server.once_in(3) {
            true => Vec::new(),
            false => frame.to_vec(),
        }),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "messages-come-twice",
        description: "every third message arrives twice",
        found_by: &["Messages arrive in the order in which they were sent"],
        rewrite_message: Some(|server, _, frame| match is_message(frame) && server.once_in(3) {
            true => [frame, frame].concat(),
            false => frame.to_vec(),
        }),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "messages-change-places",
        description: "of two messages in short order the second arrives first",
        found_by: &[
            "Messages arrive in the order in which they were sent",
            "All subscribers receive messages in the same order",
        ],
        rewrite_message: Some(messages_change_places),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "messages-before-the-confirmation",
        description: "a subscriber receives messages before the confirmation",
        found_by: &["In RESP3 pipelined messages and replies keep their order"],
        run: Some(messages_before_the_confirmation),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "publish-counts-zero",
        description: "PUBLISH always replies 0",
        found_by: &["PUBLISH returns the number of receivers"],
        run: Some(publish_counts_zero),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "patterns-hide-the-channel",
        description: "messages of a pattern subscription do not name the pattern",
        found_by: &["A pattern receives messages of every matching channel"],
        rewrite_message: Some(patterns_hide_the_channel),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "unsubscribe-does-nothing",
        description: "UNSUBSCRIBE is confirmed, and messages go on arriving",
        found_by: &["Messages published after UNSUBSCRIBE are not received"],
        run: Some(unsubscribe_does_nothing),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "publish-counts-one",
        description: "PUBLISH counts one receiver at most",
        found_by: &["PUBLISH returns the number of receivers"],
        run: Some(publish_counts_one),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "subscribe-counts-one",
        description: "SUBSCRIBE confirms every channel as the first",
        found_by: &["SUBSCRIBE confirms each channel with the number of subscriptions"],
        run: Some(subscribe_counts_one),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "numsub-counts-zero",
        description: "PUBSUB NUMSUB counts no subscribers",
        found_by: &["PUBSUB NUMSUB counts the subscribers of channels"],
        run: Some(numsub_counts_zero),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "messages-of-scripts-get-lost",
        description: "messages that a script publishes do not arrive",
        found_by: &["Messages of a script are sent after the script has run"],
        also: &["The lock is free when the message of an unlock arrives"],
        run: Some(messages_of_scripts_get_lost),
        rewrite_message: Some(|server, _, frame| match is_message(frame) && server.count == 1 {
            true => Vec::new(),
            false => frame.to_vec(),
        }),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "no-events-of-expiry",
        description: "the end of a lease sends no event",
        found_by: &[
            "Expiry sends a notification",
            "A key that expires without an access sends a notification",
        ],
        rewrite_message: Some(|_, _, frame| without(frame, b":expired")),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "no-events-of-keys",
        description: "no event is sent to the channel of its key",
        found_by: &["A string lock sends keyspace notifications"],
        rewrite_message: Some(|_, _, frame| without(frame, b"__keyspace@")),
        ..SeededFault::NONE
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

/// Drops messages whose channel contains this text.
fn without(frame: &[u8], part: &[u8]) -> Vec<u8> {
    let has_part = |item: &Reply| match item {
        Reply::Bulk(text) => text.windows(part.len()).any(|window| window == part),
        _ => false,
    };
    // The message itself is the last item.
    let items = items(frame);
    let names = &items[..items.len().saturating_sub(1)];
    match is_message(frame) && names.last().is_some_and(has_part) {
        true => Vec::new(),
        false => frame.to_vec(),
    }
}

fn publish_counts_one(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Integer(2..) if request.is("publish") => server.answer(request, &Reply::Integer(1)),
        _ => answer,
    }
}

fn subscribe_counts_one(server: &mut FaultyEngine, request: &Request) -> Answer {
    let mut answer = server.run(request);
    if request.is("subscribe") && !answer.reply().is_error() {
        let mut text = String::from_utf8_lossy(&answer.bytes).into_owned();
        for count in 2..10 {
            text = text.replace(&format!("\r\n:{count}\r\n"), "\r\n:1\r\n");
        }
        answer.bytes = text.as_bytes().into();
    }
    answer
}

fn numsub_counts_zero(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Array(items) if request.is("pubsub") && request.word(1) == "numsub" => {
            let zero = |item| match item {
                Reply::Integer(_) => Reply::Integer(0),
                name => name,
            };
            server.answer(request, &Reply::Array(items.into_iter().map(zero).collect()))
        }
        _ => answer,
    }
}

/// Loses the messages of scripts: the counter is 1 while a script runs.
fn messages_of_scripts_get_lost(server: &mut FaultyEngine, request: &Request) -> Answer {
    server.count = u64::from(request.is_any(&["eval", "evalsha"]));
    let answer = server.run(request);
    server.count = 0;
    answer
}
