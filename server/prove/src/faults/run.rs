//! The run, as far as a source of faults sees it.

use std::time::Duration;

use lockwheel_compat::Interrupt;
use lockwheel_compat::time::Deadline;

/// Time between two looks at what is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// When the run ends.
#[derive(Clone, Debug, Default)]
pub struct FaultRun {
    end: Interrupt,
}

impl FaultRun {
    /// A run that ends when this is asked.
    pub fn new(end: Interrupt) -> FaultRun {
        FaultRun { end }
    }

    /// Whether the run ends.
    pub fn is_over(&self) -> bool {
        self.end.is_asked()
    }

    /// Waits for this time; false if the run ends meanwhile.
    pub fn pause(&self, span: Duration) -> bool {
        self.wait_for(span, || None::<()>);
        !self.is_over()
    }

    /// Waits until there is a result; `None` after the limit, or if the run ends meanwhile.
    pub fn wait_for<T>(&self, limit: Duration, mut find: impl FnMut() -> Option<T>) -> Option<T> {
        let deadline = Deadline::after(limit);
        loop {
            let found = find();
            if found.is_some() || self.is_over() || deadline.is_over() {
                return found;
            }
            deadline.sleep(LOOK_INTERVAL);
        }
    }
}
