//! Redlock: a lock on a majority of independent servers.
//!
//! The algorithm is the one in the documentation of Redis ("Distributed locks with Redis"): the
//! client sets the key on all servers in turn. It holds the lock if a majority granted it and the
//! lease is not over; the lease counts from the start, without a hundredth and two milliseconds for
//! the difference of the clocks. Otherwise it deletes the key everywhere.

use lockwheel_compat::judge::history::{Action, Answer, Event};
use lockwheel_compat::wire::Wire;

use super::client::{LockClient, Request, shown};
use crate::clock::now_us;
use crate::record::Record;
use crate::route::{Call, Route};

/// The part of the lease that the difference of two clocks may take.
const DRIFT_DIVISOR: i64 = 100;
/// The rest of that time: Redis counts in milliseconds.
const DRIFT_MORE_US: i64 = 2_000;

/// Asks a majority of servers.
pub(super) struct RedlockClient(pub(super) Vec<Route>);

/// What the servers answered.
#[derive(Default)]
struct Votes {
    granted: usize,
    refused: usize,
    released: usize,
    not_owner: usize,
    record: Option<Record>,
}

impl LockClient for RedlockClient {
    fn perform(&mut self, request: Request<'_>) -> Option<Record> {
        let votes = self.ask(request);
        let majority = self.0.len() / 2 + 1;
        let mut record = votes.record?;
        if request.loses_reply {
            record.reply = "no reply: the client closed the connections".to_owned();
            return Some(record);
        }
        let at_us = now_us();
        let (answer, is_final) = match request.action {
            Action::Acquire { ttl_us, .. } | Action::Renew { ttl_us } => {
                let valid_us = ttl_us - ttl_us / DRIFT_DIVISOR - DRIFT_MORE_US;
                record.event.action = with_lease(request.action, valid_us);
                if votes.granted >= majority && at_us < record.event.invoked_us + valid_us {
                    (Answer::Granted, true)
                } else if votes.not_owner >= majority {
                    (Answer::NotOwner, true)
                } else {
                    if matches!(request.action, Action::Acquire { .. }) {
                        self.ask(Request { action: Action::Release { ttl_us: None }, ..request });
                    }
                    (Answer::Unknown, votes.granted + votes.refused == self.0.len())
                }
            }
            Action::Release { .. } if votes.released >= majority => (Answer::Released, true),
            // Otherwise a server may have deleted the key because of this request.
            Action::Release { .. } if votes.not_owner == self.0.len() => (Answer::NotOwner, true),
            Action::Release { .. } => (Answer::Unknown, false),
        };
        record.reply = format!(
            "{} of {} servers: {answer}",
            votes.granted.max(votes.released).max(votes.not_owner),
            self.0.len()
        );
        record.event.answer = answer;
        record.event.returned_us = is_final.then(now_us);
        Some(record)
    }

    fn subscribe(&self, _: &str) -> Option<Wire> {
        None
    }

    fn ended_connections(&self) -> u64 {
        self.0.iter().map(Route::ended).sum()
    }
}

impl RedlockClient {
    /// Sends a request to all servers in turn.
    fn ask(&mut self, request: Request<'_>) -> Votes {
        let Request { kind, lock, owner, action, .. } = request;
        let mut votes = Votes::default();
        let Some(words) = (kind.recipe.words)(lock, owner, action) else { return votes };
        let invoked_us = now_us();
        for route in &mut self.0 {
            let call = match request.loses_reply {
                true => route.call_without_reply(lock, &words),
                false => route.call(lock, &words),
            };
            if !call.was_sent {
                continue;
            }
            // Servers that refuse a lock prove nothing about its holder.
            let record = votes.record.get_or_insert_with(|| Record {
                event: Event::asked(lock, owner, action, invoked_us),
                kind: kind.name,
                servers: Vec::new(),
                request: shown(&words),
                reply: String::new(),
            });
            let answer = answer(&call, request);
            if let Some(Answer::Granted | Answer::NotOwner) = answer {
                record.servers.extend(call.server);
            }
            match answer {
                Some(Answer::Granted) => votes.granted += 1,
                Some(Answer::Refused { .. }) => votes.refused += 1,
                Some(Answer::Released) => votes.released += 1,
                Some(Answer::NotOwner) => votes.not_owner += 1,
                _ => {}
            }
        }
        votes
    }
}

fn answer(call: &Call, request: Request<'_>) -> Option<Answer> {
    let reply = call.reply.as_ref().ok()?;
    Some((request.kind.recipe.meaning)(request.action, reply)?.0)
}

fn with_lease(action: Action, ttl_us: i64) -> Action {
    match action {
        Action::Acquire { shared, .. } => Action::Acquire { ttl_us, shared },
        Action::Renew { .. } => Action::Renew { ttl_us },
        release @ Action::Release { .. } => release,
    }
}
