//! Switchable defects, which the simulation of `tests/simulation` must find. Without the feature
//! `mutants` the compiler removes them.

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;

    thread_local! {
        static ACTIVE: Cell<&'static str> = const { Cell::new("") };
    }

    /// Switches to the defect with this name, on this thread; an empty name is none.
    pub fn set(name: &'static str) {
        ACTIVE.set(name);
    }

    /// Whether the defect is switched on that leaves out effects with this name.
    pub fn leaves_out(effect: &str) -> bool {
        ACTIVE.get().strip_prefix("effect-left-out:") == Some(effect)
    }

    /// Whether the defect with this name is switched on.
    pub fn is_on(name: &str) -> bool {
        ACTIVE.get() == name
    }
}

#[cfg(feature = "mutants")]
pub use switch::{is_on, leaves_out, set};

/// Whether the defect with this name is switched on: never.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is_on(_name: &str) -> bool {
    false
}
