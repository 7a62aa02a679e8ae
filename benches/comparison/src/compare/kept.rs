//! Figures in a file, so that a run that was cut short goes on where it was, and an outcome can be
//! told once more in another form. It must not know what the figures are about.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::figures::Figures;
use crate::options::Options;
use crate::peers::Peer;
use crate::tables::Tables;

/// What a run begins with: nothing, or what an earlier one has kept.
pub(crate) fn begin(options: &Options, peers: &[Peer]) -> Outcome<Figures> {
    let fresh = Figures::new(options, peers);
    let Some(path) = options.save.as_ref().filter(|path| options.resume && path.exists()) else {
        return Ok(fresh);
    };
    let mut kept = read(path)?;
    let names = |figures: &Figures| -> Vec<String> {
        figures.peers.iter().map(|peer| peer.name.clone()).collect()
    };
    if names(&kept) != names(&fresh) {
        return Err(format!("{} is about other servers", path.display()).into());
    }
    // What failed is tried again.
    kept.failures.clear();
    Ok(kept)
}

/// Keeps the figures, if they are to be kept.
pub(crate) fn write(options: &Options, figures: &Figures) -> Outcome<()> {
    let Some(path) = &options.save else { return Ok(()) };
    let text = serde_json::to_string(figures)?;
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// What several runs have kept, put together.
pub(crate) fn read_all(paths: &[PathBuf]) -> Outcome<Figures> {
    let mut runs = paths.iter().map(read);
    let mut whole = runs.next().ok_or("no file")??;
    for run in runs {
        whole.merge(run?);
    }
    Ok(whole)
}

/// The tables of an earlier run of which only the tables were kept.
pub(crate) fn read_kept_tables(path: &Path) -> Outcome<Tables> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

/// The tables of a run, from its figures or as they were kept.
#[cfg(test)]
pub(crate) fn read_tables(path: &Path) -> Outcome<Tables> {
    read_kept_tables(path).or_else(|_| Ok(Tables::of(&read(&path.to_owned())?)))
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
    use crate::figures::tests::figures;
    use crate::options::Options;
    use crate::peers::Peer;

    #[test]
    fn a_run_goes_on_where_it_was() {
        let folder = Folder::new();
        let path = folder.path("figures.json");
        let options = Options::parse_from(["compare", "--save", &path, "--resume"]);
        let peers = ["theirs", "ours"].map(Peer::named);
        assert!(begin(&options, &peers).expect("a fresh run").figures.is_empty());
        write(&options, &figures("cost theirs 0 10\ncost ours 0 5")).expect("it is kept");
        assert_eq!(begin(&options, &peers).expect("what was kept").figures.len(), 2);
        let others = begin(&options, &peers[..1]).expect_err("other servers").to_string();
        assert!(others.ends_with("is about other servers"), "{others}");
        let whole = read_all(&[path.clone().into(), path.into()]).expect("the same again");
        assert_eq!(whole.figures.len(), 2);
    }

    #[test]
    fn what_is_no_outcome_is_refused() {
        let folder = Folder::new();
        let path = folder.path("figures.json");
        std::fs::write(&path, "{}").expect("a file");
        assert!(read_all(&[path.into()]).is_err());
    }
}
