//! What has happened in histories, for the report.

use std::fmt;
use std::ops::AddAssign;

macro_rules! figures {
    ($($name:ident),*) => {
        /// Counts of faults and events.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Figures {
            $(pub(crate) $name: u64),*
        }

        impl AddAssign for Figures {
            fn add_assign(&mut self, other: Figures) {
                $(self.$name += other.$name;)*
            }
        }

        impl fmt::Display for Figures {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = |name: &str| name.replace('_', " ");
                let shown = [$(format!("{} {}", self.$name, name(stringify!($name)))),*];
                f.write_str(&shown.join(", "))
            }
        }
    };
}

figures!(
    failovers,
    histories,
    symmetric_cuts,
    asymmetric_cuts,
    isolations,
    flapping_networks,
    kills,
    crashes,
    disk_faults,
    suspensions,
    snapshots,
    nodes_added,
    voters_changed,
    handovers,
    grants,
    renewals,
    releases,
    leases_ended,
    simulated_seconds
);
