//! Requests that need files. Such a request is held while the caller of the engine reads the files
//! without the engine, so that a slow disk delays no other client. Then it is run again, through
//! all gates, with what was read.
//!
//! A command in a transaction reads its files when `EXEC` runs it: nothing comes between the
//! commands of a transaction.

use std::collections::{BTreeMap, VecDeque};

use crate::Engine;
use crate::command::FileUse;
use crate::run::gates::{Closed, Invocation};
use crate::sessions::ClientId;
use crate::settings::Adoption;

/// What a request needs of files.
pub(crate) enum Files {
    /// The text of the ACL file, or why it cannot be read.
    Users(Result<Vec<u8>, String>),
    /// What the files are that directives name.
    Settings(Adoption),
}

/// Reads the files of a request.
pub struct FileRead {
    client: ClientId,
    era: u64,
    read: Box<dyn FnOnce() -> Files + Send>,
}

impl FileRead {
    /// Reads the files; this may take long.
    pub fn run(self) -> FilesRead {
        FilesRead { client: self.client, era: self.era, files: (self.read)() }
    }
}

/// The files that were read for a request.
pub struct FilesRead {
    client: ClientId,
    era: u64,
    files: Files,
}

/// The requests that need files.
#[derive(Default)]
pub(crate) struct FileReads {
    /// Those that are held, in the order in which they arrived. Their clients may have
    /// disconnected.
    waiting: VecDeque<FileRead>,
    /// The files of those that are about to be run again.
    read: BTreeMap<ClientId, FilesRead>,
    /// Number of times that files were put in use: what was read or asked for before is void.
    era: u64,
}

impl FileReads {
    /// What was read before now does not count any more: newer files or settings are in use.
    pub(crate) fn void(&mut self) {
        self.era += 1;
    }
}

impl Engine {
    /// Whether requests are held until files are read.
    pub fn has_file_reads(&self) -> bool {
        !self.file_reads.waiting.is_empty()
    }

    /// What reads the files of the next request that is held for them. The caller passes the result
    /// to [`Engine::end_file_read`].
    pub fn next_file_read(&mut self) -> Option<FileRead> {
        while let Some(next) = self.file_reads.waiting.pop_front() {
            if next.era == self.file_reads.era && self.sessions.get(next.client).is_some() {
                return Some(next);
            }
            self.resume_with_files(next.client);
        }
        None
    }

    /// Runs the request again whose files were read, unless its client has disconnected.
    pub fn end_file_read(&mut self, files: FilesRead) {
        let client = files.client;
        self.file_reads.read.insert(client, files);
        self.file_reads.read.retain(|client, _| self.sessions.get(*client).is_some());
        self.resume_with_files(client);
    }

    fn resume_with_files(&mut self, client: ClientId) {
        if self.sessions.stop_waiting(client) {
            self.sessions.resume(client);
        }
    }

    /// Takes what was read for the request of a client.
    pub(crate) fn take_files(&mut self, client: ClientId) -> Option<Files> {
        self.file_reads.read.remove(&client).map(|read| read.files)
    }

    /// Holds a request until its files are read.
    pub(crate) fn check_files(&mut self, call: &Invocation<'_>) -> Result<(), Closed> {
        let (client, era) = (call.client, self.file_reads.era);
        if self.file_reads.read.get(&client).is_some_and(|read| read.era == era) {
            return Ok(());
        }
        self.take_files(client);
        let session = self.sessions.get(client);
        if session.is_none_or(|session| session.transaction.is_some()) {
            return Ok(());
        }
        let Some(read) = self.reader_for(call) else { return Ok(()) };
        self.file_reads.waiting.push_back(FileRead { client, era, read });
        Err(Closed::Reading)
    }

    fn reader_for(&self, call: &Invocation<'_>) -> Option<Box<dyn FnOnce() -> Files + Send>> {
        match call.entry.command.files? {
            FileUse::Users => {
                let read = self.access.file.as_ref()?.reader();
                Some(Box::new(move || Files::Users(read())))
            }
            FileUse::Settings => {
                let read = self.reader_of_settings(call.argv.get(2..)?)?;
                Some(Box::new(move || Files::Settings(read())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::FilesRead;
    use crate::Flow;
    use crate::acl::{AclFile, AclFileReader, WriteFailed};
    use crate::sessions::ClientId;
    use crate::settings::{ConfigError, Settings, SettingsReader, SettingsUser, directive};
    use crate::testing::{Stage, words};

    /// A file that is both the ACL file and what `tls-cert-file` names. Its text is that of the
    /// moment at which it is read. What was put in use is appended to the second text.
    #[derive(Clone, Default)]
    struct TestFile(Arc<Mutex<(String, String)>>);

    impl TestFile {
        fn write(&self, text: &str) {
            self.0.lock().unwrap().0 = text.to_owned();
        }

        fn used(&self) -> String {
            self.0.lock().unwrap().1.clone()
        }
    }

    impl AclFile for TestFile {
        fn name(&self) -> &str {
            "users.acl"
        }

        fn reader(&self) -> AclFileReader {
            let file = self.clone();
            Box::new(move || Ok(file.0.lock().unwrap().0.clone().into_bytes()))
        }

        fn write(&mut self, _: &[u8]) -> Result<(), WriteFailed> {
            Err(WriteFailed)
        }
    }

    impl SettingsUser for TestFile {
        fn reader(&self, next: &Settings, names: &[&'static str]) -> Option<SettingsReader> {
            let name = *names.iter().find(|name| name.starts_with("tls-"))?;
            let certificate = next.get(directive::TLS_CERT_FILE).unwrap_or_default();
            let paths = format!("{certificate},{}", next.get(directive::TLS_CA_CERT_FILE));
            let file = self.clone();
            Some(Box::new(move || {
                let text = file.0.lock().unwrap().0.clone();
                if text.is_empty() {
                    return Err(ConfigError::Refused { name, reason: "no file".to_owned() });
                }
                let used = format!("{paths}={text};");
                Ok(Box::new(move || file.0.lock().unwrap().1.push_str(&used)))
            }))
        }
    }

    /// A stage with the file of users and of certificates, which has this text.
    fn stage(text: &str) -> (Stage, TestFile) {
        let (mut stage, file) = (Stage::new(Settings::default()), TestFile::default());
        stage.engine.load_users(Some(Box::new(file.clone()))).unwrap();
        stage.engine.set_settings_user(Box::new(file.clone()));
        stage.check("a> PING; b> PING");
        file.write(text);
        (stage, file)
    }

    fn read_next(stage: &mut Stage) -> FilesRead {
        stage.engine.next_file_read().expect("a request that needs files").run()
    }

    /// Reads the files of the next request, which is that of this client.
    fn read_for(stage: &mut Stage, client: ClientId) {
        let files = read_next(stage);
        stage.engine.end_file_read(files);
        assert_eq!(stage.resumed(), [client]);
    }

    const USER: &str = "user u on nopass ~* +@all";

    #[test]
    fn request_is_run_when_its_file_is_read() {
        let (mut stage, _) = stage(USER);
        let client = stage.hold("a", "ACL LOAD");
        stage.check("b> PING => PONG; b> ACL USERS => [\"default\"]");
        stage.check("b> INFO commandstats => ...; b> SLOWLOG LEN => 0");
        read_for(&mut stage, client);
        assert_eq!(stage.run(client, &words("ACL LOAD")), ("OK".to_owned(), Flow::Next));
        stage.check("ACL USERS => [\"default\", \"u\"]");
        stage.check("INFO commandstats => ...cmdstat_acl|load:calls=1,...");
    }

    #[test]
    fn directives_without_files_wait_for_none() {
        let (mut stage, file) = stage("");
        let client = stage.client("a");
        for command in ["CONFIG SET hz 20", "CONFIG SET tls-cert-file", "CONFIG SET tls-x y hz 1"] {
            assert_eq!(stage.run(client, &words(command)).1, Flow::Next, "{command}");
        }
        stage.check("CONFIG SET hz 30 tls-cert-file c => !ERR CONFIG SET failed ... - no file");
        stage.check("CONFIG GET hz => [\"hz\", \"20\"]");
        file.write("1");
        stage.check("CONFIG SET hz 30 tls-cert-file c => OK; CONFIG GET hz => [\"hz\", \"30\"]");
        assert_eq!(file.used(), "c,=1;");
    }

    #[test]
    fn rights_count_when_the_request_is_run() {
        let (mut stage, file) = stage(USER);
        stage.check("b> ACL SETUSER v on nopass ~* +@all; AUTH v x");
        let client = stage.hold("a", "ACL LOAD");
        stage.check("b> ACL SETUSER v -acl");
        read_for(&mut stage, client);
        let denied = "!NOPERM User v has no permissions to run the 'acl|load' command";
        assert_eq!(stage.run(client, &words("ACL LOAD")).0, denied);
        stage.check("b> ACL USERS => [\"default\", \"v\"]");
        // What was read for the refused request is forgotten.
        file.write("user w");
        stage.check("b> ACL SETUSER v +acl; ACL LOAD; b> ACL USERS => [\"default\", \"w\"]");
    }

    #[test]
    fn transaction_reads_when_it_runs() {
        let (mut stage, file) = stage(USER);
        stage.check("MULTI; ACL LOAD => QUEUED; CONFIG SET tls-cert-file c => QUEUED");
        file.write("user w");
        stage.check("EXEC => [OK, OK]; ACL USERS => [\"default\", \"w\"]");
        assert_eq!(file.used(), "c,=user w;");
    }

    #[test]
    fn files_are_read_again_if_newer_ones_are_in_use() {
        let (mut stage, file) = stage("1");
        let first = stage.hold("a", "CONFIG SET tls-cert-file c");
        let second = stage.hold("b", "CONFIG SET tls-ca-cert-file d");
        read_for(&mut stage, first);
        let files = read_next(&mut stage);
        assert_eq!(stage.run(first, &words("CONFIG SET tls-cert-file c")).0, "OK");
        stage.engine.end_file_read(files);
        assert_eq!(stage.resumed(), [second]);
        file.write("2");
        stage.hold("b", "CONFIG SET tls-ca-cert-file d");
        read_for(&mut stage, second);
        assert_eq!(stage.run(second, &words("CONFIG SET tls-ca-cert-file d")).0, "OK");
        assert_eq!(file.used(), "c,=1;c,d=2;");
    }

    #[test]
    fn request_that_waits_for_older_files_is_run_again_at_once() {
        let (mut stage, file) = stage("1");
        let client = stage.hold("a", "CONFIG SET tls-cert-file c");
        stage.check("b> MULTI; b> CONFIG SET tls-ca-cert-file d; b> EXEC => [OK]");
        assert!(stage.engine.next_file_read().is_none());
        assert_eq!(stage.resumed(), [client]);
        stage.check("CONFIG SET tls-cert-file c => OK");
        assert_eq!(file.used(), ",d=1;c,d=1;");
    }

    #[test]
    fn nothing_is_read_for_clients_that_have_disconnected() {
        let (mut stage, _) = stage(USER);
        stage.hold("a", "ACL LOAD");
        stage.hold("b", "ACL LOAD");
        let files = read_next(&mut stage);
        stage.check("a!; b!");
        stage.engine.end_file_read(files);
        assert!(stage.engine.next_file_read().is_none());
        assert!(stage.engine.file_reads.read.is_empty());
        stage.check("c> ACL USERS => [\"default\"]; c> ACL LOAD => OK");
    }
}
