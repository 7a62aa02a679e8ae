//! Faults of `MULTI`, `EXEC` and `WATCH`.

use std::time::Duration;

use lockwheel_engine::sessions::Session;
use lockwheel_resp::Reply;

use super::{Answer, Fault, FaultyEngine, Request};

/// How long other clients are served.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "exec-lets-others-in",
        what: "between the commands of a transaction other clients are served",
        found_by: &[
            "The commands of a transaction are atomic",
            "Scripts and transactions do not interleave",
            "A transaction runs at one point in time",
        ],
        also: &["Elements pushed in a transaction are delivered after EXEC"],
        run: Some(exec_lets_others_in),
        ..Fault::NONE
    },
    Fault {
        name: "watch-checked-at-multi",
        what: "MULTI, not EXEC, checks whether a watched key has changed",
        found_by: &[
            "A change between MULTI and EXEC aborts as well",
            "EXEC detects every change since WATCH, even after MULTI",
        ],
        run: Some(watch_checked_at_multi),
        ..Fault::NONE
    },
    Fault {
        name: "watch-misses-the-end",
        what: "WATCH does not notice that the key was deleted or has expired",
        found_by: &["Deletion is a change", "Expiry is a change"],
        run: Some(watch_misses_the_end),
        ..Fault::NONE
    },
    Fault {
        name: "watch-misses-own-changes",
        what: "WATCH does not notice changes of the client itself before MULTI",
        found_by: &["A client's own change before MULTI aborts as well"],
        run: Some(watch_misses_own_changes),
        ..Fault::NONE
    },
    Fault {
        name: "watch-compares-values",
        what: "WATCH does not notice a changed key that has its old value again",
        found_by: &[
            "Setting the same value again is a change",
            "Deletion and re-creation with the same value is a change",
        ],
        run: Some(watch_compares_values),
        ..Fault::NONE
    },
    Fault {
        name: "broken-exec-is-empty",
        what: "EXEC replies an empty array if a watched key has changed",
        found_by: &["An aborted EXEC differs from an empty EXEC"],
        run: Some(broken_exec_is_empty),
        ..Fault::NONE
    },
    Fault {
        name: "exec-after-an-error",
        what: "EXEC runs the rest when a command could not be queued",
        found_by: &[
            "An unknown command aborts the transaction",
            "A wrong number of arguments aborts the transaction",
        ],
        run: Some(exec_after_an_error),
        ..Fault::NONE
    },
    Fault {
        name: "exec-keeps-watching",
        what: "EXEC does not end the watches",
        found_by: &["EXEC ends all watches, with any result"],
        run: Some(exec_keeps_watching),
        ..Fault::NONE
    },
];

fn state<'a>(server: &'a mut FaultyEngine, request: &Request) -> Option<&'a mut Session> {
    server.engine.sessions.get_mut(request.client)
}

fn is_watch_broken(server: &FaultyEngine, request: &Request) -> bool {
    server.engine.is_watch_broken(request.client, server.now())
}

fn exec_lets_others_in(server: &mut FaultyEngine, request: &Request) -> Answer {
    let broken = is_watch_broken(server, request);
    let ready = |client: &mut Session| {
        let queued = client.transaction.take_if(|queued| !queued.broken && !broken)?;
        Some(queued.queue.into_iter().map(|queued| queued.argv).collect::<Vec<_>>())
    };
    let queue = request.is("exec").then(|| state(server, request).and_then(ready)).flatten();
    let Some(queue) = queue else { return server.run(request) };
    server.engine.unwatch(request.client);
    let mut replies = Vec::new();
    for argv in queue {
        replies.push(server.run_as(request, &argv).reply());
        server.serve_for(PAUSE);
    }
    server.answer(request, &Reply::Array(replies))
}

fn watch_checked_at_multi(server: &mut FaultyEngine, request: &Request) -> Answer {
    if request.is("multi") {
        let broken = is_watch_broken(server, request);
        server.engine.unwatch(request.client);
        if let Some(state) = state(server, request) {
            state.watch_broken = broken;
        }
    }
    server.run(request)
}

fn watch_misses_the_end(server: &mut FaultyEngine, request: &Request) -> Answer {
    if request.is("exec") && is_watch_broken(server, request) {
        let watched = state(server, request).map(|state| state.watched.clone());
        let keys: Vec<_> = watched.into_iter().flatten().map(|watched| watched.key).collect();
        if keys.iter().all(|key| server.number(request, &[b"EXISTS", key]) == 0) {
            server.engine.unwatch(request.client);
        }
    }
    server.run(request)
}

fn watch_misses_own_changes(server: &mut FaultyEngine, request: &Request) -> Answer {
    let broken = is_watch_broken(server, request);
    let answer = server.run(request);
    if let Some(state) = state(server, request)
        && !request.is_any(&["exec", "discard", "unwatch"])
    {
        state.watch_broken = broken;
    }
    answer
}

/// The notes hold checksums of the watched values.
fn watch_compares_values(server: &mut FaultyEngine, request: &Request) -> Answer {
    let value = |server: &mut FaultyEngine, key: &[u8]| match server
        .run_separately(request, &[b"GET", key])
    {
        Reply::Bulk(value) => {
            value.iter().fold(7, |sum, &byte| sum * 31 % 1_000_003 + i64::from(byte))
        }
        _ => 0,
    };
    if request.is("watch") {
        for key in &request.argv[1..] {
            let now = value(server, key);
            server.notes.insert(key.clone(), now);
        }
    } else if request.is("exec") {
        let watched = state(server, request).map(|state| state.watched.clone());
        let keys: Vec<_> = watched.into_iter().flatten().map(|watched| watched.key).collect();
        let mut same = |key: &[u8]| server.notes.get(key).copied() == Some(value(server, key));
        if keys.iter().all(|key| same(key)) {
            server.engine.unwatch(request.client);
        }
    }
    server.run(request)
}

fn broken_exec_is_empty(server: &mut FaultyEngine, request: &Request) -> Answer {
    let broken = request.is("exec") && is_watch_broken(server, request);
    let answer = server.run(request);
    match answer.reply() {
        Reply::Null | Reply::NullArray if broken => {
            server.answer(request, &Reply::Array(Vec::new()))
        }
        _ => answer,
    }
}

fn exec_after_an_error(server: &mut FaultyEngine, request: &Request) -> Answer {
    if request.is("exec")
        && let Some(queued) = state(server, request).and_then(|state| state.transaction.as_mut())
    {
        queued.broken = false;
    }
    server.run(request)
}

fn exec_keeps_watching(server: &mut FaultyEngine, request: &Request) -> Answer {
    let watched = state(server, request).map(|state| state.watched.clone());
    let answer = server.run(request);
    if request.is("exec") {
        for watched in watched.into_iter().flatten() {
            server.engine.watch(request.client, watched.database, &watched.key, server.now());
        }
    }
    answer
}
