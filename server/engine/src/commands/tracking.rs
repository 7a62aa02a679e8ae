//! `CLIENT TRACKING` and related subcommands: the keys that a client caches, and for which it
//! receives invalidations.

use std::collections::BTreeSet;

use bytes::Bytes;
use lockwheel_resp::Reply;

use crate::Engine;
use crate::command::argument as arg;
use crate::command::{Arity, Command, integer, is};
use crate::commands::client::{OWN, on_or_off, yes_or_no};
use crate::error::Error;
use crate::run::context::Context;
use crate::sessions::tracking::{Mode, Tracking};
use crate::sessions::{ClientId, Session};

/// `CLIENT CACHING`
pub(super) const CACHING: Command = Command {
    name: "caching",
    arity: Arity::Exactly(3),
    since: "6.0.0",
    doc: "Makes the next command an exception to what is tracked.",
    arguments: &[arg::one_of("mode", &[arg::word("YES"), arg::word("NO")])],
    example: "CLIENT TRACKING ON OPTIN; CLIENT CACHING YES => OK",
    run: caching,
    ..OWN
};

/// `CLIENT GETREDIR`
pub(super) const GETREDIR: Command = Command {
    name: "getredir",
    arity: Arity::Exactly(2),
    since: "6.0.0",
    doc: "Returns the id of the connection that receives the invalidations, if redirected.",
    example: "CLIENT GETREDIR => -1",
    run: |context, _| Ok(Reply::Integer(redirect_number(context.client()))),
    ..OWN
};

/// `CLIENT TRACKING`
pub(super) const TRACKING: Command = Command {
    name: "tracking",
    arity: Arity::AtLeast(3),
    since: "6.0.0",
    complexity: "O(1), and O(N) in the number of prefixes",
    doc: "Sends the connection invalidations when keys change that it has read, or that have a \
          prefix.",
    arguments: &[
        arg::one_of("status", &[arg::word("ON"), arg::word("OFF")]),
        arg::integer("client-id").token("REDIRECT").optional(),
        arg::string("prefix").token("PREFIX").optional().multiple_token(),
        arg::word("BCAST").optional(),
        arg::word("OPTIN").optional(),
        arg::word("OPTOUT").optional(),
        arg::word("NOLOOP").optional(),
    ],
    example: "CLIENT TRACKING ON BCAST PREFIX lock: => OK",
    run: tracking,
    ..OWN
};

/// `CLIENT TRACKINGINFO`
pub(super) const TRACKINGINFO: Command = Command {
    name: "trackinginfo",
    arity: Arity::Exactly(2),
    since: "6.2.0",
    doc: "Returns how the connection tracks keys.",
    example: "CLIENT TRACKINGINFO => [\"flags\", [\"off\"], ...]",
    run: trackinginfo,
    ..OWN
};

/// The client that receives this client's invalidations: 0 if it is the client itself, -1 if
/// tracking is off.
pub(super) fn redirect_number(client: &Session) -> i64 {
    client.tracking.as_ref().map_or(-1, |tracking| {
        tracking.redirect.map_or(0, |id| i64::try_from(id.serial).unwrap_or(i64::MAX))
    })
}

/// `CLIENT TRACKINGINFO`: replies with the flags, the redirection and the prefixes.
fn trackinginfo(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let client = context.client();
    let words = match client.tracking.as_deref() {
        None => vec!["off"],
        Some(tracking) => {
            let mode = match (tracking.mode, tracking.caching) {
                (Mode::Reads, _) => &[][..],
                (Mode::Broadcast, _) => &["bcast"],
                (Mode::OptIn, false) => &["optin"],
                (Mode::OptIn, true) => &["optin", "caching-yes"],
                (Mode::OptOut, false) => &["optout"],
                (Mode::OptOut, true) => &["optout", "caching-no"],
            };
            let no_loop = tracking.no_loop.then_some("noloop");
            let broken = tracking.broken_redirect.then_some("broken_redirect");
            let mode = mode.iter().copied();
            std::iter::once("on").chain(mode).chain(no_loop).chain(broken).collect()
        }
    };
    let prefixes = client.tracking.iter().flat_map(|tracking| &tracking.prefixes);
    Ok(super::map([
        ("flags", Reply::Set(words.into_iter().map(Reply::bulk).collect())),
        ("redirect", Reply::Integer(redirect_number(client))),
        ("prefixes", Reply::Array(prefixes.map(Reply::bulk).collect())),
    ]))
}

/// `CLIENT CACHING`: replies with OK.
fn caching(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let Some(tracking) = context.client_mut().tracking.as_mut() else {
        return Err(Error::line(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        ));
    };
    let (mode, refusal) = match yes_or_no(argv[2])? {
        true => (
            Mode::OptIn,
            "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
        ),
        false => (
            Mode::OptOut,
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ),
    };
    if tracking.mode != mode {
        return Err(Error::line(refusal));
    }
    tracking.caching = true;
    Ok(Reply::OK)
}

/// The options after `CLIENT TRACKING ON`.
#[derive(Debug, Default)]
struct TrackingOptions<'a> {
    redirect: Option<ClientId>,
    bcast: bool,
    optin: bool,
    optout: bool,
    noloop: bool,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> TrackingOptions<'a> {
    fn read(arguments: &[&'a [u8]], engine: &Engine) -> Result<TrackingOptions<'a>, Error> {
        let mut options = TrackingOptions::default();
        let mut arguments = arguments.iter();
        while let Some(option) = arguments.next() {
            match *option {
                word if is(word, "bcast") => options.bcast = true,
                word if is(word, "optin") => options.optin = true,
                word if is(word, "optout") => options.optout = true,
                word if is(word, "noloop") => options.noloop = true,
                word if is(word, "prefix") => {
                    options.prefixes.push(arguments.next().ok_or(Error::Syntax)?);
                }
                word if is(word, "redirect") => {
                    let serial = arguments.next().ok_or(Error::Syntax)?;
                    if options.redirect.is_some() {
                        return Err(Error::line(
                            "ERR A client can only redirect to a single other client",
                        ));
                    }
                    let serial = u64::try_from(integer(serial)?).ok();
                    let other = serial.and_then(|serial| engine.sessions.clients.by_serial(serial));
                    options.redirect = Some(other.ok_or(Error::line(
                        "ERR The client ID you want redirect to does not exist",
                    ))?);
                }
                _ => return Err(Error::Syntax),
            }
        }
        Ok(options)
    }

    /// The mode of tracking, if the options are consistent with each other and with the mode
    /// `before`.
    fn mode(&self, before: Option<&Tracking>) -> Result<Mode, Error> {
        let refused = |line| Err(Error::line(line));
        let before = before.map(|tracking| tracking.mode);
        if !self.bcast && !self.prefixes.is_empty() {
            return refused("ERR PREFIX option requires BCAST mode to be enabled");
        }
        if before.is_some_and(|mode| (mode == Mode::Broadcast) != self.bcast) {
            return refused(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this \
                 client, and then re-enabling it with a different mode.",
            );
        }
        if self.bcast && (self.optin || self.optout) {
            return refused("ERR OPTIN and OPTOUT are not compatible with BCAST");
        }
        if self.optin && self.optout {
            return refused("ERR You can't specify both OPTIN mode and OPTOUT mode");
        }
        if self.optin && before == Some(Mode::OptOut) || self.optout && before == Some(Mode::OptIn)
        {
            return refused(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this \
                 client, and then re-enabling it with a different mode.",
            );
        }
        Ok(match (self.bcast, self.optin, self.optout) {
            (true, _, _) => Mode::Broadcast,
            (_, true, _) => Mode::OptIn,
            (_, _, true) => Mode::OptOut,
            _ => Mode::Reads,
        })
    }

    /// All prefixes, including those from `before`. No prefix may be a prefix of another.
    fn all_prefixes(&self, before: Option<&Tracking>) -> Result<BTreeSet<Bytes>, Error> {
        let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
        let refused = |one: &[u8], which: &str, other: &[u8]| {
            let (one, other) = (String::from_utf8_lossy(one), String::from_utf8_lossy(other));
            Err(Error::text(format!(
                "ERR Prefix '{one}' overlaps with {which} prefix '{other}'. Prefixes for a single \
                 client must not overlap."
            )))
        };
        let mut all = before.map_or_else(BTreeSet::new, |tracking| tracking.prefixes.clone());
        for (at, prefix) in self.prefixes.iter().enumerate() {
            if let Some(other) = all.iter().find(|other| overlap(prefix, other)) {
                return refused(prefix, "an existing", other);
            }
            if let Some(other) = self.prefixes[at + 1..].iter().find(|o| overlap(prefix, o)) {
                return refused(prefix, "another provided", other);
            }
        }
        all.extend(self.prefixes.iter().map(|prefix| Bytes::copy_from_slice(prefix)));
        if self.bcast && self.prefixes.is_empty() {
            all.insert(Bytes::new());
        }
        Ok(all)
    }
}

/// `CLIENT TRACKING`: replies with OK.
fn tracking(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let options = TrackingOptions::read(&argv[3..], context.engine())?;
    if on_or_off(argv[2])? {
        // Effects of another server invalidate nothing.
        context.check_leads()?;
        let before = context.client().tracking.as_deref();
        let mode = options.mode(before)?;
        let tracking = Tracking {
            mode,
            no_loop: options.noloop,
            redirect: options.redirect,
            broken_redirect: false,
            caching: false,
            prefixes: options.all_prefixes(before)?,
        };
        context.start_tracking(tracking);
    } else {
        context.stop_tracking();
    }
    Ok(Reply::OK)
}
