//! The output formats.

use super::results::Report;
use super::{html, json, junit, text};

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for a terminal.
    Text,
    /// For programs; `docs/prove.md` explains the fields.
    Json,
    /// For CI servers.
    Junit,
    /// A page with a picture, in one file.
    Html,
}

impl Report {
    /// The report in that format.
    pub fn write(&self, format: Format) -> String {
        match format {
            Format::Text => text::write(self),
            Format::Json => json::write(self),
            Format::Junit => junit::write(self),
            Format::Html => html::write(self),
        }
    }
}
