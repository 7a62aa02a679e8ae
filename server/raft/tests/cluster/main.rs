//! Clusters of nodes in this process, with a network that can be divided, disks that crash, clocks
//! that are not exact, and clients that take locks: no lock is granted twice, none that was
//! acknowledged is lost, and no lease ends early.

mod clients;
mod cluster;
#[cfg(feature = "defects")]
mod defects;
mod faults;
mod figures;
mod locks;
mod reads;
mod scenarios;
mod storage;
mod words;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use figures::Figures;

#[test]
fn entries_reach_all_nodes() {
    scenarios::entries();
}

/// Shows R3, R4, R5.
#[test]
fn divided_leader_stops_before_another_one_leads() {
    scenarios::divided_leader();
}

#[test]
fn leader_begins_anew_in_the_same_term() {
    scenarios::same_term();
}

#[test]
fn new_node_gets_a_snapshot_and_then_a_vote() {
    scenarios::new_node();
}

#[test]
fn damaged_snapshot_is_sent_again() {
    scenarios::damaged_snapshot();
}

#[test]
fn snapshot_for_which_the_disk_has_no_space_is_given_up() {
    scenarios::snapshot_on_a_full_disk();
}

#[test]
fn leader_needs_the_contact_of_the_voters_before_a_change() {
    scenarios::learners_in_contact();
}

/// Shows R6.
#[test]
fn leases_go_on_after_a_restart_of_all_nodes() {
    scenarios::restart_of_all_nodes();
}

#[test]
fn cluster_begins_with_the_log_of_another_one() {
    scenarios::cluster_from_a_log();
}

/// Shows R10.
#[test]
fn suspended_leader_does_not_lead_when_it_is_resumed() {
    scenarios::suspended_leader();
}

#[test]
fn snapshot_is_not_written_when_the_state_cannot_be_rebuilt() {
    scenarios::failed_rebuild();
}

#[test]
fn node_that_follows_a_leader_is_no_candidate() {
    scenarios::promise_while_asking();
}

#[test]
fn voter_keeps_its_promise_to_a_leader() {
    scenarios::promise_of_a_voter();
}

#[test]
fn node_follows_no_leader_whose_lease_is_longer_than_its_own() {
    scenarios::leases_of_different_length();
}

#[test]
fn node_that_lacks_what_it_has_acknowledged_ends() {
    scenarios::lost_end_of_a_log();
}

#[test]
fn node_that_has_cut_off_the_end_of_its_log_does_not_vote_until_it_is_confirmed() {
    scenarios::doubt();
}

#[test]
fn leader_that_has_cut_off_the_end_of_its_log_leads_no_more() {
    scenarios::doubt_of_a_leader();
}

#[test]
fn leader_that_is_removed_hands_its_leadership_over() {
    scenarios::removed_leader();
}

/// Shows R1, R2.
#[test]
fn leader_that_was_killed_does_not_go_on_in_its_term() {
    scenarios::leader_that_starts_again();
}

#[test]
fn nodes_that_all_have_cut_off_the_ends_of_their_logs_elect_a_leader() {
    scenarios::doubt_of_all_nodes();
}

#[test]
fn node_whose_vote_is_lost_does_not_start() {
    scenarios::lost_vote();
}

#[test]
fn interrupted_removal_can_be_repeated() {
    scenarios::interrupted_removal();
}

#[test]
fn large_units_pass_slow_links() {
    scenarios::slow_links();
}

#[test]
fn new_leader_serves_at_once_whatever_the_length_of_its_log() {
    scenarios::new_leader_of_a_long_log();
}

#[test]
fn batch_has_no_effect_if_its_leader_stops_within_it() {
    scenarios::leader_within_a_batch();
}

#[test]
fn deposed_leader_does_not_send_entries_of_the_next_one() {
    scenarios::replaced_entries();
}

#[test]
fn snapshot_has_whole_batches() {
    scenarios::snapshot_within_a_batch();
}

#[test]
fn leader_hands_its_leadership_over() {
    scenarios::handover();
}

#[test]
fn leader_with_a_full_disk_hands_its_leadership_over() {
    scenarios::handover_for_space();
}

#[test]
fn join_token_admits_one_node() {
    scenarios::join_token();
}

/// Shows R2, R3, R6.
#[test]
fn locks_survive_some_failovers() {
    survive(200);
}

/// `cargo test --release -p lockwheel-raft --test cluster -- --ignored --nocapture`
#[test]
#[ignore = "it takes minutes"]
fn locks_survive_ten_thousand_failovers() {
    survive(10_000);
}

/// Runs histories until a number of changes of the leader, and prints the counts of faults and
/// events.
#[expect(clippy::print_stdout, reason = "it is the result")]
fn survive(failovers: u64) {
    let (seed, done) = (AtomicU64::new(1), Mutex::new(Figures::default()));
    let worker = || {
        while done.lock().expect("no panic").failovers < failovers {
            let seed = seed.fetch_add(1, Ordering::Relaxed);
            let figures = faults::run(seed);
            *done.lock().expect("no panic") += figures;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(worker);
        }
    });
    let figures = done.into_inner().expect("no panic");
    println!("{figures}");
    assert!(figures.grants > 2 * figures.failovers, "{figures}");
}

/// Histories that run at once.
const WORKERS: usize = 2;
