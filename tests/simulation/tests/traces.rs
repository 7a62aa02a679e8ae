//! The histories of clusters are histories of the specification, and the specification alone
//! notices nodes that break a rule.

use std::collections::BTreeSet;

use lockwheel_defects::Defect;
use lockwheel_simulation::plan::Plan;
use lockwheel_simulation::run::{catch_panics, run};
use lockwheel_specification::{Step, follow};

/// Histories that are followed.
const HISTORIES: u64 = 40;

/// The steps that happen in them. Others are left out of traces, or are rare.
const STEPS: [Step; 15] = [
    Step::Contact,
    Step::Part,
    Step::Reply,
    Step::StepDown,
    Step::Blank,
    Step::Barrier,
    Step::Begin,
    Step::Change,
    Step::Commit,
    Step::Stand,
    Step::Vote,
    Step::Win,
    Step::Learn,
    Step::Restart,
    Step::LoseDisk,
];

#[test]
fn histories_of_clusters_are_histories_of_the_specification() {
    let mut steps = BTreeSet::new();
    for seed in 1..=HISTORIES {
        match follow(&run(&Plan::draw_cluster(seed, None), false).nodes) {
            Ok(followed) => steps.extend(followed.steps.into_keys()),
            Err(refusal) => panic!("seed {seed}: {refusal}"),
        }
    }
    let missing: Vec<Step> = STEPS.into_iter().filter(|step| !steps.contains(step)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Defects that the specification must notice: in the history with the first seed, which is tried
/// first, or at least in one of so many.
const DEFECTS: [(Defect, u64, u64); 12] = [
    (Defect::RaftBarrierLeftOut, 5, 10),
    (Defect::RaftLearnersCounted, 4, 10),
    (Defect::RaftLeaseFromReceipt, 1, 5),
    (Defect::RaftLeaseIgnored, 1, 5),
    (Defect::RaftLeaseTooLong, 1, 5),
    (Defect::RaftLessThanAMajority, 1, 5),
    (Defect::RaftVoteNotSaved, 2, 10),
    (Defect::ReadsNotConfirmed, 2, 20),
    (Defect::RaftReadIndexUnconfirmed, 8, 20),
    (Defect::RaftVotesDuringLease, 15, 30),
    (Defect::RaftOnlyNewVotersCounted, 40, 50),
    (Defect::RaftCandidateDespiteLeader, 71, 100),
];

#[test]
fn specification_notices_nodes_that_break_a_rule() {
    catch_panics();
    for (defect, first, histories) in DEFECTS {
        let is_noticed =
            |seed| follow(&run(&Plan::draw_cluster(seed, Some(defect)), false).nodes).is_err();
        let mut seeds = std::iter::once(first).chain(1..=histories);
        assert!(seeds.any(is_noticed), "{defect} is not noticed");
    }
}
