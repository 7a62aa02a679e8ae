//! Writes a report of `lockwheel prove` or `lockwheel judge`.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use clap::ValueEnum;
use lockwheel_prove::{Format, Report};

use crate::compat_command::shared::{FOUND, print};

/// The formats of a report.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Form {
    Text,
    Json,
    Junit,
    Html,
}

/// Finds out before the run whether the file of the report can be written.
///
/// # Errors
/// The file, and why not.
pub(crate) fn check(path: Option<&Path>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let is_new = !path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| unwritable(path, &error))?;
    if is_new {
        // A run that is not possible leaves no empty report.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!("--output {}: {error}; name a file that can be written", path.display())
}

/// Writes the report to the file, or to standard output. Returns the exit status.
///
/// # Errors
/// The file that cannot be written, and why not.
pub(crate) fn write(report: &Report, form: Form, path: Option<&Path>) -> Result<u8, String> {
    let format = match form {
        Form::Text => Format::Text,
        Form::Json => Format::Json,
        Form::Junit => Format::Junit,
        Form::Html => Format::Html,
    };
    let text = report.write(format);
    if let Some(path) = path {
        if let Err(error) = fs::write(path, text) {
            print(&report.write(Format::Text));
            return Err(unwritable(path, &error));
        }
        print(&format!("{} See {}.\n", report.summary(), path.display()));
    } else {
        print(&text);
    }
    Ok(if report.is_green() { 0 } else { FOUND })
}
