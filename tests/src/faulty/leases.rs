//! Faults of leases: when they end, and what other commands do to them.

use lockwheel_engine::Flow;
use lockwheel_resp::Reply;

use super::{Answer, FaultyEngine, Request, SeededFault};

/// The interval of the sweep of `leases-end-at-the-sweep`.
const SWEEP_MS: i64 = 500;
/// The excess of leases in `leases-end-late`.
const LATE_MS: i64 = 50;

pub(super) const FAULTS: &[SeededFault] = &[
    SeededFault {
        name: "bound-locks-are-kept",
        description: "the locks that are bound to a connection are kept when it ends",
        found_by: &["A bound lock is released when its connection ends"],
        also: &[
            "The end of a connection takes back what was acquired by it",
            "A connection releases what was acquired by it first",
        ],
        promises: &["L12", "L14"],
        run: Some(bound_locks_are_kept),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "the-oldest-lease-is-released",
        description: "LOCK.RELEASE takes from the connection that acquired the lock first",
        found_by: &["The end of a connection takes back what was acquired by it"],
        promises: &["L14", "L15"],
        run: Some(|server, request| on_another_connection(server, request, "lock.release")),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "renewed-leases-are-not-moved",
        description: "LOCK.RENEW does not move the leases of the owner to its connection",
        found_by: &["A renewal moves what its owner holds to its connection"],
        promises: &["L16"],
        run: Some(|server, request| on_another_connection(server, request, "lock.renew")),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "leases-end-early",
        description: "leases end one millisecond before their time",
        found_by: &[
            "SET PX: the lease ends at its deadline, to the millisecond",
            "PEXPIRE and PEXPIREAT: the lease ends at its deadline, to the millisecond",
        ],
        promises: &["G2", "G7"],
        run: Some(|server, request| stretched(server, request, |span| (span - 1).max(1))),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "leases-end-late",
        description: "leases end 50 ms late, although PTTL shows their deadline",
        found_by: &["SET PX: the lease ends at its deadline, to the millisecond"],
        also: &["Expiry is a change", "Expiry sends a notification"],
        promises: &["G2", "G7"],
        run: Some(leases_end_late),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "leases-end-at-the-sweep",
        description: "a lease ends at the second sweep, one every 500 ms",
        found_by: &["A short lease ends", "An expired key is missing for every command"],
        also: &[
            "Expiry is a change",
            "SET NX PX accepts its options in any order and case",
            "A key that expires without an access sends a notification",
            "A string lock sends keyspace notifications",
            "Expiry sends a notification",
        ],
        promises: &["G2"],
        run: Some(leases_end_at_the_sweep),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "set-keeps-the-lease",
        description: "SET without KEEPTTL leaves the key its lease",
        found_by: &["SET without a lease removes the old one"],
        run: Some(|server, request| keeps_the_lease(server, request, "set")),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "getset-keeps-the-lease",
        description: "GETSET leaves the key its lease",
        found_by: &["GETSET removes the lease"],
        run: Some(|server, request| keeps_the_lease(server, request, "getset")),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "keepttl-does-nothing",
        description: "SET with KEEPTTL takes the key's lease away",
        found_by: &["SET KEEPTTL keeps the lease"],
        run: Some(keepttl_does_nothing),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "hincrby-drops-the-lease",
        description: "HINCRBY takes the key's lease away",
        found_by: &["Changes of a hash keep its lease"],
        run: Some(|server, request| drops_the_lease(server, request, "hincrby", 1)),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "rename-drops-the-lease",
        description: "RENAME leaves the lease behind",
        found_by: &["RENAME moves the lease", "A renamed key expires under its new name"],
        run: Some(|server, request| drops_the_lease(server, request, "rename", 2)),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "copy-drops-the-lease",
        description: "COPY leaves the lease behind",
        found_by: &["COPY copies the lease, which is independent afterwards"],
        run: Some(|server, request| drops_the_lease(server, request, "copy", 2)),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "persist-does-nothing",
        description: "PERSIST replies 1 and does not remove the lease",
        found_by: &[
            "PERSIST removes the lease",
            "A persisted key does not expire at the old deadline",
        ],
        also: &["A string lock sends keyspace notifications"],
        run: Some(persist_does_nothing),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "pexpire-does-nothing",
        description: "PEXPIRE of a key with a lease replies 1 and does not change the lease",
        found_by: &[
            "PEXPIRE can extend and shorten a lease",
            "A renewed key does not expire at the old deadline",
        ],
        also: &["A string lock sends keyspace notifications"],
        run: Some(pexpire_does_nothing),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "past-leases-stay",
        description: "PEXPIRE with a time that is over leaves the key there",
        found_by: &["EXPIRE of zero or less deletes at once"],
        run: Some(past_leases_stay),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "endless-leases",
        description: "PEXPIRE beyond the end of time is accepted and does nothing",
        found_by: &["PEXPIRE refuses a lease that overflows and keeps the old one"],
        run: Some(endless_leases),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "pttl-of-nothing",
        description: "PTTL of a key that is not there answers -1, as of one without a lease",
        found_by: &["TTL and PTTL distinguish a missing key from a missing lease"],
        run: Some(pttl_of_nothing),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "pttl-in-seconds",
        description: "PTTL answers in seconds",
        found_by: &["TTL rounds to seconds, PTTL returns milliseconds"],
        also: &[
            "SET NX PX accepts its options in any order and case",
            "SET NX in a transaction refuses an existing key",
        ],
        run: Some(pttl_in_seconds),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "exists-sees-the-dead",
        description: "EXISTS still counts an expired key",
        found_by: &["An expired key is missing for every command"],
        promises: &["G2"],
        run: Some(exists_sees_the_dead),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "expire-conditions-ignored",
        description: "PEXPIRE does not heed NX, XX, GT and LT",
        found_by: &[
            "EXPIRE NX sets a lease only if there is none",
            "EXPIRE XX changes only an existing lease",
            "EXPIRE GT only extends a lease",
            "EXPIRE LT only shortens a lease",
        ],
        run: Some(expire_conditions_ignored),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "px-is-in-seconds",
        description: "SET PX takes its lease in seconds",
        found_by: &["A short lease ends"],
        also: &[
            "SET NX takes a lock with an expired lease",
            "A key that expires without an access sends a notification",
            "SET NX PX accepts its options in any order and case",
            "SET NX in a transaction refuses an existing key",
            "Expiry is a change",
            "Expiry sends a notification",
        ],
        promises: &["G7"],
        run: Some(px_is_in_seconds),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "ex-is-in-milliseconds",
        description: "SET EX takes its lease in milliseconds",
        found_by: &[
            "A refused SET NX keeps the value and the lease",
            "A lease in seconds can be read in milliseconds",
        ],
        promises: &["G7"],
        run: Some(ex_is_in_milliseconds),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "pexpire-of-nothing",
        description: "PEXPIRE of a missing key replies 1",
        found_by: &[
            "The EXPIRE commands return whether the key exists",
            "A missing key gets no lease",
        ],
        run: Some(|server, request| replies_one(server, request, "pexpire")),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "persist-of-nothing",
        description: "PERSIST of a key without a lease replies 1",
        found_by: &["PERSIST returns whether it removed a lease"],
        run: Some(|server, request| replies_one(server, request, "persist")),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "pexpire-loses-some",
        description: "one in 50 PEXPIRE replies 1 and does not change the lease",
        found_by: &["Every repetition of a lock command gets the right reply"],
        run: Some(pexpire_loses_some),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "incr-drops-the-lease",
        description: "INCR takes the key's lease away",
        found_by: &["INCR and related commands keep the lease"],
        run: Some(|server, request| drops_the_lease(server, request, "incr", 1)),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "hincrby-restarts-the-lease",
        description: "HINCRBY gives the key a lease of 30 s",
        found_by: &["Changes of a hash keep its lease"],
        run: Some(hincrby_restarts_the_lease),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "getex-changes-no-lease",
        description: "GETEX does not change the lease",
        found_by: &["GETEX sets, keeps and removes a lease"],
        run: Some(getex_changes_no_lease),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "pexpiretime-is-pttl",
        description: "PEXPIRETIME replies the remaining time",
        found_by: &["EXPIRETIME and PEXPIRETIME return the deadline"],
        run: Some(pexpiretime_is_pttl),
        ..SeededFault::NONE
    },
];

/// Runs a request that sets a lease with another lease, in milliseconds.
fn stretched(server: &mut FaultyEngine, request: &Request, change: fn(i64) -> i64) -> Answer {
    let (at, unit_ms) = match request.word(0).as_str() {
        "set" => match (request.option("px"), request.option("ex")) {
            (Some(at), _) if at > 2 => (at + 1, 1),
            (_, Some(at)) if at > 2 => (at + 1, 1000),
            _ => return server.run(request),
        },
        "pexpire" => (2, 1),
        "expire" => (2, 1000),
        "psetex" if request.argv.len() == 4 => (2, 1),
        "setex" if request.argv.len() == 4 => (2, 1000),
        _ => return server.run(request),
    };
    // Only valid leases are changed: an error, or the end of an expired one, stays correct.
    let span = request.word(at).parse::<i64>().ok();
    let Some(span) = span.filter(|span| (1..1 << 40).contains(span)) else {
        return server.run(request);
    };
    let mut argv = request.argv.clone();
    argv[at] = change(span * unit_ms).to_string().into_bytes();
    match request.word(0).as_str() {
        "set" => argv[at - 1] = b"PX".to_vec(),
        "expire" => argv[0] = b"PEXPIRE".to_vec(),
        "setex" => argv[0] = b"PSETEX".to_vec(),
        _ => {}
    }
    server.run_as(request, &argv)
}

fn bound_locks_are_kept(server: &mut FaultyEngine, request: &Request) -> Answer {
    let bound = request.option("bound").filter(|_| request.is("lock.acquire"));
    let Some(bound) = bound else { return server.run(request) };
    let has_grace = request.argv.get(bound + 1).is_some_and(|it| it.eq_ignore_ascii_case(b"grace"));
    let mut argv = request.argv.clone();
    argv.drain(bound..bound + if has_grace { 3 } else { 1 });
    server.run_as(request, &argv)
}

/// Runs this command on another connection than that of its client.
fn on_another_connection(server: &mut FaultyEngine, request: &Request, name: &str) -> Answer {
    if !request.is(name) {
        return server.run(request);
    }
    let argv: Vec<&[u8]> = request.argv.iter().map(Vec::as_slice).collect();
    let reply = server.run_separately(request, &argv);
    server.answer(request, &reply)
}

fn leases_end_late(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = stretched(server, request, |span| span + LATE_MS);
    match answer.reply() {
        Reply::Integer(left) if request.is("pttl") && left > 0 => {
            server.answer(request, &Reply::Integer((left - LATE_MS).max(0)))
        }
        _ => answer,
    }
}

/// The notes hold the hidden excess of the leases of keys.
fn leases_end_at_the_sweep(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    let key = request.key();
    if request.is("pttl")
        && let (Reply::Integer(left), Some(longer)) = (answer.reply(), server.notes.get(&key))
        && left >= 0
    {
        return server.answer(request, &Reply::Integer((left - longer).max(0)));
    }
    if request.is_any(&["set", "pexpire", "psetex"]) {
        server.notes.remove(&key);
        let deadline = server.number(request, &[b"PEXPIRETIME", &key]);
        if deadline > 0 {
            let sweep = (deadline / SWEEP_MS + 2) * SWEEP_MS;
            server.run_separately(request, &[b"PEXPIREAT", &key, sweep.to_string().as_bytes()]);
            server.notes.insert(key, sweep - deadline);
        }
    }
    answer
}

fn keeps_the_lease(server: &mut FaultyEngine, request: &Request, name: &str) -> Answer {
    let options = ["px", "ex", "pxat", "exat", "keepttl"];
    let gives = options.iter().any(|option| request.option(option).is_some_and(|at| at > 2));
    if !request.is(name) || gives {
        return server.run(request);
    }
    let key = request.key();
    let deadline = server.number(request, &[b"PEXPIRETIME", &key]);
    let answer = server.run(request);
    if deadline > 0 {
        server.run_separately(request, &[b"PEXPIREAT", &key, deadline.to_string().as_bytes()]);
    }
    answer
}

fn keepttl_does_nothing(server: &mut FaultyEngine, request: &Request) -> Answer {
    match request.option("keepttl") {
        Some(at) if request.is("set") && at > 2 => {
            let mut argv = request.argv.clone();
            argv.remove(at);
            server.run_as(request, &argv)
        }
        _ => server.run(request),
    }
}

fn drops_the_lease(server: &mut FaultyEngine, request: &Request, name: &str, at: usize) -> Answer {
    let answer = server.run(request);
    if let Some(key) = request.argv.get(at).filter(|_| request.is(name)) {
        server.run_separately(request, &[b"PERSIST", key]);
    }
    answer
}

fn persist_does_nothing(server: &mut FaultyEngine, request: &Request) -> Answer {
    let leased = |server: &mut FaultyEngine| server.number(request, &[b"PTTL", &request.key()]) > 0;
    if request.is("persist") && request.argv.len() == 2 && leased(server) {
        return server.answer(request, &Reply::Integer(1));
    }
    server.run(request)
}

fn pexpire_does_nothing(server: &mut FaultyEngine, request: &Request) -> Answer {
    let leased = |server: &mut FaultyEngine| server.number(request, &[b"PTTL", &request.key()]) > 0;
    if request.is("pexpire") && request.argv.len() == 3 && leased(server) {
        return server.answer(request, &Reply::Integer(1));
    }
    server.run(request)
}

fn past_leases_stay(server: &mut FaultyEngine, request: &Request) -> Answer {
    let over = request.word(2).parse::<i64>().is_ok_and(|span| span <= 0);
    if request.is("pexpire") && request.argv.len() == 3 && over {
        let there = server.number(request, &[b"EXISTS", &request.key()]);
        return server.answer(request, &Reply::Integer(there));
    }
    server.run(request)
}

fn endless_leases(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Error(line) if request.is("pexpire") && line.starts_with(b"ERR invalid expire") => {
            server.answer(request, &Reply::Integer(1))
        }
        _ => answer,
    }
}

fn pttl_of_nothing(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    if request.is("pttl") && answer.reply() == Reply::Integer(-2) {
        return server.answer(request, &Reply::Integer(-1));
    }
    answer
}

fn pttl_in_seconds(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Integer(left) if request.is("pttl") && left > 0 => {
            server.answer(request, &Reply::Integer(left / 1000))
        }
        _ => answer,
    }
}

/// The notes hold the keys with a lease that SET or PEXPIRE set last.
fn exists_sees_the_dead(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    let key = request.key();
    if request.is("exists") {
        let dead = request.argv.len() == 2 && server.notes.contains_key(&key);
        if dead && answer.reply() == Reply::Integer(0) {
            return server.answer(request, &Reply::Integer(1));
        }
    } else if answer.flow == Flow::Next {
        let leases = request.is_any(&["set", "pexpire", "psetex"]);
        match leases && server.number(request, &[b"PTTL", &key]) > 0 {
            true => server.notes.insert(key, 0),
            false if request.is_any(&["get", "pttl", "ttl", "type"]) => None,
            false => request.argv[1..].iter().find_map(|key| server.notes.remove(key)),
        };
    }
    answer
}

fn expire_conditions_ignored(server: &mut FaultyEngine, request: &Request) -> Answer {
    let known = ["nx", "xx", "gt", "lt"].contains(&request.word(3).as_str());
    if request.is("pexpire") && request.argv.len() == 4 && known {
        return server.run_as(request, &request.argv[..3]);
    }
    server.run(request)
}

/// Runs SET with the unit of its lease replaced.
fn with_unit(server: &mut FaultyEngine, request: &Request, unit: &str, other: &str) -> Answer {
    let at = request.option(unit).filter(|at| *at > 2 && request.is("set"));
    let Some(at) = at else { return server.run(request) };
    let mut argv = request.argv.clone();
    argv[at] = other.into();
    server.run_as(request, &argv)
}

fn px_is_in_seconds(server: &mut FaultyEngine, request: &Request) -> Answer {
    with_unit(server, request, "px", "EX")
}

fn ex_is_in_milliseconds(server: &mut FaultyEngine, request: &Request) -> Answer {
    with_unit(server, request, "ex", "PX")
}

fn replies_one(server: &mut FaultyEngine, request: &Request, name: &str) -> Answer {
    let answer = server.run(request);
    if request.is(name) && answer.reply() == Reply::Integer(0) {
        return server.answer(request, &Reply::Integer(1));
    }
    answer
}

fn pexpire_loses_some(server: &mut FaultyEngine, request: &Request) -> Answer {
    match request.is("pexpire") && server.once_in(50) {
        true => pexpire_does_nothing(server, request),
        false => server.run(request),
    }
}

fn hincrby_restarts_the_lease(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    if request.is("hincrby") {
        server.run_separately(request, &[b"PEXPIRE", &request.key(), b"30000", b"XX"]);
    }
    answer
}

fn getex_changes_no_lease(server: &mut FaultyEngine, request: &Request) -> Answer {
    match request.is("getex") && request.argv.len() > 2 {
        true => server.run_as(request, &[b"GET", &request.argv[1][..]]),
        false => server.run(request),
    }
}

fn pexpiretime_is_pttl(server: &mut FaultyEngine, request: &Request) -> Answer {
    match request.is("pexpiretime") && request.argv.len() == 2 {
        true => server.run_as(request, &[b"PTTL", &request.argv[1][..]]),
        false => server.run(request),
    }
}
