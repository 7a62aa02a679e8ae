//! Random rules of users. Checks that nothing panics, that a wrong rule changes nothing, and that
//! the line of a user makes the same user: by `ACL SETUSER`, and from an ACL file.

use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use lockwheel_engine::acl::{AclFile, AclFileReader, WriteFailed};
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::sessions::{ClientId, Origin};
use lockwheel_engine::settings::Settings;
use lockwheel_engine::timing::time::{Millis, Time};
use lockwheel_engine::{Engine, Flow};
use lockwheel_resp::Reply;
use lockwheel_resp::decode::decode;

const NOW: Time = Time::at(Millis(1_700_000_000_000));

/// Words that random bytes rarely contain. A byte of the input selects one.
const WORDS: &[&[u8]] = &[
    b"on",
    b"off",
    b"nopass",
    b"resetpass",
    b"reset",
    b"allkeys",
    b"resetkeys",
    b"allchannels",
    b"resetchannels",
    b"allcommands",
    b"nocommands",
    b"clearselectors",
    b"sanitize-payload",
    b"skip-sanitize-payload",
    b"+@all",
    b"-@all",
    b"+@lock",
    b"-@write",
    b"+get",
    b"-set",
    b"+config|get",
    b"-config|set",
    b"+config",
    b"+select|0",
    b"+select|1",
    b"+client|id|x",
    b"~*",
    b"%R~*",
    b"%W~*",
    b"%RW~*",
    b"~a",
    b"%R~a",
    b"%W~a",
    b"&*",
    b"&a",
    b">p",
    b"<p",
    b"#148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940",
    b"(",
    b")",
    b"(~a",
    b"+get)",
    b"(+get",
    b"&a)",
    b"(%RW~* ~b +@read -get)",
    b"(~a +set &*)",
];

/// A file in memory.
struct MemoryFile(Arc<Mutex<Vec<u8>>>);

impl AclFile for MemoryFile {
    fn name(&self) -> &str {
        "users.acl"
    }

    fn reader(&self) -> AclFileReader {
        let file = Arc::clone(&self.0);
        Box::new(move || Ok(file.lock().expect("no panic").clone()))
    }

    fn write(&mut self, text: &[u8]) -> Result<(), WriteFailed> {
        *self.0.lock().expect("no panic") = text.to_vec();
        Ok(())
    }
}

pub(crate) fn check(input: &[u8]) {
    let mut engine = Engine::new(Settings::default(), Process::default(), NOW, [1, 2, 3, 4]);
    let client = engine.connect(Origin::default(), NOW);
    let file = Arc::new(Mutex::new(Vec::new()));
    engine.load_users(Some(Box::new(MemoryFile(Arc::clone(&file))))).expect("an empty file");
    let rules: Vec<&[u8]> = input.split(|&byte| byte == b'\n').map(rule).collect();
    for rules in rules.chunks(3) {
        let before = list(&mut engine, client);
        let request = [&[&b"ACL"[..], b"SETUSER", b"u"], rules].concat();
        match run(&mut engine, client, &request) {
            Reply::Simple(_) => check_line(&mut engine, client),
            _ => assert_eq!(list(&mut engine, client), before),
        }
    }
    // What is saved is loaded.
    let before = list(&mut engine, client);
    assert_eq!(run(&mut engine, client, &[b"ACL", b"SAVE"]), Reply::OK);
    assert_eq!(run(&mut engine, client, &[b"ACL", b"LOAD"]), Reply::OK);
    assert_eq!(list(&mut engine, client), before);
    // Every command can be checked, and any file can be read.
    run(&mut engine, client, &[&[&b"ACL"[..], b"DRYRUN", b"u"], &rules[..]].concat());
    *file.lock().expect("no panic") = input.to_vec();
    run(&mut engine, client, &[b"ACL", b"LOAD"]);
}

/// A rule: a word that the only byte selects, or the bytes.
fn rule(bytes: &[u8]) -> &[u8] {
    match bytes {
        [byte] => WORDS[usize::from(*byte) % WORDS.len()],
        bytes => bytes,
    }
}

/// Checks that the line of the user makes the same user.
fn check_line(engine: &mut Engine, client: ClientId) {
    let Reply::Array(lines) = list(engine, client) else { panic!("no lines") };
    let Some(line) = lines.iter().find_map(|line| match line {
        Reply::Bulk(line) => line.strip_prefix(b"user u "),
        _ => None,
    }) else {
        panic!("no user")
    };
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let request = [&[&b"ACL"[..], b"SETUSER", b"v", b"reset"], &words[..]].concat();
    assert_eq!(run(engine, client, &request), Reply::OK, "{}", line.escape_ascii());
    let described = [b"u", b"v"].map(|name| run(engine, client, &[b"ACL", b"GETUSER", name]));
    assert_eq!(described[0], described[1]);
    assert_eq!(run(engine, client, &[b"ACL", b"DELUSER", b"v"]), Reply::Integer(1));
}

fn list(engine: &mut Engine, client: ClientId) -> Reply {
    run(engine, client, &[b"ACL", b"LIST"])
}

fn run(engine: &mut Engine, client: ClientId, argv: &[&[u8]]) -> Reply {
    let mut out = BytesMut::new();
    while engine.run(NOW, client, argv, &mut out) == Flow::Again {
        let read = engine.next_file_read().expect("a request that needs a file");
        engine.end_file_read(read.run());
    }
    decode(&out).expect("a well-formed reply").expect("a complete reply").0
}
