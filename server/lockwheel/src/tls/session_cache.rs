//! The sessions that clients may resume, which saves most of the work of a handshake.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::server::StoresServerSessions;

use crate::clock;

/// Sessions up to a number and an age. The oldest make room for new ones.
#[derive(Debug)]
pub(super) struct SessionCache {
    sessions_max: usize,
    age_max_ns: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<Vec<u8>, Session>,
    /// The keys with the times of their sessions, the oldest first. Those of sessions that were
    /// taken or replaced are skipped.
    order: VecDeque<(u64, Vec<u8>)>,
}

#[derive(Debug)]
struct Session {
    begin_ns: u64,
    value: Vec<u8>,
}

impl SessionCache {
    /// A cache of at most `sessions_max` sessions that are used for `age_max`.
    pub(super) fn new(sessions_max: usize, age_max: Duration) -> SessionCache {
        let age_max_ns = u64::try_from(age_max.as_nanos()).unwrap_or(u64::MAX);
        SessionCache { sessions_max, age_max_ns, state: Mutex::default() }
    }

    fn is_fresh(&self, begin_ns: u64, now_ns: u64) -> bool {
        now_ns.saturating_sub(begin_ns) < self.age_max_ns
    }

    fn put_at(&self, now_ns: u64, key: Vec<u8>, value: Vec<u8>) {
        let mut state = self.state.lock();
        let State { sessions, order } = &mut *state;
        while let Some((begin_ns, oldest)) = order.front() {
            if order.len() < self.sessions_max && self.is_fresh(*begin_ns, now_ns) {
                break;
            }
            if sessions.get(oldest).is_some_and(|session| session.begin_ns == *begin_ns) {
                sessions.remove(oldest);
            }
            order.pop_front();
        }
        order.push_back((now_ns, key.clone()));
        sessions.insert(key, Session { begin_ns: now_ns, value });
    }

    fn get_at(&self, now_ns: u64, key: &[u8]) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let session = state.sessions.get(key)?;
        self.is_fresh(session.begin_ns, now_ns).then(|| session.value.clone())
    }

    fn take_at(&self, now_ns: u64, key: &[u8]) -> Option<Vec<u8>> {
        let session = self.state.lock().sessions.remove(key)?;
        self.is_fresh(session.begin_ns, now_ns).then_some(session.value)
    }
}

impl StoresServerSessions for SessionCache {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.put_at(clock::monotonic_ns(), key, value);
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get_at(clock::monotonic_ns(), key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.take_at(clock::monotonic_ns(), key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn put(cache: &SessionCache, second: u64, key: u8) {
        cache.put_at(second * SECOND_NS, vec![key], vec![key, key]);
    }

    #[test]
    fn old_sessions_are_not_used() {
        let cache = SessionCache::new(10, Duration::from_secs(5));
        put(&cache, 0, 1);
        assert_eq!(cache.get_at(4 * SECOND_NS, &[1]), Some(vec![1, 1]));
        assert_eq!(cache.get_at(5 * SECOND_NS, &[1]), None);
        put(&cache, 6, 2);
        assert_eq!(cache.state.lock().sessions.len(), 1);
        assert_eq!(cache.take_at(6 * SECOND_NS, &[2]), Some(vec![2, 2]));
        assert_eq!(cache.take_at(6 * SECOND_NS, &[2]), None);
    }

    #[test]
    fn oldest_sessions_make_room() {
        let cache = SessionCache::new(3, Duration::from_secs(1000));
        for key in 0..100 {
            put(&cache, key.into(), key);
            // A client comes back with a new session.
            put(&cache, key.into(), 200);
        }
        let state = cache.state.lock();
        assert!(state.order.len() <= 3 && state.sessions.len() <= 3);
        assert!(state.sessions.contains_key(&[99][..]) && state.sessions.contains_key(&[200][..]));
    }
}
