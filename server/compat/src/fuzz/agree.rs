//! Compares the replies of two servers.

use super::episode::Step;
use super::episode::{Observation, ReadingEnd, called, is_message};
use super::known::{self, KnownDifference, ObservedDifference, Version};
use super::reference;
use crate::wire::frame::Frame;

/// The context in which two replies are compared: see [`ObservedDifference`].
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) before: &'a [Step],
    pub(super) version: Version,
    pub(super) apart_ms: i64,
}

impl<'a> Context<'a> {
    fn observed(
        self,
        words: &'a [Vec<u8>],
        ours: &'a Frame,
        theirs: &'a Frame,
    ) -> ObservedDifference<'a> {
        let Context { before, version, apart_ms } = self;
        ObservedDifference { words, before, ours, theirs, apart_ms, version }
    }
}

/// The known differences between two servers; an error if there is an unknown one.
pub(super) fn agree(
    ours: &Observation,
    theirs: &Observation,
    queue: &[Vec<Vec<u8>>],
    context: Context<'_>,
) -> Result<Vec<&'static KnownDifference>, ()> {
    let words = &theirs.words;
    let mut known = Vec::new();
    let silent = theirs.end == ReadingEnd::Silent;
    if silent || ours.end != theirs.end || ours.frames.len() != theirs.frames.len() {
        let last_reply =
            |event: &Observation| event.frames.last().cloned().unwrap_or_else(known::waits);
        let (ours, theirs) = (last_reply(ours), last_reply(theirs));
        let found = known::find(&context.observed(words, &ours, &theirs));
        return found.filter(|it| it.ends).map(|it| vec![it]).ok_or(());
    }
    for (ours, theirs) in ours.frames.iter().zip(&theirs.frames) {
        let exec = reference::is_named(words, "EXEC") && ours.items.len() == queue.len();
        if exec && theirs.items.len() == queue.len() && !is_message(theirs) {
            for ((ours, theirs), words) in ours.items.iter().zip(&theirs.items).zip(queue) {
                known.extend(frames_agree(words, ours, theirs, context)?);
            }
        } else {
            known.extend(frames_agree(words, ours, theirs, context)?);
        }
    }
    Ok(known)
}

fn frames_agree(
    words: &[Vec<u8>],
    ours: &Frame,
    theirs: &Frame,
    context: Context<'_>,
) -> Result<Option<&'static KnownDifference>, ()> {
    if ours == theirs {
        return Ok(None);
    }
    let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
    let called = called(words).unwrap_or(words);
    if !is_message(&theirs) {
        reference::normalise(called, &mut ours, &mut theirs, context.apart_ms);
        if reference::is_compared_by_shape(called) {
            reference::shapes(&mut ours, &mut theirs);
        }
    }
    if ours == theirs {
        return Ok(None);
    }
    let observed = |words| context.observed(words, &ours, &theirs);
    known::find(&observed(called)).or_else(|| known::find(&observed(words))).map(Some).ok_or(())
}
