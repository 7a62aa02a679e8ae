//! The list of the properties.

use super::property::Property;
use super::{atomicity, deletion, exclusion, leases, messages, repetition, transactions, waiters};

/// Every property, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Property> {
    let groups = [
        atomicity::PROPERTIES,
        transactions::PROPERTIES,
        deletion::PROPERTIES,
        repetition::PROPERTIES,
        exclusion::PROPERTIES,
        messages::PROPERTIES,
        waiters::PROPERTIES,
        leases::PROPERTIES,
    ];
    groups.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_property_has_a_reason_and_a_unique_name() {
        let mut names = BTreeSet::new();
        for property in super::all() {
            assert!(!property.why.is_empty(), "{}: no reason", property.name);
            assert!(names.insert(property.name), "{}: twice", property.name);
        }
    }
}
