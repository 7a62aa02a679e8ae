//! Faults of leases: when they end, and what other commands do to them.

use lockwheel_engine::Flow;
use lockwheel_resp::Reply;

use super::{Answer, Fault, Request, World};

/// How often the sweeper of `leases-end-at-the-sweep` comes by.
const SWEEP_MS: i64 = 500;
/// By how much leases are too long in `leases-end-late`.
const LATE_MS: i64 = 50;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "leases-end-early",
        what: "leases end one millisecond before their time",
        found_by: &[
            "SET PX: the lease ends at its deadline, to the millisecond",
            "PEXPIRE and PEXPIREAT: the lease ends at its deadline, to the millisecond",
        ],
        run: Some(|world, request| stretched(world, request, |span| (span - 1).max(1))),
        ..Fault::NONE
    },
    Fault {
        name: "leases-end-late",
        what: "leases end 50 ms after their time, though PTTL tells that they do not",
        found_by: &["SET PX: the lease ends at its deadline, to the millisecond"],
        also: &["The end of a lease is a change"],
        run: Some(leases_end_late),
        ..Fault::NONE
    },
    Fault {
        name: "leases-end-at-the-sweep",
        what: "a lease ends when the sweeper has come by twice, every 500 ms",
        found_by: &["A short lease ends", "What has ended is not there for anybody"],
        also: &["The end of a lease is a change", "The options of SET stand in any order and case"],
        run: Some(leases_end_at_the_sweep),
        ..Fault::NONE
    },
    Fault {
        name: "set-keeps-the-lease",
        what: "SET without KEEPTTL leaves the key its lease",
        found_by: &["SET without a lease drops the old one"],
        run: Some(|world, request| keeps_the_lease(world, request, "set")),
        ..Fault::NONE
    },
    Fault {
        name: "getset-keeps-the-lease",
        what: "GETSET leaves the key its lease",
        found_by: &["GETSET drops the lease"],
        run: Some(|world, request| keeps_the_lease(world, request, "getset")),
        ..Fault::NONE
    },
    Fault {
        name: "keepttl-does-nothing",
        what: "SET with KEEPTTL takes the key's lease away",
        found_by: &["SET KEEPTTL keeps the lease"],
        run: Some(keepttl_does_nothing),
        ..Fault::NONE
    },
    Fault {
        name: "hincrby-drops-the-lease",
        what: "HINCRBY takes the key's lease away",
        found_by: &["Changes of a hash keep its lease"],
        run: Some(|world, request| drops_the_lease(world, request, "hincrby", 1)),
        ..Fault::NONE
    },
    Fault {
        name: "rename-drops-the-lease",
        what: "RENAME leaves the lease behind",
        found_by: &["RENAME takes the lease along", "A renamed key ends under its new name"],
        run: Some(|world, request| drops_the_lease(world, request, "rename", 2)),
        ..Fault::NONE
    },
    Fault {
        name: "copy-drops-the-lease",
        what: "COPY leaves the lease behind",
        found_by: &["COPY has the same lease, and its own from then on"],
        run: Some(|world, request| drops_the_lease(world, request, "copy", 2)),
        ..Fault::NONE
    },
    Fault {
        name: "persist-does-nothing",
        what: "PERSIST says that it has taken the lease away, and has not",
        found_by: &[
            "PERSIST takes the lease away",
            "A persisted key does not end at the old deadline",
        ],
        run: Some(persist_does_nothing),
        ..Fault::NONE
    },
    Fault {
        name: "pexpire-does-nothing",
        what: "PEXPIRE of a key with a lease says that it has given a new one, and has not",
        found_by: &[
            "A lease is prolonged by PEXPIRE, and shortened",
            "A prolonged lease does not end at the old deadline",
        ],
        run: Some(pexpire_does_nothing),
        ..Fault::NONE
    },
    Fault {
        name: "past-leases-stay",
        what: "PEXPIRE with a time that is over leaves the key there",
        found_by: &["EXPIRE of zero or less deletes at once"],
        run: Some(past_leases_stay),
        ..Fault::NONE
    },
    Fault {
        name: "endless-leases",
        what: "PEXPIRE beyond the end of time is accepted and does nothing",
        found_by: &["PEXPIRE refuses a lease beyond all clocks and keeps the old one"],
        run: Some(endless_leases),
        ..Fault::NONE
    },
    Fault {
        name: "pttl-of-nothing",
        what: "PTTL of a key that is not there answers -1, as of one without a lease",
        found_by: &["No key and no lease are told apart"],
        run: Some(pttl_of_nothing),
        ..Fault::NONE
    },
    Fault {
        name: "pttl-in-seconds",
        what: "PTTL answers in seconds",
        found_by: &["TTL rounds to seconds, PTTL tells milliseconds"],
        also: &["The options of SET stand in any order and case"],
        run: Some(pttl_in_seconds),
        ..Fault::NONE
    },
    Fault {
        name: "exists-sees-the-dead",
        what: "EXISTS still counts a key whose lease has ended",
        found_by: &["What has ended is not there for anybody"],
        run: Some(exists_sees_the_dead),
        ..Fault::NONE
    },
    Fault {
        name: "expire-conditions-ignored",
        what: "PEXPIRE does not heed NX, XX, GT and LT",
        found_by: &[
            "NX gives a lease to what has none",
            "XX changes a lease that is there",
            "GT only prolongs",
            "LT only shortens",
        ],
        run: Some(expire_conditions_ignored),
        ..Fault::NONE
    },
];

/// Runs a request that gives a lease with another one, in milliseconds.
fn stretched(world: &mut World, request: &Request, change: fn(i64) -> i64) -> Answer {
    let (at, unit_ms) = match request.word(0).as_str() {
        "set" => match (request.option("px"), request.option("ex")) {
            (Some(at), _) if at > 2 => (at + 1, 1),
            (_, Some(at)) if at > 2 => (at + 1, 1000),
            _ => return world.run(request),
        },
        "pexpire" => (2, 1),
        "expire" => (2, 1000),
        "psetex" if request.argv.len() == 4 => (2, 1),
        "setex" if request.argv.len() == 4 => (2, 1000),
        _ => return world.run(request),
    };
    // What is no lease in the far future is left alone: its refusal, or its end, is right.
    let span = request.word(at).parse::<i64>().ok();
    let Some(span) = span.filter(|span| (1..1 << 40).contains(span)) else {
        return world.run(request);
    };
    let mut argv = request.argv.clone();
    argv[at] = change(span * unit_ms).to_string().into_bytes();
    match request.word(0).as_str() {
        "set" => argv[at - 1] = b"PX".to_vec(),
        "expire" => argv[0] = b"PEXPIRE".to_vec(),
        "setex" => argv[0] = b"PSETEX".to_vec(),
        _ => {}
    }
    world.run_as(request, &argv)
}

fn leases_end_late(world: &mut World, request: &Request) -> Answer {
    let answer = stretched(world, request, |span| span + LATE_MS);
    match answer.reply() {
        Reply::Integer(left) if request.is("pttl") && left > 0 => {
            world.answer(request, &Reply::Integer((left - LATE_MS).max(0)))
        }
        _ => answer,
    }
}

/// The notes are by how much the leases of keys are too long, which nobody is told.
fn leases_end_at_the_sweep(world: &mut World, request: &Request) -> Answer {
    let answer = world.run(request);
    let key = request.key();
    if request.is("pttl")
        && let (Reply::Integer(left), Some(longer)) = (answer.reply(), world.notes.get(&key))
        && left >= 0
    {
        return world.answer(request, &Reply::Integer((left - longer).max(0)));
    }
    if request.is_any(&["set", "pexpire", "psetex"]) {
        world.notes.remove(&key);
        let deadline = world.number(request, &[b"PEXPIRETIME", &key]);
        if deadline > 0 {
            let sweep = (deadline / SWEEP_MS + 2) * SWEEP_MS;
            world.aside(request, &[b"PEXPIREAT", &key, sweep.to_string().as_bytes()]);
            world.notes.insert(key, sweep - deadline);
        }
    }
    answer
}

fn keeps_the_lease(world: &mut World, request: &Request, name: &str) -> Answer {
    let options = ["px", "ex", "pxat", "exat", "keepttl"];
    let gives = options.iter().any(|option| request.option(option).is_some_and(|at| at > 2));
    if !request.is(name) || gives {
        return world.run(request);
    }
    let key = request.key();
    let deadline = world.number(request, &[b"PEXPIRETIME", &key]);
    let answer = world.run(request);
    if deadline > 0 {
        world.aside(request, &[b"PEXPIREAT", &key, deadline.to_string().as_bytes()]);
    }
    answer
}

fn keepttl_does_nothing(world: &mut World, request: &Request) -> Answer {
    match request.option("keepttl") {
        Some(at) if request.is("set") && at > 2 => {
            let mut argv = request.argv.clone();
            argv.remove(at);
            world.run_as(request, &argv)
        }
        _ => world.run(request),
    }
}

fn drops_the_lease(world: &mut World, request: &Request, name: &str, at: usize) -> Answer {
    let answer = world.run(request);
    if let Some(key) = request.argv.get(at).filter(|_| request.is(name)) {
        world.aside(request, &[b"PERSIST", key]);
    }
    answer
}

fn persist_does_nothing(world: &mut World, request: &Request) -> Answer {
    let leased = |world: &mut World| world.number(request, &[b"PTTL", &request.key()]) > 0;
    if request.is("persist") && request.argv.len() == 2 && leased(world) {
        return world.answer(request, &Reply::Integer(1));
    }
    world.run(request)
}

fn pexpire_does_nothing(world: &mut World, request: &Request) -> Answer {
    let leased = |world: &mut World| world.number(request, &[b"PTTL", &request.key()]) > 0;
    if request.is("pexpire") && request.argv.len() == 3 && leased(world) {
        return world.answer(request, &Reply::Integer(1));
    }
    world.run(request)
}

fn past_leases_stay(world: &mut World, request: &Request) -> Answer {
    let over = request.word(2).parse::<i64>().is_ok_and(|span| span <= 0);
    if request.is("pexpire") && request.argv.len() == 3 && over {
        let there = world.number(request, &[b"EXISTS", &request.key()]);
        return world.answer(request, &Reply::Integer(there));
    }
    world.run(request)
}

fn endless_leases(world: &mut World, request: &Request) -> Answer {
    let answer = world.run(request);
    match answer.reply() {
        Reply::Error(line) if request.is("pexpire") && line.starts_with(b"ERR invalid expire") => {
            world.answer(request, &Reply::Integer(1))
        }
        _ => answer,
    }
}

fn pttl_of_nothing(world: &mut World, request: &Request) -> Answer {
    let answer = world.run(request);
    if request.is("pttl") && answer.reply() == Reply::Integer(-2) {
        return world.answer(request, &Reply::Integer(-1));
    }
    answer
}

fn pttl_in_seconds(world: &mut World, request: &Request) -> Answer {
    let answer = world.run(request);
    match answer.reply() {
        Reply::Integer(left) if request.is("pttl") && left > 0 => {
            world.answer(request, &Reply::Integer(left / 1000))
        }
        _ => answer,
    }
}

/// The notes are the keys that have been given a lease by SET or PEXPIRE and by nothing else since.
fn exists_sees_the_dead(world: &mut World, request: &Request) -> Answer {
    let answer = world.run(request);
    let key = request.key();
    if request.is("exists") {
        let dead = request.argv.len() == 2 && world.notes.contains_key(&key);
        if dead && answer.reply() == Reply::Integer(0) {
            return world.answer(request, &Reply::Integer(1));
        }
    } else if answer.flow == Flow::Next {
        let leases = request.is_any(&["set", "pexpire", "psetex"]);
        match leases && world.number(request, &[b"PTTL", &key]) > 0 {
            true => world.notes.insert(key, 0),
            false if request.is_any(&["get", "pttl", "ttl", "type"]) => None,
            false => request.argv[1..].iter().find_map(|key| world.notes.remove(key)),
        };
    }
    answer
}

fn expire_conditions_ignored(world: &mut World, request: &Request) -> Answer {
    let known = ["nx", "xx", "gt", "lt"].contains(&request.word(3).as_str());
    if request.is("pexpire") && request.argv.len() == 4 && known {
        return world.run_as(request, &request.argv[..3]);
    }
    world.run(request)
}
