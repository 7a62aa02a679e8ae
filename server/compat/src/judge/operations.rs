//! Writes histories as operations, for judges that are other programs. The end of a lease is an
//! operation, too: it happens at some time of an interval.
//!
//! ```text
//! {"lock":"l","kind":"lock","reentrant":false,"permits":1,"fair":false}
//! {"lock":"l","client":"a","kind":"acquire","lease":0,"call":100,"return":250,"result":"granted"}
//! {"lock":"l","client":"a","kind":"end","lease":0,"call":30100,"return":30250}
//! ```
//!
//! A line `lock` has the rules of the lock whose operations follow; `fair` is that a free lock may
//! be refused, since it is the turn of another client. The other lines have the fields of
//! [`Event`], and times in microseconds. `lease` is the number of the lease that the operation
//! starts, if it succeeds; `end` is its end. An operation without `return` may happen at any time
//! after its call. One with the result `unknown` happened in its interval or never; an `end`
//! happens in its interval if the client holds the lock by that lease then.

use std::io::{self, Write};

use serde::Serialize;

use super::Rules;
use super::history::{Action, Answer, Event};

/// The end of a lease after which none is awaited.
const NEVER_US: i64 = i64::MAX / 8;

#[derive(Serialize)]
struct Lock<'a> {
    lock: &'a str,
    kind: &'static str,
    reentrant: bool,
    permits: usize,
    fair: bool,
}

#[derive(Clone, Default, Serialize)]
struct Operation<'a> {
    lock: &'a str,
    client: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shared: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<usize>,
    #[serde(rename = "call")]
    call_us: i64,
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    return_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<i64>,
}

/// Writes the history of one lock, which gets this name.
pub fn write(out: &mut impl Write, lock: &str, events: &[Event], rules: Rules) -> io::Result<()> {
    let Rules { reentrant, permits, fair, .. } = rules;
    line(out, &Lock { lock, kind: "lock", reentrant, permits, fair })?;
    for (number, event) in events.iter().enumerate() {
        let (kind, shared, ttl_us) = match event.action {
            Action::Acquire { ttl_us, shared } => ("acquire", shared, Some(ttl_us)),
            Action::Renew { ttl_us } => ("renew", false, Some(ttl_us)),
            Action::Release { ttl_us } => ("release", false, ttl_us),
        };
        let result = match event.answer {
            Answer::Granted => "granted",
            Answer::Refused { .. } => "refused",
            Answer::Released => "released",
            Answer::Kept => "kept",
            Answer::NotOwner => "not-owner",
            Answer::Unknown => "unknown",
        };
        let starts = matches!(result, "granted" | "kept" | "unknown");
        let ttl_us = ttl_us.filter(|_| starts);
        let operation = Operation {
            lock,
            client: &event.client,
            kind,
            shared,
            lease: ttl_us.map(|_| number),
            call_us: event.invoked_us,
            return_us: event.returned_us,
            result: Some(result),
            token: event.token,
            count: event.count,
        };
        line(out, &operation)?;
        if let Some(ttl_us) = ttl_us {
            let earliest_us = rules.earliest_end_us(event.invoked_us, ttl_us);
            let latest_us = event.returned_us.map(|us| rules.latest_end_us(us, ttl_us));
            let end = Operation {
                kind: "end",
                shared: false,
                call_us: earliest_us.max(event.invoked_us),
                return_us: latest_us.filter(|latest_us| *latest_us < NEVER_US),
                result: None,
                token: None,
                count: None,
                ..operation
            };
            line(out, &end)?;
        }
    }
    Ok(())
}

fn line(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::judge::Rules;
    use crate::judge::history::read;

    #[test]
    fn ends_of_leases_are_operations_with_intervals() {
        let text = "\
100..250 l a acquire shared 30ms granted token 7
300..400 l b acquire 30ms refused 29ms
500..? l a renew 1s unknown
600..700 l a release released count 0
";
        let rules = Rules { late_us: 5, early_us: 10, ..Rules::LOCK };
        let mut out = Vec::new();
        write(&mut out, "l", &read(text).expect("well-formed"), rules).expect("memory");
        let expected = "
{lock:l,kind:lock,reentrant:false,permits:1,fair:false}
{lock:l,client:a,kind:acquire,shared:true,lease:0,call:100,return:250,result:granted,token:7}
{lock:l,client:a,kind:end,lease:0,call:30090,return:30255}
{lock:l,client:b,kind:acquire,call:300,return:400,result:refused}
{lock:l,client:a,kind:renew,lease:2,call:500,result:unknown}
{lock:l,client:a,kind:end,lease:2,call:1000490}
{lock:l,client:a,kind:release,call:600,return:700,result:released,count:0}
";
        assert_eq!(String::from_utf8_lossy(&out).replace('"', ""), expected.trim_start());
    }
}
