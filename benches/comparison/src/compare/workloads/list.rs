//! The workloads of each kind of run, by family.

use crate::options::Options;
use crate::workloads::cycles;
use crate::workloads::durable;
use crate::workloads::expiry;
use crate::workloads::handoff;
use crate::workloads::latency;
use crate::workloads::memory;
use crate::workloads::native_handoff;
use crate::workloads::replication;
use crate::workloads::scale;
use crate::workloads::start;
use crate::workloads::watchdog;
use crate::workloads::workload::{self, Family};

/// The selected workloads of a run.
pub(crate) fn selected(options: &Options) -> Vec<Family> {
    let mut families = match options {
        Options { durable: true, .. } => durable::families(&options.flush_delays()),
        Options { replication: true, .. } => vec![("cycles", replication::all())],
        Options { tls: true, .. } => vec![("cycles", cycles::all())],
        _ => plain(),
    };
    for (name, workloads) in &mut families {
        workloads.retain(|it| options.wants(name, &workload::title(it.as_ref())));
    }
    families.retain(|(_, workloads)| !workloads.is_empty());
    families
}

/// The workloads without a log, in the order of the report.
fn plain() -> Vec<Family> {
    let hand_offs = handoff::all().into_iter().chain(native_handoff::all()).collect();
    vec![
        ("cycles", cycles::all()),
        ("hand-offs", hand_offs),
        ("renewals", watchdog::all()),
        ("latency", latency::all()),
        ("expiry", expiry::all()),
        ("memory", memory::all()),
        ("start", start::all()),
        ("scale", scale::all()),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::{plain, selected};
    use crate::options::Options;
    use crate::workloads::durable;
    use crate::workloads::replication;
    use crate::workloads::workload::{Workload, title};

    /// Every workload, the durable ones with the flush delays of the targets.
    pub(crate) fn all() -> Vec<Box<dyn Workload>> {
        let durable = durable::families(&[0, 250, 2000].map(Duration::from_micros));
        let families = plain().into_iter().chain(durable);
        families.flat_map(|(_, workloads)| workloads).chain(replication::all()).collect()
    }

    #[test]
    fn workload_titles_are_unique() {
        let mut titles: Vec<_> = all().iter().map(|workload| title(workload.as_ref())).collect();
        titles.sort();
        let count = titles.len();
        titles.dedup();
        assert_eq!(titles.len(), count);
    }

    #[test]
    fn workloads_are_selected_by_family_or_by_text() {
        let count = |arguments: &[&str]| {
            let options = Options::parse_from([&["compare"], arguments].concat());
            selected(&options).iter().map(|(_, workloads)| workloads.len()).sum::<usize>()
        };
        assert_eq!(count(&["--only", "cycles"]), count(&["--tls"]));
        assert_eq!(count(&["--only", "Cycles", "--only", "PING"]), count(&["--tls"]));
        assert_eq!(count(&["--only", "PING"]), 2);
        assert_eq!(count(&["--replication", "--only", "cycles"]), count(&["--replication"]));
        assert_eq!(count(&["--durable", "--flush-delay-ms", "0", "--only", "cycles"]), 10);
        assert_eq!(count(&["--only", "no such thing"]), 0);
    }
}
