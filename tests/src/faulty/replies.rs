//! Faults of single commands and of the form of replies.

use std::time::Duration;

use lockwheel_engine::Flow;
use lockwheel_resp::Reply;

use super::{Answer, FaultyEngine, Request, SeededFault};

/// How long to wait for a second request.
const PIPELINE: Duration = Duration::from_millis(2);
/// The delay of the replies of [`SLOW`]: a usual reply takes less than one millisecond.
const SLOWNESS: Duration = Duration::from_millis(100);

pub(super) const FAULTS: &[SeededFault] = &[
    SeededFault {
        name: "set-nx-twice",
        description: "one in 64 refused SET NX replies OK",
        found_by: &["A lock of SET NX PX is never held by two clients"],
        run: Some(set_nx_twice),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "setnx-overwrites",
        description: "SETNX overwrites the value and replies 0",
        found_by: &["SETNX returns 1 or 0", "SETNX gives the lock to the first client"],
        run: Some(setnx_overwrites),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "del-counts-nothing",
        description: "DEL of a missing key replies 1",
        found_by: &["DEL returns the number of keys removed"],
        also: &[
            "An expired key is missing for every command",
            "A string lock sends keyspace notifications",
        ],
        run: Some(del_counts_nothing),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "options-in-capitals",
        description: "option words are understood in capitals only",
        found_by: &["SET NX PX accepts its options in any order and case"],
        run: Some(options_in_capitals),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "incr-wraps",
        description: "INCR of the greatest number gives the least one",
        found_by: &["INCR refuses an overflow and changes nothing"],
        run: Some(incr_wraps),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "old-null",
        description: "a null of RESP3 is sent as that of RESP2",
        found_by: &["Null is one type in RESP3 and two in RESP2"],
        also: &[
            "An aborted EXEC differs from an empty EXEC",
            "A change between MULTI and EXEC aborts as well",
            "A null array becomes false in Lua",
            "A null reply becomes false in Lua",
            "Deletion and re-creation with the same value is a change",
            "Deletion is a change",
            "EXEC ends all watches, with any result",
            "EXPIRE of zero or less deletes at once",
            "A client's own change before MULTI aborts as well",
            "Setting the same value again is a change",
            "Expiry is a change",
            "The script is loaded once and called by its digest",
            "An expired key is missing for every command",
            "A refused SET NX keeps the value and the lease",
            "An empty script returns null",
            "Expiry sends a notification",
        ],
        run: Some(old_null),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "flat-maps",
        description: "a map of RESP3 is sent as a flat array",
        found_by: &["HELLO 3 returns a map and switches to RESP3"],
        run: Some(flat_maps),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "wrongtype-is-err",
        description: "errors about a key's type begin with ERR in the place of WRONGTYPE",
        found_by: &["GET and related commands refuse a hash", "Hash commands refuse a string"],
        also: &["A WRONGTYPE error stops the script"],
        run: Some(wrongtype_is_err),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "pipeline-out-of-order",
        description: "of two requests sent at once the second is answered first",
        found_by: &["Pipelined requests are answered in order"],
        also: &["In RESP3 pipelined messages and replies keep their order"],
        run: Some(pipeline_out_of_order),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "hset-counts-updates",
        description: "HSET counts fields that were there already",
        found_by: &["HSET returns the number of new fields"],
        run: Some(hset_counts_updates),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "del-counts-some",
        description: "one in five DEL of a missing key replies 1",
        found_by: &[
            "Every repetition of a lock command gets the right reply",
            "Each release of a lock is reported to one client",
        ],
        run: Some(del_counts_some),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "get-misses-some",
        description: "one in 100 GET of a key replies nil",
        found_by: &["Every repetition of a lock command gets the right reply"],
        run: Some(get_misses_some),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "incr-loses-some",
        description: "one in 100 INCR replies the next number and changes nothing",
        found_by: &["Every repetition of a lock command gets the right reply"],
        run: Some(incr_loses_some),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "set-xx-creates",
        description: "SET XX creates a missing key",
        found_by: &["SET XX writes only an existing key"],
        also: &["An expired key is missing for every command"],
        run: Some(set_xx_creates),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "getdel-keeps-the-key",
        description: "GETDEL does not delete the key",
        found_by: &["GETDEL returns the value and removes the key"],
        run: Some(|server, request| renamed(server, request, "getdel", "GET")),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "unlink-keeps-the-key",
        description: "UNLINK counts keys and deletes none",
        found_by: &["UNLINK removes keys like DEL"],
        run: Some(|server, request| renamed(server, request, "unlink", "EXISTS")),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "msetnx-writes-some",
        description: "MSETNX writes the missing keys if another key exists",
        found_by: &["MSETNX writes all keys or none"],
        run: Some(msetnx_writes_some),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "hsetnx-overwrites",
        description: "HSETNX overwrites the field and replies 0",
        found_by: &["HSETNX sets a field only once"],
        run: Some(hsetnx_overwrites),
        ..SeededFault::NONE
    },
    SeededFault {
        name: "exists-counts-once",
        description: "EXISTS counts a key once that is named twice",
        found_by: &["EXISTS counts keys, and a repeated key as often as it is named"],
        run: Some(exists_counts_once),
        ..SeededFault::NONE
    },
];

fn set_nx_twice(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    let refused = request.is("set") && request.option("nx").is_some();
    if refused && matches!(answer.reply(), Reply::Null) && server.once_in(64) {
        return server.answer(request, &Reply::OK);
    }
    answer
}

fn setnx_overwrites(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    if request.is("setnx") && answer.reply() == Reply::Integer(0) {
        server.run_separately(request, &[b"SET", &request.argv[1][..], &request.argv[2]]);
    }
    answer
}

fn del_counts_nothing(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    if request.is("del") && answer.reply() == Reply::Integer(0) {
        return server.answer(request, &Reply::Integer(1));
    }
    answer
}

fn options_in_capitals(server: &mut FaultyEngine, request: &Request) -> Answer {
    let mut options = request.argv.iter().skip(3);
    let small = options.any(|word| [&b"nx"[..], b"px", b"ex", b"xx"].contains(&&word[..]));
    if request.is("set") && small {
        return server.answer(request, &Reply::error("ERR syntax error"));
    }
    server.run(request)
}

fn incr_wraps(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    let overflows = answer.reply() == Reply::error("ERR increment or decrement would overflow");
    if request.is("incr") && overflows {
        let least = i64::MIN.to_string().into_bytes();
        server.run_separately(request, &[b"SET", &request.argv[1][..], &least, b"KEEPTTL"]);
        return server.answer(request, &Reply::Integer(i64::MIN));
    }
    answer
}

fn old_null(server: &mut FaultyEngine, request: &Request) -> Answer {
    let mut answer = server.run(request);
    if answer.bytes[..] == *b"_\r\n" {
        answer.bytes = b"$-1\r\n"[..].into();
    }
    answer
}

fn flat_maps(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            server.answer(request, &Reply::Array(flat.collect()))
        }
        _ => answer,
    }
}

fn wrongtype_is_err(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Error(line) if line.starts_with(b"WRONGTYPE") => {
            let line = String::from_utf8_lossy(&line).replacen("WRONGTYPE", "ERR", 1);
            server.answer(request, &Reply::error(line))
        }
        _ => answer,
    }
}

fn pipeline_out_of_order(server: &mut FaultyEngine, request: &Request) -> Answer {
    let simple = |request: &Request| request.is_any(&["get", "set", "incr", "ping", "echo"]);
    if simple(request) {
        // Requests sent together have arrived by then.
        server.serve_for(PIPELINE);
    }
    let next = simple(request).then(|| server.take_pipelined(request.client)).flatten();
    let mut first = server.run(request);
    if let Some(next) = next {
        let second = server.run(&next);
        if second.flow != Flow::Next || !simple(&next) {
            first.bytes.extend_from_slice(&second.bytes);
            return Answer { bytes: first.bytes, flow: second.flow };
        }
        let bytes = [&second.bytes[..], &first.bytes].concat();
        first.bytes = bytes[..].into();
    }
    first
}

fn hset_counts_updates(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Integer(_) if request.is("hset") => {
            let fields = i64::try_from((request.argv.len() - 2) / 2).unwrap_or(0);
            server.answer(request, &Reply::Integer(fields))
        }
        _ => answer,
    }
}

/// A fault that delays each reply: a server that is 100 times slower than others, and correct.
pub const SLOW: SeededFault = SeededFault {
    name: "slow",
    description: "each reply takes 100 ms",
    run: Some(slow),
    ..SeededFault::NONE
};

fn slow(server: &mut FaultyEngine, request: &Request) -> Answer {
    let mut answer = server.run(request);
    server.send_later(request.client, &answer.bytes, SLOWNESS);
    answer.bytes.clear();
    answer
}

fn del_counts_some(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    if request.is("del") && answer.reply() == Reply::Integer(0) && server.once_in(5) {
        return server.answer(request, &Reply::Integer(1));
    }
    answer
}

fn get_misses_some(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    match answer.reply() {
        Reply::Bulk(_) if request.is("get") && server.once_in(100) => {
            server.answer(request, &Reply::Null)
        }
        _ => answer,
    }
}

fn incr_loses_some(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    if request.is("incr") && !answer.reply().is_error() && server.once_in(100) {
        server.run_separately(request, &[b"DECR", &request.key()]);
    }
    answer
}

fn set_xx_creates(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    let at = request.option("xx").filter(|at| *at > 2 && request.is("set"));
    match (at, answer.reply()) {
        (Some(at), Reply::Null) => {
            let mut argv = request.argv.clone();
            argv.remove(at);
            server.run_as(request, &argv)
        }
        _ => answer,
    }
}

/// Runs another command in the place of this one.
fn renamed(server: &mut FaultyEngine, request: &Request, name: &str, other: &str) -> Answer {
    if !request.is(name) || request.argv.len() < 2 {
        return server.run(request);
    }
    let mut argv = request.argv.clone();
    argv[0] = other.into();
    server.run_as(request, &argv)
}

fn msetnx_writes_some(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    if request.is("msetnx") && answer.reply() == Reply::Integer(0) {
        for pair in request.argv[1..].chunks_exact(2) {
            server.run_separately(request, &[b"SETNX", &pair[0], &pair[1]]);
        }
    }
    answer
}

fn hsetnx_overwrites(server: &mut FaultyEngine, request: &Request) -> Answer {
    let answer = server.run(request);
    if request.is("hsetnx") && answer.reply() == Reply::Integer(0) {
        let words = [&request.argv[1][..], &request.argv[2], &request.argv[3]];
        server.run_separately(request, &[&[&b"HSET"[..]], &words[..]].concat());
    }
    answer
}

fn exists_counts_once(server: &mut FaultyEngine, request: &Request) -> Answer {
    let mut argv = request.argv.clone();
    if request.is("exists") && argv.len() > 1 {
        argv[1..].sort();
        argv.dedup();
    }
    server.run_as(request, &argv)
}
