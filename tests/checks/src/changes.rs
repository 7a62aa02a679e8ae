//! What has changed in the work tree, by Git.

use std::fs;
use std::process::Command;

use crate::job::{Ended, Outcome};
use crate::steps::Step;
use crate::{root, target};

/// Files whose change concerns every step.
const EVERY_STEP: &[&str] = &[".ci/", "tests/checks/", "Cargo.toml", "Cargo.lock", ".cargo/"];

/// The files that differ from a commit, new ones among them.
///
/// # Errors
/// If Git does not know the commit.
pub(crate) fn since(base: &str) -> Result<Vec<String>, String> {
    let changed = git(&["diff", "--name-only", base])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(changed.lines().chain(new.lines()).map(str::to_owned).collect())
}

/// Whether one of these files can change the result of a step.
pub(crate) fn concern(step: &Step, changed: &[String]) -> bool {
    let concerns = |file: &String| {
        EVERY_STEP.iter().any(|path| file.starts_with(path))
            || step.paths.iter().any(|path| file.starts_with(path.as_str()))
    };
    changed.iter().any(concerns)
}

/// The work tree at the start of the checks.
pub(crate) struct Tree {
    commit: String,
    changes: String,
}

impl Tree {
    /// The work tree now.
    ///
    /// # Errors
    /// If this is no work tree of Git.
    pub(crate) fn now() -> Result<Tree, String> {
        let commit = git(&["rev-parse", "HEAD"])?.trim().to_owned();
        Ok(Tree { commit, changes: git(&["status", "--porcelain"])? })
    }

    /// Writes the commit that has passed to a file in Cargo's folder, unless the tree differs from
    /// the commit or a step was left out.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn note_success(&self, results: &[Ended]) -> Result<(), String> {
        let path = target().join("checks-passed");
        let now = Tree::now()?;
        let left_out = results.iter().find(|it| it.outcome != Outcome::Passed);
        let problem = if now.commit != self.commit {
            Some("another commit was checked out meanwhile".to_owned())
        } else if !(self.changes.is_empty() && now.changes.is_empty()) {
            let changes = if now.changes.is_empty() { &self.changes } else { &now.changes };
            Some(format!("the work tree has changes:\n{}", changes.trim_end()))
        } else {
            left_out.map(|step| format!("{} was left out", step.name))
        };
        if let Some(problem) = problem {
            println!("{} is not written: {problem}", path.display());
            return Ok(());
        }
        let text = format!("{}\n", self.commit);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn git(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).current_dir(root()).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("git {}: {}", arguments.join(" "), errors.trim_end())),
    }
}
