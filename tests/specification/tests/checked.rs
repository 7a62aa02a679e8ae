//! All states within bounds, and the shortest way to break an invariant with a defect.

use lockwheel_specification::rules::{Bounds, Defect, Specification, Step};
use stateright::{Checker, HasDiscoveries, Model};

fn check(defect: Option<Defect>) -> (usize, Option<(&'static str, usize)>) {
    let without = [Step::Change, Step::LoseDisk, Step::CutLog, Step::Confirm, Step::Suspend];
    let steps = Step::ALL[1..].iter().copied().filter(|step| !without.contains(step)).collect();
    let (fast, members) = (vec![6], vec![7]);
    let bounds = Bounds { entries: 2, elections: 2, faults: 0, time: 0, fast, members, steps };
    let specification = Specification { bounds, defect, ..Specification::default() };
    let finish = HasDiscoveries::AnyFailures;
    let checker = specification.checker().finish_when(finish).spawn_bfs().join();
    let broken = checker.discovery("every invariant").map(|path| {
        let (name, _) = checker.model().violation.get().expect("a violation");
        (*name, path.into_actions().len())
    });
    (checker.unique_state_count(), broken)
}

#[test]
fn one_node_leads_unless_the_margin_is_dropped() {
    assert_eq!(check(None).1, None);
    let (_, broken) = check(Some(Defect::LeaseWithoutMargin));
    assert_eq!(broken.map(|(name, _)| name), Some("one node leads"));
}
