//! `lockwheel config check`: says whether a server would accept a configuration. It reads the files
//! that a start reads before it listens, and writes nothing.

use std::path::Path;
use std::process::ExitCode;

use lockwheel::{Builder, Settings};

use crate::launch::{self, Invocation, load};
use crate::process_settings::ProcessSettings;
use crate::{check_node, enter_directory, environment, fail, print};

const USAGE: &str = "Usage: lockwheel config check [/path/to/redis.conf] [--directive value ...]";

/// Runs the subcommand. `args` begin with the program's name.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let args: Vec<String> = match args {
        [program, check, rest @ ..] if check == "check" => {
            std::iter::once(program).chain(rest).cloned().collect()
        }
        [_, help] if help == "--help" || help == "-h" => return print(USAGE),
        _ => return fail(USAGE),
    };
    let mut read = load::read;
    let (mut settings, warnings) = match launch::from_args(&args, &environment(), &mut read) {
        Ok(Invocation::Serve { settings, warnings }) => (settings, warnings),
        Ok(_) => return print(USAGE),
        Err(error) => return fail(&error.to_string()),
    };
    let process = ProcessSettings::of(&settings);
    let checked = check_node(&settings)
        .and_then(|()| check_logfile(&process))
        .and_then(|()| enter(&mut settings, &process))
        .and_then(|()| check_files(*settings));
    if let Err(error) = checked {
        return fail(&error);
    }
    let warnings: String = warnings.iter().map(|text| format!("warning: {text}\n")).collect();
    print(&format!("{warnings}This configuration is valid."))
}

/// Changes to the working directory, unless a start would create it.
fn enter(settings: &mut Settings, process: &ProcessSettings) -> Result<(), String> {
    let dir = Path::new(&process.dir);
    let is_created = dir.parent().is_some_and(|parent| parent == Path::new("") || parent.is_dir());
    if !dir.exists() && is_created { Ok(()) } else { enter_directory(settings, process) }
}

/// Checks that the log can be opened, without creating it.
fn check_logfile(process: &ProcessSettings) -> Result<(), String> {
    let Some(path) = &process.logfile else { return Ok(()) };
    let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_usable = match Path::new(path).metadata() {
        Ok(file) => !file.is_dir(),
        Err(_) => folder.is_none_or(Path::is_dir),
    };
    match is_usable {
        true => Ok(()),
        false => Err(format!("Can't open the log file '{path}': it is no file in a folder")),
    }
}

/// Checks the files that directives name.
fn check_files(settings: Settings) -> Result<(), String> {
    Builder::from_settings(settings).check().map_err(|error| error.to_string())
}
