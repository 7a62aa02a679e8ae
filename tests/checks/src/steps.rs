//! The table of steps and tools, `steps.toml`, which describes its fields.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// The table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    groups: BTreeMap<String, Vec<String>>,
    #[serde(rename = "step")]
    steps: Vec<Step>,
    #[serde(rename = "tool")]
    tools: Vec<Tool>,
}

/// A check.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) needs: Vec<String>,
    /// Prefixes of paths; groups are resolved when the table is read.
    pub(crate) paths: Vec<String>,
    pub(crate) level: Level,
    pub(crate) limit_seconds: u64,
    pub(crate) load: Load,
    #[serde(default)]
    pub(crate) after: Vec<String>,
    #[serde(default)]
    pub(crate) includes: Vec<String>,
}

/// How much is checked.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Gate,
    Full,
}

/// What a step does most of the time, which decides what runs beside it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Load {
    Computes,
    Waits,
    Alone,
}

/// A program, a package or a toolchain that steps need.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) test: String,
    pub(crate) install: Source,
}

/// What has a tool.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// Packages of Debian.
    Debian(String),
    /// A crate. Its debug build is compiled sooner and fast enough.
    Crate(String),
    /// Arguments of `rustup toolchain install`. Where it cannot be downloaded, the steps that need
    /// it are left out.
    Toolchain(String),
    /// A component of the toolchain in use.
    Component(String),
}

impl Table {
    /// Reads the table.
    ///
    /// # Errors
    /// If a row lacks a field, or names a step, a tool or a group that is not in the table.
    pub(crate) fn parse(text: &str) -> Result<Table, String> {
        let mut table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let steps: BTreeSet<&str> = table.steps.iter().map(|step| &*step.name).collect();
        if steps.len() < table.steps.len() {
            return Err("two steps have one name".to_owned());
        }
        for step in &table.steps {
            let problem = |what: &str| Err(format!("the step {}: {what}", step.name));
            if step.limit_seconds == 0 || step.paths.is_empty() || step.needs.is_empty() {
                return problem("limit_seconds, paths and needs must be given");
            }
            let mut named = step.after.iter().chain(&step.includes);
            if let Some(unknown) = named.find(|name| !steps.contains(&***name)) {
                return problem(&format!("there is no step {unknown}"));
            }
            if let Some(unknown) = step.needs.iter().find(|name| table.tool(name).is_none()) {
                return problem(&format!("there is no tool {unknown}"));
            }
        }
        for step in &mut table.steps {
            step.paths = resolve(&step.paths, &table.groups)?;
        }
        Ok(table)
    }

    /// All tools.
    pub(crate) fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// The tool of a name.
    pub(crate) fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The steps of a level without those that others include, or the steps of these names.
    ///
    /// # Errors
    /// If there is no step of a name.
    pub(crate) fn select(&self, selection: &[String]) -> Result<Vec<&Step>, String> {
        if let [level] = selection
            && let Some(level) = Level::of(level)
        {
            let of: Vec<&Step> = self.steps.iter().filter(|step| step.level <= level).collect();
            let included: BTreeSet<&String> = of.iter().flat_map(|step| &step.includes).collect();
            return Ok(of.into_iter().filter(|step| !included.contains(&step.name)).collect());
        }
        let find = |name: &String| {
            let step = self.steps.iter().find(|step| step.name == *name);
            step.ok_or(format!("there is no step {name}; `.ci/run full --list` shows all"))
        };
        selection.iter().map(find).collect()
    }

    /// These steps, and those whose output they use, in the order of the table.
    pub(crate) fn with_prerequisites(&self, chosen: &[&Step]) -> Vec<&Step> {
        let mut names: BTreeSet<&str> = chosen.iter().map(|step| &*step.name).collect();
        loop {
            // A step that includes a prerequisite takes its place.
            let is_done = |name: &str, names: &BTreeSet<&str>| {
                let mut of = self.steps.iter().filter(|step| names.contains(&*step.name));
                of.any(|step| step.name == name || step.includes.iter().any(|it| it == name))
            };
            let of = self.steps.iter().filter(|step| names.contains(&*step.name));
            let missing = of.flat_map(|step| &step.after).find(|name| !is_done(name, &names));
            let Some(missing) = missing else { break };
            names.insert(missing);
        }
        self.steps.iter().filter(|step| names.contains(&*step.name)).collect()
    }
}

impl Level {
    /// The level of a name.
    pub(crate) fn of(name: &str) -> Option<Level> {
        match name {
            "gate" => Some(Level::Gate),
            "full" => Some(Level::Full),
            _ => None,
        }
    }
}

impl Tool {
    /// The command that installs it.
    pub(crate) fn installation(&self) -> String {
        match &self.install {
            Source::Debian(packages) => format!("apt-get install {packages}"),
            Source::Crate(name) => format!("cargo install --debug --locked {name}"),
            Source::Toolchain(arguments) => {
                format!("rustup toolchain install --profile minimal {arguments}")
            }
            Source::Component(name) => format!("rustup component add {name}"),
        }
    }
}

/// The paths, with those of a group in place of its name.
fn resolve(
    paths: &[String],
    groups: &BTreeMap<String, Vec<String>>,
) -> Result<Vec<String>, String> {
    let mut resolved = Vec::new();
    for path in paths {
        match path.strip_prefix('@') {
            None => resolved.push(path.clone()),
            Some(group) => {
                let paths = groups.get(group).ok_or(format!("there is no group {group}"))?;
                resolved.extend(paths.iter().cloned());
            }
        }
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = include_str!("../steps.toml");

    /// A table with the step `a`, which has these lines, and `b`.
    fn table(lines: &str) -> Result<Table, String> {
        let step = "command = ''\nneeds = ['t']\npaths = ['@g']\nload = 'waits'\n";
        Table::parse(&format!(
            "groups = {{ g = ['x/'] }}\n\
             [[tool]]\nname = 't'\ntest = ''\ninstall = {{ debian = 't' }}\n\
             [[step]]\nname = 'a'\n{step}{lines}\n\
             [[step]]\nname = 'b'\n{step}level = 'full'\nlimit_seconds = 1\nincludes = ['a']\n"
        ))
    }

    fn names(steps: &[&Step]) -> Vec<String> {
        steps.iter().map(|step| step.name.clone()).collect()
    }

    #[test]
    fn rows_without_level_limit_or_needs_are_refused() {
        assert!(table("level = 'gate'\nlimit_seconds = 1").is_ok());
        assert!(table("limit_seconds = 1").unwrap_err().contains("missing field `level`"));
        assert!(table("level = 'gate'").unwrap_err().contains("missing field `limit_seconds`"));
        assert!(table("level = 'gate'\nlimit_seconds = 0").is_err());
        assert!(table("level = 'gate'\nlimit_seconds = 1\nafter = ['c']").is_err());
        let without = ROWS.replacen("needs = [\"rustfmt\"]", "needs = []", 1);
        assert!(Table::parse(&without).is_err());
    }

    #[test]
    fn all_rows_can_be_read() {
        let table = Table::parse(ROWS).expect("a table");
        let gate = table.select(&["gate".to_owned()]).expect("a level");
        let full = table.select(&["full".to_owned()]).expect("a level");
        // Nothing that a change must pass is left out of the full checks.
        for step in gate {
            let runs = |it: &&Step| it.name == step.name || it.includes.contains(&step.name);
            assert!(full.iter().any(runs), "{}", step.name);
        }
    }

    #[test]
    fn steps_bring_their_prerequisites_and_replace_shorter_ones() {
        let table = table("level = 'gate'\nlimit_seconds = 1\nafter = ['b']").expect("a table");
        let select = |name: &str| names(&table.select(&[name.to_owned()]).expect("a selection"));
        assert_eq!(select("gate"), ["a"]);
        assert_eq!(select("full"), ["b"]);
        let chosen = table.select(&["a".to_owned()]).expect("a step");
        assert_eq!(names(&table.with_prerequisites(&chosen)), ["a", "b"]);
        assert!(table.select(&["c".to_owned()]).is_err());
        assert_eq!(chosen[0].paths, ["x/"]);
    }
}
