//! The output formats.

use super::results::Report;
use super::{json, junit, markdown, text};

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for a terminal.
    Text,
    /// For a pull request or a page.
    Markdown,
    /// For programs; `docs/compat.md` explains the fields.
    Json,
    /// For CI servers.
    Junit,
}

impl Report {
    /// The report in the given format.
    pub fn write(&self, format: Format) -> String {
        match format {
            Format::Text => text::write(self, false),
            Format::Markdown => markdown::write(self),
            Format::Json => json::write(self),
            Format::Junit => junit::write(self),
        }
    }

    /// The report for a terminal.
    pub fn text(&self) -> String {
        text::write(self, false)
    }

    /// The report for a terminal that shows colours.
    pub fn coloured_text(&self) -> String {
        text::write(self, true)
    }
}
