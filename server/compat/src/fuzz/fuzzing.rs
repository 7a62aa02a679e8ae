//! A run of the fuzzer: plays episodes until enough commands were sent, and shortens the
//! differences that it finds.

use std::io;

use super::arguments::{self, Commands};
use super::as_case::as_case;
use super::episode::{Episode, Manner, Observation, ReadingEnd, called};
use super::generate;
use super::grammar::{Grammar, names};
use super::report::{FoundDifference, Report};
use super::run::{Pair, Played};
use super::shrink;
use crate::interrupt::Interrupt;
use crate::suite::{Error, key_prefix_of_run};
use crate::time;
use crate::wire::address::Address;
use crate::wire::target::Target;

/// The number of differences that are shortened; the others are only listed.
const FOUND_MAX: usize = 20;
/// How often a difference is played again, to see whether it always appears.
const REPEATS: usize = 3;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server under test.
    pub target: Address,
    /// The reference server, which is right by definition.
    pub reference: Address,
    /// The least number of commands to send to each server.
    pub count: usize,
    /// The seed: the same seed gives the same commands.
    pub seed: u64,
    /// How commands are generated.
    pub manner: Manner,
    /// Ends the run early.
    pub interrupt: Interrupt,
}

/// Receives the progress of a run. `()` ignores it.
pub trait Progress {
    /// Called when `done` of `of` commands were sent and `found` differences were found.
    fn fuzzed(&mut self, _done: usize, _of: usize, _found: usize) {}
    /// Called with each new difference.
    fn found(&mut self, _found: &FoundDifference) {}
}

impl Progress for () {}

/// Plays episodes until enough commands were sent.
pub fn fuzz(options: &Options, progress: &mut dyn Progress) -> Result<Report, Error> {
    let prefix = key_prefix_of_run();
    let explore = |address: &Address| {
        let lost = |error| Error::Server(address.clone(), error);
        let target =
            Target::explore(address, &prefix, false, time::REPLY_TIMEOUT.into()).map_err(lost)?;
        if !target.own_database {
            let problem = format!("{address}: --fuzz needs an empty database");
            return Err(Error::Usage(problem));
        }
        Ok(target)
    };
    let (target, reference) = (explore(&options.target)?, explore(&options.reference)?);
    let lost = |error| Error::Server(options.target.clone(), error);
    let begin_us = time::now_us();
    let commands = shared_commands(&target, &reference).map_err(lost)?;
    let grammar = shared_grammar(&target, &reference).map_err(lost)?;
    if grammar.forms().is_empty() {
        let problem = "the server under test does not describe its commands with COMMAND DOCS";
        return Err(Error::Usage(problem.to_owned()));
    }
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

/// The commands that both servers have.
fn shared_commands(target: &Target, reference: &Target) -> io::Result<Commands> {
    let of = |server: &Target| Commands::of(&mut server.connect(2)?);
    Ok(of(target)?.shared_with(&of(reference)?))
}

/// The grammar of the commands and options that both servers have, as the target describes them.
fn shared_grammar(target: &Target, reference: &Target) -> io::Result<Grammar> {
    let docs = |server: &Target| server.connect(2)?.call(&["COMMAND", "DOCS"]);
    let known = names(&docs(reference)?);
    let newest = reference.valkey.unwrap_or(reference.redis);
    Ok(Grammar::new(&docs(target)?, newest, |name| known.contains(name)))
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

    /// Searches for the shortest conversation with the same difference.
    fn shorten(
        &mut self,
        number: u64,
        protocol: u8,
        signature_found: &str,
        played: &Played,
    ) -> io::Result<FoundDifference> {
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
        let shown = if again.difference.is_some() { &again } else { played };
        let mut remarks = vec![format!("Seed {}, episode {number}.", self.report.seed)];
        if !repeats {
            remarks.push("It did not appear every time it was played again.".to_owned());
        }
        if let Some(difference) = &shown.difference {
            remarks.push(format!("The target:    {}", difference.ours.notation()));
            remarks.push(format!("The reference: {}", difference.theirs.notation()));
        }
        if self.report.found.len() >= FOUND_MAX {
            remarks.push("Not shortened: there are too many.".to_owned());
            shortest.steps.clear();
        }
        let case = as_case(signature_found, &remarks, &shortest, &shown.events);
        let case = without_prefix(&case, &shown.prefix);
        let signature = signature_found.to_owned();
        Ok(FoundDifference { signature, episode: number, times: 1, repeats, case })
    }
}

/// The signature of a difference: the command, and how the replies begin.
fn signature(played: &Played) -> Option<String> {
    let difference = played.difference.as_ref()?;
    let words = &difference.theirs.words;
    let words = called(words).unwrap_or(words);
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

fn kind(event: &Observation) -> String {
    match (event.end, event.frames.last()) {
        (ReadingEnd::Replied, Some(frame)) if frame.kind == b'-' => {
            let text = String::from_utf8_lossy(&frame.text).into_owned();
            text.split(' ').take(4).collect::<Vec<_>>().join(" ")
        }
        (ReadingEnd::Replied, Some(frame)) if frame.missing || frame.kind == b'_' => {
            "nil".to_owned()
        }
        (ReadingEnd::Replied, Some(frame)) => match frame.kind {
            b'+' => format!("+{}", String::from_utf8_lossy(&frame.text)),
            b':' => "an integer".to_owned(),
            b'$' => "a string".to_owned(),
            b',' => "a double".to_owned(),
            b'*' | b'~' | b'>' | b'%' => "an array".to_owned(),
            _ => "another type".to_owned(),
        },
        (ReadingEnd::Replied, None) => "nothing".to_owned(),
        (ReadingEnd::Waits, _) => "waiting".to_owned(),
        (ReadingEnd::Closed, _) => "the end".to_owned(),
        (ReadingEnd::Silent, _) => "silence".to_owned(),
    }
}

/// Replaces the prefix of keys by the notation of cases.
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
