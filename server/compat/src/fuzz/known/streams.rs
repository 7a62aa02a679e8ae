//! Known differences of streams, their groups and consumers.

use std::collections::BTreeSet;

use super::difference::{KnownDifference, ObservedDifference, References};
use super::replies::{is_error, is_integer, is_word, number};
use super::words::{was_sent, word_after};
use crate::fuzz::episode::Step;
use crate::fuzz::reference::{self, is_named};
use crate::wire::frame::Frame;

/// The differences of this family.
pub(super) const DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        name: "the last entry of a stream",
        line: "| `XREAD` from `+` |",
        commands: &["XREAD", "XREADGROUP"],
        references: References::Since(7, 4),
        ends: false,
        is: |observed| {
            let begin = "ERR Unbalanced 'xread' list of streams: for each stream key an ID";
            let end = "must be specified.";
            is_error(observed.ours, &format!("{begin} or '$' {end}"))
                && is_error(observed.theirs, &format!("{begin}, '+', or '$' {end}"))
        },
    },
    KnownDifference {
        name: "lag of groups",
        line: "| `lag` and `entries-read` of `XINFO` |",
        commands: &["XINFO"],
        references: References::Since(7, 2),
        ends: false,
        is: |observed| same_but(&[b"lag", b"entries-read"], observed.ours, observed.theirs),
    },
    KnownDifference {
        name: "keys of streams without a group",
        line: "| `COMMAND GETKEYS` of `XREAD` and `XREADGROUP` with unknown options |",
        commands: &["COMMAND GETKEYS XREAD", "COMMAND GETKEYS XREADGROUP"],
        references: References::Since(8, 0),
        ends: false,
        is: |observed| {
            observed.ours.kind == b'*'
                && is_error(observed.theirs, "ERR Invalid arguments specified for command")
        },
    },
    KnownDifference {
        name: "ids below what was deleted",
        line: "| `XSETID` below an entry that was deleted |",
        commands: &["XSETID"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let refusal =
                "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id";
            let deleted = was_sent(observed, &["XDEL"], &|_| true)
                || was_sent(observed, &["XSETID"], &|words| {
                    word_after(words, "MAXDELETEDID").is_some()
                });
            // The next check of the command.
            let top = "ERR The ID specified in XSETID is smaller than the target stream top item";
            let is_ok = observed.theirs.kind == b'+' && observed.theirs.text == b"OK";
            deleted && is_error(observed.ours, refusal) && (is_ok || is_error(observed.theirs, top))
        },
    },
    KnownDifference {
        name: "unbalanced lists of streams",
        line: "| `XREAD` of streams without as many ids |",
        commands: &["XREAD", "XREADGROUP"],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            let (name, id) = match is_named(observed.words, "XREAD") {
                true => ("xread", "$"),
                false => ("xreadgroup", ">"),
            };
            let end = "of streams: for each stream key an ID or";
            is_error(
                observed.ours,
                &format!("ERR Unbalanced '{name}' list {end} '{id}' must be specified."),
            ) && is_error(
                observed.theirs,
                &format!("ERR Unbalanced XREAD list {end} '$' must be specified."),
            )
        },
    },
    KnownDifference {
        name: "consumers that read in vain",
        line: "| `XREADGROUP` that finds nothing, `XCLAIM`",
        // Not in scripts, where the consumer is not known.
        commands: &[
            "XGROUP CREATECONSUMER",
            "XINFO GROUPS",
            "XINFO CONSUMERS",
            "XINFO STREAM",
            "XCLAIM",
            "XAUTOCLAIM",
        ],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            if is_named(observed.words, "XGROUP CREATECONSUMER") {
                let reader = observed.words.get(3).zip(observed.words.get(4));
                return reader.is_some_and(|(group, name)| has_read(observed, group, name))
                    && is_integer(observed.ours, "0")
                    && is_integer(observed.theirs, "1");
            }
            if is_named(observed.words, "XINFO GROUPS") {
                return same_but(&[b"consumers"], observed.ours, observed.theirs)
                    && observed
                        .ours
                        .items
                        .iter()
                        .zip(&observed.theirs.items)
                        .all(|(ours, theirs)| has_more_readers(observed, ours, theirs));
            }
            !same_but_consumers(observed, false) && same_but_consumers(observed, true)
        },
    },
    KnownDifference {
        name: "times of consumers",
        line: "| `XINFO CONSUMERS` and `STREAM ... FULL` |",
        commands: &["XINFO STREAM", "XINFO CONSUMERS"],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| same_but_consumers(observed, false),
    },
];

/// Whether an earlier command has read or claimed for this consumer.
fn has_read(observed: &ObservedDifference<'_>, group: &[u8], consumer: &[u8]) -> bool {
    readers(observed).any(|(its, reader)| is_word(group, its) && is_word(consumer, reader))
}

/// Groups and consumers that earlier commands have read or claimed for.
fn readers<'a>(observed: &ObservedDifference<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    observed.before.iter().filter_map(|Step { words, .. }| {
        let at = match () {
            () if is_named(words, "XREADGROUP") => {
                words.iter().position(|word| word.eq_ignore_ascii_case(b"GROUP"))?
            }
            () if is_named(words, "XCLAIM") || is_named(words, "XAUTOCLAIM") => 1,
            () => return None,
        };
        Some((&**words.get(at + 1)?, &**words.get(at + 2)?))
    })
}

/// The value of a name in a map.
fn field<'a>(frame: &'a Frame, name: &[u8]) -> Option<&'a Frame> {
    frame.items.chunks_exact(2).find(|pair| pair[0].text == name).map(|pair| &pair[1])
}

fn field_mut<'a>(frame: &'a mut Frame, name: &[u8]) -> Option<&'a mut Frame> {
    frame.items.chunks_exact_mut(2).find(|pair| pair[0].text == name).map(|pair| &mut pair[1])
}

/// Whether the target has created no more consumers in a group than have read there.
fn has_more_readers(observed: &ObservedDifference<'_>, ours: &Frame, theirs: &Frame) -> bool {
    let count = |group: &Frame| field(group, b"consumers").and_then(number);
    let (Some(ours_count), Some(theirs_count), Some(name)) =
        (count(ours), count(theirs), field(ours, b"name"))
    else {
        return false;
    };
    let of_group = readers(observed).filter(|(group, _)| is_word(&name.text, group));
    let names: BTreeSet<&[u8]> = of_group.map(|(_, consumer)| consumer).collect();
    ours_count >= theirs_count && (ours_count - theirs_count).unsigned_abs() <= names.len() as u64
}

/// Whether consumers are reported equally, except for the times that 7.0 does not report and, if
/// `ignores_unsuccessful`, for consumers that have read and never found an entry.
fn same_but_consumers(observed: &ObservedDifference<'_>, ignores_unsuccessful: bool) -> bool {
    let (mut ours, mut theirs) = (observed.ours.clone(), observed.theirs.clone());
    ours.walk(&mut |frame| {
        for name in [&b"inactive"[..], b"active-time"] {
            let mut pairs = frame.items.chunks_exact(2);
            if let Some(at) = pairs.position(|it| it[0].text == name && it[1].kind == b':') {
                frame.items.drain(2 * at..2 * at + 2);
            }
        }
    });
    if ignores_unsuccessful {
        let group = observed.words.get(3).map_or(&[][..], |group| group);
        if is_named(observed.words, "XINFO CONSUMERS") {
            remove_consumers_without_entries(observed, group, &mut ours, &theirs);
        } else if let (Some(ours), Some(theirs)) =
            (field_mut(&mut ours, b"groups"), field(&theirs, b"groups"))
        {
            for (ours, theirs) in ours.items.iter_mut().zip(&theirs.items) {
                let group = field(ours, b"name").map(|name| name.text.clone()).unwrap_or_default();
                if let (Some(ours), Some(theirs)) =
                    (field_mut(ours, b"consumers"), field(theirs, b"consumers"))
                {
                    remove_consumers_without_entries(observed, &group, ours, theirs);
                }
            }
        }
    }
    reference::pairwise(&mut ours, &mut theirs, &mut |ours, theirs| {
        take_later_seen_time(observed, ours, theirs);
    });
    reference::normalise(observed.words, &mut ours, &mut theirs, observed.apart_ms);
    ours == theirs
}

/// For a consumer that has read more than once: makes its seen-time equal if the target's is later.
/// The reference does not count a read without entries.
fn take_later_seen_time(observed: &ObservedDifference<'_>, ours: &mut Frame, theirs: &Frame) {
    let Some(name) = field(ours, b"name").map(|name| name.text.clone()) else { return };
    let is_made = |Step { words, .. }: &&Step| {
        let made = words.get(4).filter(|_| is_named(words, "XGROUP CREATECONSUMER"));
        made.is_some_and(|made| is_word(&name, made))
    };
    let reads = readers(observed).filter(|(_, consumer)| is_word(&name, consumer)).count();
    if reads == 0 || reads + observed.before.iter().filter(is_made).count() < 2 {
        return;
    }
    for (time, sign) in [(&b"seen-time"[..], 1), (b"idle", -1)] {
        if let (Some(ours), Some(theirs)) = (field_mut(ours, time), field(theirs, time))
            && let (Some(mine), Some(other)) = (number(ours), number(theirs))
            && sign * mine >= sign * other
        {
            ours.text.clone_from(&theirs.text);
        }
    }
}

/// Removes consumers that the reference lacks, that have read and that have nothing pending.
fn remove_consumers_without_entries(
    observed: &ObservedDifference<'_>,
    group: &[u8],
    ours: &mut Frame,
    theirs: &Frame,
) {
    let name = |row: &Frame| field(row, b"name").map(|name| name.text.clone()).unwrap_or_default();
    ours.items.retain(|row| {
        let count = field(row, b"pel-count").or(field(row, b"pending"));
        let is_known = theirs.items.iter().any(|it| name(it) == name(row));
        is_known || !has_read(observed, group, &name(row)) || count.and_then(number) != Some(0)
    });
}

/// Whether they differ only in the numbers after these names.
fn same_but(names: &[&[u8]], ours: &Frame, theirs: &Frame) -> bool {
    let blanked = |frame: &Frame| {
        let mut frame = frame.clone();
        frame.walk(&mut |frame| {
            for at in 1..frame.items.len() {
                let is_number =
                    matches!(frame.items[at].kind, b':' | b'_') || frame.items[at].missing;
                if names.contains(&&*frame.items[at - 1].text) && is_number {
                    let nothing = frame.items[at - 1].clone();
                    frame.items[at] = nothing;
                }
            }
        });
        frame
    };
    blanked(ours) == blanked(theirs)
}
