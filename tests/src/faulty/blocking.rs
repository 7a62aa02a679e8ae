//! Faults of clients that are blocked on a list.

use bytes::BytesMut;
use lockwheel_engine::Flow;
use lockwheel_resp::Reply;

use super::{Answer, FaultyEngine, Request, SeededFault};

pub(super) const FAULTS: &[SeededFault] = &[
    SeededFault {
        name: "one-element-wakes-two",
        description: "an element is given to two blocked clients",
        found_by: &[
            "The longest waiting client is served first",
            "With many clients in BLPOP each element goes to one, and none stays blocked",
        ],
        run: Some(one_element_wakes_two),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "last-come-first-served",
        description: "the client that blocked last is served first",
        found_by: &[
            "The longest waiting client is served first",
            "Blocked clients are served in order, and closed connections are skipped",
        ],
        run: Some(last_come_first_served),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "second-client-stays-blocked",
        description: "a client that blocks while another is blocked is never served",
        found_by: &[
            "The longest waiting client is served first",
            "With many clients in BLPOP each element goes to one, and none stays blocked",
        ],
        run: Some(second_client_stays_blocked),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "closed-clients-are-served",
        description: "an element goes to a blocked client with a closed connection, and is lost",
        found_by: &["A client that disconnects does not change the order of the others"],
        on_disconnect: Some(|server, client| {
            // Only clients that are not blocked are disconnected.
            if !server.waits.iter().any(|wait| wait.client == client) {
                server.engine.disconnect(client);
            }
            // The sockets of blocked clients are not checked either.
            server.stop_socket_checks();
        }),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "waits-never-end",
        description: "the time-out of BLPOP is ignored",
        found_by: &["A blocked client gets nil when its timeout is over"],
        also: &["Null is one type in RESP3 and two in RESP2"],
        run: Some(waits_never_end),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "pushes-in-transactions-serve-no-client",
        description: "a push in a transaction does not serve blocked clients",
        found_by: &["Elements pushed in a transaction are delivered after EXEC"],
        run: Some(|server, request| served_later(server, request, &["exec"])),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "some-pushes-serve-no-client",
        description: "one in 20 pushes does not serve the blocked clients",
        found_by: &["With many clients in BLPOP each element goes to one, and none stays blocked"],
        run: Some(some_pushes_serve_no_client),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "pushes-in-scripts-serve-no-client",
        description: "a push in a script does not serve blocked clients",
        found_by: &["Elements pushed in a script are delivered after the script"],
        run: Some(|server, request| served_later(server, request, &["eval", "evalsha"])),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "blmove-loses-the-element",
        description: "BLMOVE takes an existing element and adds it nowhere",
        found_by: &["BLMOVE and BRPOPLPUSH move an element from one end to another"],
        run: Some(blmove_loses_the_element),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "unblock-does-nothing",
        description: "CLIENT UNBLOCK replies 1 and the client stays blocked",
        found_by: &["CLIENT UNBLOCK ends a blocking command as its timeout would"],
        run: Some(unblock_does_nothing),
        ..SeededFault::NONE
    },
];

fn is_pop(request: &Request) -> bool {
    request.is_any(&["blpop", "brpop"])
}

fn one_element_wakes_two(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    if request.is_any(&["rpush", "lpush"]) && answer.reply() == Reply::Integer(1) {
        let key = request.key();
        let length = |server: &mut FaultyEngine| server.number(request, &[b"LLEN", &key]);
        if length(server) == 0 {
            let again: Vec<&[u8]> = request.argv.iter().map(Vec::as_slice).collect();
            server.run_separately(request, &again);
            // No other client was blocked.
            if length(server) > 0 {
                server.run_separately(request, &[b"LPOP", &key]);
            }
        }
    }
    answer
}

fn last_come_first_served(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    if is_pop(request) && answer.flow == Flow::Wait {
        // The clients that blocked before are queued again in reverse order.
        let same = |wait: &&Request| is_pop(wait) && wait.argv[1] == request.argv[1];
        let before: Vec<_> = server.waits.iter().filter(same).rev().cloned().collect();
        for wait in before {
            server.end_wait_silently(wait.client);
            server.run(&wait);
        }
    }
    answer
}

fn second_client_stays_blocked(server: &mut FaultyEngine, request: &Request) -> Answer {
    let waits = |wait: &Request| is_pop(wait) && wait.argv[1] == request.argv[1];
    if is_pop(request) && server.waits.iter().any(waits) {
        return Answer { bytes: BytesMut::new(), flow: Flow::Wait };
    }
    server.run(request)
}

fn waits_never_end(server: &mut FaultyEngine, request: &Request) -> Answer {
    if is_pop(request) && request.argv.len() == 3 && request.word(2).parse::<f64>().is_ok() {
        return server.run_as(request, &[&request.argv[0][..], &request.argv[1], b"0"]);
    }
    server.run(request)
}

/// Blocked clients are removed from the queue while one of these commands runs, and queued again
/// after it.
fn served_later(server: &mut FaultyEngine, request: &Request, names: &[&str]) -> Answer {
    if !request.is_any(names) {
        return server.run(request);
    }
    let waits: Vec<_> = server.waits.iter().filter(|wait| is_pop(wait)).cloned().collect();
    for wait in &waits {
        server.end_wait_silently(wait.client);
    }
    let answer = server.run(request);
    for wait in waits {
        // A list with elements would serve it at once.
        let key = wait.key();
        if server.number(&wait, &[b"EXISTS", &key]) == 0 {
            server.run(&wait);
        }
    }
    answer
}

fn some_pushes_serve_no_client(server: &mut FaultyEngine, request: &Request) -> Answer {
    let waits = |wait: &Request| is_pop(wait) && wait.argv[1] == request.key();
    let is_push = request.is_any(&["rpush", "lpush"]) && server.waits.iter().any(waits);
    match is_push && server.once_in(20) {
        true => served_later(server, request, &["rpush", "lpush"]),
        false => server.run(request),
    }
}

fn blmove_loses_the_element(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Bulk(element) if request.is("blmove") => {
            let to_left = request.word(4) == "left";
            let count: &[u8] = if to_left { b"1" } else { b"-1" };
            server.run_separately(request, &[b"LREM", &request.argv[2], count, &element]);
        }
        _ => {}
    }
    answer
}

fn unblock_does_nothing(server: &mut FaultyEngine, request: &Request) -> Answer {
    let is_blocked = |wait: &Request| wait.client.serial.to_string() == request.word(2);
    let unblocks = request.is("client") && request.word(1) == "unblock";
    match unblocks && request.argv.len() <= 4 && server.waits.iter().any(is_blocked) {
        true => server.answer(request, &Reply::Integer(1)),
        false => server.run(request),
    }
}
