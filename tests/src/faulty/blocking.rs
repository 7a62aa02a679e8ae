//! Faults of those who wait for an element of a list.

use bytes::BytesMut;
use lockwheel_engine::Flow;
use lockwheel_resp::Reply;

use super::{Answer, Fault, Request, World};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "one-element-wakes-two",
        what: "an element is given to two of those who wait for it",
        found_by: &[
            "Who waits longest is served first",
            "Of those who wait in BLPOP, each element goes to one, and nobody is forgotten",
        ],
        run: Some(one_element_wakes_two),
        ..Fault::NONE
    },
    Fault {
        name: "last-come-first-served",
        what: "whoever came last is served first",
        found_by: &[
            "Who waits longest is served first",
            "Who waits first is served first, and the dead are passed over",
        ],
        run: Some(last_come_first_served),
        ..Fault::NONE
    },
    Fault {
        name: "the-second-is-forgotten",
        what: "whoever waits while another does already is never woken",
        found_by: &[
            "Who waits longest is served first",
            "Of those who wait in BLPOP, each element goes to one, and nobody is forgotten",
        ],
        run: Some(the_second_is_forgotten),
        ..Fault::NONE
    },
    Fault {
        name: "the-gone-are-served",
        what: "an element goes to a client that has gone while it waited, and is lost",
        found_by: &["One who dies leaves the order of the others"],
        leave: Some(|world, client| {
            // Only those who do not wait are forgotten.
            if !world.waits.iter().any(|wait| wait.client == client) {
                world.engine.disconnect(client);
            }
            // As if nobody looked at their sockets.
            world.engine.script_monitor = None;
        }),
        ..Fault::NONE
    },
    Fault {
        name: "waits-never-end",
        what: "the timeout of BLPOP is taken for none",
        found_by: &["A wait ends with nothing when its time is over"],
        also: &["Nothing is one thing in RESP3 and two in RESP2"],
        run: Some(waits_never_end),
        ..Fault::NONE
    },
    Fault {
        name: "pushes-in-transactions-wake-nobody",
        what: "whoever waits is not woken by a push in a transaction",
        found_by: &["A transaction's elements are handed out when it is done"],
        run: Some(pushes_in_transactions_wake_nobody),
        ..Fault::NONE
    },
];

fn is_pop(request: &Request) -> bool {
    request.is_any(&["blpop", "brpop"])
}

fn one_element_wakes_two(world: &mut World, request: &Request) -> Answer {
    let answer = world.run(request);
    if request.is_any(&["rpush", "lpush"]) && answer.reply() == Reply::Integer(1) {
        let key = request.key();
        let length = |world: &mut World| world.number(request, &[b"LLEN", &key]);
        if length(world) == 0 {
            let again: Vec<&[u8]> = request.argv.iter().map(Vec::as_slice).collect();
            world.aside(request, &again);
            // Nobody else was waiting for it.
            if length(world) > 0 {
                world.aside(request, &[b"LPOP", &key]);
            }
        }
    }
    answer
}

fn last_come_first_served(world: &mut World, request: &Request) -> Answer {
    let answer = world.run(request);
    if is_pop(request) && answer.flow == Flow::Wait {
        // Those who came before get in line again, the last of them first.
        let same = |wait: &&Request| is_pop(wait) && wait.argv[1] == request.argv[1];
        let before: Vec<_> = world.waits.iter().filter(same).rev().cloned().collect();
        for wait in before {
            world.engine.end_wait(wait.client);
            world.engine.deliveries();
            world.run(&wait);
        }
    }
    answer
}

fn the_second_is_forgotten(world: &mut World, request: &Request) -> Answer {
    let waits = |wait: &Request| is_pop(wait) && wait.argv[1] == request.argv[1];
    if is_pop(request) && world.waits.iter().any(waits) {
        return Answer { bytes: BytesMut::new(), flow: Flow::Wait };
    }
    world.run(request)
}

fn waits_never_end(world: &mut World, request: &Request) -> Answer {
    if is_pop(request) && request.argv.len() == 3 && request.word(2).parse::<f64>().is_ok() {
        return world.run_as(request, &[&request.argv[0][..], &request.argv[1], b"0"]);
    }
    world.run(request)
}

/// Those who wait are out of the line while EXEC runs, and get in again behind it.
fn pushes_in_transactions_wake_nobody(world: &mut World, request: &Request) -> Answer {
    if !request.is("exec") {
        return world.run(request);
    }
    let waits: Vec<_> = world.waits.iter().filter(|wait| is_pop(wait)).cloned().collect();
    for wait in &waits {
        world.engine.end_wait(wait.client);
        world.engine.deliveries();
    }
    let answer = world.run(request);
    for wait in waits {
        // A list with elements would serve it at once.
        let key = wait.key();
        if world.number(&wait, &[b"EXISTS", &key]) == 0 {
            world.run(&wait);
        }
    }
    answer
}
