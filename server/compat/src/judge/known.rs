//! Tests of both judges: histories with known verdicts, and simulated histories of a correct lock,
//! which pass until one event is changed so that a rule is violated.

use proptest::prelude::*;

use super::entitlement;
use super::history::{Action, Answer, Event, read, write};
use super::linear::{Budget, Linear};
use super::lock;
use super::rules::Rules;
use super::violation::{Violation, ViolationKind};
use crate::random::Random;

const STEPS: u64 = 200_000;

/// Checks the verdicts of both judges: the first violation, and whether a linear order exists.
fn check(name: &str, rules: Rules, text: &str, violation: &str, is_linear: bool) {
    let events = read(text).expect(name);
    let violations = entitlement::judge(&events, rules);
    let first = violations.first().map(|violation| format!("{:?}", violation.kind));
    assert_eq!(first.as_deref().unwrap_or("none"), violation, "{name}: {violations:?}");
    let linear = lock::judge(&events, rules, &mut Budget::steps(STEPS));
    assert_ne!(linear, Linear::Unknown, "{name}");
    assert_eq!(linear == Linear::Legal, is_linear, "{name}: {linear:?}");
}

#[test]
fn known_histories_get_known_verdicts() {
    let (_, histories) = include_str!("known.txt").split_once("\n== ").expect("some");
    let mut count = 0;
    for history in histories.split("\n== ") {
        let mut lines = history.lines().filter(|line| !line.starts_with('#')).peekable();
        let name = lines.next().unwrap_or_default();
        let reentrant = lines.next_if(|line| *line == "rules: reentrant").is_some();
        let mut attribute = |start| lines.next().and_then(|line| line.strip_prefix(start));
        let violation = attribute("violation: ").expect(name);
        let is_linear = attribute("order: ").expect(name) == "yes";
        let text: Vec<_> = lines.collect();
        let rules = Rules { reentrant, ..Rules::LOCK };
        check(name, rules, &text.join("\n"), violation, is_linear);
        count += 1;
    }
    assert!(count > 50, "{count}");
}

#[test]
fn tokens_turns_and_sharing_are_checked() {
    let check = |rules: Rules, text: &str, expected: Option<ViolationKind>| {
        let violations = entitlement::judge(&read(text).expect(text), rules);
        let kinds: Vec<_> = violations.iter().map(|violation| violation.kind).collect();
        assert_eq!(kinds.first().copied(), expected, "{text}: {violations:?}");
    };
    let token = |first: i64, second: i64, between_us: i64| {
        format!(
            "0..10 l a acquire 9ms granted token {first}\n10..20 l a release released\n\
             {between_us}..90 l b acquire 9ms granted token {second}"
        )
    };
    check(Rules::LOCK, &token(1, 2, 30), None);
    check(Rules::LOCK, &token(2, 1, 30), Some(ViolationKind::Token));
    check(Rules::LOCK, &token(1, 1, 30), Some(ViolationKind::Token));
    check(Rules::LOCK, &token(2, 1, 5), None);
    let fair = Rules { fair: true, ..Rules::LOCK };
    let queue = "0..1 l a acquire 9ms granted\n10..20 l b acquire 9ms refused\n\
                 30..40 l c acquire 9ms refused\n50..60 l a release released\n";
    check(fair, &format!("{queue}70..80 l b acquire 9ms granted"), None);
    let passed = format!("{queue}70..80 l c acquire 9ms granted\n90..95 l b acquire 9ms refused");
    check(fair, &passed, Some(ViolationKind::OutOfTurn));
    check(fair, &format!("{queue}70..80 l c acquire 9ms granted"), None);
    let again =
        queue.replace("50..60", "45..48 l a acquire 9ms granted\n49..50 l a release kept\n50..60");
    check(Rules { reentrant: true, ..fair }, &again, None);
    let later = "70..80 l d acquire 9ms granted\n90..95 l b acquire 9ms refused";
    check(fair, &format!("{queue}{later}"), Some(ViolationKind::OutOfTurn));
    let at_once = queue.replace("30..40", "15..40");
    check(
        fair,
        &format!("{at_once}70..80 l c acquire 9ms granted\n90..95 l b acquire 1ms refused"),
        None,
    );
    let shared = Rules { reentrant: true, ..Rules::LOCK };
    let readers = "0..10 l a acquire shared 9ms granted\n20..30 l b acquire shared 9ms granted\n";
    check(shared, readers, None);
    check(
        shared,
        &format!("{readers}40..50 l c acquire 9ms granted"),
        Some(ViolationKind::DoubleGrant),
    );
    let writer = "0..10 l a acquire 9ms granted\n20..30 l b acquire shared 9ms granted\n";
    check(shared, writer, Some(ViolationKind::DoubleGrant));
    let two = Rules { permits: 2, ..Rules::LOCK };
    let three = "0..10 l a acquire 9ms granted\n20..30 l b acquire 9ms granted\n\
                 40..50 l c acquire 9ms granted\n";
    check(two, &three[..three.len() - 31], None);
    check(two, three, Some(ViolationKind::DoubleGrant));
    let prompt = Rules { idle_us: Some(100), ..Rules::LOCK };
    let woken = "0..10 l a acquire 9ms granted\n20..50 l a release released\n";
    check(prompt, &format!("{woken}20..150 l b acquire 9ms granted"), None);
    check(
        prompt,
        &format!("{woken}20..151 l b acquire 9ms granted"),
        Some(ViolationKind::LostWakeUp),
    );
    check(
        prompt,
        &format!("{woken}20..999 l b acquire 9ms refused"),
        Some(ViolationKind::LostWakeUp),
    );
    let ended = "0..10 l a acquire 1ms granted\n";
    check(prompt, &format!("{ended}20..1110 l b acquire 9ms granted"), None);
    check(
        prompt,
        &format!("{ended}20..1111 l b acquire 9ms granted"),
        Some(ViolationKind::LateFree),
    );
}

#[test]
fn clocks_may_differ_by_the_drift_of_the_rules() {
    let text = "0..10 l a acquire 1s granted\n999000..999900 l b acquire 1s granted";
    let drift = Rules { drift_ppm: 200, ..Rules::LOCK };
    check("without drift", Rules::LOCK, text, "DoubleGrant", false);
    check("with drift", drift, text, "none", true);
    let text = "0..10 l a acquire 1ms granted\n2010..2020 l b acquire 1ms refused";
    let late = Rules { late_us: 1000, ..Rules::LOCK };
    check("not late", Rules::LOCK, text, "LateFree", false);
    check("may be late", late, text, "none", true);
}

/// Simulates a correct lock and clients with random requests. Each answer is correct at one moment
/// between the request and its return.
fn simulate(seed: u64, count: usize, rules: Rules) -> Vec<Event> {
    let mut random = Random::new(seed);
    let mut lock = SimulatedLock { rules, holder: None, clock_us: 0, unanswered: Vec::new() };
    let mut free_at_us = [0_i64; 5];
    let mut events = Vec::new();
    while events.len() < count {
        lock.clock_us += random.between(1, 300);
        lock.apply_unanswered();
        let number = random.below(free_at_us.len() as u64) as usize;
        let before_us = lock.clock_us - free_at_us[number];
        if before_us <= 0 {
            continue;
        }
        let invoked_us = lock.clock_us - random.between(0, (before_us - 1).min(200));
        let action = match random.below(4) {
            0 | 1 => Action::Acquire { ttl_us: random.between(1, 1500), shared: false },
            2 => Action::Renew { ttl_us: random.between(1, 1500) },
            _ => Action::Release { ttl_us: None },
        };
        let event = Event::asked("l", &format!("c{number}"), action, invoked_us);
        if random.once_in(20) {
            let at_us = lock.clock_us + random.between(0, 500);
            if random.once_in(2) {
                lock.unanswered.push((at_us, number, action));
            }
            events.push(event);
            free_at_us[number] = lock.clock_us;
            continue;
        }
        let (answer, count) = lock.request(number, action);
        let returned_us = lock.clock_us + random.between(0, 200);
        free_at_us[number] = returned_us;
        events.push(Event { count, ..event.answered(answer, returned_us) });
    }
    events
}

struct SimulatedLock {
    rules: Rules,
    /// The client, its number of holds, and the end of its lease in microseconds.
    holder: Option<(usize, i64, i64)>,
    clock_us: i64,
    /// Requests without a reply that take effect later: the time in microseconds, the client, and
    /// the action.
    unanswered: Vec<(i64, usize, Action)>,
}

impl SimulatedLock {
    /// Applies unanswered requests whose time has come.
    fn apply_unanswered(&mut self) {
        let now_us = self.clock_us;
        self.unanswered.sort_by_key(|&(at_us, ..)| at_us);
        while let Some(&(at_us, number, action)) = self.unanswered.first()
            && at_us <= now_us
        {
            self.unanswered.remove(0);
            self.clock_us = at_us;
            self.request(number, action);
        }
        self.clock_us = now_us;
    }

    fn request(&mut self, client: usize, action: Action) -> (Answer, Option<i64>) {
        let now_us = self.clock_us;
        self.holder = self.holder.filter(|&(_, _, end_us)| now_us < end_us);
        let own = self.holder.filter(|&(holder, ..)| holder == client);
        match (action, self.holder, own) {
            (Action::Acquire { ttl_us, .. }, None, _) => {
                self.holder = Some((client, 1, now_us + ttl_us));
                (Answer::Granted, Some(1))
            }
            (Action::Acquire { ttl_us, .. }, _, Some((_, count, _))) if self.rules.reentrant => {
                self.holder = Some((client, count + 1, now_us + ttl_us));
                (Answer::Granted, Some(count + 1))
            }
            (Action::Acquire { .. }, Some((.., end_us)), _) => {
                (Answer::Refused { remaining_us: Some(end_us - now_us) }, None)
            }
            (Action::Renew { ttl_us }, _, Some((_, count, _))) => {
                self.holder = Some((client, count, now_us + ttl_us));
                (Answer::Granted, Some(count))
            }
            (Action::Release { .. }, _, Some((_, 1, _))) => {
                self.holder = None;
                (Answer::Released, Some(0))
            }
            (Action::Release { .. }, _, Some((_, count, end_us))) => {
                self.holder = Some((client, count - 1, end_us));
                (Answer::Kept, Some(count - 1))
            }
            _ => (Answer::NotOwner, None),
        }
    }
}

/// A hold and a span of time in which a grant to another client would be a double grant: every
/// request of the holder was answered, and none falls into the span.
fn certain_hold(events: &[Event]) -> Option<(usize, i64, i64)> {
    let has_unknown_answer = |client: &str| {
        events.iter().any(|event| event.client == client && event.answer == Answer::Unknown)
    };
    events.iter().enumerate().find_map(|(number, event)| {
        let Action::Acquire { ttl_us, .. } = event.action else { return None };
        let granted = event.answer == Answer::Granted && !has_unknown_answer(&event.client);
        let start_us = event.returned_us.filter(|_| granted)?;
        let mut later = events.iter().filter(|other| other.client == event.client);
        let next = later.find(|other| other.invoked_us >= start_us && **other != *event);
        let next_us = next.map_or(i64::MAX, |next| next.invoked_us);
        let end_us = (event.invoked_us + ttl_us).min(next_us);
        (end_us - start_us >= 3).then_some((number, start_us + 1, end_us))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn correct_lock_passes(seed: u64, count in 1_usize..120, reentrant: bool, counted: bool) {
        let rules = Rules { reentrant, ..Rules::LOCK };
        let mut events = simulate(seed, count, rules);
        if !counted {
            events.iter_mut().for_each(|event| event.count = None);
        }
        let violations = entitlement::judge(&events, rules);
        prop_assert!(violations.is_empty(), "{violations:?}\n{}", write(&events));
        let linear = lock::judge(&events, rules, &mut Budget::steps(STEPS));
        prop_assert!(!matches!(linear, Linear::Illegal(_)), "{linear:?}\n{}", write(&events));
    }

    #[test]
    fn second_grant_is_found(seed: u64, reentrant: bool) {
        let rules = Rules { reentrant, ..Rules::LOCK };
        let mut events = simulate(seed, 60, rules);
        let Some((_, start_us, end_us)) = certain_hold(&events) else { return Ok(()) };
        let ttl = Action::Acquire { ttl_us: 1000, shared: false };
        let second = Event::asked("l", "second", ttl, start_us);
        events.push(second.answered(Answer::Granted, end_us - 1));
        let violations = entitlement::judge(&events, rules);
        let is_double =
            |violation: &Violation| violation.kind == ViolationKind::DoubleGrant;
        prop_assert!(violations.iter().any(is_double), "{violations:?}\n{}", write(&events));
        let linear = lock::judge(&events, rules, &mut Budget::steps(STEPS * 10));
        prop_assert!(linear != Linear::Legal, "{}", write(&events));
    }

    #[test]
    fn refused_holder_is_found(seed: u64, reentrant: bool) {
        let rules = Rules { reentrant, ..Rules::LOCK };
        let mut events = simulate(seed, 60, rules);
        let Some((number, start_us, end_us)) = certain_hold(&events) else { return Ok(()) };
        let client = events[number].client.clone();
        let renewal = Event::asked("l", &client, Action::Renew { ttl_us: 1 }, start_us);
        events.push(renewal.answered(Answer::NotOwner, end_us - 1));
        let violations = entitlement::judge(&events, rules);
        let is_early = |violation: &Violation| violation.kind == ViolationKind::EarlyLoss;
        prop_assert!(violations.iter().any(is_early), "{violations:?}\n{}", write(&events));
        let linear = lock::judge(&events, rules, &mut Budget::steps(STEPS * 10));
        prop_assert!(linear != Linear::Legal, "{}", write(&events));
    }

    #[test]
    fn repeated_token_is_found(seed: u64) {
        let mut events = simulate(seed, 60, Rules::LOCK);
        let mut granted: Vec<_> = (0..events.len())
            .filter(|&number| events[number].answer == Answer::Granted)
            .filter(|&number| matches!(events[number].action, Action::Acquire { .. }))
            .collect();
        for (token, &number) in granted.iter().enumerate() {
            events[number].token = i64::try_from(token).ok();
        }
        prop_assert!(entitlement::judge(&events, Rules::LOCK).is_empty());
        let Some(last) = granted.pop() else { return Ok(()) };
        let before = |&number: &usize| events[number].returned_us < Some(events[last].invoked_us);
        let Some(earlier) = granted.into_iter().find(before) else { return Ok(()) };
        events[last].token = events[earlier].token;
        let violations = entitlement::judge(&events, Rules::LOCK);
        let is_token = |violation: &Violation| violation.kind == ViolationKind::Token;
        prop_assert!(violations.iter().any(is_token), "{violations:?}\n{}", write(&events));
    }
}
