//! `--fuzz`: command sequences drawn by chance are played on the server under test and on a
//! reference, and whatever differs is made as short as it can be and printed as a case.
//!
//! [`grammar`] says what commands look like, [`kinds`] what their arguments are, [`generate`] makes
//! episodes of them; [`arguments`] makes episodes of any arguments at all. [`run`] plays those,
//! [`shrink`] shortens, [`explained`] knows what is known.

pub mod arguments;
pub mod episode;
pub mod explained;
pub mod generate;
pub mod grammar;
pub mod kinds;
pub mod run;
mod script;
pub mod shrink;

use std::collections::BTreeMap;
use std::io;

use arguments::Commands;
use episode::{Episode, as_case};
use grammar::Grammar;
use run::{End, Event, Pair, Played};

use super::suite::{Error, key_prefix_of_run};
use super::target::Target;
use super::{Address, Interrupt, time};

/// How many different differences are made short; of the others it is said that they are there.
const FOUND_MAX: usize = 20;
/// How often what was found is played again, to see whether it is there every time.
const REPEATS: usize = 3;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server under test.
    pub target: Address,
    /// The server that is right by definition.
    pub reference: Address,
    /// How many commands are sent to each, or a few more.
    pub count: usize,
    /// What chance begins with: the same seed gives the same commands.
    pub seed: u64,
    /// What commands are drawn after.
    pub manner: Manner,
    /// Ends it early.
    pub interrupt: Interrupt,
}

/// What commands are drawn after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// The grammar: most of them are right.
    #[default]
    Grammar,
    /// The target's table of commands, with any arguments: most of them are wrong. Both servers are
    /// flushed.
    Arguments,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What the servers say they are.
    pub servers: [String; 2],
    /// What chance began with.
    pub seed: u64,
    /// How many commands were sent to each.
    pub commands: usize,
    /// In how many conversations.
    pub episodes: u64,
    /// How long it took.
    pub seconds: f64,
    /// What differed, each kind once.
    pub found: Vec<Found>,
    /// How often what is known to differ was met.
    pub explained: BTreeMap<&'static str, usize>,
}

/// A difference.
#[derive(Clone, Debug)]
pub struct Found {
    /// The command, and what was said to it: what differs in the same way has the same.
    pub signature: String,
    /// The first episode it was met in.
    pub episode: u64,
    /// In how many episodes it was met.
    pub times: usize,
    /// Whether it was there whenever it was tried again.
    pub repeats: bool,
    /// The shortest conversation that shows it, as a case that expects what the reference says.
    pub case: String,
}

/// Hears how far it has come. `()` does not listen.
pub trait Progress {
    /// So many commands of so many are done, and so many differences were found.
    fn fuzzed(&mut self, _done: usize, _of: usize, _found: usize) {}
    /// This was found.
    fn found(&mut self, _found: &Found) {}
}

impl Progress for () {}

/// Plays episodes until enough commands were sent.
pub fn fuzz(options: &Options, progress: &mut dyn Progress) -> Result<Report, Error> {
    let grammar = Grammar::new().map_err(Error::Usage)?;
    let prefix = key_prefix_of_run();
    let explore = |address: &Address| {
        let lost = |error| Error::Server(address.clone(), error);
        let target = Target::explore(address, &prefix, false).map_err(lost)?;
        if !target.own_database {
            let problem = format!("{address}: --fuzz needs an empty database");
            return Err(Error::Usage(problem));
        }
        Ok(target)
    };
    let (target, reference) = (explore(&options.target)?, explore(&options.reference)?);
    let lost = |error| Error::Server(options.target.clone(), error);
    let begin_us = time::now_us();
    let commands = target.connect(2).and_then(|mut wire| Commands::of(&mut wire)).map_err(lost)?;
    let mut run = Run {
        pair: Pair::new(&target, &reference, options.manner).map_err(lost)?,
        report: Report {
            servers: [target.name.clone(), reference.name.clone()],
            seed: options.seed,
            ..Report::default()
        },
    };
    while run.report.commands < options.count && !options.interrupt.is_asked() {
        let number = run.report.episodes;
        let episode = match options.manner {
            Manner::Grammar => generate::episode(&grammar, options.seed, number),
            Manner::Arguments => arguments::episode(&commands, &grammar, options.seed, number),
        };
        run.episode(number, &episode, progress).map_err(lost)?;
        run.report.episodes += 1;
        progress.fuzzed(run.report.commands, options.count, run.report.found.len());
    }
    let elapsed_us = u32::try_from((time::now_us() - begin_us) / 1000).unwrap_or(u32::MAX);
    run.report.seconds = f64::from(elapsed_us) / 1000.0;
    Ok(run.report)
}

struct Run<'a> {
    pair: Pair<'a>,
    report: Report,
}

impl Run<'_> {
    fn episode(
        &mut self,
        number: u64,
        episode: &Episode,
        progress: &mut dyn Progress,
    ) -> io::Result<()> {
        let played = self.pair.play(episode, true)?;
        self.report.commands += played.events.len();
        for explained in &played.explained {
            *self.report.explained.entry(explained.name).or_default() += 1;
        }
        let Some(signature) = signature(&played) else { return Ok(()) };
        let mut known = self.report.found.iter_mut();
        if let Some(known) = known.find(|known| known.signature == signature) {
            known.times += 1;
            return Ok(());
        }
        let found = self.shorten(number, episode.protocol, &signature, &played)?;
        progress.found(&found);
        self.report.found.push(found);
        Ok(())
    }

    /// Looks for the shortest conversation with the same difference.
    fn shorten(
        &mut self,
        number: u64,
        protocol: u8,
        signature_found: &str,
        played: &Played,
    ) -> io::Result<Found> {
        let end = played.difference.as_ref().map_or(0, |difference| difference.at + 1);
        let mut shortest = Episode { protocol, steps: played.steps[..end].to_vec() };
        let pair = &mut self.pair;
        let mut shows = |episode: &Episode| {
            let played = pair.play(episode, false)?;
            Ok(signature(&played).is_some_and(|it| it == signature_found))
        };
        let mut repeats = shows(&shortest)?;
        if repeats && self.report.found.len() < FOUND_MAX {
            shortest = shrink::shrink(&shortest, &mut shows)?;
        }
        for _ in 0..REPEATS {
            repeats = repeats && shows(&shortest)?;
        }
        let again = self.pair.play(&shortest, false)?;
        let told = if again.difference.is_some() { &again } else { played };
        let mut remarks = vec![format!("Seed {}, episode {number}.", self.report.seed)];
        if !repeats {
            remarks.push("It was not there every time it was tried again.".to_owned());
        }
        if let Some(difference) = &told.difference {
            remarks.push(format!("The target:    {}", difference.ours.notation()));
            remarks.push(format!("The reference: {}", difference.theirs.notation()));
        }
        if self.report.found.len() >= FOUND_MAX {
            remarks.push("Not shortened: there are too many.".to_owned());
            shortest.steps.clear();
        }
        let case = as_case(signature_found, &remarks, &shortest, &told.events);
        let case = without_prefix(&case, &told.prefix);
        let signature = signature_found.to_owned();
        Ok(Found { signature, episode: number, times: 1, repeats, case })
    }
}

/// What tells one kind of difference from another: the command, and how the replies begin.
fn signature(played: &Played) -> Option<String> {
    let difference = played.difference.as_ref()?;
    let words = &difference.theirs.words;
    let words = arguments::called(words).unwrap_or(words);
    let word = |at: usize| {
        let text = words.get(at).map(|word| String::from_utf8_lossy(word).to_uppercase());
        text.unwrap_or_default()
    };
    let parent = ["XINFO", "XGROUP", "OBJECT", "CLIENT", "PUBSUB", "SCRIPT", "COMMAND", "CONFIG"];
    let name = match word(0) {
        name if parent.contains(&&*name) => format!("{name} {}", word(1)),
        name => name,
    };
    let (ours, theirs) = (kind(&difference.ours), kind(&difference.theirs));
    Some(format!("{name}: {ours} in the place of {theirs}"))
}

fn kind(event: &Event) -> String {
    match (event.end, event.frames.last()) {
        (End::Replied, Some(frame)) if frame.kind == b'-' => {
            let text = String::from_utf8_lossy(&frame.text).into_owned();
            text.split(' ').take(4).collect::<Vec<_>>().join(" ")
        }
        (End::Replied, Some(frame)) if frame.missing || frame.kind == b'_' => "nil".to_owned(),
        (End::Replied, Some(frame)) => match frame.kind {
            b'+' => format!("+{}", String::from_utf8_lossy(&frame.text)),
            b':' => "an integer".to_owned(),
            b'$' => "a string".to_owned(),
            b',' => "a double".to_owned(),
            b'*' | b'~' | b'>' | b'%' => "an array".to_owned(),
            _ => "another type".to_owned(),
        },
        (End::Replied, None) => "nothing".to_owned(),
        (End::Waits, _) => "waiting".to_owned(),
        (End::Closed, _) => "the end".to_owned(),
        (End::Silent, _) => "silence".to_owned(),
    }
}

/// Keys as a case writes them.
fn without_prefix(text: &str, prefix: &str) -> String {
    let mut parts = text.split(prefix);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_name =
            |byte: char| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == '-';
        let end = part.find(|byte| !is_name(byte)).unwrap_or(part.len());
        out.push_str(&format!("<{}>{}", &part[..end], &part[end..]));
    }
    out
}

impl Report {
    /// Whether the two servers said the same, but for what is known.
    pub fn is_green(&self) -> bool {
        self.found.is_empty()
    }

    /// It, as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for found in &self.found {
            out.push_str(&format!(
                "{}\n# Met in {} episodes.\n\n",
                found.case.trim_end(),
                found.times
            ));
        }
        for (name, times) in &self.explained {
            out.push_str(&format!("known: {name}: {times} times\n"));
        }
        let [target, reference] = &self.servers;
        out.push_str(&format!(
            "{} commands in {} episodes on {target} and {reference}, seed {}, {:.1} s: {}\n",
            self.commands,
            self.episodes,
            self.seed,
            self.seconds,
            match self.found.len() {
                0 => "no difference".to_owned(),
                count => format!("{count} differences"),
            },
        ));
        out
    }
}
