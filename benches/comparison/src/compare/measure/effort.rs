//! The effort of a measurement.

use std::time::Duration;

/// The effort of one measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// The length of the measurement, if it is variable.
    pub(crate) span: Duration,
    /// The length of the warm-up.
    pub(crate) warm_up: Duration,
    /// Whether only to check that it works, with a hundredth of the locks.
    pub(crate) quick: bool,
}
