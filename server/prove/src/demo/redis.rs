//! The program `redis-server`.

use std::path::PathBuf;
use std::process::Command;

use super::place::Place;

/// The path of a program on the `PATH`.
///
/// # Errors
/// If there is none.
pub(super) fn find(name: &str, reason: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(name));
    let found = places.find(|place| place.is_file());
    found.ok_or_else(|| format!("there is no program {name} on the PATH: {reason}"))
}

/// The command of `redis-server`.
pub(super) fn find_redis() -> Result<Vec<String>, String> {
    let program =
        find("redis-server", "this demo starts servers with it: install Redis or Valkey")?;
    Ok(vec![program.to_string_lossy().into_owned()])
}

/// The command of a server without persistence.
pub(super) fn command(program: &[String], place: &Place, dir: &str) -> Result<Command, String> {
    let (first, rest) = program.split_first().ok_or("there is no program")?;
    let mut command = Command::new(first);
    command.args(rest).args(["--bind", &place.host, "--port", &place.port.to_string()]);
    command.args(["--dir", dir, "--save", "", "--appendonly", "no", "--protected-mode", "no"]);
    Ok(command)
}
