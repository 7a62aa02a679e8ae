//! The rounds of replication: how many there were, and when the moments of each came.
//!
//! A round replicates one batch. A leader runs one round after the other, and the next batch
//! collects meanwhile.

use std::time::Duration;

use lockwheel_log::Position;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A moment of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The round before has ended, and the batch collects no more.
    Begun,
    /// The log has the entry, and is about to write it.
    Appended,
    /// The entry is on the disk of the leader.
    Flushed,
    /// The entry is about to be sent to the first follower.
    Sent,
    /// The first follower has acknowledged the entry.
    Acknowledged,
    /// The entry is committed, and the replies are released.
    Released,
    /// The next round may begin.
    Ended,
}

/// The number of moments.
pub const MOMENTS: usize = 7;

/// The names of the moments, in their usual order.
pub const MOMENT_NAMES: [&str; MOMENTS] =
    ["begun", "appended", "flushed", "sent", "acknowledged", "released", "ended"];

/// What the rounds of a node have taken since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTotals {
    /// Number of rounds.
    pub rounds: u64,
    /// Number of units that they have replicated.
    pub units: u64,
    /// The sum, over all rounds, of the time from the first unit of the batch to each moment of
    /// [`MOMENT_NAMES`], in microseconds. A moment that had not come at the end of the round counts
    /// as its end.
    pub moments_us: [u64; MOMENTS],
}

/// The rounds of a node.
#[derive(Debug, Default)]
pub struct Rounds(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    totals: RoundTotals,
    round: Option<Round>,
}

/// The round that is under way.
#[derive(Debug)]
struct Round {
    /// When the first unit of the batch was appended to it.
    accepted: Instant,
    units: u64,
    /// The position of the last entry of the batch, as soon as it has one.
    position: Option<Position>,
    moments: [Option<Duration>; MOMENTS],
}

impl Round {
    fn note(&mut self, moment: Moment) {
        self.moments[moment as usize].get_or_insert_with(|| self.accepted.elapsed());
    }
}

impl Rounds {
    /// Begins the round of a batch of `units` units, the first of which was accepted then.
    pub fn begin(&self, accepted: Instant, units: u64) {
        let mut round = Round { accepted, units, position: None, moments: [None; MOMENTS] };
        round.note(Moment::Begun);
        self.0.lock().round = Some(round);
    }

    /// Records that the log has an entry. The last one is that of the round, if there is one: a
    /// batch may be divided.
    pub(crate) fn note_appended(&self, position: Position) {
        if let Some(round) = &mut self.0.lock().round {
            round.position = Some(position);
            round.moments[Moment::Appended as usize..].fill(None);
            round.note(Moment::Appended);
        }
    }

    /// Records that the moment has come for all entries up to this position.
    pub(crate) fn note(&self, moment: Moment, position: Position) {
        if let Some(round) = &mut self.0.lock().round
            && round.position.is_some_and(|last| last <= position)
        {
            round.note(moment);
        }
    }

    /// Ends the round.
    pub fn end(&self) {
        let State { totals, round } = &mut *self.0.lock();
        let Some(mut round) = round.take() else { return };
        round.note(Moment::Ended);
        totals.rounds += 1;
        totals.units += round.units;
        let ended = round.moments[Moment::Ended as usize].unwrap_or_default();
        for (total, moment) in totals.moments_us.iter_mut().zip(round.moments) {
            *total += u64::try_from(moment.unwrap_or(ended).as_micros()).unwrap_or(u64::MAX);
        }
    }

    /// Forgets the round, whose batch was not committed.
    pub fn give_up(&self) {
        self.0.lock().round = None;
    }

    /// What the rounds have taken until now.
    pub fn totals(&self) -> RoundTotals {
        self.0.lock().totals
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn moments_count_from_the_first_unit() {
        const STEP: Duration = Duration::from_micros(10);
        let rounds = Rounds::default();
        let accepted = Instant::now();
        advance(STEP).await;
        rounds.begin(accepted, 3);
        for position in [5, 6] {
            advance(STEP).await;
            rounds.note_appended(position);
        }
        for moment in [Moment::Sent, Moment::Acknowledged, Moment::Released] {
            advance(STEP).await;
            rounds.note(moment, 5);
            advance(STEP).await;
            rounds.note(moment, 6);
            rounds.note(moment, 7);
        }
        advance(STEP).await;
        rounds.end();
        // Without a round.
        rounds.note_appended(8);
        rounds.note(Moment::Released, 8);
        rounds.end();
        let moments_us = [10, 30, 100, 50, 70, 90, 100];
        assert_eq!(rounds.totals(), RoundTotals { rounds: 1, units: 3, moments_us });
    }

    #[tokio::test(start_paused = true)]
    async fn round_that_was_given_up_does_not_count() {
        let rounds = Rounds::default();
        rounds.begin(Instant::now(), 1);
        rounds.note_appended(1);
        rounds.give_up();
        rounds.end();
        assert_eq!(rounds.totals(), RoundTotals::default());
    }
}
