//! The defects that the simulation must find.

/// A defect.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// Its name in the code.
    pub name: &'static str,
    /// What is wrong with it.
    pub defect: &'static str,
}

/// All defects.
pub const MUTANTS: &[Mutant] =
    &[Mutant { name: "reply-before-flush", defect: "output is released before it is written" }];
