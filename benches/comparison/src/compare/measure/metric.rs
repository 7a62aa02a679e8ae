//! What a measurement returns: values, each with its name and unit.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Whether lower or higher values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// A cost: time or bytes.
    Less,
    /// A rate.
    More,
    /// Information about other figures, which is not compared.
    Neither,
}

/// The name and the unit of a figure, and which values are better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) unit: Cow<'static, str>,
    pub(crate) better: Better,
}

impl Metric {
    pub(crate) fn cost(name: impl Into<String>, unit: &'static str) -> Metric {
        Metric { name: name.into(), unit: unit.into(), better: Better::Less }
    }

    pub(crate) fn rate(name: impl Into<String>, unit: &'static str) -> Metric {
        Metric { name: name.into(), unit: unit.into(), better: Better::More }
    }

    pub(crate) fn info(name: impl Into<String>, unit: &'static str) -> Metric {
        Metric { name: name.into(), unit: unit.into(), better: Better::Neither }
    }

    /// The name with the unit.
    pub(crate) fn title(&self) -> String {
        match &*self.unit {
            "" => self.name.clone(),
            unit => format!("{}, {unit}", self.name),
        }
    }

    /// A reading of this metric.
    pub(crate) fn with(self, value: f64) -> Reading {
        Reading { metric: self, value }
    }
}

/// One value of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) metric: Metric,
    pub(crate) value: f64,
}
