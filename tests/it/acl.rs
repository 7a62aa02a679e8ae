//! Users and their permissions, as clients and operators see them: files, connections and restarts.

use std::fs;

use lockwheel::{Error, Reply, Server};
use lockwheel_tests::daemon::{Daemon, Folder, command, run};
use lockwheel_tests::process::{eventually, output};
use lockwheel_tests::{blocked_clients, call, connect, start};

const NO_KEY: &[u8] = b"-NOPERM No permissions to access a key\r\n";

/// A user for locks.
const LOCKER: &str = "user locker on >s3cret ~lock:* &lock:* -@all +@lock +@pubsub +eval +blpop";

/// A folder with an ACL file, and its path.
fn acl_file(text: &str) -> (Folder, String) {
    let folder = Folder::new();
    let path = folder.path("users.acl");
    fs::write(&path, text).expect("a file");
    (folder, path)
}

fn server_with(path: &str) -> Result<Server, Error> {
    Server::builder().config("aclfile", path).start()
}

fn error_line(reply: Reply) -> String {
    let Reply::Error(line) = reply else { panic!("no error: {reply:?}") };
    String::from_utf8_lossy(&line).into_owned()
}

#[test]
fn users_of_a_file_exist_at_the_start_and_after_a_restart() {
    let (_folder, path) = acl_file(&format!("{LOCKER}\n"));
    let mut server = server_with(&path).expect("a server");
    for _ in 0..2 {
        let mut wire = connect(&server);
        assert_eq!(wire.call(&["AUTH", "locker", "s3cret"]), b"+OK\r\n");
        assert_eq!(wire.call(&["SET", "lock:1", "token", "NX", "PX", "30000"]), b"+OK\r\n");
        assert_eq!(wire.call(&["SET", "other", "token", "NX", "PX", "30000"]), NO_KEY);
        drop(wire);
        server.restart().expect("a server");
    }
}

#[test]
fn saved_users_exist_after_a_restart() {
    let (folder, path) = acl_file("");
    let mut server = server_with(&path).expect("a server");
    assert_eq!(call(&server, "ACL SETUSER new on >p ~k (%R~other +get)"), Reply::OK);
    assert_eq!(call(&server, "ACL SAVE"), Reply::OK);
    let text = fs::read_to_string(&path).expect("a file");
    assert!(!text.contains(">p"), "{text}");
    let names = fs::read_dir(folder.path("")).expect("a folder");
    let left = names.filter(|name| {
        let name = name.as_ref().expect("a name").file_name();
        name.to_string_lossy().starts_with("users.acl.tmp")
    });
    assert_eq!(left.count(), 0);
    let before = call(&server, "ACL LIST");
    server.restart().expect("a server");
    assert_eq!(call(&server, "ACL LIST"), before);
    // Users that are not saved are lost.
    assert_eq!(call(&server, "ACL SETUSER unsaved"), Reply::OK);
    server.restart().expect("a server");
    assert_eq!(call(&server, "ACL GETUSER unsaved"), Reply::Null);
}

#[test]
fn file_that_cannot_be_written_leaves_the_users() {
    let (folder, path) = acl_file(LOCKER);
    let server = server_with(&path).expect("a server");
    drop(folder);
    let save = server.call_raw(&["ACL", "SAVE"]).expect("a reply");
    assert!(error_line(save).starts_with("ERR There was an error trying to save the ACLs."));
    let load = error_line(server.call_raw(&["ACL", "LOAD"]).expect("a reply"));
    let expected =
        format!("ERR Error loading ACLs, opening file '{path}': No such file or directory");
    assert_eq!(load, expected);
    assert!(call(&server, "ACL GETUSER locker") != Reply::Null);
}

#[test]
fn loaded_file_replaces_users_and_closes_connections() {
    let (_folder, path) = acl_file(&format!("{LOCKER}\nuser other on nopass +ping"));
    let server = server_with(&path).expect("a server");
    let (mut locker, mut other) = (connect(&server), connect(&server));
    assert_eq!(locker.call(&["AUTH", "locker", "s3cret"]), b"+OK\r\n");
    assert_eq!(other.call(&["AUTH", "other", "x"]), b"+OK\r\n");
    fs::write(&path, "user locker on >s3cret ~lock:* +set +nosuch").expect("a file");
    let load = error_line(server.call_raw(&["ACL", "LOAD"]).expect("a reply"));
    assert_eq!(
        load,
        format!(
            "ERR {path}:1: Error in applying operation '+nosuch': Unknown command or category name \
             in ACL. WARNING: ACL errors detected, no change to the previously active ACL rules \
             was performed"
        )
    );
    assert_eq!(other.call(&["PING"]), b"+PONG\r\n");
    fs::write(&path, "user locker on >s3cret ~lock:* +set").expect("a file");
    assert_eq!(call(&server, "ACL LOAD"), Reply::OK);
    assert_eq!(other.read_to_close(), b"");
    let refused = b"-NOPERM User locker has no permissions to run the 'get' command\r\n";
    assert_eq!(locker.call(&["GET", "lock:1"]), refused);
    assert_eq!(locker.call(&["SET", "lock:1", "v"]), b"+OK\r\n");
}

#[test]
fn server_does_not_start_with_wrong_users() {
    let (_folder, path) = acl_file("user a +nosuch");
    let error = server_with(&path).expect_err("no server").to_string();
    assert!(error.contains("ACL errors: ") && error.contains("'+nosuch'"), "{error}");
    let missing = server_with("/nonexistent/users.acl").expect_err("no server").to_string();
    assert!(missing.contains("No such file or directory"), "{missing}");
    let both = Server::builder().config("user", "a on").config("aclfile", &path).start();
    let both = both.expect_err("no server").to_string();
    assert!(both.contains("an ACL file at the same time"), "{both}");
    let unknown = Server::builder().config("user", "a +nosuch").start();
    let unknown = unknown.expect_err("no server").to_string();
    assert!(unknown.contains("rule '+nosuch' for the user named 'a'"), "{unknown}");
}

#[test]
fn users_of_a_configuration_file_exist_at_the_start() {
    let folder = Folder::new();
    let file = folder.path("redis.conf");
    fs::write(&file, format!("port 0\nuser default off\n{LOCKER}\n")).expect("a file");
    let mut daemon = Daemon::start_in(folder, &[&file], "");
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    assert_eq!(wire.call(&["PING"]), b"-NOAUTH Authentication required.\r\n");
    assert_eq!(wire.call(&["AUTH", "locker", "s3cret"]), b"+OK\r\n");
    assert_eq!(wire.call(&["SET", "lock:1", "v"]), b"+OK\r\n");
    assert!(!daemon.log_text.contains("s3cret"), "{}", daemon.log_text);
}

#[test]
fn passwords_are_not_in_errors_and_process_titles() {
    for line in
        ["user a on >s3cret <other", "user a >s3cret %Q~", "user a #s3cret", "requirepass s3cret x"]
    {
        let folder = Folder::new();
        let file = folder.path("redis.conf");
        fs::write(&file, format!("port 0\n{line}\n")).expect("a file");
        let output = output(&mut command(&folder, &[&file])).expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(!output.status.success(), "{line}");
        assert!(text.contains("FATAL CONFIG FILE ERROR") && !text.contains("s3cret"), "{text}");
    }
    let refused = run(&["--port", "0", "--user", "a", "on", ">s3cret", "+nosuch"]);
    let text = [refused.stdout, refused.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(!refused.status.success() && !text.contains("s3cret"), "{text}");
    #[cfg(target_os = "linux")]
    {
        let mut daemon = Daemon::start(&["--port", "0", "--user", "a", "on", ">s3cret"]);
        let port = daemon.wait_for_port();
        let path = format!("/proc/{}/cmdline", daemon.process_id());
        let title = || String::from_utf8_lossy(&fs::read(&path).expect("a title")).into_owned();
        eventually("a title", || title().contains(&format!(" 127.0.0.1:{port}")));
        assert!(!title().contains("s3cret"), "{}", title());
    }
}

#[test]
fn passwords_are_not_in_the_slow_log_nor_shown_to_monitors() {
    let server = start(&[("slowlog-log-slower-than", "0")]);
    let (mut monitor, mut wire) = (connect(&server), connect(&server));
    assert_eq!(monitor.call(&["MONITOR"]), b"+OK\r\n");
    wire.call(&["ACL", "SETUSER", "locker", "on", ">s3cret"]);
    assert_eq!(wire.call(&["AUTH", "locker", "s3cret"]), b"+OK\r\n");
    assert_eq!(wire.call(&["HELLO", "2", "AUTH", "default", "s3cret"]).first(), Some(&b'*'));
    wire.call(&["ECHO", "the end"]);
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("the end") {
        shown.extend_from_slice(&monitor.read());
    }
    let slow = wire.call(&["SLOWLOG", "GET", "-1"]);
    for text in [shown, slow] {
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(!text.contains("s3cret") && text.contains("(redacted)"), "{text}");
    }
}

#[test]
fn embedding_program_may_do_everything() {
    let server = start(&[]);
    assert_eq!(call(&server, "ACL SETUSER default off resetkeys -@all"), Reply::OK);
    let mut wire = connect(&server);
    assert_eq!(wire.call(&["PING"]), b"-NOAUTH Authentication required.\r\n");
    assert_eq!(call(&server, "SET k v"), Reply::OK);
    // The client may run commands after it has authenticated as another user.
    assert_eq!(call(&server, "ACL SETUSER u on nopass ~a +get"), Reply::OK);
    let mut client = server.client().expect("a client");
    assert_eq!(client.call(&["AUTH", "u", "x"]).expect("a reply"), Reply::OK);
    let refused = client.call_raw(&["GET", "k"]).expect("a reply");
    assert_eq!(error_line(refused), "NOPERM No permissions to access a key");
}

#[test]
fn user_that_removes_itself_in_a_transaction_may_do_nothing_in_its_rest() {
    let server = start(&[]);
    assert_eq!(call(&server, "ACL SETUSER u on nopass ~* +@all"), Reply::OK);
    let mut wire = connect(&server);
    for command in ["AUTH u x", "MULTI", "ACL DELUSER u", "SET k v"] {
        assert!(wire.ask(command).starts_with('+'), "{command}");
    }
    let reply = wire.ask("EXEC");
    assert!(reply.starts_with("*2\r\n:1\r\n-NOPERM "), "{reply}");
    assert!(wire.closes());
    assert_eq!(call(&server, "EXISTS k"), Reply::Integer(0));
}

#[test]
fn group_that_is_named_as_an_option_hides_no_key() {
    let server = start(&[]);
    assert_eq!(call(&server, "ACL SETUSER u on nopass ~open +@all"), Reply::OK);
    for key in ["secret", "open"] {
        call(&server, &format!("XADD {key} 1-1 f v"));
        assert_eq!(call(&server, &format!("XGROUP CREATE {key} streams 0")), Reply::OK);
    }
    let mut wire = connect(&server);
    assert_eq!(wire.ask("AUTH u x"), "+OK\r\n");
    for keys in ["secret >", "secret open > >"] {
        let reply = wire.ask(&format!("XREADGROUP GROUP streams c STREAMS {keys}"));
        assert!(reply.starts_with("-NOPERM "), "{keys}: {reply}");
    }
    assert!(wire.ask("XREADGROUP GROUP streams c STREAMS open >").starts_with("*1\r\n"));
}

#[test]
fn subscriber_that_loses_a_right_is_disconnected() {
    for (request, rules, stays) in [
        ("SUBSCRIBE lock:1", "resetchannels &other", false),
        ("SUBSCRIBE lock:1", "resetchannels", false),
        ("SUBSCRIBE lock:1", "reset", false),
        ("SUBSCRIBE lock:1", "resetchannels &lock:1", true),
        ("SUBSCRIBE lock:1", "resetchannels &l*", true),
        ("SUBSCRIBE lock:1", "-@all resetkeys off", true),
        ("PSUBSCRIBE lock:*", "resetchannels &lock:1", false),
        ("PSUBSCRIBE lock:*", "resetchannels &lock:* &other", true),
    ] {
        let server = start(&[("user", &LOCKER["user ".len()..])]);
        let mut wire = connect(&server);
        assert_eq!(wire.call(&["AUTH", "locker", "s3cret"]), b"+OK\r\n");
        assert!(wire.ask(request).ends_with(":1\r\n"));
        assert_eq!(call(&server, &format!("ACL SETUSER locker {rules}")), Reply::OK);
        let received = call(&server, "PUBLISH lock:1 free");
        assert_eq!(received, Reply::Integer(i64::from(stays)), "{request}, {rules}");
        if stays {
            assert!(wire.read_text().contains("free"), "{request}, {rules}");
        } else {
            assert_eq!(wire.read_to_close(), b"", "{request}, {rules}");
        }
    }
}

/// The next client in the queue is served instead.
#[test]
fn blocked_client_is_checked_again_when_it_is_served() {
    let rules = [
        ("resetkeys", false),
        ("resetkeys ~other", false),
        ("resetkeys %R~lock:*", false),
        ("-@all", false),
        ("+@all resetkeys (~lock:* -@all +ping) (~other +@all)", false),
        // One pattern must permit all of the access.
        ("resetkeys %W~* %R~lock:?", false),
        ("resetkeys %W~lock:? %R~lock:?", true),
        ("-@all (~lock:* +@lock +blpop +bzpopmin)", true),
        ("off resetpass", true),
    ];
    let waits = [
        ("LOCK.ACQUIRE lock:1 OWNER TTL 9000 WAIT 600000", "LOCK.RELEASE lock:1 first"),
        ("BLPOP lock:2 0", "RPUSH lock:2 token"),
        ("BZPOPMIN lock:3 0", "ZADD lock:3 1 token"),
    ];
    for (rules, is_permitted) in rules {
        let server = start(&[("user", &LOCKER["user ".len()..])]);
        assert_eq!(call(&server, "ACL SETUSER locker +bzpopmin"), Reply::OK);
        let mut acquired = connect(&server);
        acquired.ask("LOCK.ACQUIRE lock:1 first TTL 600000");
        let mut wires = Vec::new();
        for (request, _) in waits {
            let (mut locker, mut next) = (connect(&server), connect(&server));
            assert_eq!(locker.ask("AUTH locker s3cret"), "+OK\r\n");
            for (wire, owner) in [(&mut locker, "second"), (&mut next, "third")] {
                let count = blocked_clients(&server);
                wire.send_line(&request.replace("OWNER", owner));
                eventually("a blocked client", || blocked_clients(&server) == count + 1);
            }
            wires.push((locker, next));
        }
        assert_eq!(call(&server, &format!("ACL SETUSER locker {rules}")), Reply::OK);
        for ((request, serves), (locker, next)) in waits.iter().zip(&mut wires) {
            assert!(!connect(&server).ask(serves).starts_with('-'), "{serves}");
            let reply = locker.read_text();
            assert_eq!(!reply.starts_with("-NOPERM"), is_permitted, "{rules}, {request}: {reply}");
            if !is_permitted {
                let reply = next.read_text();
                assert!(reply.starts_with('*'), "{rules}, {request}: {reply}");
            }
        }
        let waiting = if is_permitted { waits.len() } else { 0 };
        assert_eq!(blocked_clients(&server), waiting, "{rules}");
    }
}

/// The commands that act on a native lock.
const NATIVE: [&str; 6] = [
    "LOCK.ACQUIRE lock:1 owner TTL 9000",
    "LOCK.RENEW lock:1 owner TTL 9000",
    "LOCK.RELEASE lock:1 owner",
    "LOCK.VALIDATE lock:1 1",
    "LOCK.INFO lock:1",
    "LOCK.FORCE lock:1",
];

/// When they are checked, sent, queued before the rules change, and called by a script.
#[test]
fn native_locks_are_permitted_alike_however_they_are_called() {
    for (rules, permitted) in [
        ("+@lock ~lock:*", "ACQUIRE RENEW RELEASE VALIDATE INFO"),
        ("+@lock ~other", ""),
        ("+@lock %R~lock:*", "VALIDATE INFO"),
        ("+@all -@lock ~lock:*", "FORCE"),
        ("+@lock -lock.acquire ~lock:*", "RENEW RELEASE VALIDATE INFO"),
        ("-lock.acquire +@lock ~lock:*", "ACQUIRE RENEW RELEASE VALIDATE INFO"),
        ("+@lock ~lock:* (+lock.force ~lock:1)", "ACQUIRE RENEW RELEASE VALIDATE INFO FORCE"),
        ("+@lock ~lock:* (+lock.force ~lock:2)", "ACQUIRE RENEW RELEASE VALIDATE INFO"),
        ("~lock:* (+lock.info ~other)", ""),
    ] {
        let server = start(&[("user", "u on nopass +@all ~*")]);
        let [mut sends, mut queues] = [(); 2].map(|()| connect(&server));
        for wire in [&mut sends, &mut queues] {
            assert_eq!(wire.ask("AUTH u x"), "+OK\r\n");
        }
        assert_eq!(queues.ask("MULTI"), "+OK\r\n");
        for command in NATIVE {
            assert_eq!(queues.ask(command), "+QUEUED\r\n");
        }
        let rules_set = format!("ACL SETUSER u -@all resetkeys {rules} +eval +exec");
        assert_eq!(connect(&server).ask(&rules_set), "+OK\r\n");
        queues.send_line("EXEC");
        let queued = lockwheel_tests::frame_of(&queues.read()).items;
        for (at, command) in NATIVE.into_iter().enumerate() {
            let name = command.split(' ').next().and_then(|name| name.split('.').nth(1));
            let expected = permitted.split(' ').any(|permitted| Some(permitted) == name);
            let check = connect(&server).ask(&format!("ACL DRYRUN u {command}"));
            let sent = sends.ask(command);
            let mut words = vec!["EVAL", "return redis.call(unpack(ARGV))", "0"];
            words.extend(command.split(' '));
            let called = String::from_utf8_lossy(&sends.call(&words)).into_owned();
            let refused = ["-NOPERM", "-ERR ACL failure in script"];
            let is_permitted = |reply: &str| !refused.iter().any(|it| reply.starts_with(it));
            let queued = queued[at].bytes();
            assert_eq!(check.starts_with("+OK"), expected, "{rules}, {command}: {check}");
            for reply in [&*sent, &*called, &*String::from_utf8_lossy(&queued)] {
                assert_eq!(is_permitted(reply), expected, "{rules}, {command}: {reply}");
            }
        }
    }
}

#[test]
fn scripts_are_restricted_as_plans_and_in_lua() {
    for plans in ["yes", "no"] {
        let server = start(&[("user", &LOCKER["user ".len()..]), ("script-plans", plans)]);
        let mut wire = connect(&server);
        assert_eq!(wire.call(&["AUTH", "locker", "s3cret"]), b"+OK\r\n");
        let script = "return redis.call('set', ARGV[1], 'token', 'NX', 'PX', '30000')";
        for _ in 0..3 {
            let refused = wire.call(&["EVAL", script, "0", "other"]);
            let refused = String::from_utf8_lossy(&refused).into_owned();
            let expected = "-ERR ACL failure in script: No permissions to access a key script: ";
            assert!(refused.starts_with(expected), "plans {plans}: {refused}");
            assert_eq!(wire.call(&["EVAL", script, "0", "lock:1"]), b"+OK\r\n");
            assert_eq!(wire.call(&["DEL", "lock:1"]), b":1\r\n");
        }
        // Another client's script is not restricted.
        assert_eq!(connect(&server).call(&["EVAL", script, "0", "other"]), b"+OK\r\n");
    }
}

#[test]
fn hang_up_loads_the_users_anew() {
    let (_folder, path) = acl_file("user default on nopass ~* +@all\n");
    let write = |text: &str| fs::write(&path, text).expect("a file");
    let mut daemon = Daemon::start(&["--port", "0", "--aclfile", &path]);
    let port = daemon.wait_for_port();
    // The signal works without rights of the default user, too.
    write("user default off\nuser a on nopass +acl|whoami\n");
    daemon.signal("HUP");
    daemon.wait_for("Received SIGHUP: the users are loaded anew");
    let whoami = |user: &str| {
        let mut wire = daemon.connect(port);
        wire.call(&["AUTH", user, "x"]);
        String::from_utf8_lossy(&wire.call(&["ACL", "WHOAMI"])).into_owned()
    };
    assert_eq!(whoami("a"), "$1\r\na\r\n");
    write("user b on nopass +nosuchcommand\n");
    daemon.signal("HUP");
    let error = daemon.wait_for("# Received SIGHUP: the users stay as they are: ");
    assert!(error.contains("users.acl:1: "), "{error}");
    write("user default off\nuser b on nopass +acl|whoami\n");
    daemon.signal("HUP");
    daemon.wait_for("Received SIGHUP: the users are loaded anew");
    assert!(daemon.connect(port).call(&["AUTH", "b", "x"]).starts_with(b"+OK"));
}
