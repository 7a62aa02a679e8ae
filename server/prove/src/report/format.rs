//! The output formats.

use std::str::FromStr;

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

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Format, String> {
        match word {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            "junit" => Ok(Format::Junit),
            "html" => Ok(Format::Html),
            _ => Err("the formats are text, json, junit and html".to_owned()),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn format_is_named_by_a_word() {
        assert_eq!("html".parse(), Ok(Format::Html));
        assert!("HTML".parse::<Format>().is_err());
        assert!("".parse::<Format>().is_err());
    }
}
