//! Saved figures, so that an interrupted run can be resumed and an outcome can be written again in
//! another format.

use std::fs;
use std::path::{Path, PathBuf};

use lockwheel_comparison::Outcome;

use crate::measure::servers::ComparedServer;
use crate::options::Options;
use crate::report::figures::Figures;
use crate::report::tables::Tables;

/// The initial figures of a run: none, or those of the run that is resumed.
pub(crate) fn begin(options: &Options, servers: &[ComparedServer]) -> Outcome<Figures> {
    let fresh = Figures::new(options, servers);
    let Some(path) = options.save.as_ref().filter(|path| options.resume && path.exists()) else {
        return Ok(fresh);
    };
    let mut saved = read(path)?;
    let names = |figures: &Figures| -> Vec<String> {
        figures.peers.iter().map(|server| server.name.clone()).collect()
    };
    if names(&saved) != names(&fresh) {
        return Err(format!("{} contains other servers", path.display()).into());
    }
    // Failed measurements are tried again.
    saved.failures.clear();
    Ok(saved)
}

/// Saves the figures if `--save` is given.
pub(crate) fn write(options: &Options, figures: &Figures) -> Outcome<()> {
    let Some(path) = &options.save else { return Ok(()) };
    let text = serde_json::to_string(figures)?;
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Merges the figures of several runs.
pub(crate) fn read_all(paths: &[PathBuf]) -> Outcome<Figures> {
    let mut runs = paths.iter().map(read);
    let mut whole = runs.next().ok_or("no file")??;
    for run in runs {
        whole.merge(run?);
    }
    Ok(whole)
}

/// Reads the tables of a run, without its figures.
pub(crate) fn read_tables(path: &Path) -> Outcome<Tables> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

fn read(path: &PathBuf) -> Outcome<Figures> {
    let wrong = |error: &dyn std::error::Error| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
    Ok(serde_json::from_str(&text).map_err(|error| wrong(&error))?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use lockwheel_tests::daemon::Folder;

    use super::{begin, read_all, write};
    use crate::measure::servers::ComparedServer;
    use crate::options::Options;
    use crate::report::figures::tests::figures;

    #[test]
    fn run_is_resumed_from_saved_figures() {
        let folder = Folder::new();
        let path = folder.path("figures.json");
        let options = Options::parse_from(["compare", "--save", &path, "--resume"]);
        let servers = ["theirs", "ours"].map(ComparedServer::named);
        assert!(begin(&options, &servers).expect("a fresh run").figures.is_empty());
        write(&options, &figures("cost theirs 0 10\ncost ours 0 5")).expect("saved figures");
        assert_eq!(begin(&options, &servers).expect("saved figures").figures.len(), 2);
        let others = begin(&options, &servers[..1]).expect_err("other servers").to_string();
        assert!(others.ends_with("contains other servers"), "{others}");
        let whole = read_all(&[path.clone().into(), path.into()]).expect("merged figures");
        assert_eq!(whole.figures.len(), 2);
    }

    #[test]
    fn file_without_figures_is_an_error() {
        let folder = Folder::new();
        let path = folder.path("figures.json");
        std::fs::write(&path, "{}").expect("a file");
        assert!(read_all(&[path.into()]).is_err());
    }
}
