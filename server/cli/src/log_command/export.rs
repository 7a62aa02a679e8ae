//! `lockwheel log export`: rebuilds the state of a log, and writes its keys.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lockwheel::{Settings, time_of_log};
use lockwheel_engine::Engine;
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::limits::DATABASES_MAX;
use lockwheel_engine::store::records::Record;
use lockwheel_engine::timing::time::{Millis, Time};

use super::aof::AofWriter;
use super::deadlines::WallDeadlines;
use super::json::JsonWriter;
use super::progress::LogMeter;
use super::{Failure, Format, in_path, read};

/// Permission bits of a new file: as those of the log, it has values of keys and users.
const EXPORT_MODE: u32 = 0o600;

/// Writes the state of a log to a file or to standard output.
pub(super) fn export(
    path: &Path,
    format: Format,
    output: Option<&Path>,
    trusts_wall_clock: bool,
) -> Result<(), Failure> {
    // The log does not contain the number of databases.
    let begin = || {
        let mut settings = Settings::default();
        settings.databases = DATABASES_MAX;
        Engine::new(settings, Process::default(), Time::at(Millis(0)), [0; 4])
    };
    let (found, engine) = read(path, begin, |engine, effects| {
        let time = Time::at(Millis(effects.lease_ms));
        engine.apply(effects.bytes, time).map_err(|error| format!("{error:?}"))
    })?;
    let time = time_of_log(found.time, trusts_wall_clock);
    let Some(output) = output else {
        return Ok(write(&engine, time, format, &mut BufWriter::new(io::stdout().lock()))?);
    };
    let failed = |error: io::Error| in_path(output, &error);
    let mut partial = output.as_os_str().to_owned();
    partial.push(".partial");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(EXPORT_MODE);
    let mut out = BufWriter::new(options.open(&partial).map_err(failed)?);
    write(&engine, time, format, &mut out).map_err(failed)?;
    out.get_ref().sync_all().map_err(failed)?;
    fs::rename(&partial, output).map_err(failed)
}

fn write(engine: &Engine, time: Time, format: Format, out: &mut dyn Write) -> io::Result<()> {
    let deadlines = WallDeadlines::at(time);
    match format {
        // Users are not part of such a file.
        Format::Aof => {
            let mut writer = AofWriter::new(out, deadlines);
            engine.libraries().try_for_each(|code| writer.library(code))?;
            each_key(engine, time, |database, record| writer.key(database, record))?;
        }
        Format::Json => {
            let mut writer = JsonWriter::new(out, deadlines);
            engine.libraries().try_for_each(|code| writer.library(code))?;
            engine.replicated_users().try_for_each(|(name, rules)| writer.user(name, rules))?;
            each_key(engine, time, |database, record| writer.key(database, record))?;
        }
    }
    out.flush()
}

/// Calls `write` with each key whose lease has not ended.
fn each_key(
    engine: &Engine,
    time: Time,
    mut write: impl FnMut(usize, Record<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let databases = 0..engine.settings().databases as usize;
    let keys = databases.clone().map(|database| engine.key_count(database) as u64).sum();
    let meter = LogMeter::of_keys(keys);
    for database in databases {
        for record in engine.records(database) {
            meter.advance(1);
            if !record.is_expired(time) {
                write(database, record)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use lockwheel_engine::Engine;
    use lockwheel_engine::engine::inputs::Process;
    use lockwheel_engine::sessions::Origin;
    use lockwheel_engine::timing::time::{Millis, Time};

    use super::{Format, write};

    #[test]
    fn json_has_the_users_of_a_cluster() {
        let time = Time::at(Millis(0));
        let mut engine = Engine::new(Default::default(), Process::default(), time, [0; 4]);
        engine.lead(0, time);
        let client = engine.connect(Origin::default(), time);
        let words: [&[u8]; 6] = [b"ACL", b"SETUSER", b"u", b"on", b"~a*", b"+get"];
        engine.run(time, client, &words, &mut BytesMut::new());
        let mut text = Vec::new();
        write(&engine, time, Format::Json, &mut text).expect("it is written");
        let rules = "on sanitize-payload ~a* resetchannels -@all +get";
        let line = format!(r#"{{"type":"user","name":"u","rules":"{rules}"}}"#);
        assert_eq!(String::from_utf8_lossy(&text).trim_end(), line);
    }
}
